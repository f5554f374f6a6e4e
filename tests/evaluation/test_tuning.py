"""``tune``: the search of ``recommend`` over the ranks and radii of one mechanism."""

from __future__ import annotations

import math

import numpy as np
import pytest

from offaxis.errors import InvalidInput, UnsupportedModel
from offaxis.evaluation import evaluate, tune
from offaxis.evaluation.recommend import _ranks
from offaxis.geometry import Layers, PublicVectors, measure

ROTATION = np.linalg.qr(np.random.default_rng(0).standard_normal((12, 12)))[0]
TASK = Layers.linear(np.random.default_rng(1).standard_normal((5, 12)))


def vectors(count, seed):
    rng = np.random.default_rng(seed)
    return (rng.standard_normal((count, 12)) * np.logspace(0, -1.5, 12)) @ ROTATION


def setting(scored):
    return scored.candidate.settings["reshaping"].rank, scored.candidate.settings["percentile"]


@pytest.fixture(scope="module")
def tuned():
    return tune(TASK, vectors(1200, 2), epsilon=4, percentiles=(50, 90))


def test_every_candidate_is_reported_and_the_best_is_chosen(tuned):
    assert sorted(map(setting, tuned.candidates)) == [
        (r, p) for r in (1, 2, 3, 4) for p in (50, 90)
    ]
    best = max(tuned.candidates, key=lambda scored: scored.utility.score)
    assert tuned.candidate is best.candidate
    settings = tuned.release.provenance.settings
    assert (settings["rank"], settings["percentile"]) == setting(best)
    assert tuned.release.provenance.public.count == 1200


def test_the_estimate_holds_for_fresh_vectors(tuned):
    fresh = evaluate(tuned.release, TASK, vectors(20_000, 3), seeds=3)
    assert 0 < tuned.expected.error < 0.05
    # Four standard errors: a false alarm in one of 16,000 seeds, and this seed is fixed.
    assert abs(fresh.mean("agreement") - tuned.expected.score) < 4 * tuned.expected.error


def test_the_standard_error_is_that_of_the_estimate():
    """Thirty splits and simulations of fresh vectors scatter as the standard errors state."""
    runs = [
        tune(TASK, vectors(400, 10 + seed), epsilon=4, ranks=(2,), percentiles=(70,), seed=seed)
        for seed in range(30)
    ]
    spread = np.std([run.expected.score for run in runs], ddof=1)
    stated = np.mean([run.expected.error for run in runs])
    # A standard deviation of 30 numbers has a relative error of 13 %.
    assert 0.55 < spread / stated < 1.6


def test_the_choice_beats_the_worst_candidate(tuned):
    assert tuned.expected.score > tuned.candidates[-1].utility.score + 0.05


def test_tuning_is_reproducible_and_takes_batches():
    public = vectors(300, 4)
    whole, again, streamed = (
        tune(TASK, source, epsilon=3, mechanism="laplace", ranks=(1, 3), percentiles=(60,))
        for source in (public, public, lambda: iter(np.array_split(public, 5)))
    )
    assert whole.release == again.release
    assert whole.expected == again.expected
    assert streamed.expected.score == pytest.approx(whole.expected.score)
    other = tune(TASK, public, epsilon=3, mechanism="laplace", ranks=(1, 3), seed=1)
    assert other.expected.score != whole.expected.score


def test_one_output_is_scored_by_its_explained_variance():
    task = Layers.linear(np.random.default_rng(5).standard_normal((1, 12)))
    run = tune(task, vectors(500, 6), epsilon=5, mechanism="laplace")
    assert run.release.encoder.output_dim == 1
    assert 0.3 < run.expected.score < 1


def test_a_mechanism_with_a_delta_has_no_ceiling():
    run = tune(TASK, vectors(300, 6), epsilon=4, mechanism="gaussian", delta=1e-5, ranks=(2,))
    assert run.release.guarantee.delta > 0
    assert run.ceiling == math.inf
    assert "No report" not in run.summary


def test_large_ranks_are_tried_in_growing_steps():
    assert _ranks(None, 100) == [*range(1, 11), 12, 16, 24, 32, 48, 64, 96, 100]
    assert _ranks(None, 2) == [1, 2]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"public": np.zeros((49, 12))}, "at least 50"),
        ({"mechanism": "response"}, "no directions to choose"),
        ({"mechanism": "task-aware"}, "no directions to choose"),
        ({"mechanism": "gaussian"}, "needs delta"),
        ({"ranks": (9,)}, "rank must be an integer from 1 to 4"),
        ({"ranks": ()}, "at least one"),
        ({"percentiles": (0,)}, "percentile"),
        ({"goal": "accuracy"}, "goal"),
        ({"epsilon": 0}, "epsilon"),
    ],
)
def test_errors_name_the_value_and_the_fix(change, message):
    arguments = {"public": vectors(60, 7), "epsilon": 1} | change
    with pytest.raises(InvalidInput, match=message):
        tune(TASK, arguments.pop("public"), **arguments)


def test_a_geometry_without_a_model_is_rejected():
    public = vectors(60, 8)
    with pytest.raises((InvalidInput, UnsupportedModel)):
        tune(measure(TASK, PublicVectors(public)), public, epsilon=1)
