"""The geometry of a task: the Gram Ω̂ = (1/N) Σ J_iᵀ J_i of the public model, and public moments.

Both are summed in one pass over the public vectors, in constant memory. Partial sums can be taken
anywhere and merged; neither the number of parts nor their order changes the Gram. Where whole
Jacobians would be too large, the Gram is replaced by an unbiased sketch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Final, Protocol, Self, runtime_checkable

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
from offaxis.geometry.spectrum import Spectrum, spectrum
from offaxis.vectors import Vectors, as_integer

_BATCH_NUMBERS = 1 << 22
"""Target size of a batch, in numbers held by its Jacobians."""

EXACT_NUMBERS = 1 << 17
"""The Gram of a model that holds more numbers per vector than this is sketched."""

PROBES = 4
"""Default number of probes per vector of a sketch."""


@dataclass(frozen=True, eq=False)
class Geometry:
    """The geometry of a task and the moments of its public vectors: what fitting needs.

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
        Probes per vector if the Gram is a sketch; None if it is exact.

    Examples
    --------
    Measure once, then fit releases for several budgets:

    >>> import offaxis
    >>> from offaxis.geometry import PublicVectors, as_task_model, measure
    >>> public = np.random.default_rng(0).standard_normal((500, 3))
    >>> geometry = measure(as_task_model(np.eye(3)[:1]), PublicVectors(public))
    >>> [str(offaxis.fit(
    ...     geometry, public, epsilon=e, mechanism="laplace"
    ... ).guarantee) for e in (1, 2)]
    ['ε = 1, pure', 'ε = 2, pure']
    """

    gram: Vectors
    mean: Vectors
    covariance: Vectors
    outputs: int
    model: ModelIdentity
    public: PublicIdentity
    probes: int | None = None

    @cached_property
    def spectrum(self) -> Spectrum:
        """The directions of the task, by how much it depends on them; computed once."""
        return spectrum(self.gram, self.covariance)

    @property
    def survey(self) -> Survey:
        """The identity and the moments of the public vectors."""
        return Survey(self.public, self.mean, self.covariance)


def measure(
    model: TaskModel,
    public: PublicVectors,
    progress: Progress | None = None,
    *,
    probes: int | None = None,
) -> Geometry:
    """Return the geometry of the task, in one pass over the public vectors.

    Memory does not grow with the number of vectors: one batch of Jacobians and a few m×m matrices.

    Parameters
    ----------
    model : TaskModel
    public : PublicVectors
    progress : callable, optional
        Called with the number of vectors just processed.
    probes : int, optional
        Backward passes per vector for a sketch of the Gram. By default the Gram is exact if it
        holds at most 131,072 numbers per vector, and otherwise sketched with 4 probes.

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
    dim, outputs = check_model(model, public)
    numbers = model.numbers_per_vector(dim, outputs)
    probes = _choose_probes(probes, numbers, outputs)
    rows = int(np.clip(_BATCH_NUMBERS // (numbers if probes is None else dim + outputs), 16, 8192))
    make = partial(_new_sums, GramRule(model, dim, outputs, probes))
    accumulated, identity = fold_identified(public, make, rows, progress)
    sums = accumulated.to_host()
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


def check_model(model: TaskModel, public: PublicVectors) -> tuple[int, int]:
    """Return m and k, after checking that the model takes public vectors, row by row."""
    first = next(iter(public.batches(8)))
    dim = int(first.shape[1])
    if model.input_dim not in (None, dim):
        raise InvalidInput(
            f"the model takes vectors of dimension {model.input_dim}, the public ones have {dim}"
        )
    return dim, _check_rows(model, first)


def _check_rows(model: TaskModel, Z: Vectors) -> int:
    """Return k, after checking that each row of outputs depends on its vector alone."""
    few = Z[:8]
    batched = model.outputs(few)
    single = model.outputs(few[:1])
    if batched.ndim != 2 or len(batched) != len(few) or single.shape != (1, batched.shape[1]):
        raise InvalidInput(
            f"the model must return one row per vector, (n, k) for an input (n, m); "
            f"for {len(few)} vectors it returned shape {batched.shape}"
        )
    if not np.isfinite(batched).all():
        raise InvalidInput("the model returned a value that is not finite on public vectors")
    tolerance = {"rtol": 1e-3, "atol": 1e-5 * np.abs(batched).max()}
    if not np.allclose(model.outputs(few), batched, **tolerance):
        raise InvalidInput(
            "the model gives the same vectors other outputs when it is called again; it must not "
            "be random (no dropout, no draws)"
        )
    if not np.allclose(single[0], batched[0], **tolerance):
        raise InvalidInput(
            "the model's output for a vector depends on the other vectors of its batch; "
            "it must treat each row independently (no batch statistics outside eval mode)"
        )
    return int(batched.shape[1])


def _choose_probes(probes: int | None, numbers: int, outputs: int) -> int | None:
    """Return the number of probes per vector, or None for the exact Gram."""
    if probes is None:
        return None if numbers <= EXACT_NUMBERS else min(PROBES, outputs)
    return min(as_integer(probes, "probes", 1), outputs)


def _new_sums(rule: GramRule) -> GramAndMoments:
    """Return an accumulator: on the model's device if that is an accelerator, else on the host."""
    if isinstance(rule.model, AcceleratedModel) and rule.model.accelerated:
        return rule.model.sums(rule)
    return HostSums(rule)


# ---- Sums of JᵀJ over public vectors

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
        """Add a sum over ``count`` other vectors."""
        step = max(1, _ROWS_NUMBERS // len(self.high))
        for start in range(0, len(self.high), step):  # a few rows at a time, to save memory
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
        """Add another partial Gram."""
        self.add(other.high, other.count, other.low)

    def mean(self) -> Vectors:
        """Return Ω̂, exactly symmetric."""
        gram = self.high + self.low
        gram /= self.count
        mean = gram + gram.T
        mean /= 2
        return mean


@dataclass(frozen=True)
class GramRule:
    """How to compute the Gram of a model.

    Attributes
    ----------
    model : TaskModel
    dim, outputs : int
        m and k.
    probes : int or None
        Probes per vector of a sketch; None for the exact Gram.
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
    """The accumulator of :func:`~offaxis.geometry.measure`."""

    def add(self, batch: Vectors, /) -> None:
        """Add one batch."""
        ...

    def merge(self, other: Self, /) -> None:
        """Add the sums of another accumulator."""
        ...

    def to_host(self) -> HostSums:
        """Return the sums in host memory."""
        ...


class HostSums:
    """Gram and moments of the same vectors, in NumPy. Pickling drops the model."""

    def __init__(self, rule: GramRule) -> None:
        self._rule: GramRule | None = rule
        self.gram = PartialGram.empty(rule.dim)
        self.moments = PublicMoments()

    def __getstate__(self) -> dict[str, object]:
        """Return the sums alone."""
        return {**self.__dict__, "_rule": None}

    def add(self, batch: Vectors) -> None:
        """Add one batch."""
        assert self._rule is not None
        self.moments.add(batch)
        with np.errstate(over="ignore", invalid="ignore"):
            self.gram.add(self._rule.gram(batch), len(batch))

    def merge(self, other: GramAndMoments) -> None:
        """Add the sums of another accumulator."""
        sums = other.to_host()
        self.moments.merge(sums.moments)
        self.gram.merge(sums.gram)

    def to_host(self) -> HostSums:
        """Return this object."""
        return self


@runtime_checkable
class AcceleratedModel(Protocol):
    """A model that can sum on its device, so that no batch transfers k·m or m² numbers."""

    @property
    def accelerated(self) -> bool:
        """Whether the model is on an accelerator."""
        ...

    def sums(self, rule: GramRule, /) -> GramAndMoments:
        """Return an accumulator on the model's device."""
        ...


# ---- Sketch of the Gram

_GOLDEN: Final = np.uint64(0x9E3779B97F4A7C15)

_WORD: Final = 64


def sketched_gram(model: TaskModel, Z: Vectors, outputs: int, probes: int) -> Vectors:
    """Return a sketch of Σ_i J_iᵀ J_i over the batch, (m, m), float64: one backward pass per probe.

    The outputs are assigned to s strata, output a to stratum a mod s. The probe g_j of a vector has
    random signs on stratum j and zeros elsewhere, so E[Σ_j g_j g_jᵀ] = 1 and

        Σ_j (Jᵀg_j)(Jᵀg_j)ᵀ

    is JᵀJ on average; with as many probes as outputs it is JᵀJ itself (docs/high-dimension.md).
    """
    total: Vectors = np.zeros((Z.shape[1], Z.shape[1]))
    for probe in probes_of(Z, outputs, probes):
        total += gram_of(model.vjp(Z, probe.astype(np.float64)))
    return total


def probes_of(Z: Vectors, outputs: int, probes: int) -> Iterator[NDArray[np.int8]]:
    """Yield the probes of all vectors stratum by stratum, (n, k) each."""
    all_signs = signs(Z, outputs)
    for stratum in range(min(probes, outputs)):
        probe = np.zeros_like(all_signs)
        probe[:, stratum::probes] = all_signs[:, stratum::probes]
        yield probe


def signs(Z: NDArray[np.floating[Any]], outputs: int) -> NDArray[np.int8]:
    """Return a sign for every vector and output, (n, k), as a hash of the bits of the vector.

    Neither batches nor parts nor their order change the sketch, and a fit is reproducible.
    """
    bits = np.ascontiguousarray(Z, dtype="<f8").view("<u8")
    # The low bits of converted float32 numbers are zero: fill them from the high bits.
    bits = bits ^ (bits >> np.uint64(32))
    places = _mix(np.arange(1, bits.shape[1] + 1, dtype=np.uint64)) | np.uint64(1)
    keys = _mix(np.einsum("ij,j->i", bits, places))
    counter = np.arange(1, -(-outputs // _WORD) + 1, dtype=np.uint64) * _GOLDEN
    words = _mix(keys[:, None] + counter).astype("<u8")
    coins = np.unpackbits(words.view(np.uint8), axis=1)[:, :outputs]
    result: NDArray[np.int8] = 1 - 2 * coins.astype(np.int8)
    return result


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Mix the bits of every number with the finalizer of SplitMix64 (Steele, Lea, Flood 2014)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
