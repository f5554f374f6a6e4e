"""Exact lattice reports beside OpenDP's vector noise and plain NumPy noise, in one run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import opendp.prelude as dp

from harness import best_seconds
from offaxis.randomizers import Randomizer
from offaxis.sampling.entropy import Entropy

DIM, ROWS = 64, 20_000
SCALES_K = (None, -60, -40, -20, -10, 0)
"""OpenDP's granularities 2**k; None is its default."""


def compare(
    name: str,
    randomizer: Randomizer,
    plain_noise: Callable[..., np.ndarray],
    measurement: Callable[..., Any],
    distance: Any,
    targets: tuple[int, int],
) -> list[dict[str, Any]]:
    """Return rates in coordinates a second, and the ratios to OpenDP's default and fastest."""
    W = np.random.default_rng(0).standard_normal((ROWS, DIM))
    exact = W.size / best_seconds(lambda: randomizer.report(W, Entropy()))
    plain = W.size / best_seconds(lambda: W + plain_noise(scale=randomizer.scale, size=W.shape))
    dp.enable_features("contrib")
    x = np.random.default_rng(0).standard_normal(10_000)
    space = (dp.vector_domain(dp.atom_domain(T=float, nan=False), size=x.size), distance)
    rates = {}
    for k in SCALES_K:
        release = measurement(*space, scale=randomizer.scale, k=k)
        rates[k] = x.size / best_seconds(lambda m=release: m(x), 3)
    default, fastest = rates[None], max(rates.values())
    unit = "coordinates/s"
    rows: list[dict[str, Any]] = [
        {"what": f"exact {name} reports", "value": exact, "unit": unit},
        {"what": f"plain NumPy {name} noise", "value": plain, "unit": unit},
        {"what": f"OpenDP vector {name}, default", "value": default, "unit": unit},
        {"what": f"OpenDP vector {name}, fastest k", "value": fastest, "unit": unit},
    ]
    for label, rate, target in (("default", default, targets[0]), ("fastest", fastest, targets[1])):
        rows.append(
            {
                "what": f"exact {name} / OpenDP {label}",
                "value": exact / rate,
                "unit": "x",
                "target": f">= {target}",
                "met": exact >= target * rate,
            }
        )
    rows.append(
        {
            "what": f"plain NumPy {name} / exact",
            "value": plain / exact,
            "unit": "x",
            "target": "<= 10",
            "met": plain <= 10 * exact,
        }
    )
    return rows
