"""One row of a table, simulated: many seeds and budgets of one mechanism on a block of vectors.

Contract: for every seed, block and budget the outputs have the law that ``Release.simulate`` and
the task give, in float64; they depend on the mechanism's stream, the seed, the block and the budget
alone, never on what else is computed along with them.

Three things make it fast. Between the noise and the task's first activation everything is affine,
so the observation v is never decoded: W(B v + c) + b = (W B) v + (W c + b). What does not depend on
the seed, the clipped or normalised encoding, is computed once. And the noise of a seed is drawn
once, for all budgets: they use the same numbers at different scales, which leaves each budget's
law as it is. Arrays lie with vectors along the last axis.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, TypeGuard

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from experiments.without_guarantee import Unprotected
from offaxis.decoding import Decoder, LinearDecoder, ShiftDecoder
from offaxis.decoding.decoders import back_from
from offaxis.geometry import Layers, TaskModel
from offaxis.geometry.layers import ACTIVATIONS
from offaxis.randomizers import Randomizer
from offaxis.randomizers.additive import Laplace
from offaxis.randomizers.base import Ball, Sphere
from offaxis.randomizers.gaussian import Gaussian
from offaxis.randomizers.privunit import PrivUnit2, PrivUnitG
from offaxis.release import Release
from offaxis.simulation import draw_observations
from offaxis.simulation.randomizers import add_laplace, draw_ranks, sphere_component
from offaxis.vectors import Vectors

Law = Literal["laplace", "normal"]


def generator(*key: object) -> np.random.Generator:
    """Return the generator of a stream; different keys give independent ones."""
    digest = hashlib.sha256(repr(key).encode()).digest()
    words = np.frombuffer(digest, dtype=np.uint32)
    return np.random.Generator(np.random.SFC64(np.random.SeedSequence(words.tolist())))


class Noise:
    """The random numbers of one mechanism, seed and block; drawn when asked for, then kept."""

    def __init__(self, stream: str, seed: int, block: int, rows: int) -> None:
        self._key, self._rows = (stream, seed, block), rows
        self._drawn: dict[tuple[Law, int], Vectors] = {}

    def standard(self, law: Law, dim: int) -> Vectors:
        """Return (dim, rows) standard variables, the same for every budget."""
        if (law, dim) not in self._drawn:
            rng, shape = generator(*self._key, law, dim), (dim, self._rows)
            if law == "laplace":
                self._drawn[law, dim] = add_laplace(np.zeros(shape), 1.0, rng)
            else:
                self._drawn[law, dim] = rng.standard_normal(shape)
        return self._drawn[law, dim]

    def own(self, epsilon: float) -> np.random.Generator:
        """Return a generator for what cannot be shared between budgets."""
        return generator(*self._key, "own", epsilon)


class Reader(NamedTuple):
    """From an observation to the task's outputs: ``rest(first @ v + offset)``."""

    first: Vectors | None
    offset: Vectors
    rest: Callable[[Vectors], Vectors]

    def see(self, v: Vectors) -> Vectors:
        """Return first @ v."""
        return v if self.first is None else self.first @ v


def reader(decoder: Decoder, task: TaskModel, *, fused: bool = True) -> Reader:
    """Return how the task reads observations; without ``fused``, by decoding them."""
    if not fused or not isinstance(task, Layers) or not _is_affine(decoder):
        zero = np.zeros((decoder.input_dim, 1))
        return Reader(None, zero, lambda V: task.outputs(decoder.decode(V.T)).T)
    weight, shift = task.weights[0], decoder.offset
    matrix = decoder.matrix if isinstance(decoder, LinearDecoder) else np.eye(shift.size)
    offset = (weight @ shift + task.biases[0])[:, None]
    layers = list(zip(task.weights[1:], (b[:, None] for b in task.biases[1:]), strict=True))
    activation = ACTIVATIONS[task.activation][0]

    def rest(hidden: Vectors) -> Vectors:
        for w, b in layers:
            hidden = w @ activation(hidden)
            hidden += b
        return hidden

    return Reader(weight @ matrix, offset, rest)


def _is_affine(decoder: Decoder) -> TypeGuard[LinearDecoder | ShiftDecoder]:
    return isinstance(decoder, LinearDecoder | ShiftDecoder)


class FastSimulation(Protocol):
    """One mechanism at one budget."""

    def prepare(self, Z: Vectors) -> Any:
        """Return what of a block does not depend on the seed."""
        ...

    def outputs(self, prepared: Any, noise: Noise) -> Vectors:
        """Return the task's outputs for the block, (k, n)."""
        ...


@dataclass(frozen=True, eq=False)
class Additive:
    """Clipped encodings plus independent noise of the given scales."""

    encode: Callable[[Vectors], Vectors]
    law: Law
    scales: Vectors
    read: Reader

    def prepare(self, Z: Vectors) -> Vectors:
        """Return how the task sees the clipped encodings."""
        return self.read.see(np.ascontiguousarray(self.encode(Z).T)) + self.read.offset

    def outputs(self, prepared: Vectors, noise: Noise) -> Vectors:
        """Add the noise as the task sees it."""
        drawn = noise.standard(self.law, self.scales.size)
        if self.read.first is None:
            return self.read.rest(prepared + drawn * self.scales[:, None])
        hidden = (self.read.first * self.scales) @ drawn
        hidden += prepared
        return self.read.rest(hidden)


class _Directions(NamedTuple):
    unit: Vectors
    zero: NDArray[np.bool_]
    seen: Vectors


@dataclass(frozen=True, eq=False)
class Directional:
    """PrivUnit2 and PrivUnitG on the sphere: a random component along the direction, x across it.

    With x standard normal, v/length is t u + √(1 − t²) x⊥/‖x⊥‖ (PrivUnit2), or (x⊥ + t u)/‖·‖
    (PrivUnitG), so the task sees a combination of u and x in both.
    """

    encode: Callable[[Vectors], Vectors]
    randomizer: PrivUnit2 | PrivUnitG
    epsilon: float
    read: Reader

    def prepare(self, Z: Vectors) -> _Directions:
        """Return unit directions, and how the task sees them."""
        unit = Sphere(self.randomizer.dim, 1.0).directions(self.encode(Z)).T.copy()
        zero: NDArray[np.bool_] = (unit == 0).all(axis=0)
        return _Directions(unit, zero, self.read.see(unit))

    def outputs(self, prepared: _Directions, noise: Noise) -> Vectors:
        """Draw the component along the direction and put both parts together."""
        randomizer, rng = self.randomizer, noise.own(self.epsilon)
        unit, zero, seen = prepared
        if zero.any():  # any direction is as good, and another one every time
            unit = unit.copy()
            some = rng.standard_normal((randomizer.dim, int(zero.sum())))
            unit[:, zero] = some / np.sqrt(_dots(some, some))
            seen = self.read.see(unit)
        x = noise.standard("normal", randomizer.dim)
        tail, forward = draw_ranks(randomizer.ranks, unit.shape[1], rng)
        deviate = -ndtri(tail / 2)
        along, square = _dots(x, unit), _dots(x, x)
        across = np.maximum(square - along * along, np.finfo(float).tiny)
        if isinstance(randomizer, PrivUnit2):
            t = sphere_component(randomizer.dim)(deviate)
            t = np.where(forward, t, -t)
            share = np.sqrt(np.maximum(1.0 - t * t, 0.0) / across)
            own = t - share * along
        else:
            t = np.where(forward, deviate, -deviate)
            share = 1 / np.sqrt(across + t * t)
            own = (t - along) * share
        length = randomizer.radius / randomizer.mean
        hidden = self.read.see(x) * (share * length)
        hidden += seen * (own * length)
        hidden += self.read.offset
        return self.read.rest(hidden)


@dataclass(frozen=True, eq=False)
class Anything:
    """Any other randomizer, by its own simulation."""

    encode: Callable[[Vectors], Vectors]
    randomizer: Randomizer
    epsilon: float
    read: Reader

    def prepare(self, Z: Vectors) -> Vectors:
        """Return the encodings."""
        return self.encode(Z)

    def outputs(self, prepared: Vectors, noise: Noise) -> Vectors:
        """Simulate, and read what is observed."""
        observed = draw_observations(self.randomizer, prepared, noise.own(self.epsilon))
        if self.read.first is None:
            return self.read.rest(observed.T)
        return self.read.rest(self.read.see(observed.T) + self.read.offset)


def channel(
    made: Release | Unprotected,
    task: TaskModel,
    epsilon: float,
    *,
    fused: bool = True,
    means: bool = False,
) -> FastSimulation:
    """Return the quick form of a release, or of a published mechanism without a guarantee.

    With ``means``, observations are decoded for a mean over people and not one by one.
    """
    if isinstance(made, Unprotected):
        read = reader(back_from(made.frame), task, fused=fused)
        law: Law = "laplace" if made.noise == "laplace" else "normal"
        encode: Callable[[Vectors], Vectors] = made.frame.encoder.encode
        if made.radius is not None:
            encode = _clipped(encode, Ball(made.frame.dim, made.radius, 2))
        return Additive(encode, law, made.scales, read)
    read = reader(_of_means(made) if means else made.decoder, task, fused=fused)
    encode, randomizer = made.encoder.encode, made.randomizer
    if isinstance(randomizer, Laplace | Gaussian):
        law = "laplace" if isinstance(randomizer, Laplace) else "normal"
        scales = np.full(randomizer.dim, randomizer.scale)
        return Additive(_clipped(encode, randomizer.domain), law, scales, read)
    if (
        isinstance(randomizer, PrivUnit2 | PrivUnitG)
        and randomizer.dim > 1
        and randomizer.target == "direction"
        and getattr(randomizer, "output", "sphere") == "sphere"
    ):
        return Directional(encode, randomizer, epsilon, read)
    return Anything(encode, randomizer, epsilon, read)


def _of_means(release: Release) -> Decoder:
    """Return what decodes a mean over people; for the score, an affine map will always do.

    A reshaping that leaves directions out puts their public mean there, and is refused outside of
    studies for means of the vectors. What it errs by, as the task sees it, the score tells.
    """
    if release.mean_decoder is None and release.randomizer.unbiased and _is_affine(release.decoder):
        return release.decoder
    return release.unbiased_decoder


def _clipped(encode: Callable[[Vectors], Vectors], ball: Ball) -> Callable[[Vectors], Vectors]:
    return lambda Z: ball.project(encode(Z))


def _dots(A: Vectors, B: Vectors) -> Vectors:
    """Return the products of columns."""
    dots: Vectors = np.einsum("ij,ij->j", A, B)
    return dots
