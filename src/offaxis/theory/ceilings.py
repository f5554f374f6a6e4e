"""Limits of ε-LDP: the best that any report of a budget can do for a task.

Contract: every bound holds for any ε-LDP report, of any form and size, and for any reader of it, if
the prior, the answers or the spectrum that it takes are those of the population. From a sample they
are estimates, and so is the bound: a plug-in estimate that tends to allow too much (docs/theory.md,
"Plug-in estimates").

For a task that answers with one of several classes:

- :func:`agreement_ceiling` bounds how often anyone guesses the *model's answer* from a report;
- :func:`label_accuracy_bound` bounds how often anyone guesses the *label*, for known label
  posteriors;
- :func:`reference_line` is the accuracy of one good channel. It bounds nothing.

For vectors and means, :func:`fidelity_ceiling` and :func:`least_mean_error` follow from the
spectrum λ of the task, the eigenvalues of Ω^{1/2} C Ω^{1/2}: the variances of the vectors along the
directions that affect the task, in its metric. A report reveals a share s_i of the variance along
the i-th direction, and privacy limits these shares twice (docs/proofs.md §16):

    s_i ≤ tanh²(ε/2) each,     Σ s_i ≤ sinh²(ε/2) in all.

So at most cosh²(ε/2) directions are revealed as well as one alone could be. No other limit follows
from λ alone: two opposite points meet the first with equality, the corners of a simplex the second.
For a given law of the vectors the truth may be far from both, and is at large budgets: vectors that
fill the space are harder to distinguish than a few points.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import csr_array, eye_array, hstack, kron, vstack

from offaxis.errors import InvalidInput
from offaxis.geometry import PublicVectors, as_task_model
from offaxis.geometry import spectrum as diagonalise
from offaxis.privacy.guarantee import exact_epsilon
from offaxis.randomizers.caps import sphere_cap
from offaxis.theory.scalar_limit import least_scalar_error, to_unit_interval
from offaxis.vectors import Vectors, as_array, as_integer, as_number, check_finite

_ROWS: Final = 8192
_MOST_POSTERIORS: Final = 100_000


@dataclass(frozen=True)
class AgreementCeiling:
    """The largest probability of guessing the model's answer from a report.

    Attributes
    ----------
    probability : float
    answers : int
        s: randomized response over the s likeliest answers reaches the ceiling.

    Examples
    --------
    >>> from offaxis.theory import agreement_ceiling
    >>> agreement_ceiling([1, 1], epsilon=1)
    AgreementCeiling(probability=0.731..., answers=2)
    """

    probability: float
    answers: int


def agreement_ceiling(prior: Any, epsilon: Any) -> AgreementCeiling:
    """Return the largest probability of guessing the model's answer from any ε-LDP report.

    With the prior π sorted descending and Π_s the sum of its s largest shares,

        max_s e^ε Π_s / (e^ε + s − 1).

    Randomized response over the s likeliest answers reaches the s-th term; people with another
    answer report as if it were the first.

    *Why nothing does better.* Guessing is post-processing, so let the report be the guess: T(i|j).
    With m_i = min_j T(i|j), T(i|i) ≤ e^ε m_i by privacy, and T(i|i) ≤ 1 − Σ_{l≠i} m_l because
    probabilities sum to one. Mixing the two with weights that make the m_i drop out gives
    Σ π_i T(i|i) ≤ A, where A solves Σ_i max(0, e^ε π_i − A) = (e^ε − 1) A; and that A is one of the
    terms above. In full: docs/proofs.md §15.

    Parameters
    ----------
    prior : (n,) array
        Probability of each answer; shares or counts.

    Examples
    --------
    >>> from offaxis.theory import agreement_ceiling
    >>> ceiling = agreement_ceiling([0.7, 0.2, 0.1], epsilon=2)
    >>> round(ceiling.probability, 3), ceiling.answers  # better without the third answer
    (0.793, 2)
    """
    shares = _shares(prior, "prior")
    # In units of e^ε, so that nothing overflows.
    far = math.exp(-float(exact_epsilon(epsilon)))
    largest = np.cumsum(np.sort(shares)[::-1])
    terms = largest / (1 + np.arange(shares.size) * far)
    best = int(terms.argmax())
    return AgreementCeiling(float(min(terms[best], 1.0)), best + 1)


def reference_line(accuracy: Any, classes: int, epsilon: Any) -> float:
    """Return the label accuracy of k-ary response on the answer of a model with this accuracy.

    a q + (1 − a)(1 − q)/(k − 1), q = e^ε/(e^ε + k − 1): the response is truthful and the model is
    right, or both are wrong and chance restores the label. **A line to compare with, not a bound**:
    a better model on the device exceeds it, and so does a reader who corrects for the model's
    confusions.

    Examples
    --------
    >>> from offaxis.theory import reference_line
    >>> round(reference_line(accuracy=0.85, classes=10, epsilon=5), 3)
    0.802
    """
    a = as_number(accuracy, "accuracy")
    if not 0 <= a <= 1:
        raise InvalidInput(f"accuracy must be between 0 and 1, got accuracy={accuracy!r}")
    others = as_integer(classes, "classes", 2) - 1
    far = math.exp(-float(exact_epsilon(epsilon)))
    q = 1 / (1 + others * far)
    return a * q + (1 - a) * far * q


def label_accuracy_bound(posteriors: Any, weights: Any, epsilon: Any) -> float:
    """Return the largest probability of guessing the label from any ε-LDP report of the vector.

    An upper bound if the posteriors η(z) of the label are the true ones; with estimated posteriors
    it is an estimate of the bound. It is the linear program

        max Σ_z w(z) Σ_j η_j(z) Q(j|z),   m_j ≤ Q(j|z) ≤ e^ε m_j,   Σ_j Q(j|z) = 1,

    solved by HiGHS to 1e-6. It has nk + k unknowns: 1,000 vectors of 10 classes take about two
    seconds, 2,000 about eight, and 10,000 is the limit. Beyond that, average posteriors over
    clusters; the result bounds reports of the cluster, and is slightly too low for reports of the
    vector.

    Parameters
    ----------
    posteriors : (n, k) array
        η_j(z), one row per vector z; the rows sum to one.
    weights : (n,) array
        Probability of each vector; shares or counts.

    Examples
    --------
    >>> from offaxis.theory import label_accuracy_bound
    >>> sure_and_unsure = [[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]]
    >>> round(label_accuracy_bound(sure_and_unsure, [1, 1, 2], epsilon=1), 3)
    0.616
    """
    eta = as_array(posteriors, "posteriors")
    check_finite(eta, "posteriors")
    w = _shares(weights, "weights")
    if eta.ndim != 2 or not eta.size or len(eta) != w.size:
        raise InvalidInput(
            f"posteriors must be (n, k) and weights (n,), got {eta.shape} and {w.shape}"
        )
    if (eta < 0).any() or not np.allclose(eta.sum(axis=1), 1, atol=1e-6):
        raise InvalidInput("posteriors must not be negative, and each row must sum to one")
    if eta.size > _MOST_POSTERIORS:
        raise InvalidInput(
            f"the linear program takes up to {_MOST_POSTERIORS:,} posteriors, got {eta.size:,}; "
            f"use fewer vectors"
        )
    far = math.exp(-float(exact_epsilon(epsilon)))
    n, k = eta.shape
    # Unknowns: Q row by row, then M_j = e^ε m_j, so that no coefficient is above one.
    single, shared = eye_array(n * k), kron(np.ones((n, 1)), eye_array(k))
    limits = vstack([hstack([single, -shared]), hstack([-single, far * shared])]).tocsr()
    sums = hstack([kron(eye_array(n), np.ones((1, k))), csr_array((n, k))]).tocsr()
    solved = linprog(
        -np.append((w[:, None] * eta).ravel(), np.zeros(k)),
        A_ub=limits,
        b_ub=np.zeros(2 * n * k),
        A_eq=sums,
        b_eq=np.ones(n),
        method="highs",
    )
    if not solved.success:
        raise InvalidInput(f"the linear program was not solved: {solved.message}")
    return float(min(-solved.fun, 1.0))


def answer_prior(task: Any, public: Any) -> Vectors:
    """Return the share of each answer on public vectors, (k,); the largest output is the answer.

    Parameters
    ----------
    task : model
        Anything :func:`offaxis.fit` takes as a model, with two outputs or more.
    public : array (n, m), or callable returning an iterator of batches

    Examples
    --------
    >>> from offaxis.theory import answer_prior
    >>> public = np.array([[2.0, 1.0], [0.0, 3.0], [1.0, 4.0], [0.0, 1.0]])
    >>> answer_prior(np.eye(2), public)
    array([0.25, 0.75])
    """
    model, counts = as_task_model(task), np.zeros(1)
    for batch in PublicVectors(public).batches(_ROWS):
        outputs = model.outputs(batch)
        if outputs.shape[1] < 2:
            raise InvalidInput(
                "the task has one output, so there are no classes to count; for a number see "
                "offaxis.mechanisms.scalar_channel"
            )
        counts = counts + np.bincount(outputs.argmax(axis=1), minlength=outputs.shape[1])
    return _shares(counts, "answers")


def _shares(value: Any, name: str) -> Vectors:
    shares = as_array(value, name)
    check_finite(shares, name)
    if shares.ndim != 1 or not shares.size or (shares < 0).any() or not shares.sum() > 0:
        raise InvalidInput(f"{name} must be a vector without negative entries, not all zero")
    normalised: Vectors = shares / shares.sum()
    return normalised


# ---- Vectors and means

_ENOUGH: Final = 600.0
"""From here on both limits are, in floating point, those of no privacy; e^ε does not overflow."""


def task_spectrum(gram: Any, covariance: Any) -> Vectors:
    """Return λ, (r,), descending: the eigenvalues of Ω^{1/2} C Ω^{1/2} on the range of Ω.

    Parameters
    ----------
    gram, covariance : (m, m) arrays
        Ω and C, as in :class:`offaxis.geometry.Geometry`; for the plain metric, Ω is the identity.

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
    eigen = diagonalise(omega)
    visible = eigen.values > 0
    root = eigen.basis[:, visible] * np.sqrt(eigen.values[visible])
    values: Vectors = np.linalg.eigvalsh(root.T @ spread @ root)[::-1].clip(min=0.0)
    return _check_spectrum(values)


def fidelity_ceiling(spectrum: Any, epsilon: Any) -> float:
    """Return an upper bound on the share of the variance that a report explains.

    max Σ s_i λ_i / Σ λ_i under the two limits on s_i of this module: the largest λ first. It bounds
    1 − E‖ẑ − z‖²_Ω / E‖z − μ‖²_Ω for every reader ẑ, if vectors follow the law with spectrum λ.

    Examples
    --------
    >>> from offaxis.theory import fidelity_ceiling
    >>> [round(fidelity_ceiling([4.0, 1.0], epsilon), 3) for epsilon in (0.5, 2, 8)]
    [0.049, 0.58, 0.999]
    """
    values = _check_spectrum(spectrum)
    each, together = _limits(epsilon)
    shares = (together - each * np.arange(values.size)).clip(0.0, each)
    return float(shares @ values / values.sum())


def least_mean_error(spectrum: Any, epsilon: Any) -> float:
    """Return a lower bound on the error of an *unbiased* report, as a share of the variance.

    It bounds E‖ẑ − z‖²_Ω / Σ λ_i for every ẑ with E[ẑ | z] = z, and K times the error of every
    unbiased estimate of the mean of K people who report independently. It is

        min Σ λ_i (1/s_i − 1) / Σ λ_i

    under the two limits on s_i of this module, where s_i = min(tanh²(ε/2), κ √λ_i). If no s_i meets
    the first limit, this is ((Σ √λ_i)² / sinh²(ε/2) − Σ λ_i) / Σ λ_i, and (Σ √λ_i)² is what
    the optimal reshaping attains for noise in the ℓ2 ball (docs/optimal-reshaping.md).

    Examples
    --------
    >>> from offaxis.theory import least_mean_error
    >>> [round(least_mean_error([4.0, 1.0], epsilon), 3) for epsilon in (0.5, 2, 8)]
    [27.207, 0.724, 0.001]
    """
    values = _check_spectrum(spectrum)
    values = values[values > 0]
    each, together = _limits(epsilon)
    shares = _water_filling(np.sqrt(values), each, together)
    return float(values @ (1 / shares - 1) / values.sum())


def sphere_mean_error(dim: int, epsilon: Any) -> float:
    """Return the least error of an unbiased report of a point of S^{dim−1}, as a share.

    1/A² − 1, where A is the component of PrivUnit2 along its input: no unbiased report has a
    smaller worst-case error over the sphere (Asi, Feldman, Talwar 2022). For uniform points it is
    exact, where :func:`least_mean_error` is a bound; for other laws it is a line to compare with.

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
    """Return the largest share of the variance of a scalar answer that a report explains.

    1 − b²/variance, with the proved lower bound b on the error of any report of such answers
    (:mod:`offaxis.theory.scalar_limit`). It is at most ``fidelity_ceiling([1], epsilon)``, which
    holds for every law of the answers.

    The law is the empirical one of the given answers. If they are a sample, this is a plug-in
    estimate of the ceiling of their population that tends to be too high: the least error is a
    minimum of functions that are linear in the law, so its mean over samples is at most that of the
    population.

    Examples
    --------
    >>> from offaxis.theory import fidelity_ceiling, scalar_ceiling
    >>> answers = np.random.default_rng(0).standard_normal(500)
    >>> round(scalar_ceiling(answers, 2), 2), round(fidelity_ceiling([1.0], 2), 2)
    (0.37, 0.58)
    """
    values, span = to_unit_interval(answers)
    if not span:
        raise InvalidInput("answers must not all be equal: there is no variance to explain")
    return max(1 - least_scalar_error(values, epsilon) ** 2 / float(values.var()), 0.0)


def _limits(epsilon: Any) -> tuple[float, float]:
    """Return tanh²(ε/2) and sinh²(ε/2)."""
    half = min(float(exact_epsilon(epsilon)), _ENOUGH) / 2
    return math.tanh(half) ** 2, math.sinh(half) ** 2


def _water_filling(weights: Vectors, each: float, together: float) -> Vectors:
    """Return min(each, κ · weights) with sum ``together``; all are ``each`` if that sums to less.

    The weights are descending. With the first k at their limit, κ divides the rest of the sum among
    the others; k is the smallest number for which the next one stays within its limit.
    """
    index = np.arange(weights.size)
    remaining = np.cumsum(weights[::-1])[::-1]
    level = (together - each * index) / remaining
    within = level * weights <= each
    if not within.any():
        return np.full(weights.size, each)
    k = int(within.argmax())
    return np.where(index < k, each, level[k] * weights)


def _check_spectrum(spectrum: Any) -> Vectors:
    """Return a checked spectrum in descending order."""
    values = as_array(spectrum, "spectrum")
    check_finite(values, "spectrum")
    if values.ndim != 1 or not values.size or (values < 0).any() or not values.sum() > 0:
        raise InvalidInput(
            "spectrum must be a vector without negative entries, not all zero: the vectors must "
            "vary along some direction that affects the task"
        )
    return np.sort(values)[::-1]
