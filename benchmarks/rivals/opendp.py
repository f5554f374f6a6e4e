"""OpenDP's vector noise, also exact, at its default granularity and at its fastest."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

import opendp.prelude as dp

from benchmarks.rivals.maps import Noise
from offaxis.vectors import Vectors

_GRANULARITIES: Final = (-60, -40, -20, -10, 0)
"""Exponents k of the lattices 2**k to try; the default is far finer."""


def vector_noise(x: Vectors, noise: Noise) -> dict[str, Callable[[], Any]]:
    """Return actions that add noise to one vector."""
    dp.enable_features("contrib")
    make = dp.m.make_laplace if noise.order == 1 else dp.m.make_gaussian
    distance = dp.l1_distance(T=float) if noise.order == 1 else dp.l2_distance(T=float)
    domain = dp.vector_domain(dp.atom_domain(T=float, nan=False), size=x.size)

    def action(k: int | None) -> Callable[[], Any]:
        measurement = make(domain, distance, scale=noise.scale, k=k)
        return lambda: measurement(x)

    fastest = min((action(k) for k in _GRANULARITIES), key=_seconds)
    return {"OpenDP, default": action(None), "OpenDP, fastest granularity": fastest}


def _seconds(action: Callable[[], Any]) -> float:
    action()
    started = time.perf_counter()
    action()
    return time.perf_counter() - started
