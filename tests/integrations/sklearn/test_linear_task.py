"""The default task: a ridge regression of public targets on public vectors."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from offaxis.errors import InvalidInput
from offaxis.integrations.sklearn.vectors import PENALTIES, identity_task, linear_task

RNG = np.random.default_rng(3)
X = RNG.standard_normal((400, 5)) @ RNG.standard_normal((5, 5)) + 3
TRUE = RNG.standard_normal((2, 5))
NOISE = RNG.standard_normal((400, 2))


def penalty_unit(vectors: np.ndarray) -> float:
    return float(((vectors - vectors.mean(axis=0)) ** 2).sum() / vectors.shape[1])


def leave_one_out_error(penalty: float, vectors: np.ndarray, targets: np.ndarray) -> float:
    rows = np.arange(len(vectors))
    gaps = []
    for row in rows:
        fitted = Ridge(alpha=penalty).fit(vectors[rows != row], targets[rows != row])
        gaps.append(fitted.predict(vectors[[row]])[0] - targets[row])
    return float(np.mean(np.square(gaps)))


def test_noiseless_targets_give_the_true_weights() -> None:
    task = linear_task(X, X @ TRUE.T + 7)
    np.testing.assert_allclose(task.weights[0], TRUE, atol=1e-3)
    np.testing.assert_allclose(task.outputs(X), X @ TRUE.T + 7, rtol=1e-3)


def test_it_is_ridge_regression_with_one_of_the_penalties() -> None:
    targets = X @ TRUE.T + 5 * NOISE
    task = linear_task(X, targets)
    candidates = [Ridge(alpha=a * penalty_unit(X)).fit(X, targets) for a in PENALTIES]
    gaps = [np.abs(ridge.coef_ - task.weights[0]).max() for ridge in candidates]
    assert min(gaps) < 1e-10
    best = candidates[int(np.argmin(gaps))]
    np.testing.assert_allclose(task.biases[0], best.intercept_, rtol=1e-8)


@pytest.mark.parametrize("n", [12, 40])
def test_the_penalty_is_nearly_the_best_by_leave_one_out(n: int) -> None:
    # 12 vectors in 20 dimensions can fit anything; 40 cannot. Neither may interpolate noise.
    rng = np.random.default_rng(n)
    vectors = rng.standard_normal((n, 20)) * np.logspace(0, -2, 20)
    targets = vectors[:, :1] + 0.5 * rng.standard_normal((n, 1))
    weight = linear_task(vectors, targets).weights[0]
    unit = penalty_unit(vectors)
    errors = [leave_one_out_error(a * unit, vectors, targets) for a in PENALTIES]
    fits = [Ridge(alpha=a * unit).fit(vectors, targets).coef_ for a in PENALTIES]
    chosen = int(np.argmin([np.abs(fit - weight).max() for fit in fits]))
    assert errors[chosen] < 1.2 * min(errors) < 0.9 * errors[0]


def test_a_direction_that_hardly_varies_does_not_dominate() -> None:
    rng = np.random.default_rng(5)
    useful = rng.standard_normal((200, 4))
    labels = (useful[:, 0] > 0).astype(int)
    rare = np.zeros((200, 1))
    rare[labels.argmax()] = 1e-6  # seen once, in one class: least squares gives it a large weight
    vectors = np.hstack([useful, rare])
    design = np.hstack([vectors, np.ones((200, 1))])
    unpenalized = np.linalg.lstsq(design, np.eye(2)[labels])[0]
    assert np.abs(unpenalized[4]).max() > 1e3 * np.abs(unpenalized[0]).max()
    weight = linear_task(vectors, labels).weights[0]
    assert np.abs(weight[:, -1]).max() < 0.1 * np.abs(weight[:, 0]).max()


@pytest.mark.parametrize("kind", [int, str, bool, object])
def test_classes_are_regressed_as_one_hot_columns(kind: type) -> None:
    labels = (X[:, 0] > 3).astype(int) + (0 if kind is bool else (X[:, 1] > 3))
    one_hot = np.eye(labels.max() + 1)[labels]
    task, expected = linear_task(X, labels.astype(kind)), linear_task(X, one_hot)
    np.testing.assert_allclose(task.weights[0], expected.weights[0], rtol=1e-9)
    np.testing.assert_allclose(task.biases[0], expected.biases[0], rtol=1e-9)


def test_a_single_column_is_read_like_a_flat_target() -> None:
    labels = (X[:, 0] > 3).astype(int)
    for y in (labels, X[:, 1]):
        np.testing.assert_array_equal(
            linear_task(X, y[:, None]).weights[0], linear_task(X, y).weights[0]
        )


@pytest.mark.parametrize("scale", [1e-150, 1e150])
def test_the_scale_of_the_vectors_does_not_matter(scale: float) -> None:
    y = X @ TRUE[0] + NOISE[:, 0]
    np.testing.assert_allclose(
        linear_task(X * scale, y).weights[0] * scale, linear_task(X, y).weights[0], rtol=1e-9
    )


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (np.full(400, 0.1), r"y is constant \(\[0.1\]\).*y=None"),
        (np.full((400, 2), 3), r"y is constant"),
        (np.full(400, 3), r"only one class \(3\).*y=None"),
        (np.full(400, "cat"), "only one class"),
        (np.arange(400), r"400 classes for 400 public vectors.*y.astype\(float\)"),
        (np.array(["a", 1] * 200, dtype=object), "cannot be compared"),
        (np.full(400, 1j), "complex128"),
        (np.full((400, 2), "cat"), "got shape"),
        (np.zeros((400, 2, 2)), "got shape"),
    ],
)
def test_invalid_targets_raise_with_the_reason(y: np.ndarray, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        linear_task(X, y)


def test_targets_independent_of_the_vectors_raise() -> None:
    corners = np.array([[-1.0], [1.0]] * 8)
    with pytest.raises(InvalidInput, match=r"weights are all zero; .*reshaping='none'"):
        linear_task(corners, np.repeat([0, 1], 8))


def test_a_large_offset_of_the_targets_does_not_matter() -> None:
    y = np.round(X @ TRUE[0], 3)
    np.testing.assert_allclose(
        linear_task(X, y + 2.0**30).weights[0], linear_task(X, y).weights[0], rtol=1e-5
    )


def test_equal_vectors_raise() -> None:
    # The mean of 0.1 + 0.2 is rounded: the residue must not count as a direction.
    equal = np.full((30, 3), 0.1 + 0.2)
    for fit in (identity_task, lambda X: linear_task(X, np.arange(30.0))):
        with pytest.raises(InvalidInput, match="all public vectors are the same"):
            fit(equal)
