"""Retries: a final response ends them, any other leads to a later attempt with the same bytes."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offaxis.client.device import backoff
from offaxis.client.outbox import LONGEST_WAIT
from offaxis.client.transport import Response


def answering(collector, status: int, kind: str = "conflict", **headers: str) -> None:
    collector.scripts["PUT", "/"] = lambda handler: handler.problem(status, kind, **headers)
    collector.scripts["DELETE", "/"] = collector.scripts["PUT", "/"]


@pytest.fixture
def queued(collector, device, release, public):
    collector.offer(release)
    device.report("energy-1", public[0])
    return device


@pytest.mark.parametrize(
    ("status", "kind"), [(409, "conflict"), (410, "closed"), (422, "invalid-report")]
)
def test_a_final_response_is_not_retried(collector, queued, status, kind):
    answering(collector, status, kind)
    (entry,) = queued.send()
    assert entry.state == "refused"
    assert kind in entry.problem
    assert queued.send(at_once=True) == []
    assert queued.report("energy-1", None) == entry


@pytest.mark.parametrize(
    ("status", "kind"),
    [(s, "unavailable") for s in (400, 401, 403, 404, 408, 413, 429, 500, 502, 503)]
    + [(409, "not-open"), (409, "https://offaxis.example/problems/not-open")],
)
def test_any_other_response_is_retried_with_the_same_bytes(collector, queued, status, kind):
    answering(collector, status, kind)
    (entry,) = queued.send()
    assert entry.state == "queued"
    assert entry.attempts == 1
    assert kind[-8:] in entry.problem
    collector.scripts.clear()
    assert queued.send(at_once=True)[0].state == "sent"
    first, second = collector.uploads()
    assert (first.path, first.body) == (second.path, second.body)


def test_a_failed_report_waits_for_its_next_attempt(collector, queued, monkeypatch):
    answering(collector, 503, Retry_After="1000")
    before = time.time()
    (entry,) = queued.send()
    assert before + 1000 <= entry.next_try <= time.time() + 1030
    assert queued.send() == []
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 1100)
    assert len(queued.send()) == 1


def test_a_next_attempt_set_by_a_wrong_clock_is_due(collector, queued, monkeypatch):
    answering(collector, 503)
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 10**9)
    queued.send()
    monkeypatch.setattr(time, "time", lambda: now)
    assert len(queued.send()) == 1


def test_a_withdrawal_is_retried(collector, queued):
    queued.send()
    queued.withdraw("energy-1")
    answering(collector, 503)
    assert queued.send()[0].state == "withdrawing"
    assert queued.send(at_once=True) == [], "at_once does not apply to withdrawals"


def test_a_refused_withdrawal_is_recorded(collector, queued):
    queued.send()
    queued.withdraw("energy-1")
    answering(collector, 410, "closed")
    (entry,) = queued.send()
    assert entry.state == "sent"
    assert "closed" in entry.problem


def test_a_report_whose_response_was_lost_is_withdrawn_at_the_collector(collector, queued):
    collector.scripts["PUT", "/"] = lambda handler: handler.connection.close()
    queued.send()
    assert queued.withdraw("energy-1").state == "withdrawing"


def test_a_withdrawal_during_an_upload_is_not_overwritten(collector, queued):
    entry = queued.status()[0]
    assert queued._outbox.claim(entry, 10.0)
    queued.withdraw("energy-1")
    queued._outbox.settle(entry, "sent")
    assert queued.status()[0].state == "withdrawing"
    assert queued.send() == [], "the upload may still be under way"


def test_only_one_process_sends_an_entry(collector, queued, device_of):
    entry = queued.status()[0]
    assert queued._outbox.claim(entry, 10.0)
    assert not device_of()._outbox.claim(entry, 10.0)
    assert device_of().send() == []


@given(st.integers(0, 200), st.none() | st.floats(0, 1e12))
def test_the_wait_is_bounded_and_at_least_retry_after(attempts, retry_after):
    wait = backoff(attempts, retry_after)
    assert min(retry_after or 0.0, LONGEST_WAIT / 2) <= wait <= LONGEST_WAIT


def test_the_wait_doubles_and_is_spread_over_its_whole_range():
    """Uniform up to 30 s · 2^n: a quarter without any of 200 draws has probability 1e-24."""
    for attempts, ceiling in ((0, 30), (3, 240), (20, LONGEST_WAIT)):
        draws = [backoff(attempts) for _ in range(200)]
        assert max(draws) <= ceiling
        assert {int(4 * draw / ceiling) for draw in draws} >= {0, 1, 2, 3}


@given(st.text(max_size=30))
def test_any_retry_after_is_understood_or_ignored(text):
    seconds = Response(503, {"retry-after": text}).retry_after
    assert seconds is None or seconds >= 0


def test_retry_after_has_two_forms():
    soon = datetime.fromtimestamp(time.time() + 100, UTC)
    dated = Response(503, {"retry-after": format_datetime(soon, usegmt=True)}).retry_after
    assert 90 <= dated <= 100
    assert Response(503, {"retry-after": " 120 "}).retry_after == 120
    assert Response(503).retry_after is None


@given(st.binary(max_size=60))
def test_any_problem_has_a_printable_message(body):
    response = Response(500, {"content-type": "application/problem+json"}, body)
    assert response.message.isprintable()
    assert isinstance(response.problem_type, str)
