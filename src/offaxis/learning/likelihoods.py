"""How likely is each report among the public vectors of a cell?

Public vectors are divided into few *cells*, and each of these into *parts*. The likelihood of a
report v in a part is the mean of ℓ(v|z) over its vectors z, with ℓ the law of the report of z; here
it is relative to the mean over all public vectors. ℓ is the average over all nonces: which
directions are near under a report's own nonce adds at most 1.6 % to the information.

Likelihoods are computed in one pass over the reports and kept in a temporary file, a few hundred
bytes per report, so memory does not grow with the number of reports.
"""

from __future__ import annotations

import math
import os
import tempfile
import weakref
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from offaxis.decoding.posterior import likelihood
from offaxis.encoding.pairs import PairEncoder
from offaxis.encoding.questions import AnswersEncoder
from offaxis.errors import InvalidInput
from offaxis.geometry import PublicVectors
from offaxis.geometry.partition import nearest, partition
from offaxis.geometry.public import PublicIdentity, evenly, survey
from offaxis.randomizers import PrivUnit2
from offaxis.randomizers.base import Ball, Box, Randomizer, Sphere
from offaxis.randomizers.privunit import keep_probability
from offaxis.randomizers.projunit import ProjUnit
from offaxis.randomizers.symbols import SymbolForm
from offaxis.release import Release
from offaxis.vectors import Vectors, row_norms

MOST_VECTORS: Final = 5_000
"""Public vectors that are compared with reports; more are thinned out evenly."""

LEAST_DENSITY: Final = 0.02
"""The least likelihood of a report that counts, relative to the public vectors."""

CELLS: Final = 20
"""Cells of a population, unless chosen: with 10 or 40 the errors of shares are the same."""

_PARTS: Final = 4
_LEAST_PER_CELL: Final = 30
_LEAST_PER_PART: Final = 15
_PROBES: Final = 60
_SMALLEST: Final = -30.0
"""The smallest logarithm of a likelihood, relative to the largest: no float32 overflows."""

_GRID: Final = 1 << 15
_NUMBERS: Final = 1 << 18
_IN_MEMORY: Final = 1 << 27
_ROWS: Final = 1 << 13
_KEPT: Final = 10_000

_ALIKE: Final = (
    "reports of this release cannot tell the vectors of the support apart: they are all encoded "
    "alike"
)

Densities = Callable[[Vectors], NDArray[np.float32]]


# ---- Public vectors in cells


@dataclass(frozen=True, eq=False)
class Support:
    """Public vectors in cells and parts, in the order of the parts.

    Attributes
    ----------
    vectors : (J, m) array
    parts : (J,) array
        The part of each vector.
    cells : (P,) array
        The cell of each part.
    identity : PublicIdentity
    """

    vectors: Vectors
    parts: NDArray[np.int64]
    cells: NDArray[np.int64]
    identity: PublicIdentity

    @cached_property
    def part_shares(self) -> Vectors:
        """Public shares of the parts, (P,)."""
        shares: Vectors = np.bincount(self.parts).astype(np.float64) / len(self.parts)
        return shares

    @cached_property
    def shares(self) -> Vectors:
        """Public shares of the cells, (K,)."""
        shares: Any = np.bincount(self.cells, weights=self.part_shares)
        return np.asarray(shares, dtype=np.float64)

    @cached_property
    def spread(self) -> Vectors:
        """The share of each part in its cell, (P, K)."""
        spread = np.zeros((len(self.cells), len(self.shares)))
        within = self.part_shares / self.shares[self.cells]
        spread[np.arange(len(self.cells)), self.cells] = within
        return spread

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """The first vector of each part."""
        return np.searchsorted(self.parts, np.arange(len(self.cells)))

    def means(self, values: Vectors) -> Vectors:
        """Return the mean of values (J, p) over each part, (P, p)."""
        counts = np.bincount(self.parts)[:, None]
        means: Vectors = np.add.reduceat(values, self.starts, axis=0) / counts
        return means


def support_of(public: Any, releases: list[Release], cells: int) -> Support:
    """Return public vectors in cells that reports of the releases tell apart."""
    if hasattr(public, "__len__") and len(public) == 0:
        raise InvalidInput("the support is empty: pass public vectors, one per row")
    vectors = PublicVectors(public)
    identity = survey(vectors).identity
    for release in releases:
        if identity.dim != release.input_dim:
            raise InvalidInput(
                f"the support has vectors of dimension {identity.dim}, people report on vectors of "
                f"dimension {release.input_dim}"
            )
    sample = evenly(vectors, MOST_VECTORS)
    coordinates = np.hstack([coordinates_of(release, sample) for release in releases])
    if not np.ptp(coordinates, axis=0).any():
        raise InvalidInput(_ALIKE)
    seed = int(identity.sha256[:16], 16)
    size = max(2, min(cells, len(sample) // _LEAST_PER_CELL))
    large = _clustered(coordinates, size, seed)
    if large.max() == 0:
        raise InvalidInput(_ALIKE)
    parts = np.zeros(len(sample), dtype=np.int64)
    owners: list[int] = []
    for cell in range(large.max() + 1):
        own = np.flatnonzero(large == cell)
        size = max(1, min(_PARTS, own.size // _LEAST_PER_PART))
        parts[own] = len(owners) + _clustered(coordinates[own], size, seed)
        owners += [cell] * int(parts[own].max() + 1 - len(owners))
    order = np.argsort(parts, kind="stable")
    return Support(sample[order], parts[order], np.array(owners), identity)


def _clustered(coordinates: Vectors, size: int, seed: int) -> NDArray[np.int64]:
    """Return the cluster of every row: the most frequent rows, or those of k-means."""
    if size == 1:
        return np.zeros(len(coordinates), dtype=np.int64)
    places = nearest(coordinates, partition(coordinates, math.inf, size, seed))
    clusters: NDArray[np.int64] = np.unique(places, return_inverse=True)[1]
    return clusters.reshape(-1)


def coordinates_of(release: Release, vectors: Vectors) -> Vectors:
    """Return what a report of each vector depends on, scaled to a mean square of one."""
    encoded, domain = release.encode_private(vectors), release.randomizer.domain
    if isinstance(release.randomizer, SymbolForm):
        symbols = np.unique(encoded, return_inverse=True)[1].reshape(-1)
        size = int(symbols.max()) + 1
        found = np.eye(size)[symbols] if size <= 2 * CELLS else _symbol_means(vectors, symbols)
    elif isinstance(domain, Sphere):
        found = domain.directions(encoded)
    else:
        assert isinstance(domain, Ball | Box)
        found = domain.project(encoded)
    scale = math.sqrt(float(np.square(found).sum(axis=1).mean()))
    scaled: Vectors = found / (scale or 1.0)
    return scaled


def _symbol_means(vectors: Vectors, symbols: NDArray[np.int64]) -> Vectors:
    """Return the mean vector of the symbol of each vector."""
    counts = np.bincount(symbols)
    sums = np.zeros((counts.size, vectors.shape[1]))
    np.add.at(sums, symbols, vectors)
    means: Vectors = (sums / counts[:, None])[symbols] - vectors.mean(axis=0)
    return means


# ---- Likelihoods of reports


def check_release(release: Release) -> None:
    """Raise if reports of this release tell nothing about a population of vectors."""
    release.require_single_reports("populations are estimated from people who report once")
    encoder = release.encoder
    if isinstance(encoder, AnswersEncoder):
        raise InvalidInput(
            "reports of this release are about private answers alone, which no vector explains: "
            "estimate their shares with release.shares(reports)"
        )
    if isinstance(release.randomizer, ProjUnit):
        # One quadrature per report and public vector: hours.
        raise InvalidInput(
            "the likelihood of projunit is too slow for a population: fit a release with "
            "mechanism='privunitg' or 'privunit2'"
        )
    if isinstance(encoder, PairEncoder) and (encoder.form == "right" or release.asked):
        raise InvalidInput(
            "reports of this release are about vectors and private answers together: learn from "
            "them with offaxis.learn, or ask for vectors alone (fit_pairs without answers)"
        )
    release.require_model()


def densities(release: Release, support: Support, shares: Vectors) -> Densities:
    """Return the function from observations to likelihoods in parts and of probes, (n, P + Q).

    They are relative to the likelihood with these shares of the parts. Probes are random inputs of
    the randomizer, for tests of fit; there are none for symbols.
    """
    randomizer = release.randomizer
    encoded = release.encode_private(support.vectors)
    if isinstance(randomizer, SymbolForm):
        return _by_symbol(randomizer, encoded, support, shares)
    inputs = np.concatenate([encoded, probes_of(randomizer)])
    starts = np.append(support.starts, len(encoded) + np.arange(_PROBES))
    sizes = np.append(np.bincount(support.parts), np.ones(_PROBES, dtype=np.int64))
    compare = _likelihoods(randomizer, inputs)
    weights = np.append(shares, np.zeros(_PROBES)).astype(np.float32)
    scale = (1 / sizes).astype(np.float32)

    def density(V: Vectors) -> NDArray[np.float32]:
        found = np.add.reduceat(compare(V), starts, axis=1)
        found *= scale
        found /= (found @ weights)[:, None]
        return found

    return density


def probes_of(randomizer: Randomizer) -> Vectors:
    """Return random inputs of a randomizer, (Q, r), in all directions."""
    domain: Any = randomizer.domain
    rng = np.random.default_rng(0)
    probes = rng.standard_normal((_PROBES, domain.dim))
    lengths = 1.0 if isinstance(domain, Sphere) else rng.random(_PROBES)[:, None]
    inputs: Vectors = probes / row_norms(probes, 2)[:, None] * domain.radius * lengths
    return inputs


def _by_symbol(
    randomizer: SymbolForm, symbols: NDArray[Any], support: Support, shares: Vectors
) -> Densities:
    """A named symbol is e^ε times as likely: 1 + (e^ε − 1) Pr[a vector of the part has it]."""
    chances = np.zeros((randomizer.size, len(support.cells)))
    np.add.at(chances, (symbols, support.parts), 1 / np.bincount(support.parts)[support.parts])
    used = np.flatnonzero(chances.any(axis=1))
    gain = math.expm1(randomizer.strength)
    table = (gain * chances[used]).astype(np.float32)

    def density(V: Vectors) -> NDArray[np.float32]:
        found = (V[:, used] > 0).astype(np.float32) @ table + np.float32(1)
        found /= (found @ shares.astype(np.float32))[:, None]
        return found

    return density


def _likelihoods(randomizer: Randomizer, inputs: Vectors) -> Densities:
    """Return the function from observations to ℓ(v_i|z_j), up to a factor per report."""
    if isinstance(randomizer, PrivUnit2) and randomizer.dim > 1:
        return _by_cosine(randomizer, inputs)
    compare = likelihood(randomizer, inputs)

    def density(V: Vectors) -> NDArray[np.float32]:
        found = compare(V)
        found -= found.max(axis=1, keepdims=True)
        np.maximum(found, _SMALLEST, out=found)
        return np.exp(found, out=found).astype(np.float32)

    return density


def _by_cosine(randomizer: PrivUnit2, inputs: Vectors) -> Densities:
    """Look up ℓ by the cosine; even steps of it, because a search would take ten times as long.

    With the target "vector" a short vector is mixed with its mirror image.
    """
    directional = replace(randomizer, target="direction")
    directions = Sphere(randomizer.dim, 1.0).directions(inputs)
    scaled = np.ascontiguousarray(directions.T * _GRID, dtype=np.float32)
    at = np.zeros((2 * _GRID + 1, randomizer.dim))
    at[:, 0] = cosine = np.linspace(-1, 1, len(at))
    at[:, 1] = np.sqrt(1 - cosine * cosine)
    pole = np.broadcast_to(np.eye(randomizer.dim)[0], at.shape)
    logs = directional.log_density(at, pole)
    table = np.exp(np.maximum(logs - logs.max(), _SMALLEST)).astype(np.float32)
    uniform = np.exp(directional.log_density(at[:1], np.zeros((1, randomizer.dim)))[0] - logs.max())
    zero = np.flatnonzero(~directions.any(axis=1))
    mirrored = np.zeros(len(inputs), dtype=np.float32)
    if randomizer.target == "vector":
        ball = Ball(randomizer.dim, randomizer.radius, 2)
        mirrored = (1 - keep_probability(inputs, ball)).astype(np.float32)

    def density(V: Vectors) -> NDArray[np.float32]:
        unit = (V / row_norms(V, 2)[:, None]).astype(np.float32)
        cosines = unit @ scaled
        cosines += np.float32(_GRID + 0.5)
        places = cosines.astype(np.int32)
        found: NDArray[np.float32] = table.take(places, mode="clip")
        if mirrored.any():
            np.subtract(2 * _GRID, places, out=places)
            opposite = table.take(places, mode="clip")
            opposite -= found
            opposite *= mirrored
            found += opposite
        found[:, zero] = uniform
        return found

    return density


# ---- Sums over reports

Block = NDArray[np.float32]
"""Likelihoods of some reports in parts and of probes, (n, P + Q)."""

Terms = Callable[[Block], Sequence[Any]]
"""A function from a block to numbers and arrays that are added up over all blocks."""


class Sums:
    """Sums over blocks; sums over different blocks merge."""

    def __init__(self) -> None:
        self.totals: list[Vectors] = []

    def add(self, terms: Sequence[Any]) -> None:
        """Add the terms of a block."""
        added = [np.asarray(term, dtype=np.float64) for term in terms]
        pairs = zip(self.totals or added, added, strict=True)
        self.totals = [a + b for a, b in pairs] if self.totals else added

    def merge(self, other: Sums) -> None:
        """Add the sums over other blocks."""
        if other.totals:
            self.add(other.totals)


class Sample:
    """The number of reports of a release, and what was observed of at most 10,000 of them.

    These are the ones with the smallest hashes, so the sample does not depend on their order.
    Nothing is kept of symbols.
    """

    def __init__(self, release: Release) -> None:
        self.release, self.count = release, 0
        self.rows: Vectors | None = None
        self._hashes = np.zeros(0, dtype=np.uint64)

    def add(self, V: Vectors) -> None:
        """Add observations (n, r)."""
        self.count += len(V)
        if not isinstance(self.release.randomizer, SymbolForm):
            self._take(V, _hashes(V))

    def merge(self, other: Sample) -> None:
        """Add the observations of other reports of the release."""
        self.count += other.count
        if other.rows is not None:
            self._take(other.rows, other._hashes)

    def _take(self, rows: Vectors, hashes: NDArray[np.uint64]) -> None:
        if len(self._hashes) == _KEPT:
            small = hashes < self._hashes[-1]
            rows, hashes = rows[small], hashes[small]
        if self.rows is not None:
            rows, hashes = np.concatenate([self.rows, rows]), np.append(self._hashes, hashes)
        order = np.argsort(hashes, kind="stable")[:_KEPT]
        self.rows, self._hashes = rows[order], hashes[order]

    def influence(
        self, support: Support, weights: Vectors, project: Vectors
    ) -> tuple[Vectors, float]:
        """Return Σ_i ℓ(v_i|z_j)/f(v_i) times the projected scores of v_i, (J, Q).

        And the sum over reports of the squared relative error of f(v_i), an average over a sample.
        """
        size, inverse = len(weights), (1 / np.bincount(support.parts)).astype(np.float32)
        total, rough = np.zeros((size, project.shape[1])), 0.0
        if self.rows is None:
            return total, rough
        randomizer = self.release.randomizer
        encoded = self.release.encode_private(support.vectors)
        compare = _likelihoods(randomizer, np.concatenate([encoded, probes_of(randomizer)]))
        shares, turn = weights.astype(np.float32), project.astype(np.float32)

        def term(V: Vectors) -> tuple[Block, float]:
            found = compare(V)
            least = LEAST_DENSITY * found[:, :size].mean(axis=1)
            found /= np.maximum(found[:, :size] @ shares, least)[:, None]
            parts = np.add.reduceat(found[:, :size], support.starts, axis=1) * inverse
            scores = found[:, size:] - 1 - (parts - 1) @ turn
            return found[:, :size].T @ scores, float(np.square(found[:, :size] * shares).sum())

        for products, squares in _in_order(term, chunks(iter([self.rows]), support)):
            total += products
            rough += squares
        scale = self.count / len(self.rows)
        return total * scale, rough * scale


def _hashes(V: Vectors) -> NDArray[np.uint64]:
    """Return a hash of every row, (n,)."""
    bits = np.ascontiguousarray(V, dtype=np.float32).view(np.uint32).astype(np.uint64)
    factors = np.random.default_rng(0).integers(1, 1 << 63, bits.shape[1], dtype=np.uint64)
    found: NDArray[np.uint64] = bits @ (2 * factors + 1)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        # The last steps of splitmix64: sums of products alone are nearly linear.
        found = (found ^ (found >> np.uint64(shift))) * np.uint64(factor)
    return found ^ (found >> np.uint64(31))


def rows_of(release: Release, support: Support) -> Densities:
    """Return the function from observations to a block."""
    compute = densities(release, support, support.part_shares)
    width = len(support.cells) + _PROBES

    def block(V: Vectors) -> Block:
        found = compute(V)
        if found.shape[1] == width:
            return found
        table = np.ones((len(found), width), dtype=np.float32)
        table[:, : found.shape[1]] = found
        return table

    return block


class ReportLikelihoods(ABC):
    """Likelihoods of reports in parts and of probes, relative to the public vectors.

    Parameters
    ----------
    support : Support

    Attributes
    ----------
    samples : list of Sample
        One for each release.
    """

    def __init__(self, support: Support) -> None:
        self.support = support
        self.samples: list[Sample] = []

    @property
    def width(self) -> int:
        """The number of parts and probes."""
        return len(self.support.cells) + _PROBES

    @property
    def count(self) -> int:
        """The number of reports."""
        return sum(sample.count for sample in self.samples)

    def sample_of(self, release: Release) -> Sample:
        """Return the sample of a release."""
        for sample in self.samples:
            if sample.release == release:
                return sample
        self.samples.append(Sample(release))
        return self.samples[-1]

    @abstractmethod
    def sums(self, terms: Terms, release: Release | None = None) -> Sequence[Vectors]:
        """Return the sums of the terms of all blocks, or of those of a release, in one pass."""

    def influence(self, shares: Vectors, project: Vectors) -> tuple[Vectors, float]:
        """Return by how much each public vector moves the sums of projected scores, (J, Q).

        In units of a standard deviation of its weight. And the mean squared relative error of the
        density of a report, which is an average over public vectors. From the observations in the
        samples.
        """
        support = self.support
        counts = np.bincount(support.parts)
        weights = (support.spread @ shares / counts)[support.parts]
        total, rough = np.zeros((len(weights), project.shape[1])), 0.0
        for sample in self.samples:
            added, squares = sample.influence(support, weights, project)
            total += added
            rough += squares
        means = np.add.reduceat(total, support.starts, axis=0) / counts[:, None]
        centred: Vectors = (total - means[support.parts]) * weights[:, None]
        return centred, rough / self.count


class Likelihoods(ReportLikelihoods):
    """Likelihoods of reports in a temporary file.

    Parameters
    ----------
    support : Support
    """

    def __init__(self, support: Support) -> None:
        super().__init__(support)
        self._file: Any = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY)  # noqa: SIM115
        self._places: list[tuple[Release, int, int]] = []
        weakref.finalize(self, self._file.close)

    def add(self, release: Release, reports: Any) -> None:
        """Add the reports of a release."""
        check_release(release)
        self.add_observed(release, release.observe_in_batches(reports))

    def add_observed(self, release: Release, batches: Iterator[Vectors]) -> None:
        """Add observations (n_i, r)."""
        sample = self.sample_of(release)

        def sampled() -> Iterator[Vectors]:
            for batch in batches:
                sample.add(batch)
                yield batch

        start = self._file.seek(0, os.SEEK_END)
        for block in _in_order(rows_of(release, self.support), chunks(sampled(), self.support)):
            self._file.write(block.tobytes())
        self._places.append((release, start, self._file.tell()))

    def sums(self, terms: Terms, release: Release | None = None) -> Sequence[Vectors]:
        """Return the sums of the terms of all blocks, or of those of a release, in one pass."""
        total = Sums()
        for found in _in_order(terms, self._blocks(release)):
            total.add(found)
        return total.totals

    def _blocks(self, release: Release | None = None) -> Iterator[Block]:
        size = 4 * self.width * _ROWS
        for own, start, end in self._places:
            if release is not None and own != release:
                continue
            for place in range(start, end, size):
                self._file.seek(place)
                data = self._file.read(min(size, end - place))
                yield np.frombuffer(data, dtype=np.float32).reshape(-1, self.width)


def chunks(batches: Iterator[Vectors], support: Support) -> Iterator[Vectors]:
    """Cut observations so that the likelihoods of all vectors stay in the cache."""
    rows = max(1, _NUMBERS // len(support.vectors))
    for batch in batches:
        for start in range(0, len(batch), rows):
            yield batch[start : start + rows]


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _in_order(compute: Callable[[Any], Any], parts: Iterator[Any]) -> Iterator[Any]:
    """Yield compute(part) in order, a few parts ahead."""
    waiting: deque[Any] = deque()
    # Threads of our own: the products are too small for those of BLAS.
    with threadpool_limits(1, user_api="blas"), ThreadPoolExecutor(_cores()) as pool:
        for part in parts:
            waiting.append(pool.submit(compute, part))
            if len(waiting) > 2 * _cores():
                yield waiting.popleft().result()
        for last in waiting:
            yield last.result()
