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
    """Train on released public digits, and count right answers on released private ones."""
    classifier = RidgeClassifier().fit(transformer.transform(PUBLIC), PUBLIC_LABELS)
    return float(classifier.score(transformer.transform(PRIVATE), PRIVATE_LABELS))


def test_reshaping_to_the_classes_keeps_digits_readable() -> None:
    """At ε = 20, over 200 runs (mean ± standard deviation of the accuracy; chance is 0.10).

    Reshaped 0.574 ± 0.018, plain 0.141 ± 0.013, reshaped for no task 0.188 ± 0.014. The last one
    is the broken twin that the first line must catch. Reports are unseeded, so bad luck can fail
    this; every threshold is 8 standard deviations or more away. Given the trained classifier an
    accuracy is a mean of 719 independent outcomes, and Hoeffding bounds a miss by the 0.15 between
    0.574 and 0.42 by exp(−2·719·0.15²) ≈ 1e-14.
    """
    shaped = digits_accuracy(PrivateVectors(epsilon=20).fit(PUBLIC, PUBLIC_LABELS))
    plain = digits_accuracy(PrivateVectors(epsilon=20, reshaping="none").fit(PUBLIC))
    twin = digits_accuracy(PrivateVectors(epsilon=20).fit(PUBLIC))
    assert shaped > 0.42
    assert plain < 0.35
    assert twin < 0.38


def test_every_transform_is_a_new_release() -> None:
    transformer = PrivateVectors(epsilon=5).fit(PUBLIC, PUBLIC_LABELS)
    assert (transformer.transform(PRIVATE) != transformer.transform(PRIVATE)).any(axis=1).all()


def test_no_seed_reaches_a_release() -> None:
    assert not {"random_state", "seed", "rng"} & set(PrivateVectors(epsilon=1).get_params())
    transformer = PrivateVectors(epsilon=5).fit(PUBLIC, PUBLIC_LABELS)
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
    ).fit(PUBLIC, PUBLIC_LABELS)
    release = transformer.release_
    assert release.guarantee.epsilon == Fraction(1, 10)
    assert release.guarantee.unit == "user"
    assert release.provenance.statement == "digits from the UCI repository"
    wanted = {"percentile": 50.0, "lambda_max": 20.0, "order": 2.0, "allocation": "gap"}
    assert release.provenance.settings == {
        "mechanism": "laplace",
        "reshaping": "jacobian",
        **wanted,
    }


def test_the_default_task_is_a_ridge_onto_the_classes() -> None:
    release = PrivateVectors(epsilon=1).fit(PUBLIC, PUBLIC_LABELS.astype(str)).release_
    assert release.provenance.model is not None
    assert release.provenance.model.name == "ridge"
    # Ten one-hot columns sum to one: nine directions matter and all others get the full stretch.
    stretch = np.linalg.norm(release.decoder.matrix, axis=0) ** 2
    assert (stretch < 999).sum() == 9


def test_without_targets_every_direction_matters_alike() -> None:
    release = PrivateVectors(epsilon=1).fit(PUBLIC).release_
    matrix = release.encoder.matrix
    np.testing.assert_allclose(matrix @ matrix.T, np.eye(64), atol=1e-12)
    np.testing.assert_allclose(release.encoder.centre, PUBLIC.mean(axis=0), rtol=1e-12)


@pytest.mark.parametrize("targets", [PUBLIC[:, 10] / 3, PUBLIC[:, 10:13] / 3])
def test_quantities_are_regressed_on(targets: np.ndarray) -> None:
    release = PrivateVectors(epsilon=1).fit(PUBLIC, targets).release_
    stretch = np.linalg.norm(release.decoder.matrix, axis=0) ** 2
    assert (stretch < 999).sum() == targets.reshape(len(PUBLIC), -1).shape[1]


def test_fitting_twice_gives_the_same_release() -> None:
    transformer = PrivateVectors(epsilon=1).fit(PUBLIC, PUBLIC_LABELS)
    first = transformer.release_
    assert transformer.fit(PUBLIC, PUBLIC_LABELS).release_ == first
    assert clone(transformer).fit(PUBLIC, PUBLIC_LABELS).release_ == first


def test_a_given_model_is_the_task_and_targets_are_left_alone() -> None:
    torch = pytest.importorskip("torch")
    module = torch.nn.Linear(64, 3).double()
    transformer = PrivateVectors(epsilon=2, model=module).fit(PUBLIC, np.full(len(PUBLIC), 1))
    assert transformer.release_ == offaxis.fit(module, PUBLIC, epsilon=2)


def test_a_fitted_estimator_is_used_and_an_unfitted_one_is_fitted() -> None:
    head = RidgeClassifier().fit(PUBLIC, PUBLIC_LABELS)
    wanted = offaxis.fit(head, PUBLIC, epsilon=1)
    assert PrivateVectors(epsilon=1, model=head).fit(PUBLIC).release_ == wanted
    unfitted = RidgeClassifier()
    assert PrivateVectors(epsilon=1, model=unfitted).fit(PUBLIC, PUBLIC_LABELS).release_ == wanted
    with pytest.raises(NotFittedError):
        unfitted.predict(PUBLIC)
    with pytest.raises(InvalidInput, match="not fitted"):
        PrivateVectors(epsilon=1, model=unfitted).fit(PUBLIC)


def test_only_a_frozen_estimator_keeps_its_weights_when_cloned() -> None:
    odd = RidgeClassifier().fit(PUBLIC, PUBLIC_LABELS % 2)
    wanted = offaxis.fit(odd, PUBLIC, epsilon=1)
    frozen = clone(PrivateVectors(epsilon=1, model=FrozenEstimator(odd)))
    assert frozen.fit(PUBLIC, PUBLIC_LABELS).release_ == wanted
    forgotten = clone(PrivateVectors(epsilon=1, model=odd))
    assert forgotten.fit(PUBLIC, PUBLIC_LABELS).release_ != wanted


def test_a_pickled_transformer_keeps_its_release() -> None:
    transformer = PrivateVectors(epsilon=5).fit(PUBLIC, PUBLIC_LABELS)
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
def test_no_vector_that_was_transformed_is_kept(kind: type) -> None:
    given = PRIVATE[:5] + 1 / 3  # no public row has such entries
    transformer = PrivateVectors(epsilon=1)
    if kind is SimulatedVectors:
        transformer = SimulatedVectors(transformer)
    transformer.fit(PUBLIC, PUBLIC_LABELS)
    transformer.transform(given)
    kept = pickle.dumps(transformer)
    assert not any(row[4:8].tobytes() in kept for row in given)
    assert given[0, 4:8].tobytes() in pickle.dumps((transformer, given)), "the search finds them"


def test_it_works_in_a_pipeline_and_a_grid_search() -> None:
    """At ε = 200 a digit is almost clean: accuracy near 0.92, far above the 0.6 asked for."""
    pipeline = make_pipeline(PrivateVectors(epsilon=200), RidgeClassifier())
    search = GridSearchCV(
        pipeline, {"privatevectors__percentile": [75.0, 90.0]}, cv=2, error_score="raise"
    )
    search.fit(PUBLIC, PUBLIC_LABELS)
    assert search.score(PRIVATE, PRIVATE_LABELS) > 0.6
    release = search.best_estimator_[0].release_
    assert release.provenance.settings["percentile"] == search.best_params_.popitem()[1]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_precision_in_is_precision_out(dtype: type) -> None:
    transformer = PrivateVectors(epsilon=1).fit(PUBLIC.astype(dtype), PUBLIC_LABELS)
    assert transformer.transform(PRIVATE[:3].astype(dtype)).dtype == dtype
    assert transformer.transform(PRIVATE[:3].astype(int)).dtype == np.float64


def test_data_frames_keep_their_columns() -> None:
    pandas = pytest.importorskip("pandas")
    names = [f"pixel{i}" for i in range(64)]
    frame = pandas.DataFrame(PRIVATE[:4], columns=names, index=list("abcd"))
    transformer = PrivateVectors(epsilon=1).set_output(transform="pandas")
    transformer.fit(pandas.DataFrame(PUBLIC, columns=names), pandas.Series(PUBLIC_LABELS))
    released = transformer.transform(frame)
    assert list(released.columns) == list(transformer.feature_names_in_) == names
    assert list(released.index) == list("abcd")


def test_feature_names_pass_through() -> None:
    transformer = PrivateVectors(epsilon=1).fit(PUBLIC, PUBLIC_LABELS)
    assert transformer.n_features_in_ == 64
    assert list(transformer.get_feature_names_out())[:2] == ["x0", "x1"]


def test_zero_tiny_and_huge_vectors_are_released() -> None:
    transformer = PrivateVectors(epsilon=1).fit(PUBLIC, PUBLIC_LABELS)
    extremes = np.vstack([np.zeros(64), np.full(64, 5e-324), np.full(64, 1.7e308)])
    assert np.isfinite(transformer.transform(extremes)).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("trusting", [False, True])
def test_no_setting_lets_a_value_that_is_not_finite_through(bad: float, trusting: bool) -> None:
    transformer = PrivateVectors(epsilon=1).fit(PUBLIC, PUBLIC_LABELS)
    broken = PUBLIC.copy()
    broken[1, 2] = bad
    with config_context(assume_finite=trusting):
        with pytest.raises(ValueError, match=r"finite|NaN|infinity"):
            transformer.transform(broken)
        for y in (None, PUBLIC_LABELS):
            with pytest.raises(ValueError, match=r"finite|NaN|infinity"):
                clone(transformer).fit(broken, y)


@pytest.mark.parametrize("name", NAMES)
def test_every_randomizer_releases(name: str) -> None:
    delta = delta_for(name)
    transformer = PrivateVectors(epsilon=2, mechanism=name, delta=delta)
    # A scalar channel is for tasks of one output: here the number itself.
    y = PUBLIC_LABELS.astype(float) if name == "scalar-response" else PUBLIC_LABELS
    released = transformer.fit(PUBLIC, y).transform(PRIVATE[:20])
    assert released.shape == (20, 64)
    assert np.isfinite(released).all()
    others = (released != transformer.transform(PRIVATE[:20])).any(axis=1)
    # One of a few codewords may well come again, but not twenty times.
    assert others.any() if name.endswith(("response", "subset")) else others.all()


def test_a_promise_has_no_default() -> None:
    for given in (PrivateVectors(), SimulatedVectors()):
        with pytest.raises(InvalidInput, match="epsilon is what people are promised"):
            given.fit(PUBLIC, PUBLIC_LABELS)
    with pytest.raises(InvalidInput, match="epsilon is promised to people"):
        PrivateVectors().set_params(epsilon=2)  # or a search could choose it


@pytest.mark.parametrize(
    ("parameters", "y", "message"),
    [
        ({"epsilon": 0}, PUBLIC_LABELS, "epsilon must be positive, got epsilon=0"),
        ({"delta": 1e-5}, PUBLIC_LABELS, "takes no delta"),
        ({"percentile": 0}, PUBLIC_LABELS, "percentile"),
        ({"reshaping": "pca"}, PUBLIC_LABELS, "one of 'jacobian', 'optimal', 'centre', 'none'"),
        ({}, np.zeros(len(PUBLIC), dtype=int), "only one class"),
        ({}, PUBLIC_LABELS[:-1], "inconsistent numbers of samples"),
    ],
)
def test_bad_settings_are_named(parameters: dict, y: np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PrivateVectors(**{"epsilon": 1} | parameters).fit(PUBLIC, y)


def test_too_few_public_vectors_are_an_error() -> None:
    with pytest.raises(ValueError, match=r"9 sample.* minimum of 10"):
        PrivateVectors(epsilon=1).fit(PUBLIC[:9], PUBLIC_LABELS[:9])
