"""What ε allows at all for vectors: any ε-LDP report, of any form and size, whoever reads it.

Everything follows from the task's spectrum λ, the eigenvalues of Ω^{1/2} C Ω^{1/2}: the variances
of the vectors along the directions the task sees, in its own metric. A report tells a share s_i of
the variance along the i-th of them, and privacy binds these shares twice (docs/proofs.md §16):

    s_i ≤ tanh²(ε/2) each,     Σ s_i ≤ sinh²(ε/2) in all.

So at most cosh²(ε/2) directions are told as well as one alone could be. No other limit follows from
λ alone: two opposite points meet the first with equality, the corners of a simplex the second. For
a given law of the vectors the truth may be far from both, and is at large budgets: vectors that
fill the space are harder to tell than a few points.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from offaxis.errors import InvalidInput
from offaxis.geometry import spectrum as diagonalise
from offaxis.privacy.guarantee import exact_epsilon
from offaxis.randomizers.privunit_calibration import sphere_cap
from offaxis.recipes.scalar_channel import refined_channel
from offaxis.vectors import Vectors, as_array, as_integer, check_finite

_ENOUGH: Final = 600.0
"""From here on both limits are, in floating point, those of no privacy; e^ε still has room."""


def task_spectrum(gram: Any, covariance: Any) -> Vectors:
    """Return λ, (r,), descending: the eigenvalues of Ω^{1/2} C Ω^{1/2} along what the task sees.

    Parameters
    ----------
    gram, covariance : (m, m) arrays
        Ω and C, as in :class:`offaxis.geometry.Geometry`; the identity as Ω is the plain metric.

    Examples
    --------
    >>> from offaxis.theory import task_spectrum
    >>> task_spectrum(np.diag([4.0, 1.0, 0.0]), np.diag([1.0, 1.0, 9.0]))
    array([4., 1.])
    """
    omega, spread = as_array(gram, "gram"), as_array(covariance, "covariance")
    check_finite(omega, "gram")
    check_finite(spread, "covariance")
    if omega.ndim != 2 or omega.shape[0] != omega.shape[1] or spread.shape != omega.shape:
        raise InvalidInput(
            f"gram and covariance must be (m, m), got {omega.shape} and {spread.shape}"
        )
    found = diagonalise(omega)
    seen = found.values > 0
    root = found.basis[:, seen] * np.sqrt(found.values[seen])
    values: Vectors = np.linalg.eigvalsh(root.T @ spread @ root)[::-1].clip(min=0.0)
    return _checked(values)


def fidelity_ceiling(spectrum: Any, epsilon: Any) -> float:
    """Return the largest share of the variance that anybody explains from a report.

    max Σ s_i λ_i / Σ λ_i under the two limits above: the largest λ first. It bounds
    1 − E‖ẑ − z‖²_Ω / E‖z − μ‖²_Ω for every reader ẑ, if vectors follow the law that λ is of.

    Examples
    --------
    >>> from offaxis.theory import fidelity_ceiling
    >>> [round(fidelity_ceiling([4.0, 1.0], epsilon), 3) for epsilon in (0.5, 2, 8)]
    [0.049, 0.58, 0.999]
    """
    values = _checked(spectrum)
    each, together = _limits(epsilon)
    shares = (together - each * np.arange(values.size)).clip(0.0, each)
    return float(shares @ values / values.sum())


def least_mean_error(spectrum: Any, epsilon: Any) -> float:
    """Return the least error of an *unbiased* report, as a share of the variance.

    It bounds E‖ẑ − z‖²_Ω / Σ λ_i for every ẑ with E[ẑ | z] = z, and K times the error of every
    unbiased estimate of the mean of K people who report independently. It is

        min Σ λ_i (1/s_i − 1) / Σ λ_i

    under the two limits above, where s_i = min(tanh²(ε/2), κ √λ_i). Where no s_i meets the first
    limit this is ((Σ √λ_i)² / sinh²(ε/2) − Σ λ_i) / Σ λ_i, and (Σ √λ_i)² is what the optimal
    reshaping attains for noise in the ℓ2 ball (docs/optimal-reshaping.md).

    Examples
    --------
    >>> from offaxis.theory import least_mean_error
    >>> [round(least_mean_error([4.0, 1.0], epsilon), 3) for epsilon in (0.5, 2, 8)]
    [27.207, 0.724, 0.001]
    """
    values = _checked(spectrum)
    values = values[values > 0]
    each, together = _limits(epsilon)
    shares = _water(np.sqrt(values), each, together)
    return float(values @ (1 / shares - 1) / values.sum())


def sphere_mean_error(dim: int, epsilon: Any) -> float:
    """Return the least error of an unbiased report of a point of S^{dim−1}, as a share.

    1/A² − 1, A the component of PrivUnit2 along its input: no unbiased report has a smaller largest
    error over the sphere (Asi, Feldman, Talwar 2022). For points spread evenly it is the truth
    where :func:`least_mean_error` is a bound; for vectors of another law, a line to compare with.

    Examples
    --------
    >>> from offaxis.theory import least_mean_error, sphere_mean_error
    >>> least_mean_error(np.ones(16), 4) < sphere_mean_error(16, 4)
    True
    >>> round(sphere_mean_error(16, 4), 2)
    6.27
    """
    cap = sphere_cap(float(exact_epsilon(epsilon)), as_integer(dim, "dim", 1))
    return 1 / cap.mean**2 - 1


def scalar_ceiling(answers: Any, epsilon: Any) -> float:
    """Return the share of the variance of a scalar answer that a report explains at most.

    1 − least mean squared error / variance, for answers with the law of the given public ones in
    up to 2,048 bins. That no channel passes it is **tested, not proved**
    (:mod:`offaxis.recipes.scalar_channel`); proved is ``fidelity_ceiling([1], epsilon)``, which is
    never lower.

    Examples
    --------
    >>> from offaxis.theory import fidelity_ceiling, scalar_ceiling
    >>> answers = np.random.default_rng(0).standard_normal(500)
    >>> round(scalar_ceiling(answers, 2), 2), round(fidelity_ceiling([1.0], 2), 2)
    (0.37, 0.58)
    """
    values = as_array(answers, "answers")
    check_finite(values, "answers")
    variance = float(values.var()) if values.size else 0.0
    if not variance:
        raise InvalidInput("answers must not all be equal: there is no variance to explain")
    return max(1 - refined_channel(values, epsilon).rmse ** 2 / variance, 0.0)


def _limits(epsilon: Any) -> tuple[float, float]:
    """Return tanh²(ε/2) and sinh²(ε/2)."""
    half = min(float(exact_epsilon(epsilon)), _ENOUGH) / 2
    return math.tanh(half) ** 2, math.sinh(half) ** 2


def _water(weights: Vectors, each: float, together: float) -> Vectors:
    """Return min(each, κ · weights), the weights descending, with the sum ``together`` or all full.

    With the first k full, κ shares what is left among the rest; k is the first for which the next
    one stays within its limit.
    """
    full = np.arange(weights.size)
    rest = np.cumsum(weights[::-1])[::-1]
    level = (together - each * full) / rest
    within = level * weights <= each
    if not within.any():
        return np.full(weights.size, each)
    k = int(within.argmax())
    return np.where(full < k, each, level[k] * weights)


def _checked(spectrum: Any) -> Vectors:
    """Return a spectrum in descending order."""
    values = as_array(spectrum, "spectrum")
    check_finite(values, "spectrum")
    if values.ndim != 1 or not values.size or (values < 0).any() or not values.sum() > 0:
        raise InvalidInput(
            "spectrum must be a vector without negative entries, not all zero: the vectors must "
            "vary along some direction the task sees"
        )
    return np.sort(values)[::-1]
