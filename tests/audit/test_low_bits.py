from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from offaxis.audit.attacks import Precision, WireBits, lowest_set_bit, wire_bits, wire_numbers
from offaxis.randomizers import Laplace
from offaxis.randomizers.additive import pack
from offaxis.sampling.entropy import Entropy
from tests.audit.twins import FloatLaplace
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


def test_the_integers_on_the_wire_are_read_off_exactly(audited):
    randomizer = audited["laplace"].randomizer
    numbers = np.array([[0, 1, -1, 77, 2**23 - 1, -(2**23 - 1)]])
    assert (wire_numbers(randomizer, pack(numbers)) == numbers).all()


def test_nonce_and_index_are_read_off(audited):
    payload = bytes(range(12)) + (70_000).to_bytes(4, "little")
    assert wire_numbers(audited["privunit2"].randomizer, [payload]).tolist() == [
        [*range(12), 70_000]
    ]


def test_only_bits_far_below_the_noise_must_be_even(audited):
    laplace = audited["laplace"].randomizer
    assert wire_bits(laplace) == 6
    assert wire_bits(dataclasses.replace(laplace, log2_scale=8)) == 2
    assert wire_bits(dataclasses.replace(laplace, log2_scale=3)) == 0
    assert wire_bits(object.__new__(type("Other", (), {"domain": None}))) == 0


@pytest.mark.parametrize("given_size", [True, False])
def test_precision_is_compared_at_one_size_only_when_asked(audited, given_size):
    release = audited["laplace"]
    attack = Precision(release.randomizer, 0, given_size=given_size)
    drawn = [report[12:] for report in release.privatize(np.zeros((500, 6)))]
    attack.learn(0, drawn)
    attack.learn(1, drawn[:250])
    attack.settle()
    left_out = np.isnan(attack.scores(drawn)).mean()
    assert (0.2 < left_out < 1) if given_size else left_out == 0


def test_zero_shares_no_size_with_other_numbers(audited):
    """Zero has the exponent of one half in frexp; a large budget must not confuse the two."""
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


def test_a_column_that_differs_is_found(audited):
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
def test_a_step_of_few_digits_is_no_leak(radius):
    """The last bits of integer · 1/(5·2^k) drift with the integer: they tell its size, no more."""
    randomizer = Laplace(1, radius, 5)
    drawn = [
        randomizer.report(np.full((200_000, 1), w * radius), Entropy()) for w in (0.0, 0.5, 1.0)
    ]

    def gap(first, second):
        attack = Precision(randomizer, 0, given_size=True)
        for side, payloads in enumerate((first, second)):
            attack.learn(side, payloads[:100_000])
        attack.settle()
        scores = [attack.scores(payloads[100_000:]) for payloads in (first, second)]
        kept = [side[~np.isnan(side)] for side in scores]
        return stats.ks_2samp(*kept).pvalue

    assert min(gap(drawn[0], drawn[2]), gap(drawn[1], drawn[2])) > ALPHA
    # The twin's noise is as large, but added in floating point.
    twin = FloatLaplace(1, radius, 5)
    floats = [twin.report(np.full((200_000, 1), w * radius), Entropy()) for w in (0.0, 1.0)]
    randomizer = twin
    assert gap(*floats) < ALPHA
