"""Growth of costs: the Gram with N, k and m, a report with m·r, simulations and sweeps with N."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any, Final

import numpy as np

from benchmarks.groups import task
from benchmarks.groups.sweeping import small_sweep
from benchmarks.harness import Effort, Growth
from offaxis.decoding import LinearDecoder
from offaxis.encoding import AffineEncoder
from offaxis.geometry import Layers, PublicVectors
from offaxis.geometry import measure as measure_geometry
from offaxis.randomizers import Laplace
from offaxis.release import Release
from offaxis.simulation import simulate

_HIDDEN: Final = 64
_CALLS: Final = 10
LADDER: Final = (
    *((1024, 512), (1024, 1024), (2048, 1024)),
    *((2048, 2048), (4096, 2048), (4096, 4096)),
)
"""Dimensions and ranks (m, r) of reports; m·r doubles from one to the next."""


def measure(effort: Effort) -> Iterator[Growth]:
    """Double one size at a time."""
    head, rng = task.data().head, np.random.default_rng(0)
    counts = effort.doubled(8_000)
    Z = task.vectors(counts[-1])
    yield effort.growth("Gram", "N", {n: _gram(head, Z[:n]) for n in counts}, 1)
    outputs = {k: _gram(_network(64, k), Z[:4_000]) for k in effort.doubled(64)}
    yield effort.growth("Gram", "k", outputs, 1)
    dims = {m: _gram(_network(m, 10), rng.standard_normal((1_000, m))) for m in effort.doubled(64)}
    yield effort.growth("Gram", "m", dims, 2)
    release = task.release("laplace")
    simulated = {n: partial(simulate, release, Z[:n], rng) for n in counts}
    yield effort.growth("simulate", "N", simulated, 1)
    yield effort.growth("privatize", "N", {n: partial(release.privatize, Z[:n]) for n in counts}, 1)
    ladder = LADDER[-effort.doublings - 1 :]
    reports = {dim * rank: _privatize_some(dim, rank) for dim, rank in ladder}
    yield effort.growth(f"{_CALLS} reports, one at a time", "m·r", reports, 1)
    # Few public vectors, so that the constant cost of fits does not hide the growth.
    sweeps = {
        n: partial(small_sweep, n, ("laplace",), public=1_000, seeds=2)
        for n in effort.doubled(10_000)
    }
    yield effort.growth("sweep", "vectors", sweeps, 1)


def _gram(model: Layers, Z: Any) -> Callable[[], Any]:
    return lambda: measure_geometry(model, PublicVectors(Z))


def _network(dim: int, outputs: int) -> Layers:
    rng = np.random.default_rng(dim + outputs)
    shapes = [(_HIDDEN, dim), (outputs, _HIDDEN)]
    weights = [rng.standard_normal(shape) / np.sqrt(shape[1]) for shape in shapes]
    return Layers(weights, [np.zeros(rows) for rows, _ in shapes])


def _privatize_some(dim: int, rank: int) -> Callable[[], Any]:
    """Return an action that makes reports of r numbers for vectors of m coordinates."""
    release = release_of_rank(dim, rank)
    Z = np.random.default_rng(dim).standard_normal((_CALLS, dim))
    return lambda: [release.privatize(z) for z in Z]


def release_of_rank(dim: int, rank: int) -> Release:
    """Return a Laplace release whose map is an r×m matrix."""
    rng = np.random.default_rng(rank)
    matrix = rng.standard_normal((rank, dim)) / np.sqrt(dim)
    return replace(
        task.plain_laplace(1),
        encoder=AffineEncoder(matrix, np.zeros(dim)),
        randomizer=Laplace(rank, float(rank), Fraction(task.EPSILON)),
        decoder=LinearDecoder(matrix.T, np.zeros(dim)),
    )
