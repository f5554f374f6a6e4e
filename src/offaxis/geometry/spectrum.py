"""Directions of the space, ordered by how much the task looks at them."""

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
        γ; values that are nothing but rounding are set to zero.
    basis : (m, m) array
        U; column i is the direction that belongs to values[i].

    Examples
    --------
    >>> from offaxis.geometry import Spectrum, spectrum
    >>> found = spectrum(np.diag([1.0, 9.0]))
    >>> isinstance(found, Spectrum)
    True
    >>> found.basis[:, 0]  # what the task looks at most
    array([0., 1.])
    """

    values: Vectors
    basis: Vectors


def spectrum(gram: Vectors, covariance: Vectors | None = None) -> Spectrum:
    """Diagonalise a Gram matrix; an all-zero one is an error, since no direction stands out.

    Directions the task ignores altogether form a space in which any basis is as good. Given the
    covariance of the public vectors, their principal axes are taken there: rounding then no longer
    decides the basis, and the vectors' ℓ1 norm, which does depend on it, is small.

    Examples
    --------
    >>> from offaxis.geometry import spectrum
    >>> found = spectrum(np.array([[2.0, 1.0], [1.0, 2.0]]))
    >>> found.values.round(3), found.basis.round(3)
    (array([3., 1.]), array([[ 0.707,  0.707],
           [ 0.707, -0.707]]))
    """
    values, basis = np.linalg.eigh(gram)
    values, basis = values[::-1], basis[:, ::-1].copy()
    ignored = values <= values[0] * values.size * np.finfo(float).eps
    values = np.where(ignored, 0.0, values)
    if covariance is not None and ignored.any():
        rest = basis[:, ignored]
        # Directions in which nothing varies either are told apart by their coordinates.
        order = np.arange(values.size, 0, -1) / values.size
        key = covariance + np.diag(order * (1e-9 * np.trace(covariance) / values.size))
        basis[:, ignored] = rest @ np.linalg.eigh(rest.T @ key @ rest)[1][:, ::-1]
    if values[0] <= 0:
        raise InvalidInput(
            "the model's Jacobian is zero at every public vector, so there is nothing to reshape "
            "for; check that the model depends on its input, or use reshaping='none'"
        )
    # Eigenvectors are known up to sign: make the largest entry positive, so that fits repeat.
    peaks = np.take_along_axis(basis, np.abs(basis).argmax(axis=0)[None], axis=0)
    return Spectrum(values, np.ascontiguousarray(basis * np.where(peaks < 0, -1.0, 1.0)))
