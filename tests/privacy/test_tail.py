"""δ is not the probability that the privacy loss exceeds ε: what holds, and what would not.

Everything here is computed, so there is no false alarm.
"""

from __future__ import annotations

import math
import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ndtr

import offaxis
from offaxis.card import card_facts, loss_above_epsilon
from offaxis.privacy import wording
from offaxis.privacy.guarantee import Guarantee, exact_delta, exact_epsilon
from offaxis.randomizers import Gaussian

ROOT = Path(__file__).parents[2]
DELTA = 1e-5
LN2 = math.log(2)


def cell(randomizer: Gaussian, k: int, centre: int) -> float:
    """Return the probability that a coordinate at ``centre`` is reported as ``k``."""
    s = randomizer.noise_steps
    near, far = sorted((abs(k - centre) - 0.5, abs(k - centre) + 0.5))
    return float(ndtr(-near / s) - ndtr(-far / s))


def lattice_tail(randomizer: Gaussian, level: float) -> float:
    """Return Pr[loss > level] of the report of R e_1 against −R e_1, on the integers.

    The other coordinates have the same law under both. The loss increases with the coordinate k,
    so the event is k >= k*, and k* is found by bisection.
    """
    s, bound = randomizer.noise_steps, randomizer.bound

    def exceeds(k: int) -> bool:
        return math.log(cell(randomizer, k, bound) / cell(randomizer, k, -bound)) > level

    low, high = 0, bound + 12 * s
    assert not exceeds(low)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if exceeds(middle) else (middle, high)
    return float(ndtr(-(high - 0.5 - bound) / s))


def gaussian(epsilon: float) -> Gaussian:
    return Gaussian(dim=3, radius=1.0, epsilon=exact_epsilon(epsilon), delta=exact_delta(DELTA))


@pytest.mark.parametrize("epsilon", [0.5, 1, 2, 5, 10])
def test_the_loss_of_a_gaussian_exceeds_epsilon_more_often_than_delta(epsilon: float) -> None:
    randomizer = gaussian(epsilon)
    tail = lattice_tail(randomizer, epsilon)
    h = 2 * randomizer.bound / randomizer.noise_steps
    assert tail == pytest.approx(ndtr(h / 2 - epsilon / h), rel=1e-3)
    assert tail > 2 * DELTA, "a card that said 'with probability δ' would be wrong"
    # What (ε, δ) does imply: at ε + t at most δ/(1 − e^{−t}), and less than 3δ in both directions.
    for t in (0.1, LN2, 2.0):
        assert lattice_tail(randomizer, epsilon + t) <= DELTA / -math.expm1(-t)


@pytest.mark.parametrize("mechanism", ["gaussian", "coordinatewise-gaussian", "instance-optimal"])
def test_the_card_of_a_gaussian_release_states_the_tail(mechanism: str) -> None:
    rng = np.random.default_rng(0)
    public = rng.normal(size=(200, 4))
    settings: dict[str, Any] = {"reshaping": "none"} if mechanism == "gaussian" else {}
    release = offaxis.fit(
        np.eye(4)[:2], public, epsilon=2, delta=DELTA, mechanism=mechanism, **settings
    )
    assert isinstance(release.randomizer, Gaussian)
    stated = loss_above_epsilon(release)
    assert stated is not None
    match = re.search(r"with probability (\S+), (\S+) times δ", stated)
    assert match is not None
    tail = lattice_tail(release.randomizer, 2)
    assert tail <= float(match[1]) <= 1.1 * tail
    assert tail / DELTA <= float(match[2]) <= 1.01 * tail / DELTA
    assert card_facts(release)["loss_above_epsilon"] == stated
    pure = offaxis.fit(None, public, epsilon=2, reshaping="none", mechanism="laplace")
    assert loss_above_epsilon(pure) is None


def test_the_pages_state_the_tail_of_the_gaussian() -> None:
    figures = {e: lattice_tail(gaussian(e), e) / DELTA for e in (1, 5, 10)}
    proofs, threats = (
        " ".join((ROOT / "docs" / name).read_text(encoding="utf-8").split())
        for name in ("proofs.md", "threat-model.md")
    )
    assert (
        f"{figures[1]:.1f} times δ at ε = 1, {figures[5]:.1f} times at ε = 5 and "
        f"{figures[10]:.1f} times at ε = 10" in proofs
    )
    assert (
        f"{figures[1]:.1f} times δ at ε = 1 and {figures[10]:.1f} times δ at ε = 10 (δ = 1e-5)"
        in threats
    )


# ---- What (ε, δ) implies, for any two laws

WEIGHTS = st.lists(st.integers(0, 1000), min_size=5, max_size=5).filter(any)


def smallest_delta(p: list[Fraction], q: list[Fraction], factor: Fraction) -> Fraction:
    return max(
        sum((max(Fraction(0), a - factor * b) for a, b in zip(x, y, strict=True)), Fraction(0))
        for x, y in ((p, q), (q, p))
    )


def moves(p: list[Fraction], q: list[Fraction], factor: Fraction) -> Fraction:
    """Return the probability under p that the odds grow or shrink by more than a factor."""
    pairs = list(zip(p, q, strict=True))
    return sum((a for a, b in pairs if a > factor * b or b > factor * a), Fraction(0))


@given(WEIGHTS, WEIGHTS, st.fractions(1, 100))
def test_the_odds_move_by_more_than_twice_the_factor_less_often_than_three_delta(
    first: list[int], second: list[int], factor: Fraction
) -> None:
    """e^ε is ``factor``; the bound (2 + e^{−ε})δ of docs/proofs.md §6, in exact arithmetic."""
    p, q = ([Fraction(w, sum(ws)) for w in ws] for ws in (first, second))
    delta = smallest_delta(p, q, factor)
    assert moves(p, q, 2 * factor) <= (2 + 1 / factor) * delta
    if delta:
        assert moves(p, q, 2 * factor) < 3 * delta or factor == 1


@pytest.mark.parametrize("factor", [Fraction(2), Fraction(20)])
def test_no_smaller_multiple_of_delta_would_do(factor: Fraction) -> None:
    """A pair of laws whose odds move by 2e^ε with probability 2δ; and by e^ε with any."""
    delta = Fraction(1, 1000)
    for step in (Fraction(2), Fraction(11, 10), Fraction(101, 100)):  # e^t
        often = delta / (1 - 1 / step)
        p = [often, 1 - often]
        q = [often / (factor * step), 1 - often / (factor * step)]
        assert smallest_delta(p, q, factor) == delta
        just_below = factor * step * Fraction(999_999, 1_000_000)
        assert moves(p, q, just_below) == often >= 2 * delta
    assert often > 100 * delta, "so δ bounds the odds beyond e^ε by no constant"


def test_the_card_states_three_delta_and_twice_the_factor() -> None:
    promise = " ".join(wording.promise(Guarantee(2, "1e-5")))
    assert "δ is not the probability that the odds move by more than e^ε" in promise
    assert "by more than 14.8, twice e^ε, in fewer than 1 in 33,300 reports, which is 3δ" in promise
    assert "δ" not in " ".join(wording.promise(Guarantee(2)))
    large = " ".join(wording.promise(Guarantee(2, "1/2")))
    assert "for a δ this large, no limit on the odds" in large
    assert "3δ" not in large
