"""Searches over settings that cost no privacy: seeded, and never over the guarantee."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pandas
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits, load_iris
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.model_selection import GridSearchCV, ParameterGrid, cross_val_score
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from offaxis.encoding import Jacobian, Optimal
from offaxis.errors import InvalidInput
from offaxis.integrations.sklearn import (
    PrivateVectors,
    SimulatedScore,
    SimulatedVectors,
    free_settings,
    released,
)
from offaxis.integrations.sklearn.search import FREE
from offaxis.simulation import simulate

X, Y = load_digits(return_X_y=True)
X, Y = X[:600], Y[:600]


def pipeline(private: Any) -> Pipeline:
    return Pipeline([("private", private), ("head", RidgeClassifier())])


def test_a_grid_search_accepts_the_free_settings() -> None:
    grid = free_settings("private", reshaping=["none", "jacobian"], percentile=[90.0])
    search = GridSearchCV(
        pipeline(PrivateVectors(epsilon=50, mechanism="laplace")), grid, cv=2, error_score="raise"
    )
    search.fit(X, Y)
    # Over 40 runs the accuracy was 0.710 ± 0.013 with reshaping and 0.207 ± 0.017 without.
    assert search.best_params_["private__reshaping"] == "jacobian"
    assert search.best_estimator_["private"].release_.guarantee.epsilon == 50


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # of the head
def test_a_logistic_regression_works_as_the_head() -> None:
    private = PrivateVectors(epsilon=4, mechanism="laplace")
    steps = [("private", private), ("head", LogisticRegression(max_iter=20))]
    grid = free_settings(
        "private",
        reshaping=[Jacobian(order=p, allocation=a) for p in (1, 2) for a in ("capped", "gap")],
    )
    search = GridSearchCV(Pipeline(steps), grid, cv=2, error_score="raise")
    search.fit(*load_iris(return_X_y=True))
    assert len(search.cv_results_["params"]) == 4
    assert search.best_estimator_["private"].release_.guarantee.epsilon == 4
    assert set(search.best_params_) <= {f"private__{name}" for name in FREE}


def test_a_simulated_search_repeats_and_draws_no_report(drawn: list[int]) -> None:
    private = SimulatedVectors(PrivateVectors(epsilon=20, mechanism="laplace"), random_state=3)
    grid = free_settings("private__vectors", reshaping=["centre", Jacobian(lambda_max=10.0)])
    results = [
        GridSearchCV(pipeline(private), grid, cv=2, error_score="raise").fit(X, Y).cv_results_
        for _ in range(2)
    ]
    np.testing.assert_array_equal(results[0]["mean_test_score"], results[1]["mean_test_score"])
    assert drawn == []


def test_another_seed_gives_another_simulation() -> None:
    fitted = SimulatedVectors(PrivateVectors(epsilon=20, mechanism="laplace")).fit(X, Y)
    first = fitted.transform(X)
    assert (fitted.set_params(random_state=1).transform(X) != first).any(axis=1).all()


def test_folds_do_not_share_noise() -> None:
    """The broken control seeds by number alone: its row i has the same noise in every fold."""
    fitted = SimulatedVectors(PrivateVectors(epsilon=5, reshaping="none", mechanism="laplace")).fit(
        X
    )
    inside = X.mean(axis=0) / 100  # not clipped, so that the difference is only noise
    first, second = np.tile(inside, (20, 1)), np.tile(2 * inside, (20, 1))
    noise = [fitted.transform(vectors) - vectors for vectors in (first, second)]
    assert (np.abs(noise[0] - noise[1]) > 1e-9).all()
    release = fitted.release_
    broken = [simulate(release, Z, np.random.default_rng(0)) - Z for Z in (first, second)]
    np.testing.assert_allclose(broken[0], broken[1], atol=1e-9)


def test_a_simulation_has_the_real_release(drawn: list[int]) -> None:
    simulated = SimulatedVectors(PrivateVectors(epsilon=20, mechanism="laplace")).fit(X, Y)
    assert simulated.release_ == PrivateVectors(epsilon=20, mechanism="laplace").fit(X, Y).release_
    real = [simulated.vectors_.transform(X[:5]) for _ in range(2)]
    assert (real[0] != real[1]).any(axis=1).all()
    assert drawn == [5, 5]


def test_a_simulated_pipeline_becomes_a_real_one(drawn: list[int]) -> None:
    private = SimulatedVectors(PrivateVectors(epsilon=20, mechanism="laplace"))
    simulated = make_pipeline(StandardScaler(), private, RidgeClassifier()).fit(X, Y)
    real = released(simulated)
    assert drawn == []
    assert real[-1] is simulated[-1]
    assert real.predict(X[:9]).shape == (9,)
    assert drawn == [9]
    assert isinstance(simulated[1], SimulatedVectors), "the given pipeline is unchanged"
    with pytest.raises(InvalidInput, match="already draws real reports"):
        released(real)
    with pytest.raises(NotFittedError):
        released(make_pipeline(clone(private), RidgeClassifier()))


def test_simulated_and_real_vectors_have_similar_scores() -> None:
    """Accuracies on 300 held-out digits at ε = 20, with a head trained on released vectors.

    Over 60 runs each, real reports gave 0.384 ± 0.023 and simulated ones 0.388 ± 0.028. The control
    without noise gives 0.743. Both thresholds are at least 6.9 standard deviations of a real run
    away: a false alarm occurs less than once in 10^11 runs.
    """
    scores = {}
    for name, step in {
        "real": PrivateVectors(epsilon=20, mechanism="laplace"),
        "simulated": SimulatedVectors(PrivateVectors(epsilon=20, mechanism="laplace")),
    }.items():
        fitted = pipeline(step).fit(X[:300], Y[:300])
        scores[name] = fitted.score(X[300:], Y[300:])
    noiseless = RidgeClassifier().fit(X[:300], Y[:300]).score(X[300:], Y[300:])
    assert abs(scores["real"] - scores["simulated"]) < 0.2
    assert noiseless - scores["real"] > 0.2


@pytest.mark.parametrize("change", [{"epsilon": 8}, {"delta": 1e-5}, {"unit": "user"}])
@pytest.mark.parametrize("simulated", [False, True])
def test_the_guarantee_cannot_be_searched(change: dict[str, Any], simulated: bool) -> None:
    ((name, value),) = change.items()
    with pytest.raises(InvalidInput, match=rf"{name} costs privacy.*smallest_epsilon"):
        free_settings("private", **{name: [value]})
    step: Any = PrivateVectors(epsilon=4, mechanism="laplace")
    key = f"private__{name}"
    if simulated:
        step, key = SimulatedVectors(step), f"private__vectors__{name}"
    search = GridSearchCV(pipeline(step), {key: [value]}, cv=2)
    with pytest.raises(
        InvalidInput, match=rf"{name} is promised to people.*PrivateVectors\({name}"
    ):
        search.fit(X, Y)


@pytest.mark.parametrize("change", [{"epsilon": 50}, {"unit": "user"}])
def test_vectors_with_another_guarantee_raise(change: dict[str, Any]) -> None:
    """A larger budget scores better, so a search would always choose it."""
    ((name, value),) = change.items()
    step = SimulatedVectors(PrivateVectors(epsilon=4, mechanism="laplace"))
    grid = {
        "private__vectors": [
            PrivateVectors(epsilon=4, mechanism="laplace"),
            PrivateVectors(**{"epsilon": 4, **change}),
        ]
    }
    with pytest.raises(InvalidInput, match=rf"{name} is promised to people.*got {name}={value!r}"):
        GridSearchCV(pipeline(step), grid, cv=2).fit(X, Y)
    for default in (
        SimulatedVectors(),
        SimulatedVectors(PrivateVectors(epsilon=1, mechanism="laplace")),
    ):
        with pytest.raises(InvalidInput, match=r"epsilon=4 in place of (None|1)"):
            default.set_params(vectors=PrivateVectors(epsilon=4, mechanism="laplace"))
    with pytest.raises(InvalidInput, match=r"epsilon=None in place of 4"):
        step.set_params(vectors=None)
    with pytest.raises(InvalidInput, match="must be a PrivateVectors, got str"):
        step.set_params(vectors="none", random_state=5)
    assert (step.vectors.epsilon, step.random_state) == (4, 0), "nothing changes after an error"


def test_vectors_with_the_same_guarantee_are_accepted() -> None:
    step = SimulatedVectors(PrivateVectors(epsilon=4, mechanism="laplace"))
    other = PrivateVectors(epsilon=4, percentile=50.0, mechanism="laplace")
    assert step.set_params(vectors=other, random_state=5).vectors is other
    assert clone(step).vectors.percentile == 50.0
    search = GridSearchCV(pipeline(step), {"private__vectors": [other]}, cv=2).fit(X, Y)
    assert search.best_estimator_["private"].release_.guarantee.epsilon == 4


def test_setting_the_same_guarantee_is_accepted() -> None:
    private = PrivateVectors(epsilon=4, delta=None, mechanism="laplace")
    assert private.set_params(epsilon=4, delta=None, unit="item", percentile=50).percentile == 50
    assert clone(private).epsilon == 4
    with pytest.raises(InvalidInput, match="epsilon"):
        private.set_params(epsilon=8, percentile=10)
    assert private.percentile == 50, "nothing changes after an error"


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"colour": ["red"]}, "one of mechanism, .*'colour'"),
        ({"statement": ["x"]}, "'statement'"),
        ({"mechanism": ["laplace", "gaussian"]}, "some have a δ"),
        ({"mechanism": ["laplace", "noise"]}, r"mechanism.*'noise'"),
    ],
)
def test_other_settings_raise(choices: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        free_settings(**choices)


def test_every_setting_of_the_default_grid_can_be_fitted() -> None:
    for settings in ParameterGrid(free_settings()):
        PrivateVectors(epsilon=4, **settings).fit(X, Y)
    assert all(key.startswith("a__b__") for grid in free_settings("a__b") for key in grid)


def test_the_score_is_the_simulated_score_of_the_model(drawn: list[int]) -> None:
    head = FrozenEstimator(RidgeClassifier().fit(X, Y))
    private = PrivateVectors(epsilon=50, model=head, mechanism="laplace")
    score = SimulatedScore("accuracy", seeds=3)
    runs = [cross_val_score(private, X, Y, scoring=score, cv=2) for _ in range(2)]
    np.testing.assert_array_equal(*runs)
    assert drawn == []
    fitted = private.fit(X, Y)
    mean = np.mean(
        [
            head.score(simulate(fitted.release_, X, np.random.default_rng([0, seed])), Y)
            for seed in range(3)
        ]
    )
    assert score(fitted, X, Y) == mean
    assert score(SimulatedVectors(private).fit(X, Y), X, Y) == mean
    assert SimulatedScore(seed=1, seeds=3)(fitted, X, Y) != mean
    assert pickle.loads(pickle.dumps(score)) == score, "searches send it to other processes"


def test_the_score_applies_the_steps_before_the_release() -> None:
    steps = make_pipeline(
        StandardScaler(), PrivateVectors(epsilon=50, mechanism="laplace"), RidgeClassifier()
    )
    fitted = steps.fit(X, Y)
    scaled = fitted[0].transform(X)
    noisy = simulate(fitted[1].release_, scaled, np.random.default_rng([0, 0]))
    assert SimulatedScore(seeds=1)(fitted, X, Y) == fitted[2].score(noisy, Y)


def test_a_score_without_a_model_after_the_release_raises() -> None:
    for estimator in (
        PrivateVectors(epsilon=4, mechanism="laplace"),
        make_pipeline(StandardScaler(), PrivateVectors(epsilon=4, mechanism="laplace")),
        make_pipeline(StandardScaler(), RidgeClassifier()),
    ):
        with pytest.raises(InvalidInput, match="after it"):
            SimulatedScore("accuracy")(estimator.fit(X, Y), X, Y)
    with pytest.raises(InvalidInput, match="must be a PrivateVectors, got Ridge"):
        SimulatedVectors(RidgeClassifier()).fit(X, Y)


def test_codebooks_and_optimal_reshaping_are_settings() -> None:
    release = PrivateVectors(epsilon=4, mechanism="response", size=12).fit(X, Y).release_
    assert release.randomizer.size == 12
    optimal = (
        PrivateVectors(epsilon=4, reshaping=Optimal(rank=5), mechanism="laplace").fit(X, Y).release_
    )
    assert optimal.encoder.output_dim == 5
    answers = PrivateVectors(epsilon=4, mechanism="class-response").fit(X, Y)
    assert answers.release_.randomizer.domain.size == 10


def test_a_pipeline_simulated_on_frames_is_released_on_frames() -> None:
    """The head knows its columns by name, and would warn about arrays."""
    frame = pandas.DataFrame(X[:50], columns=[f"pixel{i}" for i in range(64)])
    simulated = pipeline(
        SimulatedVectors(PrivateVectors(epsilon=4, mechanism="laplace"))
    ).set_output(transform="pandas")
    real = released(simulated.fit(frame, Y[:50]))
    assert list(real["private"].transform(frame[:2]).columns) == list(frame.columns)
    assert real.predict(frame).shape == (50,)


def test_both_transformers_return_data_frames(drawn: list[int]) -> None:
    frame = pandas.DataFrame(X[:50], columns=[f"pixel{i}" for i in range(64)])
    for step in (
        PrivateVectors(epsilon=4, mechanism="laplace"),
        SimulatedVectors(PrivateVectors(epsilon=4, mechanism="laplace")),
    ):
        output = step.set_output(transform="pandas").fit(frame, Y[:50]).transform(frame)
        assert list(output.columns) == list(frame.columns)
        assert output.index.equals(frame.index)
    assert drawn == [50]
