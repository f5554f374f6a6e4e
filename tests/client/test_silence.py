"""Whether there is a usable vector changes nothing that an outsider can observe."""

from __future__ import annotations

import numpy as np
import pytest

from offaxis.errors import BudgetExceeded
from offaxis.privacy.ledger import Limit


def _raise():
    raise RuntimeError("the encoder broke")


UNUSABLE = {
    "none": None,
    "nan": np.full(6, np.nan),
    "infinite": np.full(6, np.inf),
    "short": np.zeros(5),
    "two": np.zeros((2, 6)),
    "text": "text",
    "raises": _raise,
    "returns None": lambda: None,
    "masked": np.ma.masked_array(np.zeros(6), mask=True),
}


@pytest.mark.parametrize("vector", UNUSABLE.values(), ids=UNUSABLE)
def test_an_unusable_vector_becomes_a_report_of_the_public_mean(
    collector, device, release, vector, monkeypatch
):
    reported = []
    privatize = type(release).privatize
    monkeypatch.setattr(
        type(release), "privatize", lambda self, v: (reported.append(v), privatize(self, v))[1]
    )
    collector.offer(release)
    entry = device.report("energy-1", vector)
    assert np.array_equal(reported, [release.public_mean])
    assert device.send()[0].state == "sent"
    (upload,) = collector.uploads()
    assert len(upload.body) == release.report_size
    assert entry.id.hex() in upload.path
    assert device.ledger.spent() == (3, 0)


def test_nothing_on_the_wire_or_on_disk_reveals_that_a_vector_failed(
    collector, device_of, release, public
):
    """Two devices, one with a vector: requests and stored fields differ in random bytes only."""
    collector.offer(release)
    traces, entries = [], []
    for name, vector in (("with", public[0]), ("without", _raise)):
        device = device_of(name, token="same")
        before = len(collector.seen)
        entries.append(device.report("energy-1", vector))
        device.send()
        traces.append(
            [
                (r.method, r.path[: -64 if r.method == "PUT" else None], r.headers, len(r.body))
                for r in collector.seen[before:]
            ]
        )
    assert traces[0] == traces[1]
    fields = [(e.round, e.state, e.attempts, e.problem, len(e.report)) for e in entries]
    assert fields[0] == fields[1]


def test_a_vector_that_ends_the_process_three_times_is_given_up(collector, device, release, public):
    """Begun three times and never finished: then the public mean is reported."""
    round_ = collector.offer(release)
    for _ in range(3):
        device._outbox.begin(round_, None)
    assert device.report("energy-1", _never_called).state == "queued"


@pytest.mark.parametrize("request_to_exit", [SystemExit, KeyboardInterrupt])
def test_a_request_to_end_the_process_counts_as_a_crash(
    collector, device_of, release, public, request_to_exit
):
    """Otherwise a vector that causes one would stay unreported indefinitely, which reveals it."""
    collector.offer(release)

    def end():
        raise request_to_exit

    for _ in range(3):
        with pytest.raises(request_to_exit):
            device_of().report("energy-1", end)
    device = device_of()
    assert device.ledger.spent() == (0, 0)
    assert device.report("energy-1", _never_called).state == "queued"
    assert device.ledger.spent() == (3, 0)


def _never_called():
    pytest.fail("the vector should have been given up")


def test_an_error_does_not_count_as_a_crash(collector, device_of, release, public):
    round_ = collector.offer(release)
    device = device_of(limits=[Limit(1)], epsilon=5)
    for _ in range(5):
        with pytest.raises(BudgetExceeded):
            device.report("energy-1", public[0])
    assert device._outbox.begin(round_, None) == 1
    assert device.ledger.spent() == (0, 0)
