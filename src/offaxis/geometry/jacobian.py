"""The streaming Gram of a public model: Ω̂ = (1/N) Σ J_iᵀ J_i, in constant memory."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from offaxis.errors import InvalidInput
from offaxis.geometry.folding import PublicMoments, Through
from offaxis.geometry.models import ModelIdentity, TaskModel
from offaxis.geometry.public import Progress, PublicVectors, Survey, fold_identified
from offaxis.geometry.public_hash import PublicIdentity
from offaxis.vectors import Vectors

_BATCH_NUMBERS = 1 << 22
"""A batch is cut so that its Jacobians hold about this many numbers."""


@dataclass
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

    def add(self, part: PartialGram) -> None:
        """Take in the vectors of another sum."""
        step = max(1, _BATCH_NUMBERS // len(self.high))
        for start in range(0, len(self.high), step):  # a few rows at a time hold less at once
            rows = slice(start, start + step)
            self.high[rows], self.low[rows] = _sum_of_two(
                self.high[rows], self.low[rows], part.high[rows], part.low[rows]
            )
        self.count += part.count

    merge = add

    def mean(self) -> Vectors:
        """Return Ω̂, symmetric to the last bit."""
        gram = (self.high + self.low) / self.count
        return (gram + gram.T) / 2


def _sum_of_two(
    high: Vectors, low: Vectors, other_high: Vectors, other_low: Vectors
) -> tuple[Vectors, Vectors]:
    """Return the sum of two unevaluated sums, as one."""
    total = high + other_high
    part = total - high
    error = (high - (total - part)) + (other_high - part)
    rest = low + other_low + error
    result = total + rest
    return result, rest - (result - total)


class _Both:
    """Gram and moments of the same vectors."""

    def __init__(self, model: TaskModel, dim: int) -> None:
        self.gram = Through(partial(PartialGram.of, model), PartialGram.empty(dim))
        self.moments = PublicMoments()

    def add(self, batch: Vectors) -> None:
        self.moments.add(batch)
        with np.errstate(over="ignore", invalid="ignore"):
            self.gram.add(batch)

    def merge(self, other: _Both) -> None:
        self.moments.merge(other.moments)
        self.gram.merge(other.gram)


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
    both, identity = fold_identified(public, partial(_Both, model, dim), rows, progress)
    moments, gram = both.moments, both.gram.into.mean()
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
        public=identity,
    )
