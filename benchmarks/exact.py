"""Exact releases: what their low bits reveal, and their utility.

    python -m benchmarks.exact [--json FILE] [--quick]

Runs the low-bit attack on every randomizer and on its floating-point form, which is the broken
control; measures PrivUnit's rank form; and compares real reports with their simulation. For the
speed of reports, run ``python -m benchmarks``.
"""

from __future__ import annotations

import argparse
import math
from typing import Any

import numpy as np
from scipy import stats

import offaxis
from benchmarks.harness import best_seconds, publish
from experiments.data import load_cifar10_features
from offaxis.evaluation import evaluate
from offaxis.randomizers import NAMES, PrivUnit2, make
from offaxis.sampling.entropy import Entropy
from offaxis.simulation import draw_observations

Figures = list[dict[str, Any]]
ALPHA = 1e-4
"""False-alarm rate of each test."""


def off_the_grid(V: np.ndarray) -> tuple[int, int]:
    """Count rows with some |y| < 1/2, and those where one such y is not a multiple of 2^-53.

    Floats below 1/2 can be finer than that; the sum of a float near 1 and noise cannot.
    """
    small = np.abs(V) < 0.5
    scaled = V * 2.0**53
    off = (small & (scaled != np.rint(scaled))).any(axis=1)
    return int(small.any(axis=1).sum()), int(off.sum())


def off_the_sphere(V: np.ndarray) -> tuple[int, int]:
    """Count rows, and those whose squared length differs by more than the last bit of a float."""
    size = (V.astype(np.longdouble) ** 2).sum(axis=1)
    off = np.abs(size / np.median(size) - 1) > 2.0**-53
    return len(V), int(off.sum())


def low_bit_figures(reports: int) -> Figures:
    """Distinguish two inputs of ten coordinates at ε = 1, radius 10, by low bits of a report."""
    rows: Figures = []
    dim, rng = 10, np.random.default_rng()
    # privunitg-sphere has the same bytes as privunitg; only the server decodes them differently.
    for name in ("laplace", "gaussian", "privunit2", "privunitg"):
        delta = 1e-5 if name == "gaussian" else None
        randomizer = make(name, dim=dim, radius=10.0, epsilon=1, delta=delta)
        # A direction cannot be zero, so PrivUnit is attacked between an axis and a diagonal.
        additive = name in ("laplace", "gaussian")
        pair = (np.zeros(dim) if additive else np.eye(dim)[0], np.ones(dim))
        event = off_the_sphere if name == "privunit2" else off_the_grid
        # A floating-point client would send PrivUnit's vector before the server scales it.
        factor = 1.0 if additive else randomizer.mean / randomizer.radius
        forms = {
            "exact": lambda W, r=randomizer: r.read(r.report(W, Entropy())),
            "plain float": lambda W, r=randomizer, f=factor: draw_observations(r, W, rng) * f,
        }
        for form, draw in forms.items():
            counts = [event(draw(np.tile(w, (reports, 1)))) for w in pair]
            p_value = stats.fisher_exact([[hits, total - hits] for total, hits in counts]).pvalue
            for (_, hits), label in zip(counts, ("first", "second"), strict=True):
                what = f"low-bit event, {name}, {form}, {label} input"
                rows.append({"what": what, "value": hits / reports, "unit": "probability"})
            equal = form == "exact"
            rows.append(
                {
                    "what": f"equal where it can happen, {name}, {form}",
                    "value": p_value,
                    "unit": "p-value",
                    "target": f"> {ALPHA}" if equal else f"< {ALPHA} (the attack has power)",
                    "met": (p_value > ALPHA) == equal,
                }
            )
    return rows


def rank_form_figures(share: float) -> Figures:
    """Measure correlation, time and size of PrivUnit2 reports at dimension 64."""
    rows: Figures = []
    dim = 64
    w = np.random.default_rng(0).standard_normal(dim)
    u = w / np.linalg.norm(w)
    for epsilon, limit, count in ((5, 3, 60_000), (7.5, 5, 30_000), (10, 15, 8_000)):
        randomizer = PrivUnit2(dim, 1.0, epsilon)
        kept = randomizer.mean / randomizer.ideal_mean
        name = f"PrivUnit2, m = 64, ε = {epsilon:g}"
        rows.append({"what": f"{name}: directions", "value": randomizer.directions, "unit": ""})
        rows.append(
            {
                "what": f"{name}: share of the ideal correlation, computed",
                "value": kept,
                "unit": "",
                "target": ">= 0.99",
                "met": kept >= 0.99,
            }
        )
        W = np.tile(w, (int(count * share), 1))
        along = randomizer.read(randomizer.report(W, Entropy())) @ u * kept
        error = along.std() / math.sqrt(len(along))
        rows.append(
            {
                "what": f"{name}: the same, measured on {len(along):,} reports",
                "value": along.mean(),
                "unit": f"± {error:.4f}",
                "target": ">= 0.99 within 3 errors",
                "met": along.mean() + 3 * error >= 0.99,
            }
        )
        latency = best_seconds(lambda r=randomizer: r.report(w[None], Entropy()), 30) * 1e3
        rows.append(
            {
                "what": f"{name}: one report",
                "value": latency,
                "unit": "ms",
                "target": f"<= {limit}",
                "met": latency <= limit,
            }
        )
    size = randomizer.payload_size
    rows += [
        {"what": "payload", "value": size, "unit": "bytes", "target": "<= 16", "met": size <= 16},
        {"what": "the same vector in float64", "value": 8 * dim, "unit": "bytes"},
    ]
    return rows


def utility_figures(share: float) -> Figures:
    """Compare the accuracy of real reports with that of their simulation."""
    data = load_cifar10_features()
    count = int(len(data.vectors) * share)
    vectors, labels = data.vectors[:count], data.labels[:count]
    rows: Figures = []
    for name in NAMES:
        delta = 1e-5 if name == "gaussian" else None
        release = offaxis.fit(data.head, data.public, epsilon=7.5, mechanism=name, delta=delta)
        simulated, real = (
            evaluate(release, data.head, vectors, labels, seeds=4, exact=exact).mean("accuracy")
            for exact in (False, True)
        )
        # Accuracy over independent reports is a binomial share: its error follows from its value.
        error = math.sqrt(sum(p * (1 - p) / (4 * count) for p in (simulated, real)))
        gap = (real - simulated) / error
        title = f"accuracy at ε = 7.5, {name}"
        rows += [
            {"what": f"{title}, simulated", "value": simulated, "unit": ""},
            {"what": f"{title}, real reports", "value": real, "unit": ""},
            {
                "what": f"{title}, gap",
                "value": gap,
                "unit": "errors",
                "target": "within ± 4",
                "met": abs(gap) <= 4,
            },
        ]
    return rows


def main() -> None:
    """Print all figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", help="also write the figures as JSON")
    parser.add_argument("--quick", action="store_true", help="a tenth of the reports")
    arguments = parser.parse_args()
    share = 0.1 if arguments.quick else 1.0
    figures = [
        *rank_form_figures(share),
        *low_bit_figures(int(200_000 * share)),
        *utility_figures(share),
    ]
    publish("exact", figures, arguments.json)


if __name__ == "__main__":
    main()
