"""Fused simulation of one row of a study: many seeds and budgets of a method on a block of vectors.

Contract: for every seed, block and budget the outputs have the law that :func:`offaxis.simulate`
followed by the task gives, in float64. They depend on the method's stream, the seed, the block and
the budget alone, never on what else is computed at the same time.

Three things make it fast:

- Everything between the noise and the task's first activation is affine, so an observation v is
  never decoded: W(B v + c) + b = (W B) v + (W c + b).
- The clipped or normalised encodings do not depend on the seed and are computed once.
- The noise of a seed is drawn once for all budgets. They use the same numbers at different scales,
  which leaves the law at each budget unchanged.

Arrays hold vectors along the last axis.
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
from offaxis.decoding import CodewordDecoder, Decoder, LinearDecoder, ShiftDecoder
from offaxis.decoding.decoders import back_from
from offaxis.geometry import Layers, TaskModel
from offaxis.geometry.layers import POINTWISE
from offaxis.randomizers import Randomizer
from offaxis.randomizers.base import Ball, Sphere
from offaxis.randomizers.gaussian import Gaussian
from offaxis.randomizers.laplace import Laplace
from offaxis.randomizers.privunit import PrivUnit2, PrivUnitG
from offaxis.release import Release
from offaxis.simulation import draw_observations
from offaxis.simulation.randomizers import add_laplace, draw_ranks, sphere_component
from offaxis.vectors import Vectors

Law = Literal["laplace", "normal"]


class RowSimulation(Protocol):
    """One method at one budget."""

    def prepare(self, Z: Vectors) -> Any:
        """Return the part of a block's work that does not depend on the seed."""
        ...

    def outputs(self, prepared: Any, noise: Noise) -> Vectors:
        """Return the task's outputs for the block, (k, n)."""
        ...


def row_simulation(
    made: Release | Unprotected,
    task: TaskModel,
    epsilon: float,
    *,
    fused: bool = True,
    means: bool = False,
) -> RowSimulation:
    """Return the simulation of a release, or of a published mechanism without a guarantee.

    Without ``fused``, observations are decoded and passed to the task. With ``means``, they are
    decoded for a mean over people instead of one by one.
    """
    if isinstance(made, Unprotected):
        readout = readout_of(back_from(made.frame), task, fused=fused)
        law: Law = "laplace" if made.noise == "laplace" else "normal"
        encode: Callable[[Vectors], Vectors] = made.frame.encoder.encode
        if made.radius is not None:
            encode = _clipped(encode, Ball(made.frame.dim, made.radius, 2))
        return AdditiveSimulation(encode, law, made.scales, readout)
    readout = readout_of(_mean_decoder(made) if means else made.decoder, task, fused=fused)
    encode, randomizer = made.encoder.encode, made.randomizer
    if isinstance(randomizer, Laplace | Gaussian):
        law = "laplace" if isinstance(randomizer, Laplace) else "normal"
        scales = np.full(randomizer.dim, randomizer.scale)
        return AdditiveSimulation(_clipped(encode, randomizer.domain), law, scales, readout)
    if (
        isinstance(randomizer, PrivUnit2 | PrivUnitG)
        and randomizer.dim > 1
        and randomizer.target == "direction"
        and getattr(randomizer, "output", "sphere") == "sphere"
    ):
        return PrivUnitSimulation(encode, randomizer, epsilon, readout)
    return GenericSimulation(encode, randomizer, epsilon, readout)


# ---- Random numbers


def generator(*key: object) -> np.random.Generator:
    """Return the generator of a stream; different keys give independent generators."""
    digest = hashlib.sha256(repr(key).encode()).digest()
    words = np.frombuffer(digest, dtype=np.uint32)
    return np.random.Generator(np.random.SFC64(np.random.SeedSequence(words.tolist())))


class Noise:
    """The random numbers of one method, seed and block; drawn on first use, then kept."""

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

    def at_budget(self, epsilon: float) -> np.random.Generator:
        """Return a generator for draws that budgets cannot share."""
        return generator(*self._key, "own", epsilon)


# ---- From observations to the task's outputs


class Readout(NamedTuple):
    """The task's outputs as a function of an observation v: ``rest(first @ v + offset)``."""

    first: Vectors | None
    offset: Vectors
    rest: Callable[[Vectors], Vectors]

    def project(self, v: Vectors) -> Vectors:
        """Return first @ v."""
        return v if self.first is None else self.first @ v


def readout_of(decoder: Decoder, task: TaskModel, *, fused: bool = True) -> Readout:
    """Return how the task reads observations; without ``fused``, by decoding them."""
    fuses = fused and isinstance(task, Layers) and task.activation in POINTWISE
    if not fuses or not isinstance(task, Layers) or not _is_affine(decoder):
        zero = np.zeros((decoder.input_dim, 1))
        return Readout(None, zero, lambda V: task.outputs(decoder.decode(V.T)).T)
    weight, shift = task.weights[0], decoder.offset
    matrix = decoder.matrix if isinstance(decoder, LinearDecoder) else np.eye(shift.size)
    offset = (weight @ shift + task.biases[0])[:, None]
    layers = list(zip(task.weights[1:], (b[:, None] for b in task.biases[1:]), strict=True))
    activation = POINTWISE[task.activation][0]

    def rest(hidden: Vectors) -> Vectors:
        for w, b in layers:
            hidden = w @ activation(hidden)
            hidden += b
        return hidden

    return Readout(weight @ matrix, offset, rest)


def _is_affine(decoder: Decoder) -> TypeGuard[LinearDecoder | ShiftDecoder]:
    return isinstance(decoder, LinearDecoder | ShiftDecoder)


def _mean_decoder(release: Release) -> Decoder:
    """Return the decoder of a mean over people; for a score, an affine map always suffices.

    A reshaping that leaves directions out puts their public mean there, and a codebook gives the
    mean of the codewords. Outside of studies such releases are rejected for means of the vectors;
    in a study the score includes their bias, as the task sees it.
    """
    decoder = release.decoder
    if isinstance(decoder, CodewordDecoder):
        return LinearDecoder(decoder.codewords.T, np.zeros(decoder.output_dim))
    if release.mean_decoder is None and release.randomizer.unbiased and _is_affine(decoder):
        return decoder
    return release.unbiased_decoder


def _clipped(encode: Callable[[Vectors], Vectors], ball: Ball) -> Callable[[Vectors], Vectors]:
    return lambda Z: ball.project(encode(Z))


# ---- Simulations by family of randomizers


@dataclass(frozen=True, eq=False)
class AdditiveSimulation:
    """Clipped encodings plus independent noise of the given scales."""

    encode: Callable[[Vectors], Vectors]
    law: Law
    scales: Vectors
    readout: Readout

    def prepare(self, Z: Vectors) -> Vectors:
        """Return the readout of the clipped encodings."""
        return self.readout.project(np.ascontiguousarray(self.encode(Z).T)) + self.readout.offset

    def outputs(self, prepared: Vectors, noise: Noise) -> Vectors:
        """Add the readout of the noise."""
        drawn = noise.standard(self.law, self.scales.size)
        if self.readout.first is None:
            return self.readout.rest(prepared + drawn * self.scales[:, None])
        hidden = (self.readout.first * self.scales) @ drawn
        hidden += prepared
        return self.readout.rest(hidden)


class _Directions(NamedTuple):
    unit: Vectors
    is_zero: NDArray[np.bool_]
    projected: Vectors


@dataclass(frozen=True, eq=False)
class PrivUnitSimulation:
    """PrivUnit2, and PrivUnitG on the sphere: a random component along u, normal noise across it.

    With x standard normal, v/length is t u + √(1 − t²) x⊥/‖x⊥‖ (PrivUnit2), or (x⊥ + t u)/‖·‖
    (PrivUnitG). In both cases v is a combination of u and x, so x is drawn once for all budgets and
    v is never formed.

    This is a second copy of the laws in ``offaxis.simulation.randomizers``. It takes 2.5 times less
    processor time than :class:`GenericSimulation` over the four PrivUnit rows of the study main-mlp
    (3.0 times for PrivUnit2, 1.9 for PrivUnitG): 10,000 vectors, 12 budgets, 4 seeds, one thread,
    best of three runs in turns, fitting not counted. ``python -m benchmarks.studies`` measures the
    ratio on the bundled vectors.
    """

    encode: Callable[[Vectors], Vectors]
    randomizer: PrivUnit2 | PrivUnitG
    epsilon: float
    readout: Readout

    def prepare(self, Z: Vectors) -> _Directions:
        """Return unit directions and their readout."""
        unit = Sphere(self.randomizer.dim, 1.0).directions(self.encode(Z)).T.copy()
        is_zero: NDArray[np.bool_] = (unit == 0).all(axis=0)
        return _Directions(unit, is_zero, self.readout.project(unit))

    def outputs(self, prepared: _Directions, noise: Noise) -> Vectors:
        """Draw the component along the direction and combine both parts."""
        randomizer, rng = self.randomizer, noise.at_budget(self.epsilon)
        unit, is_zero, projected = prepared
        if is_zero.any():  # a zero vector has a fresh random direction each time
            unit = unit.copy()
            some = rng.standard_normal((randomizer.dim, int(is_zero.sum())))
            unit[:, is_zero] = some / np.sqrt(_dots(some, some))
            projected = self.readout.project(unit)
        x = noise.standard("normal", randomizer.dim)
        tail, forward = draw_ranks(randomizer.ranks, unit.shape[1], rng)
        deviate = -ndtri(tail / 2)
        along, square = _dots(x, unit), _dots(x, x)
        across = np.maximum(square - along * along, np.finfo(float).tiny)
        if isinstance(randomizer, PrivUnit2):
            t = sphere_component(randomizer.dim)(deviate)
            t = np.where(forward, t, -t)
            share = np.sqrt(np.maximum(1.0 - t * t, 0.0) / across)
            component = t - share * along
        else:
            t = np.where(forward, deviate, -deviate)
            share = 1 / np.sqrt(across + t * t)
            component = (t - along) * share
        length = randomizer.radius / randomizer.mean
        hidden = self.readout.project(x) * (share * length)
        hidden += projected * (component * length)
        hidden += self.readout.offset
        return self.readout.rest(hidden)


@dataclass(frozen=True, eq=False)
class GenericSimulation:
    """Any other randomizer, by :func:`offaxis.simulation.draw_observations`."""

    encode: Callable[[Vectors], Vectors]
    randomizer: Randomizer
    epsilon: float
    readout: Readout

    def prepare(self, Z: Vectors) -> Vectors:
        """Return the encodings."""
        return self.encode(Z)

    def outputs(self, prepared: Vectors, noise: Noise) -> Vectors:
        """Draw observations and read them out."""
        observed = draw_observations(self.randomizer, prepared, noise.at_budget(self.epsilon))
        if self.readout.first is None:
            return self.readout.rest(observed.T)
        return self.readout.rest(self.readout.project(observed.T) + self.readout.offset)


def _dots(A: Vectors, B: Vectors) -> Vectors:
    """Return the products of columns."""
    dots: Vectors = np.einsum("ij,ij->j", A, B)
    return dots
