"""The exact discrete Gaussian sampler: its law at every scale, its digits and its rare paths.

A check raises a false alarm with probability ALPHA, and rejects a broken control.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from offaxis.sampling.discrete_gaussian import LARGEST_VARIANCE, DiscreteGaussian
from offaxis.sampling.entropy import Entropy
from offaxis.sampling.laplace import DiscreteLaplace
from tests.checks import ALPHA, counts_p_value

COUNT = 200_000


def cells(variance: int, reach: int) -> np.ndarray:
    """Probabilities of -reach … reach, with the tails added to the ends."""
    k = np.arange(-reach - 60, reach + 61)
    p = np.exp(-(k**2) / (2 * variance))
    p /= p.sum()
    folded = p[60:-60].copy()
    folded[0] += p[:60].sum()
    folded[-1] += p[-60:].sum()
    return folded


def histogram(samples: np.ndarray, reach: int) -> np.ndarray:
    return np.bincount(np.clip(samples, -reach, reach) + reach, minlength=2 * reach + 1)


@pytest.mark.parametrize(("variance", "reach"), [(1, 3), (2, 4), (7, 8), (30, 15)])
def test_the_law_is_the_discrete_gaussian(variance, reach):
    samples = DiscreteGaussian(variance).draw(COUNT, Entropy())
    law = cells(variance, reach)
    assert counts_p_value(histogram(samples, reach), law) > ALPHA
    # Broken controls: a rounded normal of the same variance, and one sign slightly too often.
    rng = np.random.default_rng(0)
    rounded = np.rint(rng.normal(0, np.sqrt(variance), COUNT)).astype(int)
    assert variance > 2 or counts_p_value(histogram(rounded, reach), law) < ALPHA
    lopsided = np.where(rng.random(COUNT) < 0.05, np.abs(samples), samples)
    assert counts_p_value(histogram(lopsided, reach), law) < ALPHA


@pytest.mark.parametrize("variance", [10**6 + 1, 2**33, 2**47 - 5, LARGEST_VARIANCE])
def test_the_law_holds_at_the_scale_of_real_sums(variance):
    samples = DiscreteGaussian(variance).draw(COUNT, Entropy()) / np.sqrt(variance)
    edges = stats.norm.ppf(np.linspace(0, 1, 41))

    def counts(values):
        return np.histogram(values, edges)[0]

    fortieth = np.full(40, 1 / 40)
    assert counts_p_value(counts(samples), fortieth) > ALPHA
    assert counts_p_value(counts(samples * 0.98), fortieth) < ALPHA


@given(st.integers(1, LARGEST_VARIANCE), st.floats(0, 1, exclude_max=True))
def test_digits_of_the_exponent_are_never_above_it_and_barely_below(variance, share):
    sampler = DiscreteGaussian(variance)
    magnitude = int(share * (16 << sampler.log2_scale))
    for value in {0, 1, magnitude, (16 << sampler.log2_scale) - 1}:
        known = int(sampler._digits(np.array([value], dtype=np.int64))[0])
        assert 0 <= sampler._gamma(value) - Fraction(known, 1 << 24) < Fraction(1, 1 << 20)


def test_the_square_is_completed_exactly():
    """A Laplace weight times the coin is the Gaussian weight, up to one constant."""
    sampler = DiscreteGaussian(1000)
    t = 1 << sampler.log2_scale
    exponents = {Fraction(k, t) + sampler._gamma(k) - Fraction(k * k, 2000) for k in range(200)}
    assert len(exponents) == 1


class Scripted:
    """All digit coins show heads, the last word is undecided, and given integers decide."""

    def __init__(self, integer: int) -> None:
        self.value = integer

    def words(self, count: int) -> np.ndarray:
        return np.full(count, 0xFFFF if count == 1 else 0, dtype=np.uint16)

    def integer(self, bits: int) -> int:
        return self.value


def test_the_exact_rest_decides_when_16_bits_do_not():
    sampler = DiscreteGaussian(3)  # γ has no finite expansion
    one = np.array([1], dtype=np.int64)
    assert sampler._gamma(1) > Fraction(int(sampler._digits(one)[0]), 1 << 24)
    assert sampler._keep(one, Scripted(0))[0]
    assert not sampler._keep(one, Scripted((1 << 64) - 1))[0]


def test_a_rest_of_zero_is_always_kept():
    sampler = DiscreteGaussian(4)
    assert sampler._gamma(0) == Fraction(int(sampler._digits(np.array([0]))[0]), 1 << 24)
    assert sampler._keep(np.array([0]), Scripted((1 << 64) - 1))[0]


class Short:
    """A Laplace sampler that saturates at a common magnitude."""

    saturated = 3

    def draw(self, count: int, bits: Entropy) -> np.ndarray:
        return np.clip(DiscreteLaplace(1).draw(count, bits), -self.saturated, self.saturated)


def test_magnitudes_beyond_the_laplace_sampler_are_drawn_and_clipping_is_rejected():
    law, few = cells(5, 5), 1_500
    sampler = DiscreteGaussian(5)
    sampler.__dict__["_laplace"] = Short()
    assert counts_p_value(histogram(sampler.draw(few, Entropy()), 5), law) > ALPHA
    clipped = DiscreteGaussian(5)
    clipped.__dict__["_laplace"] = Short()
    clipped.__dict__["_unbounded"] = Short().draw
    assert counts_p_value(histogram(clipped.draw(few, Entropy()), 5), law) < ALPHA


def test_far_proposals_are_weighed_exactly():
    """Beyond 16 scales the coin takes the slow path; heads has probability at most e^-100."""
    sampler = DiscreteGaussian(64)
    far = np.array([16 << sampler.log2_scale, 1 << 40], dtype=np.int64)
    assert not sampler._keep(far, Entropy()).any()


@pytest.mark.parametrize("variance", [0, -1, 1.5, True, LARGEST_VARIANCE + 1, Fraction(3)])
def test_a_variance_outside_the_proof_is_rejected(variance):
    with pytest.raises(ValueError, match="variance"):
        DiscreteGaussian(variance)
