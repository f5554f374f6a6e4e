"""The exact discrete Laplace sampler: its law, its digits and its overflow.

A check raises a false alarm with probability ALPHA, and rejects a broken control.
"""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import ArrayLike

from offaxis.sampling.entropy import Entropy
from offaxis.sampling.laplace import DiscreteLaplace
from tests.checks import ALPHA, counts_p_value
from tests.tape import Tape

COUNT = 400_000
MAGNITUDE_BITS = 24
SATURATED = 1 << 24


def law(log2_scale: int, reach: int) -> np.ndarray:
    """Probabilities of -reach … reach, with the tails added to the ends."""
    t = 2.0**log2_scale
    k = np.arange(-reach, reach + 1)
    p = np.tanh(1 / (2 * t)) * np.exp(-np.abs(k) / t)
    tail = np.exp(-reach / t) / (1 + np.exp(-1 / t))
    p[0] = p[-1] = tail
    return p


def histogram(samples: np.ndarray, reach: int) -> np.ndarray:
    return np.bincount(np.clip(samples, -reach, reach) + reach, minlength=2 * reach + 1)


@pytest.mark.parametrize("log2_scale", [0, 1, 3])
def test_the_law_is_the_discrete_laplace(log2_scale):
    reach = 5 * 2**log2_scale
    samples = DiscreteLaplace(log2_scale).draw(COUNT, Entropy())
    probabilities = law(log2_scale, reach)
    assert probabilities.sum() == pytest.approx(1, abs=1e-12)
    assert counts_p_value(histogram(samples, reach), probabilities) > ALPHA
    # Broken controls: minus zero kept (zero twice as often), and one sign slightly too often.
    rng = np.random.default_rng(0)
    kept = probabilities[reach] / (1 + probabilities[reach])
    minus_zero = np.where(rng.random(COUNT) < kept, 0, samples)
    assert counts_p_value(histogram(minus_zero, reach), probabilities) < ALPHA
    lopsided = np.where(rng.random(COUNT) < 0.06, np.abs(samples), samples)
    assert counts_p_value(histogram(lopsided, reach), probabilities) < ALPHA


def test_the_law_holds_at_the_scale_of_real_releases():
    t = 2**17
    samples = DiscreteLaplace(17).draw(COUNT, Entropy())
    edges = t * np.array([-4.0, -2, -1, -0.5, -0.25, 0, 0.25, 0.5, 1, 2, 4])
    cdf = np.where(edges < 0, 0.5 * np.exp(edges / t), 1 - 0.5 * np.exp(-edges / t))
    cells = np.diff(np.concatenate([[0], cdf, [1]]))

    def counts(values):
        return np.histogram(values, np.concatenate([[-np.inf], edges, [np.inf]]))[0]

    assert counts_p_value(counts(samples), cells) > ALPHA
    assert counts_p_value(counts(samples * 0.95), cells) < ALPHA


def test_low_digits_are_fair_and_a_stuck_digit_is_rejected():
    samples = np.abs(DiscreteLaplace(17).draw(COUNT, Entropy()))
    quarter = np.full(4, 0.25)
    assert counts_p_value(np.bincount(samples & 3, minlength=4), quarter) > ALPHA
    assert counts_p_value(np.bincount((samples | 1) & 3, minlength=4) + 6, quarter) < ALPHA


def test_neighbours_are_independent_and_shared_bits_are_rejected():
    samples = np.abs(DiscreteLaplace(17).draw(COUNT, Entropy()))

    def joint(values):
        return np.bincount((values[::2] & 3) * 4 + (values[1::2] & 3), minlength=16)

    sixteenth = np.full(16, 1 / 16)
    assert counts_p_value(joint(samples), sixteenth) > ALPHA
    broken = samples.copy()
    broken[1::2] = (broken[1::2] & ~3) | (samples[::2] & 3)
    assert counts_p_value(joint(broken) + 6, sixteenth) < ALPHA


class Scripted:
    """A source of prescribed bits, to reach events of probability 2**-200.

    A single variable takes its 24 digit words first, then one word of sign and overflow.
    """

    def __init__(self, digit_words: ArrayLike, tail_word: int, *integers: int) -> None:
        self.digit_words, self.tail_word, self.integers = digit_words, tail_word, list(integers)

    def words(self, count: int) -> np.ndarray:
        word = self.tail_word if count == 1 else self.digit_words
        return np.array(np.broadcast_to(word, count), dtype=np.uint16)

    def integer(self, bits: int) -> int:
        return self.integers.pop(0) if len(self.integers) > 1 else self.integers[0]


def test_overflow_saturates_with_its_exact_probability():
    sampler = DiscreteLaplace(17)
    digits = sampler._overflow_probability.digits(15 + 192)
    words = [(digits >> shift) & ((1 << 64) - 1) for shift in (128, 64, 0)]
    # The first 15 + 128 digits tie; the last 64 decide.
    over = Scripted(2, 0, *words[:2], words[2] - 1)
    under = Scripted(2, 0, *words[:2], words[2] + 1)
    negative = Scripted(2, 1 << 15, *words[:2], words[2] - 1)
    assert sampler.draw(1, over)[0] == SATURATED
    assert 0 < sampler.draw(1, under)[0] < SATURATED
    assert sampler.draw(1, negative)[0] == -SATURATED


def test_all_ones_give_the_smallest_negative_magnitude_and_reject_minus_zero():
    sampler = DiscreteLaplace(17)

    class Twice:
        calls = 0

        def words(self, count: int) -> np.ndarray:
            self.calls += 1
            return np.full(count, 0xFFFF if self.calls <= 2 else 2, dtype=np.uint16)

        def integer(self, bits: int) -> int:
            raise AssertionError("no tie needs more bits")

    source = Twice()
    assert sampler.draw(1, source)[0] > 0
    assert source.calls == 4, "minus zero must be redrawn, magnitude and sign"


def test_every_tie_is_resolved_by_more_bits():
    """For words equal to the thresholds, the bits that follow decide every digit."""
    sampler = DiscreteLaplace(17)
    heads = sampler._thresholds[:MAGNITUDE_BITS]
    assert sampler.draw(1, Scripted(heads, 1, (1 << 64) - 1))[0] == 0
    assert sampler.draw(1, Scripted(heads, 1, 0))[0] == SATURATED - 1


@pytest.mark.parametrize("digit", range(MAGNITUDE_BITS))
def test_a_tie_is_decided_by_the_probability_of_that_digit(digit):
    sampler = DiscreteLaplace(17)
    column = MAGNITUDE_BITS - 1 - digit
    words = np.full(MAGNITUDE_BITS, 0xFFFF, dtype=np.uint16)
    words[column] = sampler._thresholds[column]
    tail = sampler._digit_probabilities[column].digits(16 + 64) & ((1 << 64) - 1)
    # One step below the next 64 digits of p gives a one, one step above a zero. Where those
    # digits are all zero (the rarest magnitudes) a tie continues with the 64 after them.
    if tail:
        assert sampler.draw(1, Scripted(words, 1, tail - 1))[0] == 1 << digit
    assert sampler.draw(1, Scripted(words, 1, tail + 1))[0] == 0


@pytest.mark.parametrize("log2_scale", [-1, 21])
def test_a_scale_outside_the_proof_is_rejected(log2_scale):
    with pytest.raises(ValueError, match="log2_scale"):
        DiscreteLaplace(log2_scale)


def test_the_wide_sampler_has_the_law():
    """Thirty-two digits, at the scale of four bytes per coordinate."""
    t = 2**25
    samples = DiscreteLaplace(25, 32).draw(COUNT, Entropy())
    edges = t * np.array([-4.0, -2, -1, -0.5, 0, 0.5, 1, 2, 4])
    cdf = np.where(edges < 0, 0.5 * np.exp(edges / t), 1 - 0.5 * np.exp(-edges / t))
    bins = np.concatenate([[-np.inf], edges, [np.inf]])
    cells = np.diff(np.concatenate([[0], cdf, [1]]))
    assert counts_p_value(np.histogram(samples, bins)[0], cells) > ALPHA
    assert counts_p_value(np.histogram(samples * 0.95, bins)[0], cells) < ALPHA
    assert np.abs(samples).max() > 2**27


@pytest.mark.parametrize(("log2_scale", "digits"), [(21, 24), (29, 32), (3, 16), (-1, 24)])
def test_a_sampler_without_a_proof_is_rejected(log2_scale, digits):
    with pytest.raises(ValueError, match="no sampler"):
        DiscreteLaplace(log2_scale, digits)


@pytest.mark.parametrize("log2_scale", [0, 4, 19])
@pytest.mark.parametrize("count", [1, 50, 5000])
def test_many_sources_draw_the_same_as_each_source_alone(log2_scale, count):
    # Small scales give many minus zeros; a word of zeros may tie or overflow.
    sampler = DiscreteLaplace(log2_scale)
    size = 200 * count + 4000

    def tapes():
        return [Tape.named(f"{log2_scale} {count} {i}", size) for i in range(8)]

    alone = np.stack([sampler.draw(count, tape) for tape in tapes()])
    assert np.array_equal(sampler.draw_each(count, tapes()), alone)
