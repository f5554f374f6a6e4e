from __future__ import annotations

import numpy as np
import pytest

from offaxis.errors import InvalidInput
from offaxis.evaluation import evaluate, tune
from offaxis.evaluation.tuning import _grid
from offaxis.geometry import CentredOutputs, Layers, PublicVectors, measure

ROTATION = np.linalg.qr(np.random.default_rng(0).standard_normal((12, 12)))[0]
TASK = CentredOutputs(Layers.linear(np.random.default_rng(1).standard_normal((5, 12))))


def vectors(count, seed):
    rng = np.random.default_rng(seed)
    return (rng.standard_normal((count, 12)) * np.logspace(0, -1.5, 12)) @ ROTATION


@pytest.fixture(scope="module")
def tuned():
    return tune(TASK, vectors(3000, 2), epsilon=4, percentiles=(50, 90))


def test_everything_tried_is_told_and_the_best_is_taken(tuned):
    tried = [(trial.active, trial.percentile) for trial in tuned.trials]
    assert tried == [(r, p) for r in (1, 2, 3, 4) for p in (50, 90)]
    best = max(tuned.trials, key=lambda trial: trial.score)
    assert (tuned.active, tuned.percentile) == (best.active, best.percentile)
    assert tuned.metric == "agreement"
    settings = tuned.release.provenance.settings
    assert settings["active"] == tuned.active
    assert settings["percentile"] == tuned.percentile
    assert tuned.release.provenance.public.count == 3000


def test_the_estimate_holds_for_vectors_nobody_has_seen(tuned):
    fresh = evaluate(tuned.release, TASK, vectors(20_000, 3), seeds=3)
    assert 0 < tuned.error < 0.03
    # Four standard errors: a false alarm once in 16,000 seeds, and this seed is fixed.
    assert abs(fresh.mean("agreement") - tuned.estimate) < 4 * tuned.error


def test_the_standard_error_is_that_of_the_estimate():
    """Thirty other splits and simulations of fresh vectors scatter as the errors say."""
    runs = [
        tune(TASK, vectors(400, 10 + seed), epsilon=4, ranks=(2,), percentiles=(70,), seed=seed)
        for seed in range(30)
    ]
    spread = np.std([run.estimate for run in runs], ddof=1)
    told = np.mean([run.error for run in runs])
    # A deviation of 30 numbers is itself known to 13 %.
    assert 0.55 < spread / told < 1.6


def test_the_choice_beats_the_worst_candidate(tuned):
    scores = [trial.score for trial in tuned.trials]
    assert tuned.estimate > min(scores) + 0.05


def test_it_repeats_and_takes_batches_from_a_function():
    public = vectors(300, 4)
    whole, again, streamed = (
        tune(TASK, source, epsilon=3, randomizer="laplace", ranks=(1, 3), percentiles=(60,))
        for source in (public, public, lambda: iter(np.array_split(public, 5)))
    )
    assert whole.release == again.release
    assert whole.trials == again.trials
    assert [t.score for t in streamed.trials] == pytest.approx([t.score for t in whole.trials])
    other = tune(TASK, public, epsilon=3, randomizer="laplace", ranks=(1, 3), seed=1)
    assert other.estimate != whole.estimate


def test_a_number_is_judged_by_its_error():
    task = Layers.linear(np.random.default_rng(5).standard_normal((1, 12)))
    run = tune(task, vectors(500, 6), epsilon=5, randomizer="laplace")
    assert run.metric == "output_rmse"
    assert run.active == 1
    assert run.estimate == pytest.approx(min(trial.score for trial in run.trials), rel=0.3)
    assert run.error > 0
    with pytest.raises(InvalidInput, match="several outputs"):
        tune(task, vectors(500, 6), epsilon=5, metric="agreement")


def test_many_directions_are_tried_on_a_ladder():
    ranks = [rank for rank, _ in _grid(None, (90.0,), 100)]
    assert ranks == [*range(1, 11), 12, 16, 24, 32, 48, 64, 96, 100]
    assert [rank for rank, _ in _grid(None, (90.0,), 2)] == [1, 2]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"public": np.zeros((49, 12))}, "at least 50"),
        ({"randomizer": "response"}, "symbol"),
        ({"randomizer": "gaussian"}, "needs delta"),
        ({"ranks": (9,)}, "active must be an integer from 1 to 4"),
        ({"ranks": ()}, "at least one"),
        ({"percentiles": (0,)}, "percentile"),
        ({"metric": "accuracy"}, "metric"),
        ({"seeds": 0}, "seeds"),
        ({"epsilon": 0}, "epsilon"),
    ],
)
def test_bad_input_names_the_value_and_the_fix(change, message):
    arguments = {"public": vectors(60, 7), "epsilon": 1} | change
    with pytest.raises(InvalidInput, match=message):
        tune(TASK, arguments.pop("public"), **arguments)


def test_a_geometry_is_not_enough():
    public = vectors(60, 8)
    with pytest.raises(InvalidInput, match="the model itself"):
        tune(measure(TASK, PublicVectors(public)), public, epsilon=1)
