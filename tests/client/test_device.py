"""A device answers a round once, pays once, and always sends the same bytes."""

from __future__ import annotations

import os
import re
import sqlite3
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import offaxis
from offaxis.client import Reporter
from offaxis.client.outbox import report_id
from offaxis.errors import BudgetExceeded, InvalidInput, InvalidRelease, RoundRefused
from offaxis.privacy import Limit
from offaxis.randomizers import CustomRandomizer, register
from tests.client.collectors import PUBLISHER, make_round
from tests.forks import in_child


def test_a_round_is_answered_and_its_report_arrives(collector, device, release, public):
    round_ = collector.offer(release, groups=("north", "south"))
    assert [(o.round, o.state) for o in device.rounds()] == [(round_, "open")]
    entry = device.report("energy-1", public[0], "north")
    assert entry.state == "queued"
    assert not collector.uploads(), "nothing leaves before send()"
    (sent,) = device.send()
    assert sent.state == "sent"
    (upload,) = collector.uploads()
    assert upload.body == entry.report
    assert upload.path.endswith(entry.id.hex())
    assert upload.headers["offaxis-group"] == "north"
    assert release.decode(upload.body).shape == (6,)
    assert device.ledger.spent() == (3, 0)
    assert device.send() == []


def test_a_round_is_paid_for_once_and_never_randomized_again(collector, device_of, release, public):
    collector.offer(release)
    first = device_of().report("energy-1", public[0])
    again = device_of()

    def fail():
        raise AssertionError("the vector was evaluated again")

    for vector in (public[1], fail, None):
        assert again.report("energy-1", vector).report == first.report
    assert again.ledger.spent() == (3, 0)


def test_the_id_is_the_hmac_of_the_round(collector, device, device_of, release, public, tmp_path):
    collector.offer(release)
    entry = device.report("energy-1", public[0])
    assert entry.id == report_id(device.ledger.secret(b"other"), "energy-1")
    assert device_of("other.device").report("energy-1", public[0]).id != entry.id
    assert report_id(b"k", "a") != report_id(b"k", "b")
    assert (tmp_path / "my.device").stat().st_mode & 0o077 == 0


def test_limits_hold_over_all_rounds(collector, device, release, public):
    for number in range(1, 4):
        collector.offer(release, name=f"energy-{number}", number=number)
    device.report("energy-1", public[0])
    device.report("energy-2", public[0])
    with pytest.raises(BudgetExceeded):
        device.report("energy-3", public[0])
    device.send()
    assert len(collector.uploads()) == 2
    assert device.ledger.spent() == (6, 0)


def test_a_pinned_release_needs_no_publisher(collector, device_of, head, public, release):
    other = offaxis.fit(head, public, epsilon=2, mechanism="laplace")
    collector.offer(release)
    collector.offer(other, name="energy-2", number=2)
    for entry in collector.rounds.values():
        entry.pop("signature")
    device = device_of(publisher=None, release=release.hash)
    assert [offer.round.name for offer in device.rounds()] == ["energy-1"]
    device.report("energy-1", public[0])
    with pytest.raises(RoundRefused, match="only"):
        device.report("energy-2", public[0])


def test_a_release_for_users_is_answered_once(collector, device_of, head, public):
    once = offaxis.fit(head, public, epsilon=2, unit="user", mechanism="laplace")
    for number in (1, 2):
        collector.offer(once, name=f"energy-{number}", number=number)
    # A device that asks for less, one promise per item, keeps the stronger one.
    device_of("items").report("energy-1", public[0])
    with pytest.raises(RoundRefused, match="one report or one sequence per person"):
        device_of("items").report("energy-2", public[0])
    device = device_of(unit="user")
    device.report("energy-1", public[0])
    with pytest.raises(RoundRefused, match="one report or one sequence per person"):
        device.report("energy-2", public[0])
    assert device.ledger.spent() == (2, 0)


def test_a_device_for_users_needs_a_release_for_users(collector, device_of, release, public):
    collector.offer(release)
    with pytest.raises(RoundRefused, match="per item; this device requires one per user"):
        device_of(unit="user").report("energy-1", public[0])


def test_a_randomizer_of_another_package_is_refused(collector, device_of, head, public):
    """Although it is installed here: a device must not run whatever a release names."""

    @register
    @dataclass(frozen=True)
    class Loud(CustomRandomizer):
        kind = "tests.loud"
        payload_size = 1

        def report(self, W, entropy):
            raise AssertionError("it was asked for a report")

    foreign = offaxis.fit(head, public, epsilon=1, mechanism=Loud)
    collector.offer(foreign)
    device = device_of()
    with pytest.raises(InvalidRelease, match="devices and collectors accept no such release"):
        device.report("energy-1", public[0])
    assert device.ledger.spent() == (0, 0)


def test_by_default_one_report_may_have_the_least_limit_in_all(collector, device_of, head, public):
    """A sequence has its cost in all; in each period only what is drawn and reported counts."""
    classes = offaxis.fit(head, public, epsilon=2, mechanism="class-response")
    collector.offer(offaxis.memoise(classes, draws=4, period=10))
    limits = (Limit(8), Limit(5, seconds=86_400))
    assert device_of("both", limits=limits).terms.most.epsilon == 8
    device_of("both", limits=limits).report("energy-1", public[0])
    small = device_of("small", limits=(Limit(7),))
    with pytest.raises(RoundRefused, match="a sequence would have ε = 8"):
        small.report("energy-1", public[0])
    assert device_of("period", limits=(limits[1],)).terms.most.epsilon == 5


def test_a_study_has_one_report_per_person_whatever_its_releases(
    collector, device_of, head, public
):
    """A publisher who changes the release must not get a second report of a person."""
    for number, percentile in ((1, 90), (2, 80)):
        release = offaxis.fit(
            head, public, epsilon=2, unit="user", mechanism="laplace", percentile=percentile
        )
        collector.offer(release, name=f"energy-{number}", number=number)
    collector.offer(release, name="steps-1", study="steps")
    device = device_of(unit="user")
    device.report("energy-1", public[0])
    with pytest.raises(RoundRefused, match="study energy allows one report"):
        device.report("energy-2", public[0])
    device.report("steps-1", public[0])
    assert device.ledger.spent() == (4, 0)


def test_the_group_must_be_one_of_the_round(collector, device, release, public):
    collector.offer(release, groups=("north", "south"))
    for group in ("elsewhere", None):
        with pytest.raises(InvalidInput, match="must be one of north, south"):
            device.report("energy-1", public[0], group)
    collector.offer(release)
    with pytest.raises(InvalidInput, match="must be None"):
        device.report("energy-1", public[0], "north")
    assert device.status() == []


def test_a_report_that_never_left_is_withdrawn_at_once(collector, device, release, public):
    collector.offer(release)
    device.report("energy-1", public[0])
    assert device.withdraw("energy-1").state == "withdrawn"
    assert device.send(at_once=True) == []
    assert not collector.uploads()
    assert device.report("energy-1", public[0]).state == "withdrawn"
    with pytest.raises(InvalidInput, match="not answered"):
        device.withdraw("energy-2")


def test_a_sent_report_is_withdrawn_at_the_collector(collector, device, release, public):
    collector.offer(release)
    device.report("energy-1", public[0])
    device.send()
    assert device.withdraw("energy-1").state == "withdrawing"
    assert device.send()[0].state == "withdrawn"
    assert list(collector.stored.values()) == [None]
    assert device.ledger.spent() == (3, 0)


def test_first_sends_are_spread_and_a_wrong_clock_does_not_prevent_them(
    collector, device_of, release, public, monkeypatch
):
    collector.offer(release)
    device = device_of(spread=1000.0)
    before = time.time()
    entry = device.report("energy-1", public[0])
    now = time.time()
    assert before <= entry.next_try <= now + 1000
    monkeypatch.setattr(time, "time", lambda: now - 10.0**8)
    slow = device_of("slow clock", spread=1000.0)
    assert slow.report("energy-1", public[0]).state == "queued"
    monkeypatch.setattr(time, "time", lambda: now + 10.0**10)
    assert slow.send()[0].state == "sent", "however wrong the clock, the round is answered"
    assert device_of("fast clock").report("energy-1", public[0]).state == "queued"


def test_the_first_wait_ends_before_the_round_closes(device_of, release, monkeypatch):
    round_ = make_round(release)
    monkeypatch.setattr(time, "time", lambda: round_.closes.timestamp() - 10)
    waits = [device_of(spread=1000.0)._first_wait(round_) for _ in range(20)]
    assert max(waits) <= 5


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    steps=st.lists(
        st.sampled_from(["report", "mean", "send", "reopen", "lost", "down", "listed"]), max_size=12
    )
)
def test_any_sequence_of_actions_gives_one_report_per_round(
    steps, collector, device_of, release, public
):
    """Reports, sends, restarts and failures in any order: one body, one id, one payment."""
    name = f"d{time.monotonic_ns()}.device"
    collector.seen.clear()
    collector.stored.clear()
    collector.scripts.clear()
    collector.offer(release)
    device, answered = device_of(name), False
    for i, step in enumerate(steps):
        collector.scripts.pop(("PUT", "/"), None)
        match step:
            case "report" | "mean":
                device.report("energy-1", None if step == "mean" else public[i])
                answered = True
            case "send":
                device.send(at_once=True)
            case "reopen":
                device.close()
                device = device_of(name)
            case "lost":
                collector.scripts["PUT", "/"] = lambda handler: handler.connection.close()
                device.send(at_once=True)
            case "down":
                collector.scripts["PUT", "/"] = lambda handler: handler.problem(503, "unavailable")
                device.send(at_once=True)
            case "listed":
                device.rounds()
    assert len({upload.body for upload in collector.uploads()}) <= 1
    assert len({upload.path for upload in collector.uploads()}) <= 1
    assert device.ledger.spent() == (3 * answered, 0)
    device.close()


def test_the_guide_runs(collector, release, public, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    guide = Path(__file__).parents[2] / "docs/device.md"
    (block,) = re.findall(r"```python\n(.*?)```", guide.read_text(), re.S)
    collector.offer(release)
    names = {"PUBLISHER": PUBLISHER, "TOKEN": "t", "encode": lambda: public[0]}
    exec(block.replace("https://collect.example", collector.url), names)
    with names["device"] as device:
        assert device.ledger.spent() == (3, 0)
        assert device.send(at_once=True)[0].state == "sent"


def test_the_first_of_two_processes_answers_the_round(collector, device_of, release, public):
    """Both find the round unanswered; the vector of the slower one is discarded."""
    collector.offer(release)
    slow, quick = device_of(), device_of()

    def encode():
        quick.report("energy-1", public[1])
        return public[0]

    assert slow.report("energy-1", encode) == quick.status()[0]
    assert slow.ledger.spent() == (3, 0)


# ---- What a device keeps of a report


def files_of(folder):
    return b"".join(part.read_bytes() for part in folder.iterdir() if part.is_file())


def test_the_bytes_of_a_report_are_kept_until_it_is_sent(
    collector, device_of, release, public, tmp_path
):
    """Reports of one permanent answer together reveal it, long after it was overwritten."""
    device = device_of(limits=[Limit(12)])
    statuses = {"sent": 201, "refused": 422, "withdrawn": 201, "withdrawing": 503}
    made = []
    for number, status in enumerate(statuses.values(), 1):
        name = f"energy-{number}"
        collector.offer(release, name=name, number=number)
        script = lambda handler, status=status: handler.answer(status)  # noqa: E731
        collector.scripts["PUT", f"/v1/rounds/{name}/"] = script
        made.append(device.report(name, public[0]).report)
    assert all(report[-16:] in files_of(tmp_path) for report in made)
    device.withdraw("energy-3")
    assert [entry.report for entry in device.send()] == [b"", b"", made[3]]
    assert [report[-16:] in files_of(tmp_path) for report in made] == [False, False, False, True]
    device.withdraw("energy-4")
    assert not any(report[-16:] in files_of(tmp_path) for report in made)
    entries = device.status()
    assert [entry.state for entry in entries] == list(statuses)
    assert [entry.report for entry in entries] == [b""] * 4
    # Answered all the same: nothing is made, paid or uploaded again.
    uploads = len(collector.uploads())
    for entry in entries:
        assert entry.answered
        assert device.report(entry.round, lambda: pytest.fail("needs no vector")) == entry
    device.send(at_once=True)
    assert len(collector.uploads()) == uploads
    assert device.ledger.spent() == (12, 0)
    collector.offer(release, name="late", number=2)
    with pytest.raises(RoundRefused, match="number 4 was already answered"):
        device.report("late", public[0])


def test_the_bytes_of_a_sequence_do_not_show_older_permanent_answers(
    collector, device_of, public, tmp_path
):
    """A vote over the stored reports returned all of them."""
    single = offaxis.fit(None, public, epsilon=2, goal="means")
    sequences = offaxis.memoise(single, draws=3, period=4)
    device, made = device_of(), []
    for number in range(16):
        collector.offer(sequences, name=f"energy-{number}", number=number)
        made.append(device.report(f"energy-{number}", public[0]).report)
        assert device.send(at_once=True)[0].state == "sent"
    assert not any(report[-12:] in files_of(tmp_path) for report in made)


def test_reports_that_an_older_version_sent_are_removed(
    collector, device_of, release, public, tmp_path
):
    for number in (1, 2):
        collector.offer(release, name=f"energy-{number}", number=number)
    device = device_of()
    sent, queued = (device.report(f"energy-{n}", public[0]).report for n in (1, 2))
    path = device.ledger._path
    device.close()
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE answer SET state = 'sent' WHERE number = 1")
        database.execute("DROP TABLE study_of_items")
        database.execute("PRAGMA user_version = 3")
    assert sent[-16:] in files_of(tmp_path)
    with device_of() as device:
        assert [entry.report for entry in device.status()] == [b"", queued]
        assert sent[-16:] not in files_of(tmp_path)


# ---- fork


def test_a_forked_child_cannot_use_the_device_of_its_parent(collector, device, release, public):
    collector.offer(release)
    device.report("energy-1", public[0])
    outcomes = in_child(
        lambda: device.report("energy-1", public[0]),
        lambda: device.withdraw("energy-1"),
        lambda: Reporter(release, device.ledger).report(public[0]),
        device.send,
        device.status,
    )
    assert len(outcomes) == 5
    for outcome in outcomes:
        assert outcome.startswith("InvalidInput: this Ledger was made in process")
        assert "Device.open(path), in this process" in outcome
    assert not collector.uploads()
    assert device.send()[0].state == "sent"


def test_a_report_that_is_made_in_a_forked_child_is_not_kept(
    collector, device, release, public, monkeypatch
):
    """What makes it may fork, as a model outside the release can."""
    privatize, parent = type(release).privatize, os.getpid()

    def forking(self, vector):
        report = privatize(self, vector)
        if os.getpid() == parent:
            child = os.fork()
            if child:
                assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
        return report

    monkeypatch.setattr(type(release), "privatize", forking)
    collector.offer(release)
    try:
        entry = device.report("energy-1", public[0])
    except InvalidInput as error:
        os._exit(3 if "is used in process" in str(error) else 4)
    finally:
        if os.getpid() != parent:
            os._exit(5)
    assert [kept.report for kept in device.status()] == [entry.report]
    assert device.ledger.spent() == (3, 0)
