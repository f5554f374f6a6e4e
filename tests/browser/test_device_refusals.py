"""Rounds and releases that a device in a real browser refuses, without paying or sending."""

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
from tests.browser.devices import WAITING, new_round, open_tab, replace_response
from tests.collector.running import KEY, START, encoded, make_round
from tests.fuzz.forgery import put_together, take_apart

VECTOR = np.linspace(-1, 1, 6)
REPORT = "return device.report(values[0], values[1]);"


@pytest.fixture(scope="module")
def other(public) -> offaxis.Release:
    return offaxis.fit(None, public, epsilon=2, reshaping="none", mechanism="laplace")


def assert_refused(tab, name: str, error: str, paid: int = 0, **changes) -> str:
    """Check that a round is refused and nothing is sent; return the message."""
    sent = len(tab.uploads)
    outcome = tab.outcome(REPORT, name, VECTOR.tolist(), **changes)
    assert outcome.get("error") == error, outcome
    assert tab.send() == []
    assert len(tab.uploads) == sent
    assert tab.spent()["reports"] == paid
    return str(outcome["message"])


def signed_response(round_, key=KEY, **changes) -> dict[str, str]:
    document = json.loads(round_.to_bytes())
    offer = {"document": document, "signature": encoded(sign_round(key, round_)), "state": "open"}
    return {"body": json.dumps(offer | changes), "content_type": "application/json"}


@pytest.mark.parametrize("changes", [{"limits": [{"epsilon": "2.999"}]}, {"epsilon": 2}])
def test_a_release_above_the_limit_is_refused(collector, plain, tab, changes):
    name = new_round(collector, plain)
    message = assert_refused(tab, name, "LimitExceeded", **changes)
    assert message.startswith("a report would have ε = 3, δ = 0; this page allows up to ε = 2")


def test_a_release_with_another_unit_is_refused(collector, plain, tab):
    assert_refused(tab, new_round(collector, plain), "LimitExceeded", unit="user")


def test_a_release_for_users_is_answered_once(collector, plain, tab):
    release = replace(plain, unit="user")
    tab.options |= {"unit": "user", "limits": [{"epsilon": 100}]}
    tab.report(new_round(collector, release), VECTOR)
    tab.send()
    message = assert_refused(tab, new_round(collector, release), "RoundRefused", paid=1)
    assert "one report or one sequence per person" in message


def test_a_release_with_another_hash_is_refused(collector, plain, other, tab):
    name = new_round(collector, plain)
    replace_response(tab.page, f"**/v1/releases/{plain.hash}", body=to_bytes(other))
    assert plain.hash[:40] in assert_refused(tab, name, "InvalidRelease")


def test_an_altered_release_is_refused(collector, plain, tab):
    name = new_round(collector, plain)
    content = bytearray(to_bytes(plain))
    content[-1] ^= 1
    replace_response(tab.page, f"**/v1/releases/{plain.hash}", body=bytes(content))
    assert_refused(tab, name, "InvalidRelease")


def test_a_release_with_a_false_claim_is_refused(collector, plain, tab):
    """The claimed ε is too small, with a matching hash, in a round that the publisher signed."""
    draft = take_apart(to_bytes(plain))
    assert draft is not None
    draft.manifest["guarantee"]["epsilon"] = "1"
    content = put_together(draft)
    hash_ = re.search(rb"[0-9a-f]{64}", content).group().decode()
    name = new_round(collector, plain)
    round_ = make_round(plain, name).model_copy(update={"release": hash_})
    replace_response(tab.page, f"**/v1/releases/{hash_}", body=content)
    replace_response(tab.page, f"**/v1/rounds/{name}", **signed_response(round_))
    assert "but its parameters give ε=3" in assert_refused(tab, name, "InvalidRelease")


def test_a_foreign_signature_is_refused(collector, plain, tab):
    name = new_round(collector, plain)
    round_ = make_round(plain, name)
    replace_response(tab.page, f"**/v1/rounds/{name}", **signed_response(round_, new_key()))
    assert "not signed by the publisher" in assert_refused(tab, name, "InvalidDocument")


def test_a_malformed_round_is_refused(collector, plain, tab):
    name = new_round(collector, plain)
    malformed = (
        {"signature": None},
        {"signature": "AA=="},
        {"document": []},
        {"document": {"name": 1}},
    )
    for changes in malformed:
        replace_response(
            tab.page, f"**/v1/rounds/{name}", **signed_response(make_round(plain, name), **changes)
        )
        assert_refused(tab, name, "InvalidDocument")


def test_foreign_rounds_are_not_listed(collector, plain, tab):
    name = new_round(collector, plain)
    rounds = [make_round(plain, f"{name}-{i}") for i in range(2)]
    bodies = [
        signed_response(rounds[0])["body"],
        signed_response(rounds[1], new_key())["body"],
        "17",
    ]
    replace_response(tab.page, "**/v1/rounds", body='{"rounds": [' + ",".join(bodies) + "]}")
    listed = tab.run("return (await device.rounds()).map((offer) => offer.round.name);")
    assert listed == [f"{name}-0"]


def test_another_round_than_the_requested_one_is_refused(collector, plain, tab):
    name = new_round(collector, plain)
    replace_response(
        tab.page, f"**/v1/rounds/{name}", **signed_response(make_round(plain, "another"))
    )
    assert_refused(tab, name, "RoundRefused")


def test_a_replaced_round_is_refused(collector, plain, tab):
    """Begun, then signed again by the publisher with another closing time."""
    name = new_round(collector, plain)
    tab.start(WAITING, name)
    tab.page.wait_for_function("() => window.go")
    tab.page.reload()
    changed = make_round(plain, name, closes=START + timedelta(days=9))
    replace_response(tab.page, f"**/v1/rounds/{name}", **signed_response(changed))
    assert "was replaced" in assert_refused(tab, name, "RoundRefused")


def test_a_rolled_back_round_is_refused(collector, plain, tab):
    late = new_round(collector, plain, study="ascending", number=5)
    early = new_round(collector, plain, study="ascending", number=4)
    same = new_round(collector, plain, study="ascending", number=5)
    tab.report(late, VECTOR)
    tab.send()
    for name in (early, same):
        assert "already answered" in assert_refused(tab, name, "RoundRefused", paid=1)


def test_a_closed_round_and_a_wrong_group_are_refused(collector, plain, tab):
    name = new_round(collector, plain, groups=("north",))
    assert "must be one of north" in assert_refused(tab, name, "InvalidInput")
    replace_response(
        tab.page, f"**/v1/rounds/{name}", **signed_response(make_round(plain, name), state="closed")
    )
    assert assert_refused(tab, name, "RoundRefused").endswith("is closed")


def test_limits_hold_in_total_and_within_a_period(collector, plain, tab):
    tab.options["limits"] = [{"epsilon": 8}, {"epsilon": "3.5", "seconds": 3600}]
    names = [new_round(collector, plain) for _ in range(3)]
    later = "() => { const real = Date.now; Date.now = () => real() + 3_700_000; }"
    tab.report(names[0], VECTOR)
    tab.send()
    message = assert_refused(tab, names[1], "BudgetExceeded", paid=1)
    assert "limit of ε = 7/2 in any 3600 seconds" in message
    tab.page.evaluate(later)
    tab.report(names[1], VECTOR)
    tab.send()
    tab.page.evaluate(later)
    assert "limit of ε = 8 in all" in assert_refused(tab, names[2], "BudgetExceeded", paid=2)


def test_a_pinned_release_needs_no_publisher(collector, plain, other, context_of):
    tab = open_tab(context_of(), collector, release=plain.hash)
    del tab.options["publisher"]
    assert_refused(tab, new_round(collector, other), "RoundRefused")
    name = new_round(collector, plain)
    tab.report(name, VECTOR)
    assert tab.send()[0]["state"] == "sent"


def test_a_browser_without_ed25519_needs_a_pinned_release(collector, plain, tab):
    tab.page.evaluate("""() => {
      const real = crypto.subtle.importKey.bind(crypto.subtle);
      crypto.subtle.importKey = (form, key, algorithm, ...more) =>
        algorithm === "Ed25519"
          ? Promise.reject(new DOMException("Unrecognized name", "NotSupportedError"))
          : real(form, key, algorithm, ...more);
    }""")
    name = new_round(collector, plain)
    outcome = tab.outcome(REPORT, name, VECTOR.tolist())
    assert outcome["error"] == "InvalidDocument"
    assert "cannot use the publisher's key" in outcome["message"]
    assert "hash of a release instead" in outcome["message"]
    del tab.options["publisher"]
    assert tab.report(name, VECTOR, release=plain.hash)["state"] == "queued"


def test_invalid_options_are_rejected(tab):
    invalid = (
        {"limits": []}, {"limits": None}, {"limits": [{"epsilon": 0}]}, {"unit": "house"},
        {"limits": [{"epsilon": 1, "seconds": -1}]}, {"token": "a b"}, {"release": "abc"},
        {"url": "http://collect.example"}, {"url": "collect"}, {"url": "https://a:b@collect.example"},
    )  # fmt: skip
    for changes in invalid:
        assert tab.outcome("return 1;", **changes).get("error") == "InvalidInput", changes
    del tab.options["publisher"]
    assert tab.outcome("return 1;")["error"] == "InvalidInput"


def test_a_response_that_is_too_large_is_an_error(collector, plain, tab):
    name = new_round(collector, plain)
    tab.page.evaluate(
        "() => { window.fetch = async () => new Response(new Uint8Array(8 * 2 ** 20 + 1)); }"
    )
    assert "larger than 8388608 bytes" in assert_refused(tab, name, "Unreachable")
