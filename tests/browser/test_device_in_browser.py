"""A device in a real browser and a real collector: what is sent, when, and that it is sent once."""

from __future__ import annotations

import time
from contextlib import contextmanager

import numpy as np
import pytest

import offaxis
from offaxis.client.outbox import report_id
from tests.browser.devices import WAITING, answer_instead, new_round, open_tab, stored

VECTOR = np.linspace(-1, 1, 6)
OFTEN = {"limits": [{"epsilon": 9000}], "epsilon": 500}


@pytest.fixture(scope="module")
def exact(public) -> offaxis.Release:
    """A release of so large a budget that a decoded report is the vector, nearly."""
    return offaxis.fit(None, public, epsilon=500, reshaping="none", mechanism="laplace")


def now() -> int:
    """Return the time as a page tells it: whole milliseconds."""
    return int(1000 * time.time())


def test_a_report_is_taken_and_decoded(collector, exact, context_of):
    tab = open_tab(context_of(), collector, **OFTEN)
    name = new_round(collector, exact, groups=("north", "south"))
    offers = tab.ask("return (await device.rounds()).map((offer) => offer.round.name);")
    assert name in offers
    stopped = now()
    tab.page.clock.set_fixed_time(stopped / 1000)  # no wait is over, however short
    kept = tab.ask(
        "return device.report(values[0], async () => values[1], { group: 'north' });",
        name, VECTOR.tolist(),
    )  # fmt: skip
    assert (kept["state"], kept["attempts"], kept["group"]) == ("queued", 0, "north")
    assert 0 < kept["nextTry"] - stopped < 3_600_000
    assert tab.ask("return device.send();") == []
    assert tab.uploads == []
    (sent,) = tab.send()
    assert sent["state"] == "sent"
    ((id_, report),) = stored(collector, name)
    assert (id_, report.hex()) == (kept["id"], kept["report"])
    assert np.abs(exact.decode(report) - VECTOR).max() < 1
    assert tab.spent() == {"epsilon": "500", "reports": 1}
    # Answered once: the vector is not looked at again, and nothing is paid or sent.
    again = tab.ask("return device.report(values[0], () => { window.asked = true; });", name)
    assert again["report"] == kept["report"]
    assert not tab.page.evaluate("() => window.asked ?? false")
    assert tab.send() == []
    assert len(tab.uploads) == 1


def test_what_cannot_be_used_becomes_the_public_mean(collector, exact, context_of):
    tab = open_tab(context_of(), collector, **OFTEN)
    sources = (
        "null", "[1, 2]", "[NaN, 1, 2, 3, 4, 5]", "() => { throw new Error('no'); }",
        "async () => [1, '2', 3, 4, 5, 6]", "{ get length() { throw 1; } }",
    )  # fmt: skip
    kept = [
        tab.ask(f"return device.report(values[0], {source});", new_round(collector, exact))
        for source in sources
    ]
    decoded = exact.decode([bytes.fromhex(entry["report"]) for entry in kept])
    assert np.abs(decoded - exact.public_mean).max() < 1
    told = {(entry["state"], entry["problem"], len(entry["report"])) for entry in kept}
    assert told == {("queued", "", 2 * exact.report_size)}


def test_the_id_is_pythons_and_the_secret_cannot_be_read(collector, plain, tab):
    secret = bytes(range(32))
    tab.page.evaluate(
        """(bytes) => { crypto.subtle.generateKey = (...how) =>
          crypto.subtle.importKey("raw", Uint8Array.from(bytes), ...how); }""",
        list(secret),
    )
    name = new_round(collector, plain)
    assert tab.report(name, VECTOR)["id"] == report_id(secret, name).hex()
    read = """() => new Promise((resolve) => {
      const opening = indexedDB.open("offaxis");
      opening.onsuccess = () => {
        const found = opening.result.transaction("keys").objectStore("keys").get("device");
        found.onsuccess = () => resolve([found.result.type, found.result.extractable]);
      };
    })"""
    assert tab.page.evaluate(read) == ["secret", False]


def test_offline_it_waits_and_online_it_is_sent(collector, plain, context_of):
    context = context_of()
    tab = open_tab(context, collector, spread=0, patience=10)
    name = new_round(collector, plain)
    kept = tab.report(name, VECTOR)
    context.set_offline(True)
    tab.page.wait_for_function("() => !navigator.onLine")
    assert tab.send() == []
    tab.ask("device.keepSending({ every: 1 });")
    assert tab.status()[0]["attempts"] == 0
    context.set_offline(False)
    # The browser may say so before it is true: then the first tries fail, and waiting grows.
    end = time.monotonic() + 300
    while (found := tab.status()[0])["state"] != "sent":
        assert time.monotonic() < end, found
        tab.page.wait_for_timeout(200)
    assert [report.hex() for _, report in stored(collector, name)] == [kept["report"]]


def test_offline_nothing_is_paid_for_a_round_that_cannot_be_read(collector, plain, context_of):
    context = context_of()
    tab = open_tab(context, collector)
    name = new_round(collector, plain)
    tab.spent()  # the module is loaded
    context.set_offline(True)
    found = tab.tell("return device.report(values[0], values[1]);", name, VECTOR.tolist())
    assert found["error"] == "Unreachable"
    assert tab.spent()["reports"] == 0


@contextmanager
def slow(tab, latency: float, rate: float = -1):
    """Make a tab's network slow: milliseconds an exchange, bytes a second."""
    session = tab.page.context.new_cdp_session(tab.page)
    session.send("Network.enable")
    settings = {"offline": False, "latency": latency}
    session.send(
        "Network.emulateNetworkConditions",
        settings | {"downloadThroughput": rate, "uploadThroughput": rate},
    )
    yield
    session.detach()


def test_a_slow_network_is_waited_for(collector, plain, tab):
    name = new_round(collector, plain)
    tab.spent()
    with slow(tab, latency=150, rate=20_000):
        tab.report(name, VECTOR)
        assert tab.send()[0]["state"] == "sent"


def test_what_is_too_slow_is_tried_again_with_the_same_bytes(collector, plain, tab):
    name = new_round(collector, plain)
    kept = tab.report(name, VECTOR)
    with slow(tab, latency=3000):
        (tried,) = tab.ask("return device.send({ atOnce: true });", patience=0.2)
    assert (tried["state"], tried["attempts"]) == ("queued", 1)
    assert tried["problem"] == "the collector took over 0.2 s to answer"
    assert tried["nextTry"] <= now() + 30_000
    assert tab.send()[0]["state"] == "sent"
    assert [report.hex() for _, report in stored(collector, name)] == [kept["report"]]


@pytest.mark.parametrize("locks", [True, False], ids=["locks", "transaction alone"])
def test_two_tabs_at_once_make_one_report(collector, plain, context_of, locks):
    context = context_of()
    tabs = [open_tab(context, collector, spread=0) for _ in range(2)]
    name = new_round(collector, plain)
    if not locks:
        for tab in tabs:
            tab.page.evaluate("() => { navigator.locks.request = (name, action) => action(); }")
    for tab in tabs:
        tab.start(WAITING, name)
        if tab is tabs[0] or not locks:
            tab.page.wait_for_function("() => window.go")
    for tab in tabs:
        tab.page.evaluate("(vector) => window.go?.(vector)", VECTOR.tolist())
    kept = [tab.result() for tab in tabs]
    assert kept[0]["report"] == kept[1]["report"]
    assert tabs[0].spent() == {"epsilon": "3", "reports": 1}
    for tab in tabs:
        tab.start("return device.send();")
    assert sum(len(tab.result()) for tab in tabs) == 1
    assert sum(len(tab.uploads) for tab in tabs) == 1
    assert [report.hex() for _, report in stored(collector, name)] == [kept[0]["report"]]


def test_a_reload_between_the_steps_changes_nothing(collector, plain, tab):
    name = new_round(collector, plain)
    tab.start(WAITING, name)
    tab.page.wait_for_function("() => window.go")
    tab.page.reload()
    (begun,) = tab.status()
    assert (begun["state"], begun["report"]) == ("begun", None)
    assert tab.spent()["reports"] == 0
    kept = tab.report(name, VECTOR)
    assert kept["id"] == begun["id"]
    tab.page.reload()
    assert tab.status()[0]["report"] == kept["report"]
    # The report gets there, and the page is loaded again before the answer gets back.
    arrived: list[int] = []
    tab.page.route("**/reports/*", lambda route: arrived.append(route.fetch().status))
    tab.start("return device.send({ atOnce: true });")
    while not arrived:
        tab.page.wait_for_timeout(5)
    tab.page.reload()
    tab.page.unroute("**/reports/*")
    (left,) = tab.status()
    assert (left["state"], left["attempts"]) == ("queued", 1)
    assert tab.send()[0]["state"] == "sent"
    assert [report.hex() for _, report in stored(collector, name)] == [kept["report"]]


def test_a_vector_that_closes_its_tab_three_times_is_not_asked_again(collector, exact, context_of):
    context = context_of()
    name = new_round(collector, exact)
    for _ in range(3):
        tab = open_tab(context, collector, **OFTEN)
        tab.start(WAITING, name)
        tab.page.wait_for_function("() => window.go")
        tab.page.close()
    tab = open_tab(context, collector, **OFTEN)
    kept = tab.ask("return device.report(values[0], () => { window.asked = true; });", name)
    assert not tab.page.evaluate("() => window.asked ?? false")
    assert np.abs(exact.decode(bytes.fromhex(kept["report"])) - exact.public_mean).max() < 1


def test_a_report_is_withdrawn(collector, plain, context_of):
    tab = open_tab(context_of(), collector, limits=[{"epsilon": 9}])
    first, second = new_round(collector, plain), new_round(collector, plain)
    tab.report(first, VECTOR)
    assert tab.ask("return device.withdraw(values[0]);", first)["state"] == "withdrawn"
    assert tab.send() == []
    assert tab.uploads == []
    tab.report(second, VECTOR)
    tab.send()
    assert tab.ask("return device.withdraw(values[0]);", second)["state"] == "withdrawing"
    assert tab.send()[0]["state"] == "withdrawn"
    assert stored(collector, second) == []
    assert tab.spent() == {"epsilon": "6", "reports": 2}
    assert tab.tell("return device.withdraw('never');")["error"] == "InvalidInput"


ANSWERS = [
    # status, problem, Retry-After: state, seconds to wait at least and at most
    (503, "unavailable", "120", "queued", (120, 150)),
    (429, "too-many", "999999", "queued", (3 * 3600, 3 * 3600 + 30)),
    (409, "not-open", None, "queued", (0, 30)),
    (403, "forbidden", None, "queued", (0, 30)),
    (302, "elsewhere", None, "queued", (0, 30)),
    (409, "conflict", None, "refused", None),
    (410, "closed", None, "refused", None),
    (422, "invalid-report", None, "refused", None),
]


def test_answers_are_final_or_waited_for(collector, plain, context_of):
    tab = open_tab(context_of(), collector, limits=[{"epsilon": 100}])
    for status, kind, asked, state, wait in ANSWERS:
        tab.report(new_round(collector, plain), VECTOR)
        headers = {"Location": "/elsewhere", "Content-Type": "application/problem+json"}
        answer = {"status": status, "body": f'{{"type": "{kind}", "title": "said so"}}'}
        answer["headers"] = headers | ({"Retry-After": asked} if asked else {})
        answer_instead(tab.page, "**/reports/*", **answer)
        before = now()
        tried = tab.send()[-1]
        assert tried["state"] == state, kind
        assert status == 302 or tried["problem"] == f'{status}, "said so"'
        if wait:
            first, last = (1000 * seconds for seconds in wait)
            assert before + first <= tried["nextTry"] <= now() + last, kind
            tab.ask("return device.withdraw(values[0]);", tried["round"])
    assert not [one for one in tab.seen if "elsewhere" in one]
