"""A public linear task when no model is given: what do public targets depend on?

Contract: :func:`linear_task` returns the weights (k, m) of a ridge regression with an intercept of
the targets on the public vectors; classes are regressed as one-hot columns.

Why this and not a trained classifier. Reshaping needs directions, not probabilities, and the
one-hot least-squares weights span the discriminant directions of the classes (Hastie, Tibshirani,
Friedman 2009, §4.3). It is one m×m eigen-decomposition with nothing to converge. The penalty
matters more than the loss: without one, a direction in which the public vectors hardly vary can get
the largest weight of all and draw the whole reshaping onto it. It is chosen by generalised
cross-validation (Golub, Heath, Wahba 1979), free once the decomposition is there.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from offaxis.errors import InvalidInput
from offaxis.geometry import Layers
from offaxis.vectors import Vectors

PENALTIES: Final = np.logspace(-6, 2, 17)
"""Candidates, in units of the mean variance of a public direction."""

_NULL: Final = 1e-12
"""Directions whose variance is below this fraction of the largest are taken as constant."""


_INSTEAD: Final = (
    "pass other targets, a model, y=None to treat every direction alike, or reshaping='none'"
)

_Targets = tuple[Any, Vectors, float]
"""Columns to regress on (n, k), their means, their total squared deviation from the means."""


def identity_task(X: Vectors) -> Layers:
    """Return z ↦ z: every direction matters alike, so reshaping only centres."""
    _require_variation(X)
    dim = X.shape[1]
    return Layers([np.eye(dim)], [np.zeros(dim)], name="identity")


def linear_task(X: Vectors, y: NDArray[Any]) -> Layers:
    """Fit the linear task from public vectors to public targets.

    Parameters
    ----------
    X : (n, m) array
        Public vectors, finite.
    y : (n,) or (n, k) array
        Integers, booleans and strings of shape (n,) are classes. Floats, and anything of shape
        (n, k), are quantities; columns count by their scale.

    Raises
    ------
    InvalidInput
        If y or the vectors are constant, or y does not follow the vectors in any direction.
    """
    _require_variation(X)
    targets, means, total = _targets(y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y)
    centre = X.mean(axis=0)
    centred = X - centre
    # In units of the peak, so that squares neither overflow nor vanish.
    peak = np.abs(centred).max()
    centred /= peak
    cross = np.asarray((targets.T @ centred).T)
    weight = _ridge(centred, cross, total) / peak
    if not weight.any():
        raise InvalidInput(
            f"y does not follow the public vectors in any direction: the fitted weights are all "
            f"zero; {_INSTEAD}"
        )
    return Layers([weight], [means - weight @ centre], name="ridge")


def _require_variation(X: Vectors) -> None:
    # Compared as they are: the rounding of a mean would make equal vectors look alive.
    if (X[0] == X).all():
        raise InvalidInput(
            "all public vectors are the same, so there is nothing to fit to them; "
            "pass public vectors that differ from each other"
        )


def _targets(y: NDArray[Any]) -> _Targets:
    if y.ndim == 1 and y.dtype.kind in "iubOSUT":
        return _one_hot(y)
    if y.dtype.kind not in "iubf" or y.ndim not in (1, 2):
        raise InvalidInput(
            f"y must be classes (n,) or quantities (n,) or (n, k), got shape {y.shape} of dtype "
            f"{y.dtype}"
        )
    columns = y.reshape(len(y), -1).astype(np.float64)
    if (columns == columns[0]).all():
        raise InvalidInput(
            f"y is constant ({columns[0].tolist()}), so no direction matters to it; {_INSTEAD}"
        )
    means = columns.mean(axis=0)
    columns -= means
    return columns, means, float((columns**2).sum())


def _one_hot(y: NDArray[Any]) -> _Targets:
    try:
        classes, codes, counts = np.unique(y, return_inverse=True, return_counts=True)
    except TypeError:
        raise InvalidInput(
            "y mixes labels that cannot be compared; make them all integers or all strings"
        ) from None
    n, k = len(y), len(classes)
    if k == 1:
        raise InvalidInput(
            f"y holds only one class ({classes[0]}), so no direction matters to it; {_INSTEAD}"
        )
    if 2 * k > n:
        raise InvalidInput(
            f"y holds {k} classes for {n} public vectors, fewer than two vectors a class; "
            f"if y is a quantity, pass it as floats: y.astype(float)"
        )
    # Sparse, and not centred: the vectors are, so the products are the same.
    columns = csr_array((np.ones(n), (np.arange(n), codes)), shape=(n, k))
    means = counts / n
    return columns, means, float(n * (means * (1 - means)).sum())


def _ridge(X: Vectors, cross: Vectors, total: float) -> Vectors:
    """Return the weights (k, m) for centred X, from XᵀY and ‖Y − mean‖²."""
    variance, basis = np.linalg.eigh(X.T @ X)
    alive = variance > _NULL * variance[-1]
    variance, basis = variance[alive], basis[:, alive]
    turned = basis.T @ cross
    # How much of Y each direction explains, and how much none does. The leftover is a difference
    # of large numbers and exactly zero when the directions can fit anything.
    explained = (turned**2).sum(axis=1) / variance
    freedom = max(len(X) - 1 - variance.size, 0)
    leftover = max(total - explained.sum(), 0.0) if freedom > 0 else 0.0
    penalties = PENALTIES * variance.sum() / X.shape[1]
    kept = penalties[:, None] / (variance + penalties[:, None])
    scores = (leftover + kept**2 @ explained) / (freedom + kept.sum(axis=1)) ** 2
    penalty = penalties[scores.argmin()]
    weight: Vectors = (basis @ (turned / (variance + penalty)[:, None])).T
    return weight
