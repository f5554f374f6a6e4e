"""What an attacker sees: reports of a release, or what people send who use something else.

The controls are what a report is compared with: the vector itself, Laplace noise of the same ε in
ordinary floating point, and the same noise without clipping. Each says how likely it makes what is
seen, so that every attack runs on all of them unchanged.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Protocol

import numpy as np
from scipy.spatial.distance import cdist

from offaxis.auditing.inputs import make_reports, pairs, preimages
from offaxis.client.sequences import Sequence, next_reports
from offaxis.decoding.posterior import likelihood
from offaxis.encoding.encoders import BoxEncoder
from offaxis.errors import InvalidInput
from offaxis.randomizers.base import Ball, Box, FiniteSet
from offaxis.randomizers.memoised import Memoised
from offaxis.randomizers.projunit import ProjUnit
from offaxis.release import Release
from offaxis.simulation import draw_observations
from offaxis.vectors import Vectors

Rng = np.random.Generator
Likelihood = Callable[[Vectors], Vectors]
"""From what is seen (n, d) to log densities (n, J), up to a constant for each row."""

RELEASE: Final = "release"
RAW: Final = "no privacy"
FLOAT: Final = "float noise"
UNCLIPPED: Final = "no clipping"

_SECONDS: Final = 0.6
"""Exact reports are made if one for every trial takes at most this; attacks need a dozen each."""

_PILOT: Final = 32


class Channel(Protocol):
    """What one person sends, and how likely that is for another vector."""

    @property
    def source(self) -> str:
        """What is attacked: the release, or a control."""
        ...

    def draw(self, rows: Vectors, rng: Rng) -> Vectors:
        """Return what an attacker sees of every row, (n, d)."""
        ...

    def likelihood(self, rows: Vectors) -> Likelihood:
        """Prepare rows (J, m) as candidates."""
        ...

    def chosen(self, people: Vectors, count: int) -> Vectors:
        """Return candidates that are easy to tell apart, (count or fewer, m)."""
        ...


# ---- The release


@dataclass(frozen=True, eq=False)
class ReleaseChannel:
    """Reports of a release: exact ones by ``privatize``, or the law of the same in floats.

    Attributes
    ----------
    release : Release
    exact : bool
        Whether ``draw`` makes exact reports, which takes no seed.
    """

    release: Release
    exact: bool

    source = RELEASE

    def draw(self, rows: Vectors, rng: Rng) -> Vectors:
        """Return the observations of one report of each row."""
        if not self.exact:
            return self.simulate(rows, rng)
        observed = self.release.observe(make_reports(self.release, rows))
        return np.asarray(observed, dtype=np.float64).reshape(len(rows), -1)

    def simulate(self, rows: Vectors, rng: Rng) -> Vectors:
        """Return simulated observations."""
        observed = draw_observations(self.release.randomizer, self.encode(rows), rng)
        return np.asarray(observed, dtype=np.float64).reshape(len(rows), -1)

    def encode(self, rows: Vectors) -> Any:
        """Return the randomizer's inputs."""
        with np.errstate(all="ignore"):
            return self.release.encoder.encode(rows)

    def sequences(self, rows: Vectors, rounds: int) -> list[Vectors]:
        """Return the observations of a person's sequence, one array per round."""
        states: list[Sequence | None] = [None] * len(rows)
        seen = []
        for number in range(rounds):
            reports, new = next_reports(self.release, states, number, dict(enumerate(rows)))
            states = list(new)
            seen.append(np.asarray(self.release.observe(reports)).reshape(len(rows), -1))
        return seen

    def likelihood(self, rows: Vectors) -> Likelihood:
        """Return the log density of observations for every row."""
        randomizer: Any = self.release.randomizer
        encoded = self.encode(rows)
        if isinstance(randomizer.domain, FiniteSet):
            symbols, places = np.unique(np.asarray(encoded), return_inverse=True)

            def of_symbols(V: Vectors) -> Vectors:
                each = [randomizer.log_density(V, np.full(len(V), s)) for s in symbols]
                return np.stack(each, axis=1)[:, places.ravel()]

            return of_symbols
        if isinstance(randomizer, ProjUnit):
            # Its density takes one quadrature per pair; any score is a valid attack.
            spread = randomizer.expected_squared_error() / randomizer.dim
            return lambda V: -cdist(V, encoded, "sqeuclidean") / (2 * spread)
        return likelihood(randomizer, encoded)

    def chosen(self, people: Vectors, count: int) -> Vectors:
        """Return the pair that is worst in theory, then poles or other symbols, as far apart.

        Poles that the encoder cannot reach are the inputs whose encodings are closest. If the
        encoder cannot be inverted, the candidates are people.
        """
        pool = np.concatenate([*self._extremes(count), people])
        encoded = self.encode(pool)
        domain = self.release.randomizer.domain
        if isinstance(domain, FiniteSet):
            _, first = np.unique(np.asarray(encoded), return_index=True)
            return pool[np.sort(first)[:count]]
        units = domain.project(encoded) if isinstance(domain, Ball | Box) else encoded
        taken, nearest = [0], np.abs(units - units[0]).sum(axis=1)
        while len(taken) < count and nearest.max() > 0:
            # The second of the pair that is worst in theory comes first.
            taken.append(1 if len(taken) == 1 and nearest[1] > 0 else int(nearest.argmax()))
            nearest = np.minimum(nearest, np.abs(units - units[taken[-1]]).sum(axis=1))
        return pool[taken]

    def _extremes(self, count: int) -> tuple[Vectors, ...]:
        """Return the pair that is worst in theory and poles, as far as the encoder has inputs."""
        try:
            worst = pairs(self.release)[0]
            return np.stack([worst.first, worst.second]), self._poles(count)
        except InvalidInput:
            return ()

    def _poles(self, count: int) -> Vectors:
        """Return inputs for poles of a ball or a sphere, two per axis; none for other domains."""
        domain = self.release.randomizer.domain
        if count <= 2 or isinstance(domain, Box | FiniteSet):
            return np.empty((0, self.release.input_dim))
        if isinstance(self.release.encoder, BoxEncoder):
            return np.empty((0, self.release.input_dim))
        axes = min(domain.dim, (count + 1) // 2)
        poles = domain.radius * np.eye(domain.dim)[:axes]
        return preimages(self.release.encoder, np.concatenate([poles, -poles]))


def affordable(release: Release, rows: Vectors, reports: int) -> bool:
    """Return whether exact reports of an attack take at most some seconds."""
    few = rows[:_PILOT]
    make_reports(release, few[:1])  # tables are made on the first call
    started = time.perf_counter()
    make_reports(release, few)
    return (time.perf_counter() - started) / len(few) * reports <= _SECONDS


def several(channel: Channel, rows: Vectors, count: int, rng: Rng) -> list[Vectors]:
    """Return what an attacker sees of ``count`` reports of each person."""
    if isinstance(channel, ReleaseChannel):
        if isinstance(channel.release.randomizer, Memoised):
            return channel.sequences(rows, count)
        return [channel.simulate(rows, rng) for _ in range(count)]
    return [channel.draw(rows, rng) for _ in range(count)]


# ---- Controls


@dataclass(frozen=True, eq=False)
class Raw:
    """The vector itself, as collected without privacy."""

    scale: float

    source = RAW

    def draw(self, rows: Vectors, rng: Rng) -> Vectors:
        """Return the rows."""
        return rows

    def likelihood(self, rows: Vectors) -> Likelihood:
        """Return a density around each row that is narrow against the distances of people."""
        return lambda V: -cdist(V, rows, "sqeuclidean") / (2 * (1e-4 * self.scale) ** 2)

    def chosen(self, people: Vectors, count: int) -> Vectors:
        """Return the first people."""
        return people[:count]


_GRID: Final = 2.0**52
_BITS: Final = 24
"""The most coordinates that are compared with the values that a sampler can return."""

_REACH: Final = 8
"""Neighbours on the grid that rounding may have moved a value to."""

_ATTAINABLE: Final = math.log(2)
"""Log odds of the truth where a value is attainable: it is by chance for about half of others."""

_IMPOSSIBLE: Final = -40.0


def textbook_laplace(u: Any, scale: float) -> Any:
    """Return Laplace noise for u in [−½, ½), as most programs compute it."""
    with np.errstate(divide="ignore"):
        return -scale * np.sign(u) * np.log(1 - 2 * np.abs(u))


@dataclass(frozen=True, eq=False)
class FloatLaplace:
    """Laplace noise for ε, added in floating point to the centred vector, with clipping or without.

    The public mean is subtracted, the radius ρ is a public percentile of the ℓ1 norms, and the
    scale is 2ρ/ε: what is written in a line of NumPy. The noise is −b sign(u) log(1 − 2|u|), so
    only some floats can be the sum of a given vector and noise (Mironov 2012): an attacker who
    knows a vector tests whether a report is one of them.
    """

    centre: Vectors
    radius: float
    epsilon: float
    clips: bool

    @property
    def source(self) -> str:
        """Which control."""
        return FLOAT if self.clips else UNCLIPPED

    @cached_property
    def scale(self) -> float:
        """b."""
        return 2 * self.radius / self.epsilon

    def _inputs(self, rows: Vectors) -> Vectors:
        centred = rows - self.centre
        if not self.clips:
            return centred
        norms = np.abs(centred).sum(axis=1, keepdims=True)
        shrunk: Vectors = centred * np.minimum(1.0, self.radius / np.maximum(norms, 1e-300))
        return shrunk

    def draw(self, rows: Vectors, rng: Rng) -> Vectors:
        """Return the vectors plus noise."""
        seen: Vectors = self._inputs(rows) + textbook_laplace(
            rng.random(rows.shape) - 0.5, self.scale
        )
        return seen

    def likelihood(self, rows: Vectors) -> Likelihood:
        """Return the density of continuous noise; the last bits are judged apart."""
        inputs = self._inputs(rows)
        return lambda V: -cdist(V, inputs, "cityblock") / self.scale

    def last_bits(self, seen: Vectors, rows: Vectors) -> Vectors:
        """Return log odds from the last bits: attainable for this vector, coordinate by coordinate.

        A vector is dropped at the first coordinate that it cannot have.
        """
        inputs = self._inputs(rows)
        evidence = np.zeros(len(seen))
        left = np.arange(len(seen))
        for column in range(min(seen.shape[1], _BITS)):
            attainable = self._attainable(seen[left, column], inputs[left, column])
            evidence[left] += np.where(attainable, _ATTAINABLE, _IMPOSSIBLE)
            left = left[attainable]
        return evidence

    def _attainable(self, y: Vectors, x: Vectors) -> Any:
        """Return whether x plus some value of the sampler rounds to y."""
        near = np.rint(np.exp(-np.abs(y - x) / self.scale) * _GRID)
        steps = np.arange(-_REACH, _REACH + 1)
        t = np.clip(near[:, None] + steps, 1, _GRID) / _GRID
        # u with 1 − 2|u| = t, on either side of zero: exact, as t is a multiple of 2^−52.
        size = (1 - t) / 2
        return (
            (x[:, None] + textbook_laplace(size, self.scale) == y[:, None])
            | (x[:, None] + textbook_laplace(-size, self.scale) == y[:, None])
        ).any(axis=1)

    def chosen(self, people: Vectors, count: int) -> Vectors:
        """Return vectors far out on either side, as no check refuses; clipping would bound them."""
        axes = np.eye(self.centre.size)[: (count + 1) // 2]
        far: Vectors = self.centre + 10 * self.radius * np.concatenate([axes, -axes])
        return far[:count] if count > 2 else far[[0, len(axes)]]


def compared(known: Vectors, epsilon: float, percentile: float = 90.0) -> tuple[Channel, ...]:
    """Return the controls for vectors like the known ones."""
    centre = known.mean(axis=0)
    norms = np.abs(known - centre).sum(axis=1)
    radius = float(np.percentile(norms, percentile))
    if not radius > 1e-12 * float(np.abs(known).max()):  # rounding, not people
        raise InvalidInput("the public vectors are all equal: nothing distinguishes people")
    scale = float(np.sqrt(((known - centre) ** 2).sum(axis=1).mean()))
    return (
        Raw(scale),
        FloatLaplace(centre, radius, epsilon, clips=True),
        FloatLaplace(centre, radius, epsilon, clips=False),
    )
