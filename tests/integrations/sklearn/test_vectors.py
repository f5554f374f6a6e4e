"""PrivateVectors: utility, fresh noise, parameters and errors."""

from __future__ import annotations

import pickle
from fractions import Fraction

import numpy as np
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import RidgeClassifier
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline

import offaxis
from offaxis.errors import InvalidInput
from offaxis.integrations.sklearn import PrivateVectors, SimulatedVectors
from offaxis.mechanisms import NAMES
from tests.checks import delta_for

PUBLIC, PRIVATE, PUBLIC_LABELS, PRIVATE_LABELS = train_test_split(
    *load_digits(return_X_y=True), test_size=0.4, random_state=0, stratify=load_digits().target
)


def digits_accuracy(transformer: PrivateVectors) -> float:
    """Train on released public digits; return the accuracy on released private ones."""
    classifier = RidgeClassifier().fit(transformer.transform(PUBLIC), PUBLIC_LABELS)
    return float(classifier.score(transformer.transform(PRIVATE), PRIVATE_LABELS))


def test_reshaping_to_the_classes_keeps_digits_readable() -> None:
    """At ε = 20, over 200 runs (mean ± standard deviation of the accuracy; chance is 0.10).

    Reshaped 0.574 ± 0.018, plain 0.141 ± 0.013, reshaped without a task 0.188 ± 0.014. The last one
    is the broken control that the first threshold must reject. Reports are unseeded, so this can
    fail by chance; every threshold is at least 8 standard deviations away. Given the trained
    classifier, an accuracy is a mean of 719 independent outcomes, and Hoeffding bounds the
    probability of falling from 0.574 to 0.42 by exp(−2·719·0.15²) ≈ 1e-14.
    """
    shaped = digits_accuracy(
        PrivateVectors(epsilon=20, mechanism="laplace").fit(PUBLIC, PUBLIC_LABELS)
    )
    plain = digits_accuracy(
        PrivateVectors(epsilon=20, reshaping="none", mechanism="laplace").fit(PUBLIC)
    )
    broken = digits_accuracy(PrivateVectors(epsilon=20, mechanism="laplace").fit(PUBLIC))
    assert shaped > 0.42
    assert plain < 0.35
    assert broken < 0.38


def test_every_transform_is_a_new_release() -> None:
    transformer = PrivateVectors(epsilon=5, mechanism="laplace").fit(PUBLIC, PUBLIC_LABELS)
    assert (transformer.transform(PRIVATE) != transformer.transform(PRIVATE)).any(axis=1).all()


def test_no_seed_affects_a_release() -> None:
    assert not {"random_state", "seed", "rng"} & set(
        PrivateVectors(epsilon=1, mechanism="laplace").get_params()
    )
    transformer = PrivateVectors(epsilon=5, mechanism="laplace").fit(PUBLIC, PUBLIC_LABELS)
    draws = []
    for _ in range(2):
        np.random.seed(0)  # noqa: NPY002 - the point is that it does nothing
        draws.append(transformer.transform(PRIVATE[:5]))
    assert (draws[0] != draws[1]).any(axis=1).all()


def test_parameters_reach_the_release() -> None:
    transformer = PrivateVectors(
        epsilon=0.1,
        unit="user",
        percentile=50,
        reshaping=offaxis.Jacobian(lambda_max=20, order=2, allocation="gap"),
        statement="digits from the UCI repository",
        mechanism="laplace",
    ).fit(PUBLIC, PUBLIC_LABELS)
    release = transformer.release_
    assert release.guarantee.epsilon == Fraction(1, 10)
    assert release.guarantee.unit == "user"
    assert release.provenance.statement == "digits from the UCI repository"
    settings = {"percentile": 50.0, "lambda_max": 20.0, "order": 2.0, "allocation": "gap"}
    assert release.provenance.settings == {
        "mechanism": "laplace",
        "reshaping": "jacobian",
        **settings,
    }


def test_the_default_task_is_a_ridge_regression_of_the_classes() -> None:
    release = (
        PrivateVectors(epsilon=1, mechanism="laplace")
        .fit(PUBLIC, PUBLIC_LABELS.astype(str))
        .release_
    )
    assert release.provenance.model is not None
    assert release.provenance.model.name == "ridge"
    # Ten one-hot columns sum to one: nine directions matter, all others get the full stretch.
    stretch = np.linalg.norm(release.decoder.matrix, axis=0) ** 2
    assert (stretch < 999).sum() == 9


def test_without_targets_all_directions_matter_equally() -> None:
    release = PrivateVectors(epsilon=1, mechanism="laplace").fit(PUBLIC).release_
    matrix = release.encoder.matrix
    np.testing.assert_allclose(matrix @ matrix.T, np.eye(64), atol=1e-12)
    np.testing.assert_allclose(release.encoder.centre, PUBLIC.mean(axis=0), rtol=1e-12)


@pytest.mark.parametrize("targets", [PUBLIC[:, 10] / 3, PUBLIC[:, 10:13] / 3])
def test_numeric_targets_are_regressed(targets: np.ndarray) -> None:
    release = PrivateVectors(epsilon=1, mechanism="laplace").fit(PUBLIC, targets).release_
    stretch = np.linalg.norm(release.decoder.matrix, axis=0) ** 2
    assert (stretch < 999).sum() == targets.reshape(len(PUBLIC), -1).shape[1]


def test_fitting_twice_gives_the_same_release() -> None:
    transformer = PrivateVectors(epsilon=1, mechanism="laplace").fit(PUBLIC, PUBLIC_LABELS)
    first = transformer.release_
    assert transformer.fit(PUBLIC, PUBLIC_LABELS).release_ == first
    assert clone(transformer).fit(PUBLIC, PUBLIC_LABELS).release_ == first


def test_a_given_model_is_the_task_and_targets_are_ignored() -> None:
    torch = pytest.importorskip("torch")
    module = torch.nn.Linear(64, 3).double()
    transformer = PrivateVectors(epsilon=2, model=module, mechanism="laplace").fit(
        PUBLIC, np.full(len(PUBLIC), 1)
    )
    assert transformer.release_ == offaxis.fit(module, PUBLIC, epsilon=2, mechanism="laplace")


def test_a_fitted_estimator_is_used_and_an_unfitted_one_is_fitted() -> None:
    head = RidgeClassifier().fit(PUBLIC, PUBLIC_LABELS)
    expected = offaxis.fit(head, PUBLIC, epsilon=1, mechanism="laplace")
    assert (
        PrivateVectors(epsilon=1, model=head, mechanism="laplace").fit(PUBLIC).release_ == expected
    )
    unfitted = RidgeClassifier()
    assert (
        PrivateVectors(epsilon=1, model=unfitted, mechanism="laplace")
        .fit(PUBLIC, PUBLIC_LABELS)
        .release_
        == expected
    )
    with pytest.raises(NotFittedError):
        unfitted.predict(PUBLIC)
    with pytest.raises(InvalidInput, match="not fitted"):
        PrivateVectors(epsilon=1, model=unfitted, mechanism="laplace").fit(PUBLIC)


def test_only_a_frozen_estimator_keeps_its_weights_when_cloned() -> None:
    odd = RidgeClassifier().fit(PUBLIC, PUBLIC_LABELS % 2)
    expected = offaxis.fit(odd, PUBLIC, epsilon=1, mechanism="laplace")
    frozen = clone(PrivateVectors(epsilon=1, model=FrozenEstimator(odd), mechanism="laplace"))
    assert frozen.fit(PUBLIC, PUBLIC_LABELS).release_ == expected
    not_frozen = clone(PrivateVectors(epsilon=1, model=odd, mechanism="laplace"))
    assert not_frozen.fit(PUBLIC, PUBLIC_LABELS).release_ != expected


def test_a_pickled_transformer_keeps_its_release() -> None:
    transformer = PrivateVectors(epsilon=5, mechanism="laplace").fit(PUBLIC, PUBLIC_LABELS)
    transformer.transform(PRIVATE[:5])  # fill every cache on the way
    copy = pickle.loads(pickle.dumps(transformer))
    assert copy.get_params() == transformer.get_params()
    assert copy.release_ == transformer.release_
    assert copy.release_.guarantee == transformer.release_.guarantee
    reports = copy.release_.privatize(PRIVATE[:5])
    np.testing.assert_array_equal(
        copy.release_.decode(reports), transformer.release_.decode(reports)
    )
    assert (copy.transform(PRIVATE[:5]) != transformer.transform(PRIVATE[:5])).any(axis=1).all()


@pytest.mark.parametrize("kind", [PrivateVectors, SimulatedVectors])
def test_transformed_vectors_are_not_kept(kind: type) -> None:
    private = PRIVATE[:5] + 1 / 3  # no public row has such entries
    transformer = PrivateVectors(epsilon=1, mechanism="laplace")
    if kind is SimulatedVectors:
        transformer = SimulatedVectors(transformer)
    transformer.fit(PUBLIC, PUBLIC_LABELS)
    transformer.transform(private)
    kept = pickle.dumps(transformer)
    assert not any(row[4:8].tobytes() in kept for row in private)
    assert private[0, 4:8].tobytes() in pickle.dumps((transformer, private)), "the search works"


def test_it_works_in_a_pipeline_and_a_grid_search() -> None:
    """At ε = 200 there is little noise: the accuracy is near 0.92, far above the required 0.6."""
    pipeline = make_pipeline(PrivateVectors(epsilon=200, mechanism="laplace"), RidgeClassifier())
    search = GridSearchCV(
        pipeline, {"privatevectors__percentile": [75.0, 90.0]}, cv=2, error_score="raise"
    )
    search.fit(PUBLIC, PUBLIC_LABELS)
    assert search.score(PRIVATE, PRIVATE_LABELS) > 0.6
    release = search.best_estimator_[0].release_
    assert release.provenance.settings["percentile"] == search.best_params_.popitem()[1]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_output_keeps_the_dtype_of_the_input(dtype: type) -> None:
    transformer = PrivateVectors(epsilon=1, mechanism="laplace").fit(
        PUBLIC.astype(dtype), PUBLIC_LABELS
    )
    assert transformer.transform(PRIVATE[:3].astype(dtype)).dtype == dtype
    assert transformer.transform(PRIVATE[:3].astype(int)).dtype == np.float64


def test_data_frames_keep_their_columns() -> None:
    pandas = pytest.importorskip("pandas")
    names = [f"pixel{i}" for i in range(64)]
    frame = pandas.DataFrame(PRIVATE[:4], columns=names, index=list("abcd"))
    transformer = PrivateVectors(epsilon=1, mechanism="laplace").set_output(transform="pandas")
    transformer.fit(pandas.DataFrame(PUBLIC, columns=names), pandas.Series(PUBLIC_LABELS))
    released = transformer.transform(frame)
    assert list(released.columns) == list(transformer.feature_names_in_) == names
    assert list(released.index) == list("abcd")


def test_feature_names_are_kept() -> None:
    transformer = PrivateVectors(epsilon=1, mechanism="laplace").fit(PUBLIC, PUBLIC_LABELS)
    assert transformer.n_features_in_ == 64
    assert list(transformer.get_feature_names_out())[:2] == ["x0", "x1"]


def test_zero_tiny_and_huge_vectors_are_released() -> None:
    transformer = PrivateVectors(epsilon=1, mechanism="laplace").fit(PUBLIC, PUBLIC_LABELS)
    extremes = np.vstack([np.zeros(64), np.full(64, 5e-324), np.full(64, 1.7e308)])
    assert np.isfinite(transformer.transform(extremes)).all()


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("assume_finite", [False, True])
def test_values_that_are_not_finite_always_raise(value: float, assume_finite: bool) -> None:
    transformer = PrivateVectors(epsilon=1, mechanism="laplace").fit(PUBLIC, PUBLIC_LABELS)
    invalid = PUBLIC.copy()
    invalid[1, 2] = value
    with config_context(assume_finite=assume_finite):
        with pytest.raises(ValueError, match=r"finite|NaN|infinity"):
            transformer.transform(invalid)
        for y in (None, PUBLIC_LABELS):
            with pytest.raises(ValueError, match=r"finite|NaN|infinity"):
                clone(transformer).fit(invalid, y)


@pytest.mark.parametrize("name", NAMES)
def test_every_mechanism_releases(name: str) -> None:
    delta = delta_for(name)
    transformer = PrivateVectors(epsilon=2, mechanism=name, delta=delta)
    # scalar-response is for tasks with one output: here the digit as a number.
    y = PUBLIC_LABELS.astype(float) if name == "scalar-response" else PUBLIC_LABELS
    released = transformer.fit(PUBLIC, y).transform(PRIVATE[:100])
    assert released.shape == (100, 64)
    assert np.isfinite(released).all()
    changed = (released != transformer.transform(PRIVATE[:100])).any(axis=1)
    # A symbol is drawn again with probability below 0.7, and the hybrid randomizer sends one of
    # two values of one of 64 coordinates about every third time: all 100 repeat with probability
    # below 1e-15. Other reports repeat with probability below 1e-9.
    repeats = name.endswith(("response", "subset")) or name == "hybrid"
    assert changed.any() if repeats else changed.all()


def test_epsilon_has_no_default() -> None:
    for transformer in (PrivateVectors(), SimulatedVectors()):
        with pytest.raises(InvalidInput, match="epsilon is promised to people and has no default"):
            transformer.fit(PUBLIC, PUBLIC_LABELS)
    with pytest.raises(InvalidInput, match="epsilon is promised to people and not a setting"):
        PrivateVectors().set_params(epsilon=2)  # or a search could choose it


@pytest.mark.parametrize(
    ("parameters", "y", "message"),
    [
        ({"epsilon": 0}, PUBLIC_LABELS, "epsilon must be positive, got epsilon=0"),
        ({"delta": 1e-5, "mechanism": "laplace"}, PUBLIC_LABELS, "takes no delta"),
        ({"delta": 1e-5}, PUBLIC_LABELS, "delta=1e-05 is a setting of a mechanism"),
        ({"percentile": 0}, PUBLIC_LABELS, "percentile"),
        (
            {"reshaping": "pca", "mechanism": "laplace"},
            PUBLIC_LABELS,
            "one of 'jacobian', 'optimal', 'centre', 'none'",
        ),
        ({}, np.zeros(len(PUBLIC), dtype=int), "only one class"),
        ({}, PUBLIC_LABELS[:-1], "inconsistent numbers of samples"),
    ],
)
def test_invalid_parameters_raise_with_the_reason(
    parameters: dict, y: np.ndarray, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        PrivateVectors(**{"epsilon": 1} | parameters).fit(PUBLIC, y)


def test_too_few_public_vectors_raise() -> None:
    with pytest.raises(ValueError, match=r"9 sample.* minimum of 10"):
        PrivateVectors(epsilon=1, mechanism="laplace").fit(PUBLIC[:9], PUBLIC_LABELS[:9])
