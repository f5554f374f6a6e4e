"""Sums of JᵀJ over public vectors, and the moments of these, in parts that can be put together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, Self, runtime_checkable

import numpy as np

from offaxis.geometry.folding import PublicMoments
from offaxis.geometry.models import TaskModel
from offaxis.geometry.probes import sketched_gram
from offaxis.vectors import Vectors

_ROWS_NUMBERS = 1 << 20


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
        total = cls.empty(Z.shape[1])
        total.add(model.gram(Z), len(Z))
        return total

    def add(self, gram: Vectors, count: int, low: Vectors | None = None) -> None:
        """Take in a sum over so many other vectors."""
        step = max(1, _ROWS_NUMBERS // len(self.high))
        for start in range(0, len(self.high), step):  # a few rows at a time hold less at once
            rows = slice(start, start + step)
            high, other = self.high[rows], gram[rows]
            total = high + other
            part = total - high
            error = (high - (total - part)) + (other - part)
            rest = self.low[rows] + error if low is None else self.low[rows] + low[rows] + error
            self.high[rows] = total + rest
            self.low[rows] = rest - (self.high[rows] - total)
        self.count += count

    def merge(self, other: PartialGram) -> None:
        """Take in the vectors of another sum."""
        self.add(other.high, other.count, other.low)

    def mean(self) -> Vectors:
        """Return Ω̂, symmetric to the last bit."""
        gram = self.high + self.low
        gram /= self.count
        mean = gram + gram.T
        mean /= 2
        return mean


@dataclass(frozen=True)
class GramRule:
    """How the Gram of a model is taken.

    Attributes
    ----------
    model : TaskModel
    dim, outputs : int
        m and k.
    probes : int or None
        Probes a vector of a sketch; None for the exact Gram.
    """

    model: TaskModel
    dim: int
    outputs: int
    probes: int | None

    def gram(self, Z: Vectors) -> Vectors:
        """Return Σ JᵀJ over the batch, or its sketch."""
        if self.probes is None:
            return self.model.gram(Z)
        return sketched_gram(self.model, Z, self.outputs, self.probes)


class GramAndMoments(Protocol):
    """What :func:`~offaxis.geometry.measure` takes in on its way through the public vectors."""

    def add(self, batch: Vectors, /) -> None:
        """Take in one batch."""
        ...

    def merge(self, other: Self, /) -> None:
        """Take in what another one has seen."""
        ...

    def home(self) -> HostSums:
        """Return the sums, in the memory of this machine."""
        ...


class HostSums:
    """Gram and moments of the same vectors, by NumPy. Pickled, it leaves the model behind."""

    def __init__(self, rule: GramRule) -> None:
        self._rule: GramRule | None = rule
        self.gram = PartialGram.empty(rule.dim)
        self.moments = PublicMoments()

    def __getstate__(self) -> dict[str, object]:
        """Return the sums alone."""
        return {**self.__dict__, "_rule": None}

    def add(self, batch: Vectors) -> None:
        """Take in one batch."""
        assert self._rule is not None
        self.moments.add(batch)
        with np.errstate(over="ignore", invalid="ignore"):
            self.gram.add(self._rule.gram(batch), len(batch))

    def merge(self, other: GramAndMoments) -> None:
        """Take in what another one has seen."""
        sums = other.home()
        self.moments.merge(sums.moments)
        self.gram.merge(sums.gram)

    def home(self) -> HostSums:
        """Return itself."""
        return self


@runtime_checkable
class AcceleratedModel(Protocol):
    """A model that can sum beside itself, so that nothing of size k·m or m² travels a batch."""

    @property
    def accelerated(self) -> bool:
        """Whether it lives on an accelerator."""
        ...

    def sums(self, rule: GramRule, /) -> GramAndMoments:
        """Return an accumulator beside the model."""
        ...
