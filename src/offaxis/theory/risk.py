"""How much a release changes a task's outputs: to first order in closed form, and by simulation.

To first order T(z + h) − T(z) = J h. With h = d + Bξ and ξ of mean zero and variance σ², the mean
squared change falls apart into what noise and what clipping do:

    R_FO = σ² Tr(Bᵀ Ω̂ B)  +  (1/N) Σ ‖J_i d_i‖²,     Ω̂ = (1/N) Σ J_iᵀ J_i
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from offaxis.geometry import TaskModel, as_task_model
from offaxis.geometry.gram import PartialGram
from offaxis.release import Release
from offaxis.theory.conditions import AdditiveNoise, jacobian_parts, row_batches
from offaxis.theory.draws import Estimate, simulated
from offaxis.vectors import Vectors, as_batch


@dataclass(frozen=True)
class FirstOrderRisk:
    """The mean squared change of the outputs to first order, by cause.

    Attributes
    ----------
    noise : float
        σ² Tr(Bᵀ Ω̂ B).
    clipping : float
        (1/N) Σ ‖J_i d_i‖².

    Examples
    --------
    >>> import offaxis
    >>> from offaxis.theory import FirstOrderRisk, first_order_risk
    >>> task = np.array([[3.0, 1.0, 0.0], [0.0, 2.0, 0.1]])
    >>> public = np.random.default_rng(0).standard_normal((200, 3))
    >>> release = offaxis.fit(task, public, epsilon=3)
    >>> risk = first_order_risk(release, task, public)
    >>> isinstance(risk, FirstOrderRisk), risk.total == risk.noise + risk.clipping
    (True, True)
    """

    noise: float
    clipping: float

    @property
    def total(self) -> float:
        """R_FO, the sum: noise of mean zero and clipping do not mix."""
        return self.noise + self.clipping


def mean_gram(model: Any, vectors: Any) -> Vectors:
    """Return Ω̂, the mean of JᵀJ over vectors, (m, m).

    Examples
    --------
    >>> import offaxis
    >>> from offaxis.theory import mean_gram
    >>> task = np.array([[3.0, 1.0, 0.0], [0.0, 2.0, 0.1]])
    >>> public = np.random.default_rng(0).standard_normal((200, 3))
    >>> release = offaxis.fit(task, public, epsilon=3)
    >>> bool(np.allclose(mean_gram(task, public), task.T @ task))  # a matrix bends nowhere
    True
    """
    task = as_task_model(model)
    Z, _ = as_batch(vectors, task.input_dim)
    total = PartialGram.empty(Z.shape[1])
    numbers = task.numbers_per_vector(Z.shape[1], task.outputs(Z[:1]).shape[1])
    for part in row_batches(Z, numbers):
        total.merge(PartialGram.of(task, Z[part]))
    return total.mean()


def noise_risk(release: Release, gram: Vectors) -> float:
    """Return σ² Tr(Bᵀ Ω B): what noise alone does, to first order, to a task with the Gram Ω.

    Holds for additive noise of mean zero between affine maps; clipping is left out.

    Examples
    --------
    >>> import offaxis
    >>> from offaxis.theory import mean_gram, noise_risk
    >>> task = np.array([[3.0, 1.0, 0.0], [0.0, 2.0, 0.1]])
    >>> public = np.random.default_rng(0).standard_normal((200, 3))
    >>> release = offaxis.fit(task, public, epsilon=3)
    >>> plain = offaxis.fit(task, public, epsilon=3, reshaping="none")
    >>> gram = mean_gram(task, public)
    >>> noise_risk(release, gram) < noise_risk(plain, gram)  # what reshaping is for
    True
    """
    noise = AdditiveNoise.of(release)
    return float(noise.variance * np.sum((gram @ noise.matrix) * noise.matrix))


def first_order_risk(release: Release, model: Any, vectors: Any) -> FirstOrderRisk:
    """Return the first-order risk of a release on given vectors, noise and clipping apart.

    Holds for additive noise of mean zero between affine maps, and a model that has a Jacobian at
    every vector. It is exact for affine models; for others it leaves out how the model bends,
    which is little while the noise is small (:func:`~offaxis.theory.remainder_bound`). What
    truncation to the lattice moves, less than one step a coordinate, is left out. Memory holds
    the Gram and a few rows of Jacobians, whatever the number of vectors and of outputs.

    Raises
    ------
    InvalidInput
        If the randomizer does not add noise, or a map is not affine.

    Examples
    --------
    >>> import offaxis
    >>> from offaxis.theory import first_order_risk
    >>> task = np.array([[3.0, 1.0, 0.0], [0.0, 2.0, 0.1]])
    >>> public = np.random.default_rng(0).standard_normal((200, 3))
    >>> release = offaxis.fit(task, public, epsilon=3)
    >>> risk = first_order_risk(release, task, public)
    >>> round(risk.noise, 1), round(risk.clipping, 2)
    (75.9, 0.56)
    """
    noise = AdditiveNoise.of(release)
    task = as_task_model(model)
    Z, _ = as_batch(vectors, release.input_dim)
    moved = noise.clipping(Z)
    clipping = 0.0
    for part, rows in jacobian_parts(task, Z):
        change = np.einsum("njm,nm->nj", rows, moved[part])
        clipping += float(np.sum(change**2))
    return FirstOrderRisk(noise_risk(release, mean_gram(task, Z)), clipping / len(Z))


def nonlinear_risk(
    release: Release, model: Any, vectors: Any, *, draws: int = 200, seed: int = 0
) -> Estimate:
    """Measure E‖T(ẑ) − T(z)‖², the mean squared change of the outputs, by simulation.

    Holds for every release and every model; the standard error is over the noise alone.

    Parameters
    ----------
    draws : int
        Simulated reports a vector.

    Examples
    --------
    >>> import offaxis
    >>> from offaxis.theory import first_order_risk, nonlinear_risk
    >>> task = np.array([[3.0, 1.0, 0.0], [0.0, 2.0, 0.1]])
    >>> public = np.random.default_rng(0).standard_normal((200, 3))
    >>> release = offaxis.fit(task, public, epsilon=3)
    >>> measured = nonlinear_risk(release, task, public, draws=20)
    >>> expected = first_order_risk(release, task, public).total  # exact for a matrix
    >>> abs(measured.mean - expected) < 5 * measured.standard_error
    True
    """
    task: TaskModel = as_task_model(model)
    Z, _ = as_batch(vectors, release.input_dim)
    clean = task.outputs(Z)
    changes = [
        np.sum((task.outputs(decoded) - clean) ** 2, axis=1)
        for decoded in simulated(release, Z, draws, seed)
    ]
    return Estimate.of(np.array(changes))
