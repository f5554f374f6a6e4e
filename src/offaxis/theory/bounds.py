"""Bounds for piecewise affine models: the error of the first-order risk, and changed answers.

Contract: the bounds hold for releases with additive noise between affine maps and for ReLU or
affine networks given as layers; every other case raises InvalidInput and names the condition. The
probability of leaving an activation cell is measured by simulation, with a standard error or with a
stated confidence.
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
from offaxis.theory.conditions import (
    AdditiveNoise,
    Estimate,
    activation_cell,
    highest_share,
    lipschitz,
    moment_slack,
    piecewise_affine,
    row_batches,
    simulated,
)
from offaxis.theory.risk import FirstOrderRisk, first_order_risk
from offaxis.vectors import Vectors, as_batch, row_dots

# ---- Error of the first-order risk


@dataclass(frozen=True)
class RemainderBound:
    """A bound on the distance between the first-order risk and the real one.

    While z + h stays in the activation cell of z, the first order is exact; outside, a model of
    Lipschitz constant K is off by at most 2K‖h‖. Hence the first inequality, over the reports that
    leave the cell, and from it, by Cauchy and Schwarz, the second one:

        |√R_NL − √R_FO| ≤ 2K ((1/N) Σ E[‖h_i‖² 1(leave)])^{1/2}
                        ≤ B = 2K ((1/N) Σ E‖h_i‖⁴)^{1/4} P̄^{1/4}
        |R_NL − R_FO| ≤ 2B √R_FO + B², with either of the two as B

    where P̄ is the mean probability of leaving the cell. The model depends on z only through its
    first layer W, so the same holds with ‖Wh‖ for ‖h‖ and with K of the later layers: the sharper
    form, which is not affected by noise that the first layer removes.

    The first inequality needs a moment without a closed form. It is measured, and the bound uses an
    upper confidence limit on it: the mean of n independent values ≥ 0 falls short of its
    expectation by t with probability at most exp(−n t² / 2M), M the mean of their second moments
    (Maurer 2003), and here M ≤ (1/N) Σ E‖h_i‖⁴, which is known.

    Attributes
    ----------
    lipschitz, inner_lipschitz : float
        K of the model, and of the layers after the first.
    fourth_moment, inner_fourth_moment : float
        (1/N) Σ E‖h_i‖⁴ and (1/N) Σ E‖Wh_i‖⁴, in closed form.
    leaving : Estimate
        P̄ as measured.
    highest_leaving : float
        An upper confidence limit on P̄, which the bound uses: a measured share of zero proves
        nothing.
    leaving_moment, inner_leaving_moment : Estimate
        (1/N) Σ E[‖h_i‖² 1(leave)] and (1/N) Σ E[‖Wh_i‖² 1(leave)] as measured.
    moment_slack : float
        What an upper confidence limit adds to both, as a share of the root of the fourth moment.
    first_order : FirstOrderRisk

    Examples
    --------
    >>> import offaxis
    >>> from offaxis.geometry import Layers
    >>> from offaxis.theory import remainder_bound
    >>> rng = np.random.default_rng(0)
    >>> weights = [rng.standard_normal((4, 3)), rng.standard_normal((2, 4))]
    >>> task = Layers(weights, [np.ones(4), np.zeros(2)])
    >>> public = rng.standard_normal((100, 3))
    >>> release = offaxis.fit(task, public, epsilon=50, mechanism="laplace")
    >>> bound = remainder_bound(release, task, public, draws=20)
    >>> bound.sharper_root <= bound.root, bound.sharper_risk <= bound.risk
    (True, True)
    >>> bound.leaving_root <= bound.root  # the first inequality is never the looser one
    True
    """

    lipschitz: float
    inner_lipschitz: float
    fourth_moment: float
    inner_fourth_moment: float
    leaving: Estimate
    highest_leaving: float
    leaving_moment: Estimate
    inner_leaving_moment: Estimate
    moment_slack: float
    first_order: FirstOrderRisk

    @property
    def root(self) -> float:
        """B, a bound on |√R_NL − √R_FO|."""
        return float(2 * self.lipschitz * (self.fourth_moment * self.highest_leaving) ** 0.25)

    @property
    def risk(self) -> float:
        """2B √R_FO + B², a bound on |R_NL − R_FO|."""
        return _on_risk(self.root, self.first_order)

    @property
    def sharper_root(self) -> float:
        """B after the first layer, also a bound on |√R_NL − √R_FO|."""
        moment = self.inner_fourth_moment * self.highest_leaving
        return float(2 * self.inner_lipschitz * moment**0.25)

    @property
    def sharper_risk(self) -> float:
        """The bound on |R_NL − R_FO| with the sharper B."""
        return _on_risk(self.sharper_root, self.first_order)

    @property
    def leaving_root(self) -> float:
        """2K ((1/N) Σ E[‖h_i‖² 1(leave)])^{1/2}, the first inequality; never above ``root``.

        The smaller of two limits that hold with the stated confidence each: if the confidence is
        1 − α, this bound holds with 1 − 2α.
        """
        moment = self._highest_moment(self.leaving_moment, self.fourth_moment)
        return float(2 * self.lipschitz * math.sqrt(moment))

    @property
    def leaving_risk(self) -> float:
        """The bound on |R_NL − R_FO| by the first inequality."""
        return _on_risk(self.leaving_root, self.first_order)

    @property
    def sharper_leaving_root(self) -> float:
        """The first inequality after the first layer; never above ``sharper_root``."""
        moment = self._highest_moment(self.inner_leaving_moment, self.inner_fourth_moment)
        return float(2 * self.inner_lipschitz * math.sqrt(moment))

    @property
    def sharper_leaving_risk(self) -> float:
        """The bound on |R_NL − R_FO| by the first inequality after the first layer."""
        return _on_risk(self.sharper_leaving_root, self.first_order)

    def _highest_moment(self, measured: Estimate, fourth_moment: float) -> float:
        by_sampling = measured.mean + self.moment_slack * math.sqrt(fourth_moment)
        return min(by_sampling, math.sqrt(fourth_moment * self.highest_leaving))


def _on_risk(root: float, first_order: FirstOrderRisk) -> float:
    return 2 * root * math.sqrt(first_order.total) + root**2


def fourth_moments(release: Release, vectors: Any, weight: Vectors | None = None) -> Vectors:
    """Return E‖h_i‖⁴ for every vector, (n,), or E‖Wh_i‖⁴ for a weight W, in closed form.

    Holds for additive noise with independent, symmetric coordinates of variance σ² and excess
    kurtosis κ between affine maps. With G = BᵀB,

        E‖d + Bξ‖⁴ = (‖d‖² + σ² Tr G)² + 4σ² ‖Bᵀd‖² + 2σ⁴ ‖G‖_F² + κσ⁴ Σ G_jj².

    Examples
    --------
    >>> import offaxis
    >>> from offaxis.geometry import Layers
    >>> from offaxis.theory import fourth_moments
    >>> rng = np.random.default_rng(0)
    >>> weights = [rng.standard_normal((4, 3)), rng.standard_normal((2, 4))]
    >>> task = Layers(weights, [np.ones(4), np.zeros(2)])
    >>> public = rng.standard_normal((100, 3))
    >>> release = offaxis.fit(task, public, epsilon=50, mechanism="laplace")
    >>> moments = fourth_moments(release, public)
    >>> moments.shape, bool((moments > 0).all())
    ((100,), True)
    """
    noise = AdditiveNoise.of(release)
    Z, _ = as_batch(vectors, release.input_dim)
    moved, matrix = noise.clipping(Z), noise.matrix
    if weight is not None:
        moved, matrix = moved @ weight.T, weight @ matrix
    inner = matrix.T @ matrix
    across = moved @ matrix
    spread = 2 * np.sum(inner**2) + noise.excess * np.sum(np.diag(inner) ** 2)
    second: Vectors = row_dots(moved, moved) + noise.variance * np.trace(inner)
    fourth: Vectors = (
        second**2 + 4 * noise.variance * row_dots(across, across) + noise.variance**2 * spread
    )
    return fourth


def remainder_bound(
    release: Release,
    model: Any,
    vectors: Any,
    *,
    draws: int = 200,
    seed: int = 0,
    confidence: float = 0.999,
) -> RemainderBound:
    """Bound the distance between the first-order risk and the real one on given vectors.

    Holds for additive noise of mean zero between affine maps and a ReLU (or affine) network given
    as layers, with the stated confidence over the simulation that measures P̄ and E[‖h‖² 1(leave)].
    K is the product of the layers' spectral norms. The fourth-moment form (``root``) shrinks only
    with the fourth root of P̄; the form over the reports that leave the cell (``leaving_root``)
    shrinks with the square root, as far as the number of draws can show it. Both are loose unless
    reports rarely leave the cell. :class:`RemainderBound` has the formulas.

    Parameters
    ----------
    draws : int
        Number of simulated reports per vector.
    confidence : float
        Confidence of the upper limits on P̄ and on E[‖h‖² 1(leave)], each.

    Raises
    ------
    InvalidInput
        If the noise is not additive, a map is not affine, or the model is not piecewise affine.

    Examples
    --------
    >>> import offaxis
    >>> from offaxis.geometry import Layers
    >>> from offaxis.theory import nonlinear_risk, remainder_bound
    >>> rng = np.random.default_rng(0)
    >>> weights = [rng.standard_normal((4, 3)), rng.standard_normal((2, 4))]
    >>> task = Layers(weights, [np.ones(4), np.zeros(2)])
    >>> public = rng.standard_normal((100, 3))
    >>> release = offaxis.fit(task, public, epsilon=50, mechanism="laplace")
    >>> bound = remainder_bound(release, task, public, draws=50)
    >>> gap = nonlinear_risk(release, task, public, draws=50).mean - bound.first_order.total
    >>> abs(gap) < bound.sharper_risk, bound.leaving.mean < bound.highest_leaving
    (True, True)
    """
    first_order = first_order_risk(release, model, vectors)
    layers = piecewise_affine(model)
    Z, _ = as_batch(vectors, release.input_dim)
    cell, first_layer = activation_cell(layers, Z), layers.weights[0]
    left, moved, inner_moved = [], [], []
    for decoded in simulated(release, Z, draws, seed):
        leaves = (activation_cell(layers, decoded) != cell).any(axis=1)
        h = decoded - Z
        inner = h @ first_layer.T
        left.append(leaves)
        moved.append(row_dots(h, h) * leaves)
        inner_moved.append(row_dots(inner, inner) * leaves)
    events = np.array(left)
    highest = highest_share(int(events.sum()), events.size, confidence)
    return RemainderBound(
        lipschitz=lipschitz(layers.weights),
        inner_lipschitz=lipschitz(layers.weights[1:]),
        fourth_moment=float(fourth_moments(release, Z).mean()),
        inner_fourth_moment=float(fourth_moments(release, Z, first_layer).mean()),
        leaving=Estimate.of(events.astype(np.float64)),
        highest_leaving=highest if cell.shape[1] else 0.0,
        leaving_moment=Estimate.of(np.array(moved)),
        inner_leaving_moment=Estimate.of(np.array(inner_moved)),
        moment_slack=moment_slack(events.size, confidence),
        first_order=first_order,
    )


# ---- Changed answers


@dataclass(frozen=True, eq=False)
class DisagreementBound:
    """A bound on the probability that an answer changes, and what the same simulation measured.

    Attributes
    ----------
    leaving : (n,) array
        Measured probability of leaving the activation cell.
    flipping : (n,) array
        The sum of tails, a bound on the probability that the answer changes inside the cell.
        Infinite if a margin is not positive after clipping.
    leaving_mean, measured : Estimate
        Mean probability of leaving the cell and of a changed answer, over all vectors.

    Examples
    --------
    >>> import offaxis
    >>> from offaxis.geometry import Layers
    >>> from offaxis.theory import disagreement_bound
    >>> rng = np.random.default_rng(0)
    >>> weights = [rng.standard_normal((4, 3)), rng.standard_normal((2, 4))]
    >>> task = Layers(weights, [np.ones(4), np.zeros(2)])
    >>> public = rng.standard_normal((100, 3))
    >>> release = offaxis.fit(task, public, epsilon=50, mechanism="laplace")
    >>> bound = disagreement_bound(release, task, public, draws=20)
    >>> bound.per_vector.shape
    (100,)
    >>> bound.covered  # all margins stay positive after clipping
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

        Its standard error is at most that of ``leaving_mean``; nothing else in it is measured.
        """
        return float(self.per_vector.mean())

    @property
    def covered(self) -> float:
        """The share of vectors with positive margins after clipping; else the bound is 1."""
        return float(np.isfinite(self.flipping).mean())


def _flipping(
    margins: Vectors, slopes: Vectors, others: NDArray[np.bool_], sigma: float
) -> Vectors:
    """Return Σ_k exp(−min{…}) over the other classes; margins (n, k), slopes Bᵀa (n, k, r)."""
    lost = (others & (margins <= 0)).any(axis=1)
    margins = np.maximum(margins, 0.0)
    variance = sigma**2 * np.sum(slopes**2, axis=2)
    largest = np.abs(slopes).max(axis=2)
    with np.errstate(divide="ignore", invalid="ignore"):
        exponent = np.minimum(margins**2 / (4 * variance), margins / (2 * sigma * largest))
    # Without noise along a_k, a positive margin stays positive.
    tails = np.where(variance > 0, np.exp(-exponent), 0.0)
    total: Vectors = np.where(lost, np.inf, np.sum(tails, axis=1, where=others))
    return total


def flipping_tails(release: Release, model: Any, vectors: Any) -> Vectors:
    """Bound, for every vector, how often the answer changes inside the activation cell, (n,).

    Holds for Laplace noise between affine maps and a ReLU network with two outputs or more.
    Infinite if a margin is not positive after clipping: nothing is claimed there. The tails are
    those of the continuous Laplace law; the discrete noise of exact reports, at the same scale, has
    no heavier ones. :func:`disagreement_bound` has the formula.

    Examples
    --------
    >>> import offaxis
    >>> from offaxis.geometry import Layers
    >>> from offaxis.theory import flipping_tails
    >>> rng = np.random.default_rng(0)
    >>> weights = [rng.standard_normal((4, 3)), rng.standard_normal((2, 4))]
    >>> task = Layers(weights, [np.ones(4), np.zeros(2)])
    >>> public = rng.standard_normal((100, 3))
    >>> release = offaxis.fit(task, public, epsilon=50, mechanism="laplace")
    >>> tails = flipping_tails(release, task, public)
    >>> tails.shape, bool((tails > 0).all())
    ((100,), True)
    """
    noise, layers = _check_conditions(release, model)
    Z, _ = as_batch(vectors, release.input_dim)
    outputs = layers.outputs(Z)
    answers = outputs.argmax(axis=1)
    moved = noise.clipping(Z)
    # Not the variance of the discrete law: the tail bound is proved for the continuous one.
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

    Let c be the answer and σ² the variance of the noise. Inside the activation cell the margin of c
    over k is Δ̄_k + a_kᵀBξ, with a_k = J_c − J_k and Δ̄_k = T_c − T_k + a_kᵀd. If every Δ̄_k > 0, the
    answer changes with a probability of at most

        Pr(z + h leaves the cell) + Σ_k exp(−min{Δ̄_k² / (4 Var_k), Δ̄_k / (2σM_k)}),

    where Var_k = σ² ‖Bᵀa_k‖² and M_k = max_j |(Bᵀa_k)_j|. Otherwise the bound is 1.

    Holds for Laplace noise between affine maps and a ReLU network, given as layers, whose answer is
    the largest of two outputs or more. The probability of leaving the cell is measured on simulated
    reports and carries their standard error; disagreement is counted on the same reports. The bound
    is below 1 only if most reports stay in the cell.

    Parameters
    ----------
    draws : int
        Number of simulated reports per vector.

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
    >>> release = offaxis.fit(task, public, epsilon=50, mechanism="laplace")
    >>> bound = disagreement_bound(release, task, public, draws=50)
    >>> bound.measured.mean <= bound.averaged <= 1
    True
    """
    flipping = flipping_tails(release, model, vectors)
    layers = piecewise_affine(model)
    Z, _ = as_batch(vectors, release.input_dim)
    cell, answers = activation_cell(layers, Z), layers.outputs(Z).argmax(axis=1)
    left, changed = [], []
    for decoded in simulated(release, Z, draws, seed):
        left.append((activation_cell(layers, decoded) != cell).any(axis=1))
        changed.append(layers.outputs(decoded).argmax(axis=1) != answers)
    leaving = np.array(left, dtype=np.float64)
    measured = Estimate.of(np.array(changed, dtype=np.float64))
    return DisagreementBound(leaving.mean(axis=0), flipping, Estimate.of(leaving), measured)


def _check_conditions(release: Release, model: Any) -> tuple[AdditiveNoise, Layers]:
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
