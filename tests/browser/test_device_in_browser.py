"""A device in a real browser with a real collector: it sends each report once, at its time."""

from __future__ import annotations

import time
from contextlib import contextmanager
from fractions import Fraction

import numpy as np
import pytest

import offaxis
from offaxis.client.outbox import report_id
from offaxis.decoding.pairs import CellsDecoder
from offaxis.encoding import Classes
from offaxis.encoding.pairs import pair_encoder, table_of
from offaxis.randomizers import KaryResponse
from tests.browser.devices import WAITING, new_round, open_tab, replace_response, stored
from tests.fuzz import seeds

VECTOR = np.linspace(-1, 1, 6)
OFTEN = {"limits": [{"epsilon": 9000}], "epsilon": 500}


@pytest.fixture(scope="module")
def exact(public) -> offaxis.Release:
    """A release with an ε so large that a decoded report is nearly the vector."""
    return offaxis.fit(None, public, epsilon=500, reshaping="none", mechanism="laplace")


def now() -> int:
    """Return the time as a page has it: integer milliseconds."""
    return int(1000 * time.time())


def test_a_report_is_accepted_and_decoded(collector, exact, context_of):
    tab = open_tab(context_of(), collector, **OFTEN)
    name = new_round(collector, exact, groups=("north", "south"))
    offers = tab.run("return (await device.rounds()).map((offer) => offer.round.name);")
    assert name in offers
    stopped = now()
    tab.page.clock.set_fixed_time(stopped / 1000)  # no wait ends, however short
    kept = tab.run(
        "return device.report(values[0], async () => values[1], { group: 'north' });",
        name, VECTOR.tolist(),
    )  # fmt: skip
    assert (kept["state"], kept["attempts"], kept["group"]) == ("queued", 0, "north")
    assert 0 < kept["nextTry"] - stopped < 3_600_000
    assert tab.run("return device.send();") == []
    assert tab.uploads == []
    (sent,) = tab.send()
    assert sent["state"] == "sent"
    ((id_, report),) = stored(collector, name)
    assert (id_, report.hex()) == (kept["id"], kept["report"])
    assert np.abs(exact.decode(report) - VECTOR).max() < 1
    assert tab.spent() == {"epsilon": "500", "reports": 1}
    # A second call does not evaluate the vector, and nothing is paid or sent.
    again = tab.run("return device.report(values[0], () => { window.called = true; });", name)
    # Its bytes are not kept: those of one permanent answer together would reveal it.
    assert (again["state"], again["report"], sent["report"]) == ("sent", None, None)
    assert not tab.page.evaluate("() => window.called ?? false")
    assert tab.send() == []
    assert len(tab.uploads) == 1


def test_an_unusable_vector_becomes_the_public_mean(collector, exact, context_of):
    tab = open_tab(context_of(), collector, **OFTEN)
    sources = (
        "null", "[1, 2]", "[NaN, 1, 2, 3, 4, 5]", "() => { throw new Error('no'); }",
        "async () => [1, '2', 3, 4, 5, 6]", "{ get length() { throw 1; } }",
    )  # fmt: skip
    kept = [
        tab.run(f"return device.report(values[0], {source});", new_round(collector, exact))
        for source in sources
    ]
    decoded = exact.decode([bytes.fromhex(entry["report"]) for entry in kept])
    assert np.abs(decoded - exact.public_mean).max() < 1
    visible = {(entry["state"], entry["problem"], len(entry["report"])) for entry in kept}
    assert visible == {("queued", "", 2 * exact.report_size)}


def test_a_pair_is_reported_and_an_unusable_one_does_not_show(collector, context_of):
    """Two cells by two answers or none, with an ε so large that a report is its symbol."""
    asked = (Classes(["no", "yes"], name="smoker", optional=True),)
    encoder = pair_encoder("cells", "relu")([np.eye(2)], [np.zeros(2)], table_of(asked))
    decoder = CellsDecoder(np.full(2, 1 / 2), np.array([3.0]))
    origin = seeds.releases()[0].provenance
    release = offaxis.Release(encoder, KaryResponse(6, Fraction(100)), decoder, origin, asked=asked)
    tab = open_tab(context_of(), collector, **OFTEN)
    sources = {
        "{ vector: [0, 1], answers: 'yes' }": 4,
        "{ vector: new Float64Array([1, 0]), answers: { smoker: 0 } }": 0,
        "async () => ({ vector: [0, 1], answers: null })": 5,
        "[0, 1, 1]": 4,  # the row of a pair
        # Anything else becomes a zero vector without an answer.
        "{ vector: [0, 1], answers: 'perhaps' }": 2,
        "{ vector: [0, NaN], answers: 'yes' }": 2,
        "{ vector: [0, 1] }": 2,
        "[0, 1]": 2,
        "null": 2,
        "() => { throw new Error('no'); }": 2,
    }
    for source, symbol in sources.items():
        name = new_round(collector, release)
        kept = tab.run(f"return device.report(values[0], {source});", name)
        assert bytes.fromhex(kept["report"])[12:] == bytes([symbol]), source
        assert (kept["state"], kept["problem"]) == ("queued", "")
    assert {entry["state"] for entry in tab.send()} == {"sent"}
    ((_, report),) = stored(collector, name)
    assert report.hex() == kept["report"]


def test_the_id_is_that_of_python_and_the_secret_cannot_be_exported(collector, plain, tab):
    secret = bytes(range(32))
    tab.page.evaluate(
        """(bytes) => { crypto.subtle.generateKey = (...options) =>
          crypto.subtle.importKey("raw", Uint8Array.from(bytes), ...options); }""",
        list(secret),
    )
    name = new_round(collector, plain)
    assert tab.report(name, VECTOR)["id"] == report_id(secret, name).hex()
    read = """() => new Promise((resolve) => {
      const opening = indexedDB.open("offaxis");
      opening.onsuccess = () => {
        const key = opening.result.transaction("keys").objectStore("keys").get("device");
        key.onsuccess = () => resolve([key.result.type, key.result.extractable]);
      };
    })"""
    assert tab.page.evaluate(read) == ["secret", False]


def test_a_report_waits_while_offline_and_is_sent_when_online(collector, plain, context_of):
    context = context_of()
    tab = open_tab(context, collector, spread=0, patience=10)
    name = new_round(collector, plain)
    kept = tab.report(name, VECTOR)
    context.set_offline(True)
    tab.page.wait_for_function("() => !navigator.onLine")
    assert tab.send() == []
    tab.run("device.keepSending({ every: 1 });")
    assert tab.status()[0]["attempts"] == 0
    context.set_offline(False)
    # The browser may report it too early: then the first attempts fail, and the waits grow.
    end = time.monotonic() + 300
    while (entry := tab.status()[0])["state"] != "sent":
        assert time.monotonic() < end, entry
        tab.page.wait_for_timeout(200)
    assert [report.hex() for _, report in stored(collector, name)] == [kept["report"]]


def test_nothing_is_paid_while_offline(collector, plain, context_of):
    context = context_of()
    tab = open_tab(context, collector)
    name = new_round(collector, plain)
    tab.spent()  # the module is loaded
    context.set_offline(True)
    outcome = tab.outcome("return device.report(values[0], values[1]);", name, VECTOR.tolist())
    assert outcome["error"] == "Unreachable"
    assert tab.spent()["reports"] == 0


@contextmanager
def slow(tab, latency: float, rate: float = -1):
    """Slow down a tab's network: latency in ms per exchange, rate in bytes per second."""
    session = tab.page.context.new_cdp_session(tab.page)
    session.send("Network.enable")
    settings = {"offline": False, "latency": latency}
    session.send(
        "Network.emulateNetworkConditions",
        settings | {"downloadThroughput": rate, "uploadThroughput": rate},
    )
    yield
    session.detach()


def test_a_report_is_sent_over_a_slow_network(collector, plain, tab):
    name = new_round(collector, plain)
    tab.spent()
    with slow(tab, latency=150, rate=20_000):
        tab.report(name, VECTOR)
        assert tab.send()[0]["state"] == "sent"


def test_a_timeout_is_retried_with_the_same_bytes(collector, plain, tab):
    name = new_round(collector, plain)
    kept = tab.report(name, VECTOR)
    with slow(tab, latency=3000):
        (entry,) = tab.run("return device.send({ atOnce: true });", patience=0.2)
    assert (entry["state"], entry["attempts"]) == ("queued", 1)
    assert entry["problem"] == "the collector took over 0.2 s to respond"
    assert entry["nextTry"] <= now() + 30_000
    assert tab.send()[0]["state"] == "sent"
    assert [report.hex() for _, report in stored(collector, name)] == [kept["report"]]


@pytest.mark.parametrize("locks", [True, False], ids=["locks", "transaction alone"])
def test_two_concurrent_tabs_make_one_report(collector, plain, context_of, locks):
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
    # The report arrives, and the page is reloaded before the response returns.
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


def test_a_vector_that_closes_its_tab_three_times_is_given_up(collector, exact, context_of):
    context = context_of()
    name = new_round(collector, exact)
    for _ in range(3):
        tab = open_tab(context, collector, **OFTEN)
        tab.start(WAITING, name)
        tab.page.wait_for_function("() => window.go")
        tab.page.close()
    tab = open_tab(context, collector, **OFTEN)
    kept = tab.run("return device.report(values[0], () => { window.called = true; });", name)
    assert not tab.page.evaluate("() => window.called ?? false")
    assert np.abs(exact.decode(bytes.fromhex(kept["report"])) - exact.public_mean).max() < 1


def test_a_report_is_withdrawn(collector, plain, context_of):
    tab = open_tab(context_of(), collector, limits=[{"epsilon": 9}])
    first, second = new_round(collector, plain), new_round(collector, plain)
    tab.report(first, VECTOR)
    assert tab.run("return device.withdraw(values[0]);", first)["state"] == "withdrawn"
    assert tab.send() == []
    assert tab.uploads == []
    tab.report(second, VECTOR)
    tab.send()
    assert tab.run("return device.withdraw(values[0]);", second)["state"] == "withdrawing"
    assert tab.send()[0]["state"] == "withdrawn"
    assert stored(collector, second) == []
    assert tab.spent() == {"epsilon": "6", "reports": 2}
    assert tab.outcome("return device.withdraw('never');")["error"] == "InvalidInput"


RESPONSES = [
    # status, problem, Retry-After, state, least and most seconds to wait
    (503, "unavailable", "120", "queued", (120, 150)),
    (429, "too-many", "999999", "queued", (3 * 3600, 3 * 3600 + 30)),
    (409, "not-open", None, "queued", (0, 30)),
    (403, "forbidden", None, "queued", (0, 30)),
    (302, "elsewhere", None, "queued", (0, 30)),
    (409, "conflict", None, "refused", None),
    (410, "closed", None, "refused", None),
    (422, "invalid-report", None, "refused", None),
]


def test_responses_are_final_or_lead_to_a_retry(collector, plain, context_of):
    tab = open_tab(context_of(), collector, limits=[{"epsilon": 100}])
    for status, kind, retry_after, state, wait in RESPONSES:
        tab.report(new_round(collector, plain), VECTOR)
        headers = {"Location": "/elsewhere", "Content-Type": "application/problem+json"}
        response = {"status": status, "body": f'{{"type": "{kind}", "title": "a title"}}'}
        response["headers"] = headers | ({"Retry-After": retry_after} if retry_after else {})
        replace_response(tab.page, "**/reports/*", **response)
        before = now()
        entry = tab.send()[-1]
        assert entry["state"] == state, kind
        assert status == 302 or entry["problem"] == f'{status}, "a title"'
        if wait:
            first, last = (1000 * seconds for seconds in wait)
            assert before + first <= entry["nextTry"] <= now() + last, kind
            tab.run("return device.withdraw(values[0]);", entry["round"])
    assert not [request for request in tab.seen if "elsewhere" in request]
