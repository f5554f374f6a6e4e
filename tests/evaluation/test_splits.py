"""Parts of public vectors: disjoint, complete, the same however the vectors arrive."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from offaxis.errors import InvalidInput
from offaxis.evaluation.selection import Split, sample


@given(
    count=st.integers(50, 400),
    held_out=st.integers(1, 3),
    seed=st.integers(0, 2**32),
    pieces=st.integers(1, 7),
)
def test_every_vector_is_in_exactly_one_part(count, held_out, seed, pieces):
    public = np.arange(2.0 * count).reshape(count, 2)
    split = Split(public, seed, held_out=held_out)
    parts = [split.part(which) for which in range(held_out + 1)]
    together = np.concatenate(parts)
    assert np.array_equal(together[together[:, 0].argsort()], public)
    assert {len(part) for part in parts[1:]} == {int(0.2 * count)}
    streamed = Split(lambda: iter(np.array_split(public, pieces)), seed, held_out=held_out)
    for which, part in enumerate(parts):
        assert np.array_equal(streamed.part(which), part)


def test_a_held_out_part_has_a_largest_and_a_least_size():
    public = np.arange(200.0)[:, None]
    assert len(Split(public, 0, most=25).part(1)) == 25
    with pytest.raises(InvalidInput, match="at least 50 of them, got 49"):
        Split(public[:49], 0)
    with pytest.raises(InvalidInput, match=r"2 parts.*at least 40 of them, got 39"):
        Split(public[:39], 0, held_out=1, share=0.25)


@pytest.mark.parametrize("count", [7, 10, 11, 25, 400])
def test_a_sample_and_its_others_are_apart(count: int) -> None:
    public = np.arange(2.0 * count).reshape(count, 2)
    chosen, others = sample(lambda: iter(np.array_split(public, 3)), 10)
    assert len(chosen) == min(count, 10)
    assert len(others) == min(count - len(chosen), 10)
    rows = [*map(tuple, chosen), *map(tuple, others)]
    assert len({*rows}) == len(rows)
    assert {*rows} <= {*map(tuple, public)}
