"""Reused randomness is detected, and repetitions by chance are not."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
import pytest

import offaxis
from offaxis.auditing.checks import _repeat_probability, freshness
from offaxis.randomizers import Duchi, Hybrid, Piecewise, Randomizer
from offaxis.sampling.entropy import Entropy
from tests.auditing.broken_controls import with_broken_control
from tests.checks import ALPHA


def release_of(kind: str, dim: int, epsilon: int) -> offaxis.Release:
    """Return a release whose radius is so small that every vector is clipped to a corner."""
    public = 1e-3 * np.random.default_rng(0).standard_normal((60, dim))
    return offaxis.fit(None, public, epsilon=epsilon, mechanism=kind, reshaping="none")


@pytest.mark.parametrize("kind", ["duchi", "piecewise", "hybrid"])
@pytest.mark.parametrize(("dim", "epsilon"), [(1, 1), (1, 10), (2, 5), (8, 2)])
def test_repetitions_by_chance_are_no_violation(kind, dim, epsilon):
    # False alarms: ALPHA each. At ε = 10 a coordinate has the same sign in nearly every report.
    finding = freshness(release_of(kind, dim, epsilon), ALPHA, np.random.default_rng(1))
    assert finding.verdict in ("nothing found", "not run")
    if epsilon <= 2:
        assert finding.verdict == "nothing found"


@dataclass(frozen=True)
class OneDuchiReport(Duchi):
    """The report of the first row for all rows."""

    def report(self, W, entropy):
        return super().report(W[:1], entropy) * len(W)


@dataclass(frozen=True)
class OnePiecewiseReport(Piecewise):
    """The report of the first row for all rows."""

    def report(self, W, entropy):
        return super().report(W[:1], entropy) * len(W)


@pytest.mark.parametrize(
    ("kind", "broken"), [("duchi", OneDuchiReport), ("piecewise", OnePiecewiseReport)]
)
def test_rows_that_share_their_randomness_are_a_violation(kind, broken):
    release = with_broken_control(release_of(kind, 8, 2), broken)
    finding = freshness(release, ALPHA, np.random.default_rng(1))
    assert finding.verdict == "violation"
    assert "between rows of one call" in finding.result


@pytest.mark.parametrize(
    "randomizer",
    [Duchi(1, 1.0, 3), Duchi(3, 1.0, 1), Hybrid(1, 1.0, "0.6"), Hybrid(2, 1.0, 1)],
    ids=repr,
)
def test_no_report_is_likelier_than_the_bound(randomizer: Randomizer):
    corner = np.ones((40_000, randomizer.dim))
    ((_, most),) = Counter(randomizer.report(corner, Entropy())).most_common(1)
    # Six standard errors: a false alarm has a probability below ALPHA.
    assert most / len(corner) <= _repeat_probability(randomizer) + 6 * 0.5 / np.sqrt(len(corner))
