"""Selection: splits of the public vectors, reused maps, and scores that are reported."""

from __future__ import annotations

import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from offaxis.errors import InvalidInput
from offaxis.evaluation.candidates import candidates
from offaxis.evaluation.selection import Selection, Split, sample, shown
from offaxis.evaluation.utility import MeasuredTasks, Tasks
from offaxis.formats.release_file import from_bytes, to_bytes
from offaxis.geometry import Layers

RNG = np.random.default_rng(3)
VECTORS = RNG.standard_normal((1800, 5)) * [3, 2, 1, 1, 0.5]
HEAD = Layers.linear(RNG.standard_normal((4, 5)))
MEASURED = MeasuredTasks.of(Tasks.of(HEAD, None), VECTORS[:600], "answers")


@given(
    count=st.integers(50, 400),
    held_out=st.integers(1, 3),
    seed=st.integers(0, 2**32),
    pieces=st.integers(1, 7),
)
def test_every_vector_is_in_exactly_one_part(count, held_out, seed, pieces):
    public = np.arange(2.0 * count).reshape(count, 2)
    split = Split(public, seed, held_out=held_out)
    parts = [split.part(index) for index in range(held_out + 1)]
    together = np.concatenate(parts)
    assert np.array_equal(together[together[:, 0].argsort()], public)
    assert {len(part) for part in parts[1:]} == {int(0.2 * count)}
    streamed = Split(lambda: iter(np.array_split(public, pieces)), seed, held_out=held_out)
    for index, part in enumerate(parts):
        assert np.array_equal(streamed.part(index), part)


def test_a_held_out_part_has_a_largest_and_a_smallest_size():
    public = np.arange(200.0)[:, None]
    assert len(Split(public, 0, most=25).part(1)) == 25
    with pytest.raises(InvalidInput, match="at least 50 of them, got 49"):
        Split(public[:49], 0)
    with pytest.raises(InvalidInput, match=r"2 parts.*at least 40 of them, got 39"):
        Split(public[:39], 0, held_out=1, share=0.25)


@pytest.mark.parametrize("count", [7, 10, 11, 25, 400])
def test_a_sample_and_the_others_are_disjoint(count):
    public = np.arange(2.0 * count).reshape(count, 2)
    chosen, others = sample(lambda: iter(np.array_split(public, 3)), 10)
    assert len(chosen) == min(count, 10)
    assert len(others) == min(count - len(chosen), 10)
    rows = [*map(tuple, chosen), *map(tuple, others)]
    assert len({*rows}) == len(rows)
    assert {*rows} <= {*map(tuple, public)}


@pytest.mark.parametrize("goal", ["answers", "means"])
def test_a_release_at_another_budget_equals_the_one_fitted_there(goal):
    reused = 0
    seen = set()
    for candidate in candidates(MEASURED, goal):
        rank = getattr(candidate.settings.get("reshaping"), "rank", 1)
        if candidate.base_key in seen or rank > 3:
            continue
        seen.add(candidate.base_key)
        release = candidate.fit_base(MEASURED, 1)
        other = None if release is None else candidate.at_budget(release, 3)
        if other is not None:
            assert other == candidate.fit_base(MEASURED, 3)
            reused += 1
    assert reused >= 10


@pytest.mark.parametrize("goal", ["answers", "means"])
def test_every_candidate_can_be_saved_and_loaded(goal):
    """One of every mechanism and decoder; the guarantee stays."""
    seen = set()
    for candidate in candidates(MEASURED, goal):
        kind = candidate.settings["mechanism"], candidate.decoding
        if kind in seen:
            continue
        seen.add(kind)
        release = candidate.make(MEASURED, 2)
        if release is not None:
            assert from_bytes(to_bytes(release)) == release
            assert release.guarantee.pure
            assert release.guarantee.epsilon == 2
            assert release.supports_mean or goal == "answers"
    assert len(seen) > (5 if goal == "means" else 8)


def test_scores_are_reported_on_all_vectors_of_the_comparison():
    compare_on = VECTORS[600:1500]
    tried = candidates(MEASURED, "answers")
    scorer = MEASURED.scorer("answers", 1)
    selection = Selection(MEASURED, None, tried, compare_on, VECTORS[1500:], scorer, 0)
    compared = selection.compare(3, 1.0)
    scorer = MEASURED.scorer("answers", 1)
    for finalist in compared.finalists:
        if finalist.candidate.decoding == "noise-aware":
            continue
        release = finalist.candidate.make(MEASURED, 3)
        assert scorer(release, compare_on, 0).utility == finalist.utility
    titles = {finalist.candidate.title for finalist in compared.finalists}
    assert titles.isdisjoint(candidate.title for candidate in compared.screened_out)
    assert any(finalist.candidate.is_silent for finalist in compared.finalists)
    assert any(finalist.candidate.is_vector for finalist in compared.finalists)
    # No candidate that was screened out would have won.
    for candidate in compared.screened_out[::6]:
        utility = scorer(candidate.make(MEASURED, 3), compare_on, 0).utility
        assert utility.score <= compared.finalists[0].utility.score


def test_progress_is_shown_on_a_terminal_and_erased(monkeypatch):
    """Without a terminal nothing is written, and a callback replaces the line."""
    written = io.StringIO()
    monkeypatch.setattr("sys.stderr", written)
    with shown(None) as show:
        show("Laplace", 0, 2)
    assert written.getvalue() == ""
    monkeypatch.setattr(written, "isatty", lambda: True, raising=False)
    with shown(None) as show:
        show("Laplace", 1, 2)
        assert written.getvalue().endswith("candidate 2 of 2: Laplace")
    assert written.getvalue().endswith("\r\x1b[K")
    calls = []
    with shown(lambda *facts: calls.append(facts)) as show:
        show("Laplace", 0, 2)
    assert calls == [("Laplace", 0, 2)]
