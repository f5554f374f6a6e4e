"""The conditions of the theory: additive noise between affine maps, and piecewise affine models.

A release that meets them moves a vector z by h = d + Bξ. The offset d is due to clipping and is not
random, ξ has independent coordinates of one symmetric law, and B is the matrix of the decoder.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv

from offaxis.decoding import LinearDecoder, ShiftDecoder
from offaxis.encoding import AffineEncoder, ShiftEncoder
from offaxis.errors import InvalidInput
from offaxis.geometry import Layers, TaskModel, as_task_model
from offaxis.randomizers.gaussian import Gaussian
from offaxis.randomizers.laplace import Laplace
from offaxis.release import Release
from offaxis.simulation import simulate
from offaxis.vectors import Vectors

_BATCH_NUMBERS: Final = 1 << 22
"""Vectors are batched so that their Jacobians hold about this many numbers."""


@dataclass(frozen=True, eq=False)
class AdditiveNoise:
    """The effect of an affine release with additive noise: z becomes z + d + Bξ.

    Attributes
    ----------
    encoder, randomizer, decoder
        The parts of the release.
    matrix : (m, r) array
        B, the linear part of the decoder; U Λ^{1/2} after reshaping.
    variance : float
        σ², the variance of each coordinate of ξ.
    excess : float
        Excess kurtosis of ξ: 3 for Laplace, 0 for Gaussian.
    """

    encoder: AffineEncoder | ShiftEncoder
    randomizer: Laplace | Gaussian
    decoder: LinearDecoder | ShiftDecoder
    matrix: Vectors
    variance: float
    excess: float

    @classmethod
    def of(cls, release: Release) -> AdditiveNoise:
        """Return the noise of a release.

        Raises
        ------
        InvalidInput
            If the noise is not additive (PrivUnit), or the encoder or the decoder is not affine.
        """
        encoder, randomizer, decoder = release.encoder, release.randomizer, release.decoder
        if not isinstance(randomizer, Laplace | Gaussian):
            raise InvalidInput(
                f"the condition 'additive noise' fails: the {randomizer.kind} randomizer does not "
                f"add noise that is independent of the vector; use laplace or gaussian"
            )
        if not isinstance(encoder, AffineEncoder | ShiftEncoder):
            raise InvalidInput(f"the condition 'affine encoder' fails: it is {encoder.kind!r}")
        if not isinstance(decoder, LinearDecoder | ShiftDecoder):
            raise InvalidInput(f"the condition 'affine decoder' fails: it is {decoder.kind!r}")
        matrix = decoder.matrix if isinstance(decoder, LinearDecoder) else np.eye(randomizer.dim)
        variance = randomizer.expected_squared_error() / randomizer.dim
        excess = 3.0 if isinstance(randomizer, Laplace) else 0.0
        return cls(encoder, randomizer, decoder, matrix, variance, excess)

    def clipping(self, Z: Vectors) -> Vectors:
        """Return d, the offset of every vector by clipping, (n, m).

        It is (θ − 1)(z − μ) if the decoder inverts the encoder; for maps of lower rank it includes
        what the encoder drops.
        """
        clipped = self.randomizer.domain.project(self.encoder.encode(Z))
        return self.decoder.decode(clipped) - Z


def piecewise_affine(model: Any) -> Layers:
    """Return the model as layers with a piecewise affine activation.

    Raises
    ------
    InvalidInput
        If the activation is not piecewise affine (GELU, tanh, logistic), or the layers are unknown.
    """
    task = as_task_model(model)
    if not isinstance(task, Layers):
        raise InvalidInput(
            f"the condition 'piecewise affine' cannot be checked for a {task.identity().kind} "
            f"model; pass its weights as offaxis.geometry.Layers"
        )
    if len(task.weights) > 1 and task.activation not in ("relu", "identity"):
        raise InvalidInput(
            f"the condition 'piecewise affine' fails: the model's activation is "
            f"{task.activation!r}; it must be 'relu' or 'identity'"
        )
    return task


def row_batches(Z: Vectors, numbers: int) -> Iterator[slice]:
    """Yield slices of the vectors that bound memory, given the numbers needed per vector."""
    rows = max(1, _BATCH_NUMBERS // numbers)
    for start in range(0, len(Z), rows):
        yield slice(start, start + rows)


def jacobian_parts(task: TaskModel, Z: Vectors) -> Iterator[tuple[slice, Vectors]]:
    """Yield slices of the vectors with rows of their Jacobians, (n, j, m), in bounded memory.

    All k rows at once; or one row after the other, each with a backward pass, if the Jacobian of a
    single vector is too large.
    """
    outputs, dim = task.outputs(Z[:1]).shape[1], Z.shape[1]
    if outputs * dim <= _BATCH_NUMBERS:
        for part in row_batches(Z, outputs * dim):
            yield part, task.jacobians(Z[part])
        return
    for part in row_batches(Z, max(outputs, dim)):
        for output in range(outputs):
            unit = np.zeros((len(Z[part]), outputs))
            unit[:, output] = 1.0
            yield part, task.vjp(Z[part], unit)[:, None, :]


# ---- Activation cells of a ReLU network: the convex regions on which it is affine


def activation_cell(model: Layers, Z: Vectors) -> NDArray[np.bool_]:
    """Return which hidden units are on, (n, units); vectors with equal rows share a cell.

    A model without ReLU has a single cell and an empty row.
    """
    if model.activation != "relu":
        return np.zeros((len(Z), 0), dtype=bool)
    units = [np.zeros((len(Z), 0), dtype=bool)]
    hidden = Z
    for weight, bias in zip(model.weights[:-1], model.biases[:-1], strict=True):
        before = hidden @ weight.T + bias
        units.append(before > 0)
        hidden = np.maximum(before, 0.0)
    return np.concatenate(units, axis=1)


def lipschitz(weights: Sequence[Vectors]) -> float:
    """Return K with ‖T(x) − T(y)‖ ≤ K ‖x − y‖ for all x and y, for a network of these layers.

    The product of the layers' spectral norms. It holds everywhere because neither ReLU nor the
    identity stretches, and it is rarely attained. 1 for no layers.
    """
    return math.prod(float(np.linalg.norm(weight, 2)) for weight in weights)


# ---- Simulated reports, and the standard error of their means

_BLOCK_ROWS: Final = 1 << 14


@dataclass(frozen=True)
class Estimate:
    """A mean over simulated reports.

    Attributes
    ----------
    mean : float
    standard_error : float
        Of the mean, over the noise; the vectors are held fixed.

    Examples
    --------
    >>> from offaxis.theory import Estimate
    >>> values = np.array([[1.0, 10.0], [3.0, 12.0], [2.0, 11.0]])  # three draws of two vectors
    >>> estimate = Estimate.of(values)
    >>> estimate.mean, round(estimate.standard_error, 3)
    (6.5, 0.408)
    """

    mean: float
    standard_error: float

    @classmethod
    def of(cls, values: Vectors) -> Estimate:
        """Return the mean of (draws, n) values, which are independent within each column.

        The columns belong to different vectors, so each has a variance of its own.
        """
        draws, n = values.shape
        error = math.sqrt(float(values.var(axis=0, ddof=1).sum()) / draws) / n
        return cls(float(values.mean()), error)


def simulated(release: Release, Z: Vectors, draws: int, seed: int) -> Iterator[Vectors]:
    """Yield decoded vectors (n, m), one simulated report each, ``draws`` times.

    The same seed gives the same draws, so that separate measurements can be compared.
    """
    if draws < 2:
        raise InvalidInput(f"draws must be at least 2 for a standard error, got draws={draws}")
    # Simulate several draws at once: many rows use all cores well.
    block = max(1, _BLOCK_ROWS // len(Z))
    for start in range(0, draws, block):
        count = min(block, draws - start)
        decoded = simulate(release, np.tile(Z, (count, 1)), np.random.default_rng([seed, start]))
        yield from decoded.reshape(count, *Z.shape)


def highest_share(hits: int, trials: int, confidence: float) -> float:
    """Return an upper confidence limit on the mean probability of independent events.

    The limit of Clopper and Pearson. It also holds if the events have different probabilities: for
    the same mean, the number of such events has the lighter lower tail (Hoeffding, 1956), at any
    confidence above 1 − 1/e.
    """
    if not 1 - 1 / math.e <= confidence < 1:
        raise InvalidInput(f"confidence must be between 0.64 and 1, got confidence={confidence!r}")
    return 1.0 if hits == trials else float(betaincinv(hits + 1, trials - hits, confidence))


def moment_slack(trials: int, confidence: float) -> float:
    """Return s such that mean + s √M is an upper confidence limit on an expectation.

    Holds for the mean of ``trials`` independent values X ≥ 0, of any laws, and M at least the mean
    of their E X²: s = √(2 ln(1/α) / n) at the confidence 1 − α. Proof: e^{−x} ≤ 1 − x + x²/2 for
    x ≥ 0 bounds the moment generating function at −λ, and Chernoff's bound is smallest at λ = t/M
    (Maurer, 2003, A bound on the deviation probability for sums of non-negative random variables).
    """
    return math.sqrt(2 * math.log(1 / (1 - confidence)) / trials)
