"""Whether there is a usable vector changes nothing that can be seen from outside."""

from __future__ import annotations

import numpy as np
import pytest

from offaxis.errors import BudgetExceeded
from offaxis.privacy.ledger import Limit


def _fails():
    raise RuntimeError("the encoder broke")


UNUSABLE = {
    "none": None,
    "nan": np.full(6, np.nan),
    "infinite": np.full(6, np.inf),
    "short": np.zeros(5),
    "two": np.zeros((2, 6)),
    "text": "text",
    "fails": _fails,
    "gives nothing": lambda: None,
    "masked": np.ma.masked_array(np.zeros(6), mask=True),
}


@pytest.mark.parametrize("vector", UNUSABLE.values(), ids=UNUSABLE)
def test_what_cannot_be_used_becomes_a_report_of_the_public_mean(
    collector, device, release, vector, monkeypatch
):
    seen = []
    privatize = type(release).privatize
    monkeypatch.setattr(
        type(release), "privatize", lambda self, v: (seen.append(v), privatize(self, v))[1]
    )
    collector.offer(release)
    entry = device.report("energy-1", vector)
    assert np.array_equal(seen, [release.public_mean])
    assert device.send()[0].state == "sent"
    (upload,) = collector.uploads()
    assert len(upload.body) == release.report_size
    assert entry.id.hex() in upload.path
    assert device.ledger.spent() == (3, 0)


def test_nothing_on_the_wire_or_on_the_disk_says_that_a_vector_failed(
    collector, device_of, release, public
):
    """Two devices, one with a vector: requests and stored fields differ in random bytes only."""
    collector.offer(release)
    traces, entries = [], []
    for name, vector in (("with", public[0]), ("without", _fails)):
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


def test_a_vector_that_ends_the_process_is_given_up(collector, device, release, public):
    """Begun three times and never ended: then the public mean is reported."""
    round_ = collector.offer(release)
    for _ in range(3):
        device._outbox.begin(round_, None)
    assert device.report("energy-1", _never_called).state == "queued"


@pytest.mark.parametrize("order", [SystemExit, KeyboardInterrupt])
def test_an_order_to_end_the_process_counts_as_one_that_ended(
    collector, device_of, release, public, order
):
    """Otherwise a vector that leads to one would be met with silence, for ever."""
    collector.offer(release)

    def ends():
        raise order

    for _ in range(3):
        with pytest.raises(order):
            device_of().report("energy-1", ends)
    device = device_of()
    assert device.ledger.spent() == (0, 0)
    assert device.report("energy-1", _never_called).state == "queued"
    assert device.ledger.spent() == (3, 0)


def _never_called():
    pytest.fail("the vector was to be given up")


def test_an_error_is_no_crash_and_gives_nothing_up(collector, device_of, release, public):
    round_ = collector.offer(release)
    device = device_of(limits=[Limit(1)], epsilon=5)
    for _ in range(5):
        with pytest.raises(BudgetExceeded):
            device.report("energy-1", public[0])
    assert device._outbox.begin(round_, None) == 1
    assert device.ledger.spent() == (0, 0)
