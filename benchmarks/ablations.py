"""Accuracy of ablations, percentiles, caps and scaled decoders on the bundled features.

    python -m benchmarks.ablations [--seeds 20] [--epsilon 7.5]

Prints the tables of docs/ablations.md. Settings as published: radius at the 90th percentile,
lambda_max 1000, order 1, unless varied.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from dataclasses import replace

from experiments.ablations import ABLATIONS, LAMBDA_MAXES, PERCENTILES, ablate, compare
from experiments.data import load_cifar10_features
from experiments.data.features import DemoData
from offaxis.decoding import LinearDecoder
from offaxis.encoding import Jacobian
from offaxis.evaluation import Evaluation, evaluate, sweep
from offaxis.geometry import PublicVectors, measure

RANDOMIZERS = ("laplace", "gaussian", "privunit2", "privunitg-sphere")
FACTORS = (0.01, 0.03, 0.1, 0.3, 1.0)


def _print_row(label: object, results: Iterable[Evaluation]) -> None:
    cells = [f"{r.mean('accuracy'):.4f} ± {r.std('accuracy'):.4f}" for r in results]
    print(f"| {label} | {' | '.join(cells)} |")


def _print_header(label: str) -> None:
    print(f"\n| {label} | {' | '.join(RANDOMIZERS)} |\n|---|{'---:|' * len(RANDOMIZERS)}")


def main() -> None:
    """Print four tables of accuracies."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--epsilon", type=float, default=7.5)
    arguments = parser.parse_args()
    data = load_cifar10_features()
    task = (data.head, data.public, data.vectors, data.labels)
    tables = {
        name: compare(*task, epsilon=arguments.epsilon, mechanism=name, seeds=arguments.seeds)
        for name in RANDOMIZERS
    }
    _print_header("ablation")
    for ablation in ABLATIONS:
        _print_row(ablation, [tables[name][ablation] for name in RANDOMIZERS])
    grid = {"mechanisms": RANDOMIZERS, "epsilons": [arguments.epsilon]}
    cells = sweep(
        *task,
        seeds=arguments.seeds,
        reshapings=[Jacobian(order=1)],
        percentiles=PERCENTILES,
        **grid,
    )
    _print_header("percentile")
    for percentile in PERCENTILES:
        _print_row(
            f"{percentile:g}", [cell.evaluation for cell in cells if cell.percentile == percentile]
        )
    _print_header("lambda_max")
    for cap in LAMBDA_MAXES:
        reshaping = Jacobian(lambda_max=cap, order=1)
        cells = sweep(*task, seeds=arguments.seeds, reshapings=[reshaping], **grid)
        _print_row(f"{cap:g}", [cell.evaluation for cell in cells])
    _print_scaled(data, arguments.epsilon, arguments.seeds)


def _print_scaled(data: DemoData, epsilon: float, seeds: int) -> None:
    """Print the accuracy of the two decoders with their matrix multiplied by a factor."""
    geometry = measure(data.head, PublicVectors(data.public))
    _print_header("decoder × factor")
    for name in ("full", "rotation in post"):
        for factor in FACTORS:
            results = []
            for randomizer in RANDOMIZERS:
                delta = 1e-5 if randomizer == "gaussian" else None
                release = ablate(
                    geometry, data.public, name, epsilon=epsilon, mechanism=randomizer, delta=delta
                )
                matrix, offset = release.decoder.matrix, release.decoder.offset
                release = replace(release, decoder=LinearDecoder(factor * matrix, offset))
                results.append(evaluate(release, data.head, data.vectors, data.labels, seeds=seeds))
            _print_row(f"{name} × {factor:g}", results)


if __name__ == "__main__":
    main()
