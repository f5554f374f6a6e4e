"""The ablations, percentiles, caps and scaled decoders on the bundled features.

    python -m benchmarks.ablations [--seeds 20] [--epsilon 7.5]

The tables are those of docs/ablations.md. Settings as published: radius at the 90th percentile,
lambda_max 1000, gauge 1, unless varied.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from dataclasses import replace

from experiments.ablations import ABLATIONS, LAMBDA_MAXES, PERCENTILES, ablate, compare
from experiments.data import load_cifar10_features
from experiments.data.features import DemoData
from offaxis.decoding import LinearDecoder
from offaxis.evaluation import Evaluation, evaluate, sweep
from offaxis.geometry import PublicVectors, measure

RANDOMIZERS = ("laplace", "gaussian", "privunit2", "privunitg-sphere")
FACTORS = (0.01, 0.03, 0.1, 0.3, 1.0)


def _line(label: object, results: Iterable[Evaluation]) -> None:
    cells = [f"{r.mean('accuracy'):.4f} ± {r.std('accuracy'):.4f}" for r in results]
    print(f"| {label} | {' | '.join(cells)} |")


def _head(label: str) -> None:
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
    _head("ablation")
    for ablation in ABLATIONS:
        _line(ablation, [tables[name][ablation] for name in RANDOMIZERS])
    for label, varied in (
        ("percentile", {"percentiles": PERCENTILES}),
        ("lambda_max", {"lambda_maxes": LAMBDA_MAXES}),
    ):
        rows = sweep(
            *task,
            randomizers=RANDOMIZERS,
            epsilons=[arguments.epsilon],
            shapes=["jacobian"],
            seeds=arguments.seeds,
            gauge=1,
            **varied,
        )
        _head(label)
        for value in next(iter(varied.values())):
            _line(f"{value:g}", [r.evaluation for r in rows if getattr(r, label) == value])
    _scaled(data, arguments.epsilon, arguments.seeds)


def _scaled(data: DemoData, epsilon: float, seeds: int) -> None:
    """Print what the two decoders give when their matrix is multiplied by a factor."""
    geometry = measure(data.head, PublicVectors(data.public))
    _head("decoder × factor")
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
            _line(f"{name} × {factor:g}", results)


if __name__ == "__main__":
    main()
