"""If a collector lies about rounds or releases, the device sends nothing and pays nothing."""

from __future__ import annotations

import base64
import json
from fractions import Fraction

import numpy as np
import pytest

import offaxis
from offaxis.errors import OffaxisError, RoundRefused
from offaxis.formats.documents import RELEASE, new_key
from offaxis.formats.release_file import to_bytes
from offaxis.privacy.ledger import Limit
from tests.client.collectors import KEY, assert_refused, make_round, signed_entry
from tests.fuzz.forgery import content_hash, put_together, take_apart


@pytest.fixture(scope="module")
def greedy(head, public):
    """A release that costs ε = 50 per report."""
    return offaxis.fit(head, public, epsilon=50, mechanism="laplace")


def test_a_large_epsilon_is_refused_even_if_the_publisher_signed_it(
    collector, device, greedy, public
):
    collector.offer(greedy)
    assert_refused(collector, device, public[0], "ε = 50", "up to ε = 8")


def test_the_limit_per_report_holds_within_the_total_limit(collector, device_of, release, public):
    collector.offer(release)
    device = device_of(limits=[Limit(100)], epsilon="2.999")
    assert_refused(collector, device, public[0], "ε = 3")


def test_a_delta_is_refused_unless_allowed(collector, device_of, head, public):
    noisy = offaxis.fit(head, public, epsilon=2, mechanism="gaussian", delta=1e-6)
    collector.offer(noisy)
    assert_refused(collector, device_of("a"), public[0], "δ = 1e-06", "δ = 0")
    assert_refused(collector, device_of("b", delta=1e-7, limits=[Limit(8, 1e-3)]), public[0], "δ")
    device = device_of("c", delta=1e-6, limits=[Limit(8, 1e-3)])
    assert device.report("energy-1", public[0]).state == "queued"
    assert device.ledger.spent() == (2, Fraction(1, 10**6))


def test_a_manifest_that_lies_about_the_guarantee_is_refused(collector, device, greedy, public):
    """The file claims ε = 3 with parameters for 50; hash, round and signature match the file."""
    draft = take_apart(to_bytes(greedy))
    draft.manifest["guarantee"]["epsilon"] = "3"
    forged = content_hash(json.dumps(draft.manifest, sort_keys=True, separators=(",", ":")), draft)
    collector.rounds["energy-1"] = signed_entry(make_round(forged))
    collector.releases[forged] = put_together(draft)
    assert_refused(collector, device, public[0], "the manifest promises ε=3", "ε = 50")


def test_another_release_under_the_same_hash_is_refused(collector, device, release, greedy, public):
    collector.offer(release)
    collector.releases[release.hash] = to_bytes(greedy)
    assert_refused(collector, device, public[0], "expected")
    content = bytearray(to_bytes(release))
    content[-1] ^= 1
    collector.releases[release.hash] = bytes(content)
    assert_refused(collector, device, public[0], "altered or damaged")
    collector.releases[release.hash] = b""
    assert_refused(collector, device, public[0], "ends too early")


def test_a_release_is_fetched_once(collector, device, release, greedy, public):
    collector.offer(release)
    device.report("energy-1", public[0])
    collector.offer(release, name="energy-2", number=2)
    collector.releases[release.hash] = to_bytes(greedy)
    device.report("energy-2", public[0])
    assert sum("/v1/releases/" in request.path for request in collector.seen) == 1


def test_a_replaced_round_is_refused(collector, device, head, release, public):
    """The publisher itself signs another document under a name that the device has begun."""
    collector.offer(release)
    begun = make_round(release)
    device._outbox.begin(begun, None)
    collector.offer(offaxis.fit(head, public, epsilon=1, mechanism="laplace"))
    assert_refused(collector, device, public[0], "was replaced")
    collector.offer(release, keep_days=10_000)
    assert_refused(collector, device, public[0], "was replaced")


def test_a_round_replaced_after_it_was_answered_gets_the_old_bytes(
    collector, device, head, release, public
):
    collector.offer(release)
    first = device.report("energy-1", public[0])
    collector.offer(offaxis.fit(head, public, epsilon=1, mechanism="laplace"))
    assert device.report("energy-1", public[1]) == first
    device.send()
    assert [upload.body for upload in collector.uploads()] == [first.report]


@pytest.mark.parametrize("number", [0, 6, 7])
def test_a_rolled_back_round_is_refused(collector, device, release, public, number):
    collector.offer(release, name="energy-7", number=7)
    device.report("energy-7", public[0])
    device.send()
    collector.seen.clear()
    collector.offer(release, number=number)
    assert_refused(
        collector, device, public[0], f"number {number}", "number 7 was already answered"
    )
    collector.offer(release, name="water-1", study="water", number=0)
    assert device.report("water-1", public[0]).state == "queued", "studies are numbered separately"


def _unsigned(entry: dict) -> None:
    del entry["signature"]


def _foreign(entry: dict) -> None:
    entry.update(signed_entry(make_round(entry["document"]["release"]), new_key()))


def _in_another_role(entry: dict) -> None:
    """The publisher's signature of a release whose hash is the round's digest."""
    digest = make_round(entry["document"]["release"]).digest
    entry["signature"] = base64.b64encode(KEY.sign(RELEASE + digest)).decode()


def _changed(entry: dict) -> None:
    entry["document"]["keep_days"] += 1


def _extra_field(entry: dict) -> None:
    entry["document"]["epsilon"] = 1


def _no_document(entry: dict) -> None:
    entry["document"] = "energy-1"


def _deep(entry: dict) -> None:
    entry["document"]["groups"] = [[[[[]]]]]


@pytest.mark.parametrize(
    "tamper", [_unsigned, _foreign, _in_another_role, _changed, _extra_field, _no_document, _deep]
)
def test_a_round_that_the_publisher_did_not_sign_is_refused(
    collector, device, release, public, tamper
):
    collector.offer(release)
    tamper(collector.rounds["energy-1"])
    assert_refused(collector, device, public[0])
    assert device.rounds() == []


def test_a_round_under_another_name_or_a_closed_one_is_refused(collector, device, release, public):
    collector.offer(release, name="energy-2")
    collector.rounds["energy-1"] = collector.rounds["energy-2"]
    assert_refused(collector, device, public[0], "returned round energy-2")
    collector.offer(release)
    collector.rounds["energy-1"]["state"] = "closed"
    assert_refused(collector, device, public[0], "is closed")


def test_invalid_names_are_not_requested(collector, device):
    for name in ("../tokens", "energy-1/../x", "Energy", "", "a" * 64, "a?b", "a\n"):
        with pytest.raises(OffaxisError, match="not a valid name"):
            device.report(name, np.zeros(6))
    assert collector.seen == []


def test_invented_rounds_cost_at_most_the_limits(collector, device_of, release, public):
    """Without a publisher's key anyone can invent rounds of the release; the limits still hold."""
    device = device_of(publisher=None, release=release.hash, limits=[Limit(8)])
    for number in range(5):
        collector.offer(release, name=f"made-up-{number}", number=number)
        try:
            device.report(f"made-up-{number}", public[0])
        except offaxis.errors.BudgetExceeded:
            assert number >= 2
    device.send()
    assert len(collector.uploads()) == 2
    assert device.ledger.spent() == (6, 0)


def test_only_answered_rounds_advance_a_study(collector, device, release, public):
    """Otherwise a collector could block a study with a round that is never answered."""
    collector.offer(release, name="energy-9", number=9)
    device._outbox.begin(make_round(release, name="energy-9", number=9), None)
    collector.offer(release)
    device.report("energy-1", public[0])
    collector.offer(release, name="energy-0", number=0)
    with pytest.raises(RoundRefused, match="number 0"):
        device.report("energy-0", public[0])
