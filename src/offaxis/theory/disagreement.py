"""How often a classifier answers differently on a report than on the vector, at most.

For a ReLU network whose answer c is its largest output, and Laplace noise of variance σ²: inside
the activation cell the lead of c over k is Δ̄_k + a_kᵀBξ, with a_k = J_c − J_k and
Δ̄_k = T_c − T_k + a_kᵀd. If every Δ̄_k > 0, the answer changes with a probability of at most

    Pr(z + h leaves the cell) + Σ_k exp(−min{Δ̄_k² / (4 Var_k), Δ̄_k / (2σM_k)}),

Var_k = σ² ‖Bᵀa_k‖², M_k = max_j |(Bᵀa_k)_j|. Otherwise the bound is 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from offaxis.errors import InvalidInput
from offaxis.geometry import Layers
from offaxis.randomizers.laplace import Laplace
from offaxis.release import Release
from offaxis.theory.cells import activation_cell
from offaxis.theory.conditions import AdditiveNoise, piecewise_affine, row_batches
from offaxis.theory.draws import Estimate, simulated
from offaxis.vectors import Vectors, as_batch


@dataclass(frozen=True, eq=False)
class DisagreementBound:
    """The bound for every vector and what the same simulation measured.

    Attributes
    ----------
    leaving : (n,) array
        Measured probability of leaving the activation cell.
    flipping : (n,) array
        The sum of tails: how often the answer changes inside the cell, at most. Infinite where
        clipping alone takes the lead away.
    leaving_mean, measured : Estimate
        Leaving and disagreement, over all vectors.

    Examples
    --------
    >>> import offaxis
    >>> from offaxis.geometry import Layers
    >>> from offaxis.theory import DisagreementBound, disagreement_bound
    >>> rng = np.random.default_rng(0)
    >>> weights = [rng.standard_normal((4, 3)), rng.standard_normal((2, 4))]
    >>> task = Layers(weights, [np.ones(4), np.zeros(2)])
    >>> public = rng.standard_normal((100, 3))
    >>> release = offaxis.fit(task, public, epsilon=50)
    >>> bound = disagreement_bound(release, task, public, draws=20)
    >>> isinstance(bound, DisagreementBound), bound.per_vector.shape
    (True, (100,))
    >>> bound.covered  # clipping alone takes nobody's lead away
    1.0
    """

    leaving: Vectors
    flipping: Vectors
    leaving_mean: Estimate
    measured: Estimate

    @property
    def per_vector(self) -> Vectors:
        """The bound for every vector, at most 1."""
        return np.minimum(self.leaving + self.flipping, 1.0)

    @property
    def averaged(self) -> float:
        """The bound on the share of vectors answered differently.

        Its standard error is at most that of ``leaving_mean``: nothing else in it is measured.
        """
        return float(self.per_vector.mean())

    @property
    def covered(self) -> float:
        """The share of vectors whose lead survives clipping; for the others the bound is 1."""
        return float(np.isfinite(self.flipping).mean())


def _flipping(
    margins: Vectors, slopes: Vectors, others: NDArray[np.bool_], sigma: float
) -> Vectors:
    """Return Σ_k exp(−min{…}) over other classes for margins (n, k) and slopes Bᵀa (n, k, r)."""
    lost = (others & (margins <= 0)).any(axis=1)
    margins = np.maximum(margins, 0.0)
    variance = sigma**2 * np.sum(slopes**2, axis=2)
    largest = np.abs(slopes).max(axis=2)
    with np.errstate(divide="ignore", invalid="ignore"):
        exponent = np.minimum(margins**2 / (4 * variance), margins / (2 * sigma * largest))
    # Without any noise along a_k a positive lead stays as it is.
    tails = np.where(variance > 0, np.exp(-exponent), 0.0)
    total: Vectors = np.where(lost, np.inf, np.sum(tails, axis=1, where=others))
    return total


def flipping_tails(release: Release, model: Any, vectors: Any) -> Vectors:
    """Bound, for every vector, how often the answer changes inside the activation cell, (n,).

    Holds for Laplace noise between affine maps and a ReLU network with two outputs or more.
    Infinite where clipping alone takes the lead away, because nothing is claimed there. The exact
    reports' discrete Laplace noise has no heavier tails than the continuous law of the same scale
    used here.

    Examples
    --------
    >>> import offaxis
    >>> from offaxis.geometry import Layers
    >>> from offaxis.theory import flipping_tails
    >>> rng = np.random.default_rng(0)
    >>> weights = [rng.standard_normal((4, 3)), rng.standard_normal((2, 4))]
    >>> task = Layers(weights, [np.ones(4), np.zeros(2)])
    >>> public = rng.standard_normal((100, 3))
    >>> release = offaxis.fit(task, public, epsilon=50)
    >>> tails = flipping_tails(release, task, public)
    >>> tails.shape, bool((tails > 0).all())
    ((100,), True)
    """
    noise, layers = _conditions(release, model)
    Z, _ = as_batch(vectors, release.input_dim)
    outputs = layers.outputs(Z)
    answers = outputs.argmax(axis=1)
    moved = noise.clipping(Z)
    # Not the discrete law's own variance: the tail bound is proved for the continuous one.
    sigma = math.sqrt(2) * noise.randomizer.scale
    parts = []
    for part in row_batches(Z, outputs.shape[1] * Z.shape[1]):
        jacobians = layers.jacobians(Z[part])
        rows, answer = np.arange(len(jacobians)), answers[part]
        leads = outputs[part][rows, answer][:, None] - outputs[part]
        a = jacobians[rows, answer][:, None, :] - jacobians
        margins = leads + np.einsum("nkm,nm->nk", a, moved[part])
        others = np.arange(outputs.shape[1]) != answer[:, None]
        parts.append(_flipping(margins, a @ noise.matrix, others, sigma))
    return np.concatenate(parts)


def disagreement_bound(
    release: Release, model: Any, vectors: Any, *, draws: int = 200, seed: int = 0
) -> DisagreementBound:
    """Bound how often the model's answer on a report differs from that on the vector.

    Holds for Laplace noise between affine maps and a ReLU network, given as layers, whose answer is
    the largest of two outputs or more. The probability of leaving the cell is measured on simulated
    reports and carries their standard error; disagreement is counted on the same ones. The bound
    says something (is below 1) only where most reports stay in the cell.

    Parameters
    ----------
    draws : int
        Simulated reports a vector.

    Raises
    ------
    InvalidInput
        If the noise is not Laplace, a map is not affine, the model is not piecewise affine or has a
        single output.

    Examples
    --------
    >>> import offaxis
    >>> from offaxis.geometry import Layers
    >>> from offaxis.theory import disagreement_bound
    >>> rng = np.random.default_rng(0)
    >>> weights = [rng.standard_normal((4, 3)), rng.standard_normal((2, 4))]
    >>> task = Layers(weights, [np.ones(4), np.zeros(2)])
    >>> public = rng.standard_normal((100, 3))
    >>> release = offaxis.fit(task, public, epsilon=50)
    >>> bound = disagreement_bound(release, task, public, draws=50)
    >>> bound.measured.mean <= bound.averaged <= 1
    True
    """
    flipping = flipping_tails(release, model, vectors)
    layers = piecewise_affine(model)
    Z, _ = as_batch(vectors, release.input_dim)
    home, answers = activation_cell(layers, Z), layers.outputs(Z).argmax(axis=1)
    left, changed = [], []
    for decoded in simulated(release, Z, draws, seed):
        left.append((activation_cell(layers, decoded) != home).any(axis=1))
        changed.append(layers.outputs(decoded).argmax(axis=1) != answers)
    leaving = np.array(left, dtype=np.float64)
    measured = Estimate.of(np.array(changed, dtype=np.float64))
    return DisagreementBound(leaving.mean(axis=0), flipping, Estimate.of(leaving), measured)


def _conditions(release: Release, model: Any) -> tuple[AdditiveNoise, Layers]:
    noise, layers = AdditiveNoise.of(release), piecewise_affine(model)
    if not isinstance(release.randomizer, Laplace):
        raise InvalidInput(
            f"the condition 'Laplace noise' fails: the randomizer is {release.randomizer.kind}"
        )
    if len(layers.biases[-1]) < 2:
        raise InvalidInput(
            "the condition 'the answer is the largest output' fails: the model has one output"
        )
    return noise, layers
