"""A sketch of the Gram: one backward pass a probe instead of a whole Jacobian a vector.

The outputs are dealt out to s strata, output a to stratum a mod s. The probe g_j of a vector has
random signs on stratum j and zeros elsewhere, so E[Σ_j g_j g_jᵀ] = 1 and

    Σ_j (Jᵀg_j)(Jᵀg_j)ᵀ

is JᵀJ on average; with as many probes as outputs it is JᵀJ itself (docs/high-dimension.md).
Signs are a hash of the vector's own bits: neither batches nor parts nor their order change
the sketch, and a fit repeats.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from offaxis.errors import InvalidInput
from offaxis.geometry.models import ModelIdentity, TaskModel, gram_of
from offaxis.geometry.public import (
    Progress,
    PublicIdentity,
    PublicMoments,
    PublicVectors,
    Survey,
    fold_identified,
)
from offaxis.vectors import Vectors, as_integer

_GOLDEN: Final = np.uint64(0x9E3779B97F4A7C15)
_WORD: Final = 64


def _mixed(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return every number well mixed: the finalizer of SplitMix64 (Steele, Lea, Flood 2014)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def signs(Z: Vectors, outputs: int) -> NDArray[np.int8]:
    """Return a sign for every vector and output, (n, k), from the bits of the vector alone."""
    bits = np.ascontiguousarray(Z, dtype="<f8").view("<u8")
    # Numbers that came from float32 have empty low bits: fill them from above.
    bits = bits ^ (bits >> np.uint64(32))
    places = _mixed(np.arange(1, bits.shape[1] + 1, dtype=np.uint64)) | np.uint64(1)
    keys = _mixed(np.einsum("ij,j->i", bits, places))
    counter = np.arange(1, -(-outputs // _WORD) + 1, dtype=np.uint64) * _GOLDEN
    words = _mixed(keys[:, None] + counter).astype("<u8")
    tossed = np.unpackbits(words.view(np.uint8), axis=1)[:, :outputs]
    result: NDArray[np.int8] = 1 - 2 * tossed.astype(np.int8)
    return result


def probes_of(Z: Vectors, outputs: int, probes: int) -> Iterator[NDArray[np.int8]]:
    """Yield the probes of every vector, one stratum after the other, (n, k) each."""
    tossed = signs(Z, outputs)
    for stratum in range(min(probes, outputs)):
        probe = np.zeros_like(tossed)
        probe[:, stratum::probes] = tossed[:, stratum::probes]
        yield probe


def sketched_gram(model: TaskModel, Z: Vectors, outputs: int, probes: int) -> Vectors:
    """Return the sketch of Σ_i J_iᵀ J_i over the batch, (m, m), float64."""
    total: Vectors = np.zeros((Z.shape[1], Z.shape[1]))
    for probe in probes_of(Z, outputs, probes):
        total += gram_of(model.vjp(Z, probe.astype(np.float64)))
    return total


# ----------------------------------------------------------------------------
# Sums of JᵀJ over public vectors, and the moments of these, in parts that can be put together.

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

    def to_host(self) -> HostSums:
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
        sums = other.to_host()
        self.moments.merge(sums.moments)
        self.gram.merge(sums.gram)

    def to_host(self) -> HostSums:
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


# ----------------------------------------------------------------------------
# The streaming Gram of a public model: Ω̂ = (1/N) Σ J_iᵀ J_i, in constant memory.

_BATCH_NUMBERS = 1 << 22
"""A batch is cut so that its Jacobians hold about this many numbers."""

EXACT_NUMBERS = 1 << 17
"""A Gram that holds more numbers than this a vector is sketched."""

PROBES = 4
"""Probes a vector of a sketch, when not told."""


@dataclass(frozen=True, eq=False)
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
    probes : int or None
        Probes a vector where the Gram is a sketch; None where it is exact.

    Examples
    --------
    >>> import offaxis
    >>> from offaxis.geometry import Geometry, PublicVectors, as_task_model, measure
    >>> public = np.random.default_rng(0).standard_normal((500, 3))
    >>> geometry = measure(as_task_model(np.eye(3)[:1]), PublicVectors(public))
    >>> isinstance(geometry, Geometry), geometry.outputs, geometry.survey.identity.count
    (True, 1, 500)
    >>> [str(offaxis.fit(geometry, public, epsilon=e).guarantee) for e in (1, 2)]  # measured once
    ['ε = 1, pure', 'ε = 2, pure']
    """

    gram: Vectors
    mean: Vectors
    covariance: Vectors
    outputs: int
    model: ModelIdentity
    public: PublicIdentity
    probes: int | None = None

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


def _probes(asked: int | None, held: int, outputs: int) -> int | None:
    """Return how many probes a vector, or None for the exact Gram."""
    if asked is None:
        return None if held <= EXACT_NUMBERS else min(PROBES, outputs)
    return min(as_integer(asked, "probes", 1), outputs)


def measure(
    model: TaskModel,
    public: PublicVectors,
    progress: Progress | None = None,
    *,
    probes: int | None = None,
) -> Geometry:
    """Walk once through the public vectors and return the geometry of the task.

    Memory does not grow with the number of vectors: one batch of Jacobians and a few m×m matrices.

    Parameters
    ----------
    model : TaskModel
    public : PublicVectors
    progress : callable, optional
        Called with the number of vectors just finished.
    probes : int, optional
        Backward passes a vector for a sketch of the Gram. By default the Gram is exact while it
        holds at most 131,072 numbers a vector, and beyond sketched with 4.

    Examples
    --------
    >>> from offaxis.geometry import PublicVectors, as_task_model, measure
    >>> public = np.random.default_rng(0).standard_normal((500, 3))
    >>> task = as_task_model(np.array([[2.0, 0.0, 0.0]]))  # a linear task that reads one coordinate
    >>> measure(task, PublicVectors(public)).gram
    array([[4., 0., 0.],
           [0., 0., 0.],
           [0., 0., 0.]])
    """
    first = next(iter(public.batches(8)))
    dim = first.shape[1]
    if model.input_dim not in (None, dim):
        raise InvalidInput(
            f"the model takes vectors of dimension {model.input_dim}, the public ones have {dim}"
        )
    outputs = _check_rows(model, first)
    held = model.numbers_per_vector(dim, outputs)
    probes = _probes(probes, held, outputs)
    rows = int(np.clip(_BATCH_NUMBERS // (held if probes is None else dim + outputs), 16, 8192))
    make = partial(_sums, GramRule(model, dim, outputs, probes))
    found, identity = fold_identified(public, make, rows, progress)
    sums = found.to_host()
    gram = sums.gram.mean()
    if not np.isfinite(gram).all():
        raise InvalidInput(
            "the model's Jacobian is not finite, or too large to square, on the public vectors; "
            "rescale the model's outputs or the vectors"
        )
    return Geometry(
        gram=gram,
        mean=sums.moments.mean,
        covariance=sums.moments.covariance,
        outputs=outputs,
        model=model.identity(),
        public=identity,
        probes=probes,
    )


def _sums(rule: GramRule) -> GramAndMoments:
    """Return where sums are taken: beside the model if it lives on an accelerator."""
    if isinstance(rule.model, AcceleratedModel) and rule.model.accelerated:
        return rule.model.sums(rule)
    return HostSums(rule)
