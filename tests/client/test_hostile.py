"""A collector that lies about rounds and releases: the device sends nothing and pays nothing."""

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
from tests.client.collectors import KEY, a_round, offered, refused
from tests.fuzz.forgery import content_hash, put_together, take_apart


@pytest.fixture(scope="module")
def greedy(head, public):
    """A release that spends ε = 50 a report."""
    return offaxis.fit(head, public, epsilon=50)


def test_a_large_budget_is_refused_though_the_publisher_signed_it(
    collector, device, greedy, public
):
    collector.offer(greedy)
    refused(collector, device, public[0], "ε = 50", "up to ε = 8")


def test_a_limit_for_one_report_holds_below_the_limit_for_all(
    collector, device_of, release, public
):
    collector.offer(release)
    device = device_of(limits=[Limit(100)], epsilon="2.999")
    refused(collector, device, public[0], "ε = 3")


def test_a_delta_is_refused_unless_it_was_allowed(collector, device_of, head, public):
    noisy = offaxis.fit(head, public, epsilon=2, mechanism="gaussian", delta=1e-6)
    collector.offer(noisy)
    refused(collector, device_of("a"), public[0], "δ = 1e-06", "δ = 0")
    refused(collector, device_of("b", delta=1e-7, limits=[Limit(8, 1e-3)]), public[0], "δ")
    device = device_of("c", delta=1e-6, limits=[Limit(8, 1e-3)])
    assert device.report("energy-1", public[0]).state == "queued"
    assert device.ledger.spent() == (2, Fraction(1, 10**6))


def test_a_manifest_that_lies_about_the_budget(collector, device, greedy, public):
    """The file claims ε = 3 with parameters of 50; hash, round and signature fit the file."""
    draft = take_apart(to_bytes(greedy))
    draft.manifest["guarantee"]["epsilon"] = "3"
    found = content_hash(json.dumps(draft.manifest, sort_keys=True, separators=(",", ":")), draft)
    collector.rounds["energy-1"] = offered(a_round(found))
    collector.releases[found] = put_together(draft)
    refused(collector, device, public[0], "the manifest promises ε=3", "ε = 50")


def test_another_release_under_the_hash(collector, device, release, greedy, public):
    collector.offer(release)
    collector.releases[release.hash] = to_bytes(greedy)
    refused(collector, device, public[0], "expected")
    content = bytearray(to_bytes(release))
    content[-1] ^= 1
    collector.releases[release.hash] = bytes(content)
    refused(collector, device, public[0], "altered or damaged")
    collector.releases[release.hash] = b""
    refused(collector, device, public[0], "ends too early")


def test_a_release_once_known_is_not_asked_for_again(collector, device, release, greedy, public):
    collector.offer(release)
    device.report("energy-1", public[0])
    collector.offer(release, name="energy-2", number=2)
    collector.releases[release.hash] = to_bytes(greedy)
    device.report("energy-2", public[0])
    assert sum("/v1/releases/" in request.path for request in collector.seen) == 1


def test_a_round_replaced_under_its_name(collector, device, head, release, public):
    """The publisher itself signs another document under a name that the device knows."""
    collector.offer(release)
    begun = a_round(release)
    device._outbox.begin(begun, None)
    collector.offer(offaxis.fit(head, public, epsilon=1))
    refused(collector, device, public[0], "was replaced")
    collector.offer(release, keep_days=10_000)
    refused(collector, device, public[0], "was replaced")


def test_an_answered_round_that_is_replaced_gets_the_old_bytes_or_nothing(
    collector, device, head, release, public
):
    collector.offer(release)
    first = device.report("energy-1", public[0])
    collector.offer(offaxis.fit(head, public, epsilon=1))
    assert device.report("energy-1", public[1]) == first
    device.send()
    assert [upload.body for upload in collector.uploads()] == [first.report]


@pytest.mark.parametrize("number", [0, 6, 7])
def test_a_rolled_back_round(collector, device, release, public, number):
    collector.offer(release, name="energy-7", number=7)
    device.report("energy-7", public[0])
    device.send()
    collector.seen.clear()
    collector.offer(release, number=number)
    refused(collector, device, public[0], f"number {number}", "number 7 was answered")
    collector.offer(release, name="water-1", study="water", number=0)
    assert device.report("water-1", public[0]).state == "queued", "another study has its own count"


def _unsigned(entry: dict) -> None:
    del entry["signature"]


def _foreign(entry: dict) -> None:
    entry.update(offered(a_round(entry["document"]["release"]), new_key()))


def _in_another_role(entry: dict) -> None:
    """The publisher's signature of a release whose hash is the round's digest."""
    digest = a_round(entry["document"]["release"]).digest
    entry["signature"] = base64.b64encode(KEY.sign(RELEASE + digest)).decode()


def _changed(entry: dict) -> None:
    entry["document"]["keep_days"] += 1


def _further_field(entry: dict) -> None:
    entry["document"]["epsilon"] = 1


def _no_document(entry: dict) -> None:
    entry["document"] = "energy-1"


def _deep(entry: dict) -> None:
    entry["document"]["groups"] = [[[[[]]]]]


@pytest.mark.parametrize(
    "tamper", [_unsigned, _foreign, _in_another_role, _changed, _further_field, _no_document, _deep]
)
def test_a_round_that_the_publisher_did_not_sign(collector, device, release, public, tamper):
    collector.offer(release)
    tamper(collector.rounds["energy-1"])
    refused(collector, device, public[0])
    assert device.rounds() == []


def test_a_round_under_another_name_or_closed(collector, device, release, public):
    collector.offer(release, name="energy-2")
    collector.rounds["energy-1"] = collector.rounds["energy-2"]
    refused(collector, device, public[0], "gives round energy-2")
    collector.offer(release)
    collector.rounds["energy-1"]["state"] = "closed"
    refused(collector, device, public[0], "is closed")


def test_names_that_lead_elsewhere_are_not_asked_for(collector, device):
    for name in ("../tokens", "energy-1/../x", "Energy", "", "a" * 64, "a?b", "a\n"):
        with pytest.raises(OffaxisError, match="no name"):
            device.report(name, np.zeros(6))
    assert collector.seen == []


def test_many_false_rounds_cost_no_more_than_the_limits(collector, device_of, release, public):
    """Without a publisher's key anybody can make up rounds of the release: the ledger stands."""
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


def test_only_answers_push_a_study_forward(collector, device, release, public):
    """Otherwise a collector could lock a study by a round that is never answered."""
    collector.offer(release, name="energy-9", number=9)
    device._outbox.begin(a_round(release, name="energy-9", number=9), None)
    collector.offer(release)
    device.report("energy-1", public[0])
    collector.offer(release, name="energy-0", number=0)
    with pytest.raises(RoundRefused, match="number 0"):
        device.report("energy-0", public[0])
