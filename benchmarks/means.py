"""Errors of means over people on the bundled features, in one round and over many rounds.

    python -m benchmarks.means [--epsilon 8] [--rounds 200]
    python -m benchmarks.means --sphere 1024 [--epsilon 8]

Every test vector belongs to one person, every class is a group of about 500. One round draws real
reports and aggregates them by class. The long run averages simulated rounds, which leaves the bias
and 1/√rounds of the noise. Distances are shares of the length of the true class mean.

With --sphere: the error for points on a sphere of this dimension, in closed form, compared with
lower bounds for unbiased reports at ε; and the bytes and the time of a report.
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
    """Print one line per randomizer."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epsilon", type=float, default=8)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--sphere", type=int, metavar="DIMENSIONS")
    arguments = parser.parse_args()
    if arguments.sphere:
        print_sphere(arguments.sphere, arguments.epsilon)
    else:
        print_classes(arguments.epsilon, arguments.rounds)


def print_sphere(dim: int, epsilon: float, people: int = 200) -> None:
    """Print the error of one report, as a share of the squared length, and its cost."""
    points = np.random.default_rng(0).standard_normal((people, dim))
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    for name in BALL:
        randomizer = randomizers.make(name, dim=dim, radius=1.0, epsilon=epsilon)
        randomizer.report(points[:1], Entropy())
        started = time.perf_counter()
        randomizer.report(points, Entropy())
        milliseconds = (time.perf_counter() - started) * 1e3 / people
        error, size = randomizer.expected_squared_error(), randomizer.payload_size
        print(f"{name:<15} error {error:8.4g}, {size} bytes, {milliseconds:.2f} ms per report")
    print(f"{'least, unbiased':<15} error {sphere_mean_error(dim, epsilon):8.4g} on the sphere")
    bound = least_mean_error(np.ones(dim), epsilon)
    print(f"{'least, unbiased':<15} error {bound:8.4g} at least, for any law with this covariance")


def print_classes(epsilon: float, rounds: int) -> None:
    """Print errors of class means."""
    data = load_cifar10_features()
    labels = data.labels.tolist()
    classes = sorted(set(labels))

    def by_class(rows: np.ndarray) -> np.ndarray:
        return np.stack([rows[data.labels == k].mean(axis=0) for k in classes])

    truth = by_class(data.vectors)

    def error(estimates: np.ndarray) -> float:
        lengths = np.linalg.norm(truth, axis=1)
        return float((np.linalg.norm(estimates - truth, axis=1) / lengths).mean())

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
        line = f"{name:<15} long run {error(total / rounds):6.1%}"
        reports = release.privatize(data.vectors)
        if not release.supports_mean:
            means = by_class(release.decode(reports))
            print(f"{line}, one round {error(means):6.1%} (means not supported)")
            continue
        result = release.aggregate(reports, groups=labels)
        estimates = np.stack([result.of(k).estimate for k in classes])
        intervals = [result.of(k).interval(0.95) for k in classes]
        pairs = zip(intervals, truth, strict=True)
        covered = np.mean([(low <= mean) & (mean <= high) for (low, high), mean in pairs])
        clipped = clipping_bias(release, data.vectors)
        bias = np.linalg.norm(clipped.bias) / np.linalg.norm(data.vectors.mean(axis=0))
        print(
            f"{line}, one round {error(estimates):6.1%}, 95 % intervals cover {covered:.1%}, "
            f"clipping {bias:.1%} ({clipped.share:.1%} of the vectors)"
        )


if __name__ == "__main__":
    main()
