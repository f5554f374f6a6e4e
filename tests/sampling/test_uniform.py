"""Uniform choices: no remainder is likelier than another."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from offaxis.sampling.choices import MOST, below
from offaxis.sampling.entropy import Entropy
from tests.checks import ALPHA, counts_p_value
from tests.tape import Tape

COUNT = 200_000


def test_every_value_is_equally_likely():
    assert counts_p_value(np.bincount(below(10, COUNT, Entropy())), np.full(10, 0.1)) > ALPHA


def test_the_bias_of_a_remainder_would_be_caught():
    """Of 3·2**30 values a bare remainder of 32 bits gives the first third twice as often."""
    limit = 3 << 30
    thirds = np.full(3, 1 / 3)
    fair = below(limit, COUNT, Entropy()) >> 30
    assert counts_p_value(np.bincount(fair, minlength=3), thirds) > ALPHA
    twin = (Entropy().words(2 * COUNT).view("<u4") % limit) >> 30
    assert counts_p_value(np.bincount(twin, minlength=3), thirds) < ALPHA


@given(st.integers(1, MOST), st.lists(st.integers(0, MOST - 1), min_size=1, max_size=5))
def test_words_of_the_incomplete_run_are_drawn_again(limit, words):
    good = MOST - MOST % limit - 1
    tape = Tape(b"".join(w.to_bytes(4, "little") for w in [*words, *[good] * len(words)]))
    drawn = below(limit, len(words), tape)
    expected = [(w if w <= good else good) % limit for w in words]
    assert drawn.tolist() == expected


@pytest.mark.parametrize("limit", [0, MOST + 1])
def test_an_impossible_limit_is_refused(limit):
    with pytest.raises(ValueError, match="limit"):
        below(limit, 1, Entropy())
