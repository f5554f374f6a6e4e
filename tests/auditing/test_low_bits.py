"""Low bits: read exactly, uniform on a lattice, and revealing in floating point."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from offaxis.auditing.attacks import Precision, WireBits, lowest_set_bit, wire_bits, wire_numbers
from offaxis.randomizers import Laplace
from offaxis.randomizers.laplace import pack
from offaxis.sampling.entropy import Entropy
from tests.auditing.broken_controls import FloatLaplace
from tests.checks import ALPHA


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_the_lowest_set_bit_is_that_of_the_exact_number(value):
    exponent, zeros = (int(part[0]) for part in lowest_set_bit(np.array([value])))
    if value == 0:
        assert zeros == 53
        return
    numerator, denominator = abs(value).as_integer_ratio()
    lowest = (numerator & -numerator).bit_length() - denominator.bit_length()
    assert exponent - 53 + zeros == lowest


def test_the_integers_on_the_wire_are_read_exactly(audited):
    randomizer = audited["laplace"].randomizer
    numbers = np.array([[0, 1, -1, 77, 2**23 - 1, -(2**23 - 1)]])
    assert (wire_numbers(randomizer, pack(numbers)) == numbers).all()


def test_nonce_and_index_are_read_exactly(audited):
    payload = bytes(range(12)) + (70_000).to_bytes(4, "little")
    assert wire_numbers(audited["privunit2"].randomizer, [payload]).tolist() == [
        [*range(12), 70_000]
    ]


def test_only_bits_far_below_the_noise_must_be_uniform(audited):
    laplace = audited["laplace"].randomizer
    assert wire_bits(laplace) == 6
    assert wire_bits(dataclasses.replace(laplace, log2_scale=8)) == 2
    assert wire_bits(dataclasses.replace(laplace, log2_scale=3)) == 0
    assert wire_bits(object.__new__(type("Other", (), {"domain": None}))) == 0


@pytest.mark.parametrize("given_size", [True, False])
def test_precision_is_compared_at_one_size_only_if_requested(audited, given_size):
    release = audited["laplace"]
    attack = Precision(release.randomizer, 0, given_size=given_size)
    drawn = [report[12:] for report in release.privatize(np.zeros((500, 6)))]
    attack.learn(0, drawn)
    attack.learn(1, drawn[:250])
    attack.settle()
    not_compared = np.isnan(attack.scores(drawn)).mean()
    assert (0.2 < not_compared < 1) if given_size else not_compared == 0


def test_zero_shares_no_size_with_other_numbers(audited):
    """In frexp, zero has the exponent of one half; the two must not be confused."""
    randomizer = audited["laplace"].randomizer
    attack = Precision(randomizer, 0, given_size=True)
    steps = np.zeros((400, 6), dtype=np.int64)
    attack.learn(0, pack(steps))
    steps[:, 0] = round(0.75 / randomizer.step)
    attack.learn(1, pack(steps))
    attack.settle()
    assert (
        np.isnan(attack.scores(pack(steps))).all() or np.isnan(attack.scores(pack(0 * steps))).all()
    )


def test_the_column_that_differs_is_chosen(audited):
    randomizer = audited["laplace"].randomizer
    rng = np.random.default_rng(0)
    even = rng.integers(-1000, 1000, (2000, 6))
    odd = even.copy()
    odd[:, 4] |= 1
    attack = WireBits(randomizer)
    attack.learn(0, pack(even))
    attack.learn(1, pack(odd))
    attack.settle()
    scores = attack.scores(pack(even))
    assert scores[even[:, 4] % 2 == 0].min() > 3
    assert scores[even[:, 4] % 2 == 1].max() < 0


@pytest.mark.parametrize("radius", [1.0, 3.0, 0.1])
def test_the_rounding_of_lattice_points_is_no_leak(radius):
    """The last bits of integer · 1/(5·2^k) vary with the integer, but reveal only its size."""
    randomizer = Laplace(1, radius, 5)
    drawn = [
        randomizer.report(np.full((200_000, 1), w * radius), Entropy()) for w in (0.0, 0.5, 1.0)
    ]

    def p_value(first, second):
        attack = Precision(randomizer, 0, given_size=True)
        for side, payloads in enumerate((first, second)):
            attack.learn(side, payloads[:100_000])
        attack.settle()
        scores = [attack.scores(payloads[100_000:]) for payloads in (first, second)]
        kept = [side[~np.isnan(side)] for side in scores]
        return stats.ks_2samp(*kept).pvalue

    assert min(p_value(drawn[0], drawn[2]), p_value(drawn[1], drawn[2])) > ALPHA
    # Broken control: the same noise, added in floating point.
    randomizer = FloatLaplace(1, radius, 5)
    floats = [randomizer.report(np.full((200_000, 1), w * radius), Entropy()) for w in (0.0, 1.0)]
    assert p_value(*floats) < ALPHA
