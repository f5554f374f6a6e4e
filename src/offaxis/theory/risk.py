"""The risk of a release: how much it changes a task's outputs, to first order and by simulation.

To first order T(z + h) − T(z) = J h. With h = d + Bξ and ξ of mean zero and variance σ², the mean
squared change is the sum of a part due to noise and a part due to clipping:

    R_FO = σ² Tr(Bᵀ Ω̂ B)  +  (1/N) Σ ‖J_i d_i‖²,     Ω̂ = (1/N) Σ J_iᵀ J_i
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from offaxis.encoding import AffineEncoder, ShiftEncoder
from offaxis.errors import InvalidInput
from offaxis.geometry import TaskModel, as_task_model
from offaxis.geometry.jacobian import PartialGram
from offaxis.release import Release
from offaxis.theory.conditions import (
    AdditiveNoise,
    Estimate,
    jacobian_parts,
    row_batches,
    simulated,
)
from offaxis.vectors import Vectors, as_array, as_batch, check_finite


@dataclass(frozen=True)
class FirstOrderRisk:
    """The mean squared change of the outputs to first order, due to noise and to clipping.

    Attributes
    ----------
    noise : float
        σ² Tr(Bᵀ Ω̂ B).
    clipping : float
        (1/N) Σ ‖J_i d_i‖².

    Examples
    --------
    >>> import offaxis
    >>> from offaxis.theory import first_order_risk
    >>> task = np.array([[3.0, 1.0, 0.0], [0.0, 2.0, 0.1]])
    >>> public = np.random.default_rng(0).standard_normal((200, 3))
    >>> release = offaxis.fit(task, public, epsilon=3, mechanism="laplace")
    >>> risk = first_order_risk(release, task, public)
    >>> risk.total == risk.noise + risk.clipping
    True
    """

    noise: float
    clipping: float

    @property
    def total(self) -> float:
        """R_FO, the sum: noise of mean zero has no cross term with clipping."""
        return self.noise + self.clipping


def mean_gram(model: Any, vectors: Any) -> Vectors:
    """Return Ω̂, the mean of JᵀJ over vectors, (m, m).

    Examples
    --------
    >>> from offaxis.theory import mean_gram
    >>> task = np.array([[3.0, 1.0, 0.0], [0.0, 2.0, 0.1]])
    >>> public = np.random.default_rng(0).standard_normal((200, 3))
    >>> bool(np.allclose(mean_gram(task, public), task.T @ task))  # the Jacobian is constant
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
    """Return σ² Tr(Bᵀ Ω B): the first-order risk due to noise, for a task with the Gram matrix Ω.

    Holds for additive noise of mean zero between affine maps; clipping is left out.

    Examples
    --------
    >>> import offaxis
    >>> from offaxis.theory import mean_gram, noise_risk
    >>> task = np.array([[3.0, 1.0, 0.0], [0.0, 2.0, 0.1]])
    >>> public = np.random.default_rng(0).standard_normal((200, 3))
    >>> release = offaxis.fit(task, public, epsilon=3, mechanism="laplace")
    >>> plain = offaxis.fit(task, public, epsilon=3, reshaping="none", mechanism="laplace")
    >>> gram = mean_gram(task, public)
    >>> noise_risk(release, gram) < noise_risk(plain, gram)  # the purpose of reshaping
    True
    """
    noise = AdditiveNoise.of(release)
    return float(noise.variance * np.sum((gram @ noise.matrix) * noise.matrix))


def first_order_risk(release: Release, model: Any, vectors: Any) -> FirstOrderRisk:
    """Return the first-order risk of a release on given vectors, due to noise and to clipping.

    Holds for additive noise of mean zero between affine maps, and a model that has a Jacobian at
    every vector. It is exact for affine models; for others it leaves out the curvature of the
    model, which matters little while the noise is small
    (:func:`~offaxis.theory.remainder_bound`). The truncation to the lattice, less than one step per
    coordinate, is left out. Memory holds the Gram matrix and a few rows of Jacobians, for any
    number of vectors and outputs.

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
    >>> release = offaxis.fit(task, public, epsilon=3, mechanism="laplace")
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
        Number of simulated reports per vector.

    Examples
    --------
    >>> import offaxis
    >>> from offaxis.theory import first_order_risk, nonlinear_risk
    >>> task = np.array([[3.0, 1.0, 0.0], [0.0, 2.0, 0.1]])
    >>> public = np.random.default_rng(0).standard_normal((200, 3))
    >>> release = offaxis.fit(task, public, epsilon=3, mechanism="laplace")
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


# ---- Public and private vectors


@dataclass(frozen=True)
class Discrepancy:
    """The gap between the noise risks on two sets of vectors.

    Attributes
    ----------
    exact : float
        |σ² Tr(Bᵀ(Ω − Ω̂)B)|, the gap.
    bound : float
        σ² ‖Ω − Ω̂‖_op Tr(BᵀB), a bound on it that needs only the distance of the Gram matrices;
        Tr BᵀB = Tr Λ after reshaping.
    operator_norm : float
        ‖Ω − Ω̂‖_op.

    Examples
    --------
    >>> import offaxis
    >>> from offaxis.theory import discrepancy, mean_gram
    >>> task = np.array([[3.0, 1.0, 0.0], [0.0, 2.0, 0.1]])
    >>> public = np.random.default_rng(0).standard_normal((200, 3))
    >>> release = offaxis.fit(task, public, epsilon=3, mechanism="laplace")
    >>> gram = mean_gram(task, public)
    >>> discrepancy(release, gram, gram)
    Discrepancy(exact=0.0, bound=0.0, operator_norm=0.0)
    """

    exact: float
    bound: float
    operator_norm: float


def _gram(value: Any, dim: int, name: str) -> Vectors:
    gram = as_array(value, name)
    check_finite(gram, name)
    if gram.shape != (dim, dim) or not np.allclose(gram, gram.T, rtol=1e-9, atol=0):
        raise InvalidInput(f"{name} must be symmetric ({dim}, {dim}), got shape {gram.shape}")
    return gram


def discrepancy(release: Release, public_gram: Any, private_gram: Any) -> Discrepancy:
    """Return the gap between the noise risk on private vectors and the one on public vectors.

    The map was fitted to Ω̂ of public vectors. On other vectors, with Ω, the noise risk differs by

        |σ² Tr(Bᵀ(Ω − Ω̂)B)|  ≤  σ² ‖Ω − Ω̂‖_op Tr(BᵀB).

    Holds for additive noise of mean zero between affine maps. It covers noise only; clipping may
    differ as well. The bound includes the stretch of all directions, even those in which the Gram
    matrices agree, so it is loose if lambda_max is large. Nothing here protects anyone: do not
    compute a Gram matrix from vectors that must stay private.

    Parameters
    ----------
    public_gram, private_gram : (m, m) arrays
        Ω̂ and Ω, as returned by :func:`~offaxis.theory.mean_gram`.

    Examples
    --------
    >>> import offaxis
    >>> from offaxis.theory import discrepancy, mean_gram
    >>> task = np.array([[3.0, 1.0, 0.0], [0.0, 2.0, 0.1]])
    >>> public = np.random.default_rng(0).standard_normal((200, 3))
    >>> release = offaxis.fit(task, public, epsilon=3, mechanism="laplace")
    >>> gram = mean_gram(task, public)
    >>> gap = discrepancy(release, gram, 1.1 * gram)  # 10 % more sensitive on private vectors
    >>> 0 < gap.exact < gap.bound, round(gap.operator_norm, 2)
    (True, 1.06)
    """
    noise = AdditiveNoise.of(release)
    dim = release.input_dim
    gap = _gram(private_gram, dim, "private_gram") - _gram(public_gram, dim, "public_gram")
    norm = float(np.linalg.norm(gap, 2))
    return Discrepancy(
        exact=abs(noise_risk(release, gap)),
        bound=norm * noise.variance * float(np.sum(noise.matrix**2)),
        operator_norm=norm,
    )


@dataclass(frozen=True)
class DiscrepancySplit:
    """The gap between private and public vectors, in its two parts.

    Attributes
    ----------
    shift : Discrepancy
        Ω_priv against Ω_pub: the two populations differ. More public vectors do not reduce it.
    sampling : Discrepancy
        Ω_pub against Ω̂: the public population is known from a sample. Falls like 1/√N.
    total : Discrepancy
        Ω_priv against Ω̂, as :func:`discrepancy` returns it.

    Examples
    --------
    >>> import offaxis
    >>> from offaxis.theory import discrepancy_split, mean_gram
    >>> task = np.array([[3.0, 1.0, 0.0], [0.0, 2.0, 0.1]])
    >>> public = np.random.default_rng(0).standard_normal((200, 3))
    >>> release = offaxis.fit(task, public, epsilon=3, mechanism="laplace")
    >>> gram = mean_gram(task, public)
    >>> split = discrepancy_split(release, gram, gram, 1.1 * gram)
    >>> split.sampling.bound == 0, split.shift == split.total
    (True, True)
    """

    shift: Discrepancy
    sampling: Discrepancy
    total: Discrepancy

    @property
    def bound(self) -> float:
        """The sum of the bounds of both parts; by the triangle inequality at least the total's."""
        return self.shift.bound + self.sampling.bound


def discrepancy_split(
    release: Release, empirical_gram: Any, public_gram: Any, private_gram: Any
) -> DiscrepancySplit:
    """Split the gap of the noise risk into a shift of the population and a sampling error.

    The map was fitted to Ω̂ of N public vectors. With Ω_pub of their population and Ω_priv of the
    private one,

        ‖Ω_priv − Ω̂‖_op ≤ ‖Ω_priv − Ω_pub‖_op + ‖Ω_pub − Ω̂‖_op,

    and each distance, times σ² Tr(BᵀB), bounds its part of the gap. The triangle inequality holds
    for any matrix in the middle; the parts mean what their names say only if ``public_gram`` is
    that of the population, or of far more public vectors than Ω̂. Holds for additive noise of mean
    zero between affine maps, for noise only. Do not compute Ω_priv from vectors that must stay
    private. (Paper: proposition "Public–private discrepancy bound for the empirical first-order
    noise risk".)

    Parameters
    ----------
    empirical_gram, public_gram, private_gram : (m, m) arrays
        Ω̂, Ω_pub and Ω_priv, as returned by :func:`~offaxis.theory.mean_gram`.

    Examples
    --------
    >>> import offaxis
    >>> from offaxis.geometry import Layers
    >>> from offaxis.theory import discrepancy_split, mean_gram
    >>> rng = np.random.default_rng(0)
    >>> weights = [rng.standard_normal((4, 3)), rng.standard_normal((2, 4))]
    >>> task = Layers(weights, [np.zeros(4), np.zeros(2)])
    >>> public, private = rng.standard_normal((5000, 3)), rng.standard_normal((5000, 3)) + 0.5
    >>> fitted = public[:100]
    >>> release = offaxis.fit(task, fitted, epsilon=3, mechanism="laplace")
    >>> split = discrepancy_split(release, *(mean_gram(task, Z) for Z in (fitted, public, private)))
    >>> split.total.exact <= split.total.bound <= split.bound
    True
    """
    return DiscrepancySplit(
        shift=discrepancy(release, public_gram, private_gram),
        sampling=discrepancy(release, empirical_gram, public_gram),
        total=discrepancy(release, empirical_gram, private_gram),
    )


def sampling_rate(dim: int, count: int) -> float:
    """Return √(log m / N), the rate at which Ω̂ of N independent vectors tends to its mean.

    Holds for independent vectors of one law and a bounded Jacobian. It is a rate without its
    constant: four times the vectors halve it.

    Examples
    --------
    >>> from offaxis.theory import sampling_rate
    >>> sampling_rate(64, 1000) / sampling_rate(64, 4000)
    2.0
    """
    return math.sqrt(math.log(dim) / count)


# ---- Stretch of the encoder: why a reshaped vector must be clipped


@dataclass(frozen=True)
class Amplification:
    """The largest factors by which encoding stretches a difference of vectors.

    Attributes
    ----------
    l1 : float
        ‖A‖_1, the largest sum of magnitudes in a column.
    l2 : float
        ‖A‖_2, the largest singular value.

    Examples
    --------
    >>> import offaxis
    >>> from offaxis.theory import amplification
    >>> public = np.random.default_rng(0).standard_normal((200, 3))
    >>> amplification(offaxis.fit(None, public, epsilon=3, reshaping="none", mechanism="laplace"))
    Amplification(l1=1.0, l2=1.0)
    """

    l1: float
    l2: float


def amplification(release: Release) -> Amplification:
    """Return ‖A‖_1 and ‖A‖_2 of the encoder w = A(z − c); A = L^{−1} after reshaping.

    ‖A(z − z')‖_p ≤ ‖A‖_p ‖z − z'‖_p. Under the volume constraint Σ λ_i^{−p/2} = m of the reshaping,
    ‖A‖_p ≥ 1 in the norm of the constraint, so a bound known before encoding does not hold for the
    encoded vector. Holds for affine encoders and any randomizer. The guarantee does not depend on
    the stretch, because the randomizer clips its input.

    Raises
    ------
    InvalidInput
        If the encoder is not affine.

    Examples
    --------
    >>> import offaxis
    >>> from offaxis.theory import amplification
    >>> task = np.array([[3.0, 1.0, 0.0], [0.0, 2.0, 0.1]])
    >>> public = np.random.default_rng(0).standard_normal((200, 3))
    >>> release = offaxis.fit(task, public, epsilon=3, mechanism="laplace")
    >>> amplification(release).l1 >= 1  # so the encoded vector must be clipped
    True
    """
    encoder = release.encoder
    if isinstance(encoder, ShiftEncoder):
        return Amplification(1.0, 1.0)
    if not isinstance(encoder, AffineEncoder):
        raise InvalidInput(f"the condition 'affine encoder' fails: it is {encoder.kind!r}")
    l1, l2 = (float(np.linalg.norm(encoder.matrix, order)) for order in (1, 2))
    return Amplification(l1, l2)
