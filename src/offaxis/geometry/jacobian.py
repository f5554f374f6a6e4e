"""The streaming Gram of a public model: Ω̂ = (1/N) Σ J_iᵀ J_i, in constant memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from offaxis.errors import InvalidInput
from offaxis.geometry.models import ModelIdentity, TaskModel
from offaxis.geometry.public import (
    PublicHash,
    PublicIdentity,
    PublicMoments,
    PublicVectors,
    Survey,
)
from offaxis.vectors import Vectors

Progress = Callable[[int], None]
"""Called with the number of vectors just finished."""

_BATCH_NUMBERS = 1 << 22
"""A batch is cut so that its Jacobians hold about this many numbers."""


@dataclass(frozen=True)
class PartialGram:
    """Σ JᵀJ over some of the vectors, as an unevaluated sum of two float64 matrices.

    Partial Grams add up without loss: the rounding error of every addition is carried in ``low``,
    so neither the number of parts nor their order changes the float64 result.
    """

    high: Vectors
    low: Vectors
    count: int

    @classmethod
    def empty(cls, dim: int) -> PartialGram:
        """Return the sum over no vectors."""
        return cls(np.zeros((dim, dim)), np.zeros((dim, dim)), 0)

    @classmethod
    def of(cls, model: TaskModel, Z: Vectors) -> PartialGram:
        """Return the sum over one batch."""
        gram = model.gram(Z)
        return cls(gram, np.zeros_like(gram), len(Z))

    def merge(self, other: PartialGram) -> PartialGram:
        """Return the sum over the vectors of both."""
        total = self.high + other.high
        part = total - self.high
        error = (self.high - (total - part)) + (other.high - part)
        low = self.low + other.low + error
        high = total + low
        return PartialGram(high, low - (high - total), self.count + other.count)

    def mean(self) -> Vectors:
        """Return Ω̂, symmetric to the last bit."""
        gram = (self.high + self.low) / self.count
        return (gram + gram.T) / 2


@dataclass(frozen=True)
class Geometry:
    """What fitting needs to know of the public side.

    Attributes
    ----------
    gram : (m, m) array
        Ω̂, the mean of JᵀJ.
    mean : (m,) array
        μ, the mean of the public vectors.
    covariance : (m, m) array
        C, their covariance.
    outputs : int
        k, the number of outputs of the model.
    """

    gram: Vectors
    mean: Vectors
    covariance: Vectors
    outputs: int
    model: ModelIdentity
    public: PublicIdentity

    @property
    def survey(self) -> Survey:
        """Who the public vectors are, and their moments."""
        return Survey(self.public, self.mean, self.covariance)


def _check_rows(model: TaskModel, Z: Vectors) -> int:
    """Return k, after checking that every row of outputs belongs to its own vector alone."""
    few = Z[:8]
    together = model.outputs(few)
    alone = model.outputs(few[:1])
    if together.ndim != 2 or len(together) != len(few) or alone.shape != (1, together.shape[1]):
        raise InvalidInput(
            f"the model must return one row a vector, (n, k) for an input (n, m); "
            f"for {len(few)} vectors it returned shape {together.shape}"
        )
    if not np.isfinite(together).all():
        raise InvalidInput("the model returned a value that is not finite on public vectors")
    if not np.allclose(alone[0], together[0], rtol=1e-3, atol=1e-5 * np.abs(together).max()):
        raise InvalidInput(
            "the model's answer for a vector depends on the other vectors of its batch; "
            "it must treat every row on its own (no batch statistics outside eval mode)"
        )
    return int(together.shape[1])


def measure(model: TaskModel, public: PublicVectors, progress: Progress | None = None) -> Geometry:
    """Walk once through the public vectors and return the geometry of the task.

    Memory does not grow with the number of vectors: one batch of Jacobians and two m×m matrices.
    """
    first = next(iter(public.batches(8)))
    dim = first.shape[1]
    if model.input_dim not in (None, dim):
        raise InvalidInput(
            f"the model takes vectors of dimension {model.input_dim}, the public ones have {dim}"
        )
    outputs = _check_rows(model, first)
    rows = int(np.clip(_BATCH_NUMBERS // model.numbers_per_vector(dim, outputs), 16, 8192))
    total, digest, moments = PartialGram.empty(dim), PublicHash(), PublicMoments(first[0])
    for batch in public.batches(rows):
        digest.add(batch)
        moments.add(batch)
        with np.errstate(over="ignore", invalid="ignore"):
            total = total.merge(PartialGram.of(model, batch))
        if progress:
            progress(len(batch))
    gram = total.mean()
    if not np.isfinite(gram).all():
        raise InvalidInput(
            "the model's Jacobian is not finite, or too large to square, on the public vectors; "
            "rescale the model's outputs or the vectors"
        )
    return Geometry(
        gram=gram,
        mean=moments.mean,
        covariance=moments.covariance,
        outputs=outputs,
        model=model.identity(),
        public=digest.identity(),
    )
