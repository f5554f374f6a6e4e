"""Under which conditions the theory speaks: affine maps around additive noise, and ReLU tasks.

A release that meets them moves a vector z by h = d + Bξ: d is what clipping takes away and does not
depend on chance, ξ has independent coordinates of one symmetric law, B is the decoder's matrix.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from offaxis.decoding import LinearDecoder, ShiftDecoder
from offaxis.encoding import AffineEncoder, ShiftEncoder
from offaxis.errors import InvalidInput
from offaxis.geometry import Layers, TaskModel, as_task_model
from offaxis.randomizers.gaussian import Gaussian
from offaxis.randomizers.laplace import Laplace
from offaxis.release import Release
from offaxis.vectors import Vectors

_BATCH_NUMBERS: Final = 1 << 22
"""A batch is cut so that its Jacobians hold about this many numbers."""


@dataclass(frozen=True, eq=False)
class AdditiveNoise:
    """What an affine release with additive noise does to a vector: z becomes z + d + Bξ.

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
        """Read the noise off a release.

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
        """Return d, what clipping moves every vector by, (n, m).

        (θ − 1)(z − μ) when the decoder inverts the encoder; for maps of lower rank it includes what
        the encoder drops.
        """
        clipped = self.randomizer.domain.project(self.encoder.encode(Z))
        return self.decoder.decode(clipped) - Z


def piecewise_affine(model: Any) -> Layers:
    """Return the model as layers between whose kinks it is affine.

    Raises
    ------
    InvalidInput
        If the activation bends (GELU, tanh, logistic), or the layers are not known.
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
    """Cut vectors into parts of which each holds a bounded amount, at so many numbers a vector."""
    rows = max(1, _BATCH_NUMBERS // numbers)
    for start in range(0, len(Z), rows):
        yield slice(start, start + rows)


def jacobian_parts(task: TaskModel, Z: Vectors) -> Iterator[tuple[slice, Vectors]]:
    """Yield which vectors, and rows of their Jacobians, (n, j, m), in bounded memory.

    All k rows at once, or one after the other where the Jacobian of a single vector is too much:
    then each of them takes a backward pass of its own.
    """
    outputs, dim = task.outputs(Z[:1]).shape[1], Z.shape[1]
    if outputs * dim <= _BATCH_NUMBERS:
        for part in row_batches(Z, outputs * dim):
            yield part, task.jacobians(Z[part])
        return
    for part in row_batches(Z, max(outputs, dim)):
        for output in range(outputs):
            along = np.zeros((len(Z[part]), outputs))
            along[:, output] = 1.0
            yield part, task.pull(Z[part], along)[:, None, :]
