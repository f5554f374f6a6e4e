"""Random subsets: every set and every member of it equally likely, exactly."""

from __future__ import annotations

import itertools
from collections import Counter
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from offaxis.sampling.choices import MOST_COLUMNS, by_keys, choose_subsets
from offaxis.sampling.entropy import Entropy
from tests.checks import ALPHA, counts_p_value
from tests.tape import Tape

COUNT = 60_000


@pytest.mark.parametrize(("columns", "chosen"), [(1, 1), (3, 1), (3, 2), (4, 2), (4, 3), (3, 3)])
def test_over_all_keys_every_pair_of_set_and_member_stands_equally_often(columns, chosen):
    """Keys of five values stand for those of 2**32; rows with a tie at the edge are drawn again."""
    counts: Counter[tuple[bytes, int]] = Counter()
    for keys in itertools.product(range(5), repeat=columns):
        answers = [np.array(keys, dtype=np.uint32), np.arange(columns, dtype=np.uint32)]
        queue = iter(answers)
        member, last = by_keys(columns, chosen, 1, lambda _, queue=queue: next(queue))
        again = next(queue, None) is None
        assert again == (keys.count(sorted(keys)[chosen - 1]) > 1)
        if not again:
            assert member.sum() == chosen
            assert member[0, last[0]]
            counts[member.tobytes(), int(last[0])] += 1
    assert len(counts) == comb(columns, chosen) * chosen
    assert len(set(counts.values())) == 1


def pairs(member: np.ndarray, last: np.ndarray) -> np.ndarray:
    """How often each of the 30 pairs of a set of 3 of 5 columns and a member of it stands."""
    sets = {s: i for i, s in enumerate(itertools.combinations(range(5), 3))}
    which = np.array([sets[tuple(np.flatnonzero(row))] for row in member])
    place = (np.cumsum(member, axis=1) - 1)[np.arange(len(last)), last]
    return np.bincount(3 * which + place, minlength=30)


def test_sets_and_members_are_uniform():
    uniform = np.full(30, 1 / 30)
    counts = pairs(*choose_subsets(5, 3, COUNT, Entropy()))
    assert counts_p_value(counts, uniform) > ALPHA

    # The twin: coarse keys, and a tie given to the first column instead of being drawn again.
    keys = Entropy().words(5 * COUNT).reshape(-1, 5) >> 12
    order = np.argsort(keys, axis=1, kind="stable")[:, :3]
    member = np.zeros((COUNT, 5), dtype=bool)
    np.put_along_axis(member, order, True, axis=1)
    assert counts_p_value(pairs(member, order[:, 2]), uniform) < ALPHA


@given(st.integers(1, 200), st.data(), st.integers(1, 5))
def test_every_set_has_its_size(columns, data, rows):
    chosen = data.draw(st.integers(1, columns))
    member, last = choose_subsets(columns, chosen, rows, Entropy())
    assert member.sum(axis=1).tolist() == [chosen] * rows
    assert member[np.arange(rows), last].all()


def test_only_rows_with_a_tie_at_the_edge_are_drawn_again():
    drawn = [
        *[5, 9, 9, 7],  # two smallest: 5 and 7; the tie above does not matter
        *[4, 2**32 - 1, 2, 2],  # a tie at the second smallest
        *[8, 6, 6, 1],  # and here
        *[1, 0, 3, 2],  # the second row again
        *[0, 7, 0, 9],  # the third again: another tie
        *[3, 3, 2, 1],  # and again: 1 and 2
    ]
    tape = Tape(b"".join(key.to_bytes(4, "little") for key in drawn))
    member, last = choose_subsets(4, 2, 3, tape)
    assert tape.at_end()
    assert member.astype(int).tolist() == [[1, 0, 0, 1], [1, 1, 0, 0], [0, 0, 1, 1]]
    assert last.tolist() == [3, 0, 2]


@pytest.mark.parametrize(("columns", "chosen"), [(3, 0), (3, 4), (0, 0), (MOST_COLUMNS + 1, 1)])
def test_impossible_sets_are_refused(columns, chosen):
    with pytest.raises(ValueError, match="no sets"):
        choose_subsets(columns, chosen, 1, Entropy())
