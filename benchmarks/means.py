"""Means over people on the bundled features: how far off, in one round and in the long run.

    python -m benchmarks.means [--epsilon 8] [--rounds 200]
    python -m benchmarks.means --sphere 1024 [--epsilon 8]

Every test vector is one person's, every class a group of about 500. One round draws real reports
and aggregates them by class; the long run averages simulated rounds, until what is left is bias and
1/√rounds of the noise. Distances are shares of the length of the true class mean.

With --sphere, errors of points of a sphere of so many dimensions in closed form, beside what ε
allows, and the bytes and the time of a report.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

import offaxis
from experiments.data import load_cifar10_features
from offaxis import randomizers
from offaxis.evaluation import clipping_bias
from offaxis.sampling.entropy import Entropy
from offaxis.simulation import simulate
from offaxis.theory import least_mean_error, sphere_mean_error

BALL = ("privunit2-mean", "privunitg-mean", "projunit-mean")
NAMES = ("laplace", "gaussian", "privunit2", "privunit2-mean", "privunitg-mean")


def main() -> None:
    """Print a line a randomizer."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epsilon", type=float, default=8)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--sphere", type=int, metavar="DIMENSIONS")
    arguments = parser.parse_args()
    if arguments.sphere:
        on_a_sphere(arguments.sphere, arguments.epsilon)
    else:
        by_classes(arguments.epsilon, arguments.rounds)


def on_a_sphere(dim: int, epsilon: float, people: int = 200) -> None:
    """Print the error of one report, as a share of the squared length, and what it costs."""
    points = np.random.default_rng(0).standard_normal((people, dim))
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    for name in BALL:
        made = randomizers.make(name, dim=dim, radius=1.0, epsilon=epsilon)
        made.report(points[:1], Entropy())
        started = time.perf_counter()
        made.report(points, Entropy())
        milliseconds = (time.perf_counter() - started) * 1e3 / people
        error, size = made.expected_squared_error(), made.payload_size
        print(f"{name:<15} error {error:8.4g}, {size} bytes, {milliseconds:.2f} ms a report")
    print(f"{'best there is':<15} error {sphere_mean_error(dim, epsilon):8.4g}")
    print(f"{'any such law':<15} error {least_mean_error(np.ones(dim), epsilon):8.4g} at least")


def by_classes(epsilon: float, rounds: int) -> None:
    """Print errors of class means."""
    data = load_cifar10_features()
    labels = data.labels.tolist()
    classes = sorted(set(labels))

    def by_class(rows: np.ndarray) -> np.ndarray:
        return np.stack([rows[data.labels == k].mean(axis=0) for k in classes])

    truth = by_class(data.vectors)

    def off(found: np.ndarray) -> float:
        lengths = np.linalg.norm(truth, axis=1)
        return float((np.linalg.norm(found - truth, axis=1) / lengths).mean())

    for name in NAMES:
        delta = 1e-5 if name == "gaussian" else None
        release = offaxis.fit(
            None,
            data.public,
            epsilon=epsilon,
            mechanism=name,
            delta=delta,
            reshaping="none",
        )
        total = np.zeros_like(truth)
        for seed in range(rounds):
            total += by_class(simulate(release, data.vectors, np.random.default_rng(seed)))
        line = f"{name:<15} long run {off(total / rounds):6.1%}"
        reports = release.privatize(data.vectors)
        if not release.supports_mean:
            print(f"{line}, one round {off(by_class(release.decode(reports))):6.1%} (refused)")
            continue
        result = release.aggregate(reports, groups=labels)
        found = np.stack([result.of(k).estimate for k in classes])
        ends = [result.of(k).interval(0.95) for k in classes]
        covered = np.mean([(lo <= t) & (t <= hi) for (lo, hi), t in zip(ends, truth, strict=True)])
        clipped = clipping_bias(release, data.vectors)
        bias = np.linalg.norm(clipped.bias) / np.linalg.norm(data.vectors.mean(axis=0))
        print(
            f"{line}, one round {off(found):6.1%}, 95 % intervals cover {covered:.1%}, "
            f"clipping {bias:.1%} ({clipped.share:.1%} of the vectors)"
        )


if __name__ == "__main__":
    main()
