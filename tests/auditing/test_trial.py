"""Trials: events are chosen on some reports and counted on others, at the stated error rate."""

from __future__ import annotations

import math
import threading

import numpy as np
import pytest
from scipy import stats

from offaxis.auditing.trials import SIDES, Event, Trial, choose
from tests.checks import ALPHA


class Byte:
    """A statistic that reads the payload as a number; it does not learn."""

    learns = False
    aim = "epsilon"

    def learn(self, side, payloads):
        raise AssertionError("this statistic does not learn")

    def settle(self):
        pass

    def scores(self, payloads):
        return np.frombuffer(b"".join(payloads), dtype=np.uint8).astype(float)


class Learner(Byte):
    """A statistic that records which payloads it learned from and which it scored."""

    learns = True

    def __init__(self):
        self.seen = {side: [] for side in SIDES}
        self.scored = []
        self.settled = False

    def learn(self, side, payloads):
        assert not self.settled
        self.seen[side] += payloads

    def settle(self):
        self.settled = True

    def scores(self, payloads):
        assert self.settled
        self.scored += payloads
        return super().scores(payloads)


def response(epsilon: float, rng: np.random.Generator):
    """Return a source of binary randomized response: the byte indicates the side with odds e^ε."""
    lock = threading.Lock()
    own = math.exp(epsilon) / (1 + math.exp(epsilon))

    def draw(side, count):
        with lock:
            truth = rng.random(count) < own
        return [bytes([int(bit)]) for bit in (truth if side == 0 else ~truth)]

    return draw


def test_every_report_is_used_once():
    numbers = iter(range(10**6))
    lock = threading.Lock()

    def draw(side, count):
        with lock:
            return [next(numbers).to_bytes(4, "big") for _ in range(count)]

    class Wide(Learner):
        def scores(self, payloads):
            self.scored += payloads
            return np.zeros(len(payloads))

    learner, calls = Wide(), []
    (outcome,) = Trial(draw, rows=7).run(
        [learner], 100, delta=0.0, alpha=0.1, advance=lambda *call: calls.append(call)
    )
    learned = learner.seen[0] + learner.seen[1]
    assert [len(learner.seen[side]) for side in SIDES] == [25, 25]
    assert len(set(learned) | set(learner.scored)) == len(learned) + len(learner.scored) == 200
    assert [count.trials for count in outcome.counts] == [50, 50]
    assert outcome.reports == 200
    assert calls[-1] == (200, 200)


def test_scores_that_do_not_apply_are_not_counted():
    class Half(Byte):
        def scores(self, payloads):
            scores = super().scores(payloads)
            scores[::2] = np.nan
            return scores

    draw = response(1.0, np.random.default_rng(0))
    (outcome,) = Trial(draw, rows=100).run([Half()], 400, delta=0.0, alpha=0.1)
    assert [count.trials + count.other_trials for count in outcome.counts] == [200, 200]


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_a_tight_release_is_accused_as_rarely_as_stated(epsilon):
    """False alarms on randomized response at exactly ε: α = 0.2 per run, 200 runs.

    The test itself has a false-alarm rate of ALPHA.
    """
    rng, alpha, runs, alarms = np.random.default_rng(1), 0.2, 200, 0
    for _ in range(runs):
        trial = Trial(response(epsilon, rng), rows=512)
        (outcome,) = trial.run([Byte()], 512, delta=0.0, alpha=alpha)
        alarms += outcome.best(0.0, alpha)[1] > epsilon
    assert stats.binom.sf(alarms - 1, runs, alpha) > ALPHA
    # Broken control: it spends three times its budget, and is accused every time.
    trial = Trial(response(3 * epsilon, rng), rows=512)
    bounds = [
        trial.run([Byte()], 2048, delta=0.0, alpha=alpha)[0].best(0.0, alpha)[1] for _ in range(20)
    ]
    assert min(bounds) > epsilon


def test_the_event_of_a_tight_release_is_found():
    draw = response(1.5, np.random.default_rng(2))
    (outcome,) = Trial(draw, rows=4096).run([Byte()], 200_000, delta=0.0, alpha=1e-3)
    count, bound = outcome.best(0.0, 1e-3)
    assert 1.45 < bound < 1.5
    assert count.hits / count.trials == pytest.approx(math.exp(1.5) / (1 + math.exp(1.5)), abs=0.01)
    assert count.resolution(0.0, 5e-4) > 8


def test_events_are_more_frequent_for_the_vector_they_indicate():
    rng = np.random.default_rng(3)
    first, second = rng.normal(1, 1, 5000), rng.normal(0, 1, 5000)
    for aim in ("epsilon", "shift", "difference"):
        above, below = choose(first, second, aim, delta=0.0, alpha=0.01)
        assert above.speaks_for_first
        assert not below.speaks_for_first
        assert above.hits(first) > above.hits(second)
        assert below.hits(second) > below.hits(first)
    assert Event(0.5, True).hits(np.array([0.5, 0.4, np.nan, 1.0])) == 2
    assert Event(0.5, False).hits(np.array([0.5, 0.4, np.nan, 1.0])) == 2


def test_a_small_difference_is_preferred_to_a_certain_event():
    """A bound on ε prefers the event of all reports; a test of difference must not."""
    rng = np.random.default_rng(4)
    first, second = (rng.random(20_000) < 0.52).astype(float), (rng.random(20_000) < 0.48) * 1.0
    above, _ = choose(first, second, "difference", delta=0.0, alpha=1e-9)
    assert above.threshold == 1.0


def test_the_number_of_reports_fits_the_time():
    trial = Trial(response(1.0, np.random.default_rng(5)), rows=64)
    assert trial.affordable([Byte()], 1000, seconds=600.0) == 1000
    assert trial.affordable([Byte()], 10**9, seconds=1e-9) == 16
    assert trial.affordable([Byte()], 8, seconds=1e-9) == 8
