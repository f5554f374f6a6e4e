"""What a device in a real browser refuses: nothing is paid then, and nothing leaves the page."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest

import offaxis
from offaxis.formats.documents import new_key, sign_round
from offaxis.formats.release_file import to_bytes
from tests.browser.devices import WAITING, answer_instead, new_round, open_tab
from tests.collector.running import KEY, START, encoded, make_round
from tests.fuzz.forgery import put_together, take_apart

VECTOR = np.linspace(-1, 1, 6)
REPORT = "return device.report(values[0], values[1]);"


@pytest.fixture(scope="module")
def other(public) -> offaxis.Release:
    return offaxis.fit(None, public, epsilon=2, reshaping="none")


def refused(tab, name: str, error: str, paid: int = 0, **changes) -> str:
    """Report to a round, see that it is refused and that nothing left; return what was said."""
    sent = len(tab.uploads)
    found = tab.tell(REPORT, name, VECTOR.tolist(), **changes)
    assert found.get("error") == error, found
    assert tab.send() == []
    assert len(tab.uploads) == sent
    assert tab.spent()["reports"] == paid
    return str(found["message"])


def offered(round_, key=KEY, **changes) -> dict[str, str]:
    document = json.loads(round_.to_bytes())
    offer = {"document": document, "signature": encoded(sign_round(key, round_)), "state": "open"}
    return {"body": json.dumps(offer | changes), "content_type": "application/json"}


@pytest.mark.parametrize("changes", [{"limits": [{"epsilon": "2.999"}]}, {"epsilon": 2}])
def test_a_release_above_the_limit(collector, plain, tab, changes):
    name = new_round(collector, plain)
    said = refused(tab, name, "LimitExceeded", **changes)
    assert said.startswith("a report would promise ε = 3, δ = 0; this page gives up to ε = 2")


def test_a_release_for_another_unit(collector, plain, tab):
    refused(tab, new_round(collector, plain), "LimitExceeded", unit="user")


def test_a_release_for_users_is_answered_once(collector, plain, tab):
    release = replace(plain, unit="user")
    tab.options |= {"unit": "user", "limits": [{"epsilon": 100}]}
    tab.report(new_round(collector, release), VECTOR)
    tab.send()
    said = refused(tab, new_round(collector, release), "RoundRefused", paid=1)
    assert "one report a person" in said


def test_a_release_with_another_hash(collector, plain, other, tab):
    name = new_round(collector, plain)
    answer_instead(tab.page, f"**/v1/releases/{plain.hash}", body=to_bytes(other))
    assert plain.hash[:40] in refused(tab, name, "InvalidRelease")


def test_a_release_that_was_altered(collector, plain, tab):
    name = new_round(collector, plain)
    content = bytearray(to_bytes(plain))
    content[-1] ^= 1
    answer_instead(tab.page, f"**/v1/releases/{plain.hash}", body=bytes(content))
    refused(tab, name, "InvalidRelease")


def test_a_release_that_claims_less_than_it_takes(collector, plain, tab):
    """The claim is a lie, under a hash that fits it, in a round that the publisher signed."""
    draft = take_apart(to_bytes(plain))
    assert draft is not None
    draft.manifest["guarantee"]["epsilon"] = "1"
    content = put_together(draft)
    hash_ = re.search(rb"[0-9a-f]{64}", content).group().decode()
    name = new_round(collector, plain)
    round_ = make_round(plain, name).model_copy(update={"release": hash_})
    answer_instead(tab.page, f"**/v1/releases/{hash_}", body=content)
    answer_instead(tab.page, f"**/v1/rounds/{name}", **offered(round_))
    assert "but its parameters give ε=3" in refused(tab, name, "InvalidRelease")


def test_a_foreign_signature(collector, plain, tab):
    name = new_round(collector, plain)
    round_ = make_round(plain, name)
    answer_instead(tab.page, f"**/v1/rounds/{name}", **offered(round_, new_key()))
    assert "not signed by the publisher" in refused(tab, name, "InvalidDocument")


def test_what_is_no_signed_round(collector, plain, tab):
    name = new_round(collector, plain)
    wrong = (
        {"signature": None},
        {"signature": "AA=="},
        {"document": []},
        {"document": {"name": 1}},
    )
    for changes in wrong:
        answer_instead(
            tab.page, f"**/v1/rounds/{name}", **offered(make_round(plain, name), **changes)
        )
        refused(tab, name, "InvalidDocument")


def test_foreign_rounds_are_not_listed(collector, plain, tab):
    name = new_round(collector, plain)
    rounds = [make_round(plain, f"{name}-{i}") for i in range(2)]
    bodies = [offered(rounds[0])["body"], offered(rounds[1], new_key())["body"], "17"]
    answer_instead(tab.page, "**/v1/rounds", body='{"rounds": [' + ",".join(bodies) + "]}")
    listed = tab.ask("return (await device.rounds()).map((offer) => offer.round.name);")
    assert listed == [f"{name}-0"]


def test_another_round_than_was_asked_for(collector, plain, tab):
    name = new_round(collector, plain)
    answer_instead(tab.page, f"**/v1/rounds/{name}", **offered(make_round(plain, "another")))
    refused(tab, name, "RoundRefused")


def test_a_round_that_was_replaced(collector, plain, tab):
    """Begun, then signed anew with another end: refused, though the publisher did it."""
    name = new_round(collector, plain)
    tab.start(WAITING, name)
    tab.page.wait_for_function("() => window.go")
    tab.page.reload()
    changed = make_round(plain, name, closes=START + timedelta(days=9))
    answer_instead(tab.page, f"**/v1/rounds/{name}", **offered(changed))
    assert "was replaced" in refused(tab, name, "RoundRefused")


def test_a_round_that_leads_back(collector, plain, tab):
    late = new_round(collector, plain, study="ascending", number=5)
    early = new_round(collector, plain, study="ascending", number=4)
    same = new_round(collector, plain, study="ascending", number=5)
    tab.report(late, VECTOR)
    tab.send()
    for name in (early, same):
        assert "answered already" in refused(tab, name, "RoundRefused", paid=1)


def test_a_closed_round_and_a_wrong_group(collector, plain, tab):
    name = new_round(collector, plain, groups=("north",))
    assert "is one of north" in refused(tab, name, "InvalidInput")
    answer_instead(
        tab.page, f"**/v1/rounds/{name}", **offered(make_round(plain, name), state="closed")
    )
    assert refused(tab, name, "RoundRefused").endswith("is closed")


def test_a_budget_in_all_and_in_a_stretch_of_time(collector, plain, tab):
    tab.options["limits"] = [{"epsilon": 8}, {"epsilon": "3.5", "seconds": 3600}]
    names = [new_round(collector, plain) for _ in range(3)]
    later = "() => { const real = Date.now; Date.now = () => real() + 3_700_000; }"
    tab.report(names[0], VECTOR)
    tab.send()
    said = refused(tab, names[1], "BudgetExceeded", paid=1)
    assert "limit of ε = 7/2 in any 3600 seconds" in said
    tab.page.evaluate(later)
    tab.report(names[1], VECTOR)
    tab.send()
    tab.page.evaluate(later)
    assert "limit of ε = 8 in all" in refused(tab, names[2], "BudgetExceeded", paid=2)


def test_a_pinned_release_needs_no_publisher(collector, plain, other, context_of):
    tab = open_tab(context_of(), collector, release=plain.hash)
    del tab.options["publisher"]
    refused(tab, new_round(collector, other), "RoundRefused")
    name = new_round(collector, plain)
    tab.report(name, VECTOR)
    assert tab.send()[0]["state"] == "sent"


def test_a_browser_without_ed25519(collector, plain, tab):
    tab.page.evaluate("""() => {
      const real = crypto.subtle.importKey.bind(crypto.subtle);
      crypto.subtle.importKey = (form, key, algorithm, ...more) =>
        algorithm === "Ed25519"
          ? Promise.reject(new DOMException("Unrecognized name", "NotSupportedError"))
          : real(form, key, algorithm, ...more);
    }""")
    name = new_round(collector, plain)
    found = tab.tell(REPORT, name, VECTOR.tolist())
    assert found["error"] == "InvalidDocument"
    assert "cannot use the publisher's key" in found["message"]
    assert "hash of a release instead" in found["message"]
    del tab.options["publisher"]
    assert tab.report(name, VECTOR, release=plain.hash)["state"] == "queued"


def test_terms_by_which_anything_could_come_in(tab):
    wrong = (
        {"limits": []}, {"limits": None}, {"limits": [{"epsilon": 0}]}, {"unit": "house"},
        {"limits": [{"epsilon": 1, "seconds": -1}]}, {"token": "a b"}, {"release": "abc"},
        {"url": "http://collect.example"}, {"url": "collect"}, {"url": "https://a:b@collect.example"},
    )  # fmt: skip
    for changes in wrong:
        assert tab.tell("return 1;", **changes).get("error") == "InvalidInput", changes
    del tab.options["publisher"]
    assert tab.tell("return 1;")["error"] == "InvalidInput"


def test_what_is_too_large(collector, plain, tab):
    name = new_round(collector, plain)
    tab.page.evaluate(
        "() => { window.fetch = async () => new Response(new Uint8Array(8 * 2 ** 20 + 1)); }"
    )
    assert "larger than 8388608 bytes" in refused(tab, name, "Unreachable")
