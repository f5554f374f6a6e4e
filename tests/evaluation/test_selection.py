"""Candidates at several budgets: maps are reused, and a screening score is never reported."""

from __future__ import annotations

import numpy as np
import pytest

from offaxis.evaluation.candidates import candidates
from offaxis.evaluation.selection import Selection
from offaxis.evaluation.utility import PublicSide, Tasks
from offaxis.formats.release_file import from_bytes, to_bytes
from offaxis.geometry import Layers

RNG = np.random.default_rng(3)
VECTORS = RNG.standard_normal((1800, 5)) * [3, 2, 1, 1, 0.5]
HEAD = Layers.linear(RNG.standard_normal((4, 5)))
SIDE = PublicSide.of(Tasks.of(HEAD, None), VECTORS[:600], "answers")


@pytest.mark.parametrize("goal", ["answers", "mean"])
def test_a_map_at_another_budget_is_the_one_that_would_be_fitted_there(goal):
    reused = 0
    seen = set()
    for option in candidates(SIDE, goal):
        if option.base in seen or getattr(option.settings.get("reshaping"), "rank", 1) > 3:
            continue
        seen.add(option.base)
        first = option.fitted(SIDE, 1)
        moved = None if first is None else option.at_budget(first, 3)
        if moved is not None:
            assert moved == option.fitted(SIDE, 3)
            reused += 1
    assert reused >= 10


@pytest.mark.parametrize("goal", ["answers", "mean"])
def test_whatever_is_chosen_can_be_published(goal):
    """One of every mechanism and decoder goes through a file and keeps its budget."""
    seen = set()
    for option in candidates(SIDE, goal):
        kind = option.settings["mechanism"], option.decoding
        if kind in seen:
            continue
        seen.add(kind)
        release = option.make(SIDE, 2)
        if release is not None:
            assert from_bytes(to_bytes(release)) == release
            assert release.guarantee.pure
            assert release.guarantee.epsilon == 2
            assert release.supports_mean or goal == "answers"
    assert len(seen) > 8


def test_reported_scores_are_those_on_all_vectors_of_the_comparison():
    second = VECTORS[600:1500]
    options = candidates(SIDE, "answers")
    selection = Selection(SIDE, options, second, VECTORS[1500:], "answers", 1, 0)
    compared = selection.compare(3, 1.0)
    scorer = SIDE.scorer("answers", 1)
    for each in compared.finalists:
        if each.candidate.decoding == "noise-aware":
            continue
        release = each.candidate.make(SIDE, 3)
        assert scorer(release, second, 0).utility == each.utility
    titles = {each.candidate.title for each in compared.finalists}
    assert titles.isdisjoint(option.title for option in compared.screened_out)
    assert any(each.candidate.is_silent for each in compared.finalists)
    assert any(each.candidate.is_vector for each in compared.finalists)
    # What was left out after a first look would not have won.
    for option in compared.screened_out[::6]:
        utility = scorer(option.make(SIDE, 3), second, 0).utility
        assert utility.score <= compared.finalists[0].utility.score
