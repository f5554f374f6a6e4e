"""Every mechanism, plain and reshaped: accuracy, privacy loss, speed, and what an audit shows.

The last rows are rivals of the literature, rebuilt as another package's randomizers.

    python -m benchmarks.mechanisms [--seeds 5] [--epsilon 7.5] [--audit-epsilon 5] [--no-audit]

On the bundled features (dimension 64). *loss* is the worst case of the exact mechanism in closed
form: the realised ε of a lattice, the certified δ of a Gaussian, ε itself elsewhere. *audit* is the
largest ε that a default audit of the reshaped release could show (``offaxis audit``). Speeds are
in vectors per second, after a warm-up.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np

import offaxis
from experiments.data import load_cifar10_features
from experiments.rivals import RIVALS
from experiments.without_guarantee import LABEL, classical_plan, unbounded_coordinatewise
from offaxis.auditing import audit
from offaxis.encoding import Jacobian
from offaxis.evaluation import evaluate
from offaxis.mechanisms import NAMES, find_mechanism
from offaxis.simulation import simulate

ROWS = 100_000
EXACT_SECONDS = 1.0


def _rate(call: Callable[[int], object], rows: int) -> float:
    """Return the rows per second of a call, after a smaller one to warm up."""
    call(min(rows, 256))
    started = time.perf_counter()
    call(rows)
    return rows / (time.perf_counter() - started)


def _loss(release: offaxis.Release) -> str:
    """Return the largest loss of the exact mechanism; for a Gaussian its certified δ."""
    randomizer = release.randomizer
    if not release.guarantee.pure:
        return f"δ ≤ {float(randomizer.realised_delta):.3e}"
    return f"{float(getattr(randomizer, 'realised_epsilon', randomizer.epsilon)):.6g}"


def main() -> None:
    """Print one line per mechanism and reshaping."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epsilon", type=float, default=7.5)
    parser.add_argument("--audit-epsilon", type=float, default=5)
    parser.add_argument("--no-audit", action="store_true")
    arguments = parser.parse_args()
    data = load_cifar10_features()
    many = np.resize(data.vectors, (ROWS, data.vectors.shape[1]))
    print("| mechanism | shape | fit s | accuracy | loss | simulated/s | exact/s | bytes | audit |")
    print("|---|---|--:|--:|--:|--:|--:|--:|--:|")
    for name in (*NAMES, *(cls.kind for cls in RIVALS)):
        if name == "scalar-response":  # only for tasks of one output
            continue
        delta = 1e-5 if find_mechanism(name).needs_delta else None
        for shape in ("none", "jacobian"):
            settings = {"mechanism": name, "delta": delta, "reshaping": shape}
            started = time.perf_counter()
            release = offaxis.fit(data.head, data.public, epsilon=arguments.epsilon, **settings)
            fitted = time.perf_counter() - started
            score = evaluate(release, data.head, data.vectors, data.labels, seeds=arguments.seeds)
            rng = np.random.default_rng(0)
            simulated = _rate(lambda n, r=release, g=rng: simulate(r, many[:n], g), ROWS)
            trial = _rate(lambda n, r=release: r.privatize(many[:n]), 64)
            exact = _rate(
                lambda n, r=release: r.privatize(many[:n]),
                int(min(ROWS, max(64, trial * EXACT_SECONDS))),
            )
            shown = "–"
            if shape == "jacobian" and not arguments.no_audit:
                audited = offaxis.fit(
                    data.head, data.public, epsilon=arguments.audit_epsilon, **settings
                )
                result = audit(audited)
                best = max(f.epsilon for f in result.findings if f.epsilon is not None)
                shown = f"{'VIOLATION ' if result.violated else ''}ε ≥ {best:.2f}"
            print(
                f"| {name} | {shape} | {fitted:.2f} | {score.mean('accuracy'):.3f} | "
                f"{_loss(release)} | {simulated:,.0f} | {exact:,.0f} | {release.report_size} | "
                f"{shown} |",
                flush=True,
            )
    for unprotected in (
        unbounded_coordinatewise(
            data.head, data.public, epsilon=arguments.epsilon, reshaping=Jacobian(order=1)
        ),
        classical_plan(data.head, data.public, epsilon=arguments.epsilon, delta=1e-5),
    ):
        accuracies = []
        for seed in range(arguments.seeds):
            decoded = unprotected.simulate(data.vectors, np.random.default_rng([0, seed]))
            answers = data.head.outputs(decoded).argmax(axis=1)
            accuracies.append((answers == data.labels).mean())
        print(f"| {unprotected.name}: **{LABEL}** | | | {np.mean(accuracies):.3f} | | | | | |")


if __name__ == "__main__":
    main()
