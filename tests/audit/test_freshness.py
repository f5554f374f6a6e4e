"""Randomness used again is found, and reports that repeat by chance are not accused."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
import pytest

import offaxis
from offaxis.audit.attacks import _chance, freshness
from offaxis.randomizers import Duchi, Hybrid, Piecewise, Randomizer
from offaxis.sampling.entropy import Entropy
from tests.audit.twins import with_twin
from tests.checks import ALPHA


def release_of(kind: str, dim: int, epsilon: int) -> offaxis.Release:
    """A release whose radius is so small that every vector is clipped to a corner."""
    public = 1e-3 * np.random.default_rng(0).standard_normal((60, dim))
    return offaxis.fit(None, public, epsilon=epsilon, mechanism=kind, reshaping="none")


@pytest.mark.parametrize("kind", ["duchi", "piecewise", "hybrid"])
@pytest.mark.parametrize(("dim", "epsilon"), [(1, 1), (1, 10), (2, 5), (8, 2)])
def test_what_repeats_by_chance_is_not_accused(kind, dim, epsilon):
    # False alarms: ALPHA each. A coordinate at ε = 10 has the same sign in nearly every report.
    found = freshness(release_of(kind, dim, epsilon), ALPHA, np.random.default_rng(1))
    assert found.verdict in ("nothing found", "not run")
    if epsilon <= 2:
        assert found.verdict == "nothing found"


@dataclass(frozen=True)
class Remembering(Duchi):
    """Draws once, and sends that again and again."""

    def report(self, W, entropy):
        return super().report(W[:1], entropy) * len(W)


@dataclass(frozen=True)
class PiecewiseOfOnePoint(Piecewise):
    """The point of the first row for all rows."""

    def report(self, W, entropy):
        return super().report(W[:1], entropy) * len(W)


@pytest.mark.parametrize(
    ("kind", "twin"), [("duchi", Remembering), ("piecewise", PiecewiseOfOnePoint)]
)
def test_rows_that_share_their_randomness_are_accused(kind, twin):
    broken = with_twin(release_of(kind, 8, 2), twin)
    found = freshness(broken, ALPHA, np.random.default_rng(1))
    assert found.verdict == "violation"
    assert "between rows of one call" in found.result


@pytest.mark.parametrize(
    "randomizer",
    [Duchi(1, 1.0, 3), Duchi(3, 1.0, 1), Hybrid(1, 1.0, "0.6"), Hybrid(2, 1.0, 1)],
    ids=repr,
)
def test_no_report_is_likelier_than_the_bound_says(randomizer: Randomizer):
    corner = np.ones((40_000, randomizer.dim))
    ((_, most),) = Counter(randomizer.report(corner, Entropy())).most_common(1)
    # Six standard errors: a false alarm has a probability below ALPHA.
    assert most / len(corner) <= _chance(randomizer) + 6 * 0.5 / np.sqrt(len(corner))
