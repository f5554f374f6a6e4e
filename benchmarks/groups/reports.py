"""Exact reports: how many per second, and the time of a single one.

Those of offaxis are clipped, randomized exactly, packed and framed; the rivals only add noise.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

import numpy as np

from benchmarks.groups import task
from benchmarks.harness import OURS, Contender, Effort, Race
from benchmarks.rivals import installed
from benchmarks.rivals.maps import Noise, noise_of
from benchmarks.rivals.numpy import add_noise
from offaxis.release import Release
from offaxis.vectors import Vectors

_ROWS: Final = 20_000
_ALONE: Final = 200
"""Vectors that are privatized one at a time."""

_COORDINATES: Final = 2_000
"""Length of the vector for OpenDP: long enough that the cost of a call is negligible."""

_OTHERS: Final = {"privunit2": 500, "privunitg": 500, "piecewise": _ROWS, "response": _ROWS}
"""Randomizers without a rival → number of reports made at a time."""


def measure(effort: Effort) -> Iterator[Race]:
    """Compare exact reports with bare noise, and with exact reports one at a time."""
    for name in ("laplace", "gaussian"):
        release, Z = task.release(name, reshaping="none"), task.vectors(_ROWS)
        alone, noise = Z[:_ALONE], noise_of(release)
        x = np.random.default_rng(0).standard_normal(_COORDINATES)
        contenders = {
            OURS: Contender(partial(release.privatize, Z), Z.size),
            "one vector at a time": Contender(partial(_one_by_one, release, alone), alone.size),
            "NumPy noise, not private": Contender(
                partial(add_noise, Z, noise, np.random.default_rng(0)), Z.size
            ),
            **_opendp(x, noise, x.size),
        }
        yield effort.race("reports", f"{name}, m = 64", "coordinates/s", contenders)
    for name, rows in _OTHERS.items():
        release, Z = task.release(name), task.vectors(rows)
        alone = Z[:_ALONE]
        contenders = {
            OURS: Contender(partial(release.privatize, Z), rows),
            "one vector at a time": Contender(partial(_one_by_one, release, alone), len(alone)),
        }
        yield effort.race("reports", f"{name}, m = 64", "reports/s", contenders)
    for dim in (64, 768):
        yield _single(effort, dim)


def _single(effort: Effort, dim: int) -> Race:
    release, rng = task.plain_laplace(dim), np.random.default_rng(0)
    z = np.random.default_rng(2).standard_normal(dim)
    noise, calls = noise_of(release), 100
    contenders = {
        OURS: Contender(lambda: [release.privatize(z) for _ in range(calls)], calls),
        "NumPy noise, not private": Contender(
            lambda: [add_noise(z, noise, rng) for _ in range(calls)], calls
        ),
        **_opendp(z, noise, 1),
    }
    return effort.race("reports", f"one laplace report, m = {dim}", "ms", contenders)


def _one_by_one(release: Release, Z: Vectors) -> None:
    for z in Z:
        release.privatize(z)


def _opendp(x: Vectors, noise: Noise, amount: int) -> dict[str, Contender]:
    if not installed("opendp"):
        return {}
    from benchmarks.rivals.opendp import vector_noise

    return {name: Contender(action, amount) for name, action in vector_noise(x, noise).items()}
