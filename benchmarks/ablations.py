"""The ablations, the percentiles and the caps on the bundled features: docs/ablations.md's tables.

    python benchmarks/ablations.py [--seeds 20] [--epsilon 7.5]

Settings as published: radius at the 90th percentile, lambda_max 1000, gauge 1, unless varied.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable

from offaxis.data import load_cifar10_features
from offaxis.evaluation import Evaluation, sweep
from offaxis.studies.ablations import ABLATIONS, LAMBDA_MAXES, PERCENTILES, compare

RANDOMIZERS = ("laplace", "gaussian", "privunit2", "privunitg-sphere")


def _line(label: object, results: Iterable[Evaluation]) -> None:
    cells = [f"{r.mean('accuracy'):.4f} ± {r.std('accuracy'):.4f}" for r in results]
    print(f"| {label} | {' | '.join(cells)} |")


def _head(label: str) -> None:
    print(f"\n| {label} | {' | '.join(RANDOMIZERS)} |\n|---|{'---:|' * len(RANDOMIZERS)}")


def main() -> None:
    """Print three tables of accuracies."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--epsilon", type=float, default=7.5)
    arguments = parser.parse_args()
    data = load_cifar10_features()
    task = (data.head, data.public, data.vectors, data.labels)
    tables = {
        name: compare(*task, epsilon=arguments.epsilon, randomizer=name, seeds=arguments.seeds)
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


if __name__ == "__main__":
    main()
