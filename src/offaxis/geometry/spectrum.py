"""Directions ordered by the task's sensitivity to them, and how much noise each one gets."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from offaxis.errors import InvalidInput
from offaxis.vectors import Vectors


@dataclass(frozen=True)
class Spectrum:
    """Eigen-decomposition Ω̂ = U diag(γ) Uᵀ, γ descending.

    Attributes
    ----------
    values : (m,) array
        γ; values at the level of rounding error are set to zero.
    basis : (m, m) array
        U; column i is the direction that belongs to values[i].

    Examples
    --------
    >>> from offaxis.geometry import spectrum
    >>> spectrum(np.diag([1.0, 9.0])).basis[:, 0]  # the direction the task is most sensitive to
    array([0., 1.])
    """

    values: Vectors
    basis: Vectors


def spectrum(gram: Vectors, covariance: Vectors | None = None) -> Spectrum:
    """Diagonalise a Gram matrix. An all-zero matrix is an error: no direction stands out.

    Directions that the task ignores span a space in which every basis is equally good. Given the
    covariance of the public vectors, their principal axes are used there. Rounding then no longer
    determines the basis, and the vectors' ℓ1 norm, which depends on it, is small.

    Examples
    --------
    >>> from offaxis.geometry import spectrum
    >>> decomposition = spectrum(np.array([[2.0, 1.0], [1.0, 2.0]]))
    >>> decomposition.values.round(3), decomposition.basis.round(3)
    (array([3., 1.]), array([[ 0.707,  0.707],
           [ 0.707, -0.707]]))
    """
    values, basis = np.linalg.eigh(gram)
    values, basis = values[::-1], basis[:, ::-1].copy()
    ignored = values <= values[0] * values.size * np.finfo(float).eps
    values = np.where(ignored, 0.0, values)
    if covariance is not None and ignored.any():
        rest = basis[:, ignored]
        # Directions without variance are ordered by their coordinates.
        order = np.arange(values.size, 0, -1) / values.size
        key = covariance + np.diag(order * (1e-9 * np.trace(covariance) / values.size))
        basis[:, ignored] = rest @ np.linalg.eigh(rest.T @ key @ rest)[1][:, ::-1]
    if values[0] <= 0:
        raise InvalidInput(
            "the model's Jacobian is zero at every public vector, so there is nothing to reshape "
            "for; check that the model depends on its input, or use reshaping='none'"
        )
    # Eigenvectors are unique up to sign: make the largest entry positive, for reproducible fits.
    peaks = np.take_along_axis(basis, np.abs(basis).argmax(axis=0)[None], axis=0)
    return Spectrum(values, np.ascontiguousarray(basis * np.where(peaks < 0, -1.0, 1.0)))


# ---- Water-filling

GAP = 0.01
"""Singular values below this fraction of the largest count as null for :func:`gap_rank`."""


def water_filling(values: Vectors, *, lambda_max: float = 1000.0, order: float = 1) -> Vectors:
    """Return the optimal λ for the spectrum γ (in any order), exactly: one sort, no tolerance.

    Minimises Σ γ_i λ_i, the noise the task sees, subject to Σ λ_i^{−p/2} = m, which fixes the
    volume of the ℓp ball, and to λ_i <= λ_max. In t_i = λ_i^{−1/2} the solution is
    t_i = max(t_min, α γ_i^{1/(p+2)}) with t_min = λ_max^{−1/2} and the unique α that meets the
    volume constraint.

    Parameters
    ----------
    values : (m,) array
        γ >= 0, not all zero.
    lambda_max : float
        Cap on λ, above 1.
    order : float
        p of the volume constraint Σ λ^{−p/2} = m: 1 for ℓ1 mechanisms, 2 for ℓ2 ones.

    Examples
    --------
    >>> from offaxis.geometry import water_filling
    >>> stretch = water_filling(np.array([4.0, 1.0, 0.0]), lambda_max=100)
    >>> stretch.round(2)  # the task ignores the third direction, so it gets the most noise
    array([  0.32,   0.8 , 100.  ])
    >>> float((stretch**-0.5).sum().round(9))  # the volume constraint
    3.0
    """
    values = np.asarray(values, dtype=np.float64)
    _check(values, lambda_max, order)
    t_min = lambda_max**-0.5
    root = np.sort(values / values.max())[::-1] ** (1 / (order + 2))
    powers = np.cumsum(root**order)
    counts = np.arange(1, values.size + 1)
    # α for every possible number of uncapped directions. The solution has the largest j for which
    # the j-th direction is still above the cap.
    alpha = ((values.size - (values.size - counts) * t_min**order) / powers) ** (1 / order)
    active = int(np.flatnonzero(alpha * root > t_min).max()) + 1
    return _fill(values, active, t_min, order) ** -2.0


def gap_rank(values: Vectors, *, lambda_max: float = 1000.0, order: float = 1) -> Vectors:
    """Return λ by the rule of the paper's public code, for comparison.

    The rank is the number of singular values √γ above 1 % of the largest. Those directions share
    the volume constraint without a cap; all others are treated as null and get λ_max.

    Examples
    --------
    >>> from offaxis.geometry import gap_rank
    >>> gap_rank(np.array([4.0, 1.0, 1e-9]), lambda_max=100).round(2)  # the third counts as null
    array([  0.32,   0.8 , 100.  ])
    """
    values = np.asarray(values, dtype=np.float64)
    _check(values, lambda_max, order)
    active = int((np.sqrt(values) > GAP * np.sqrt(values.max())).sum())
    return _fill(values, active, lambda_max**-0.5, order) ** -2.0


def _fill(values: Vectors, active: int, t_min: float, order: float) -> Vectors:
    """Return t with the ``active`` largest values proportional to γ^{1/(p+2)}, the rest t_min."""
    root = (values / values.max()) ** (1 / (order + 2))
    largest = np.argsort(-root, kind="stable")[:active]
    t = np.full(values.size, t_min)
    volume = values.size - (values.size - active) * t_min**order
    t[largest] = root[largest] * (volume / (root[largest] ** order).sum()) ** (1 / order)
    return t


def _check(values: Vectors, lambda_max: float, order: float) -> None:
    if not lambda_max > 1 or not np.isfinite(lambda_max):
        raise InvalidInput(f"lambda_max must be finite and above 1, got lambda_max={lambda_max!r}")
    if not order >= 1 or not np.isfinite(order):
        raise InvalidInput(f"order must be a finite number >= 1, got order={order!r}")
    if values.ndim != 1 or not np.isfinite(values).all() or (values < 0).any() or not values.any():
        raise InvalidInput("the spectrum must be finite, non-negative and not all zero")
