"""The published setting on the bundled features: the gain by reshaping at one budget.

    python -m benchmarks.published_setting [--seeds 20] [--epsilon 7.5]

Settings as published: radius at the 90th percentile, lambda_max 1000, order 1. Real reports are
drawn fewer times (--exact-seeds 3), because those of PrivUnit take long. For all images, at all
budgets, run ``python -m experiments run main-mlp``.
"""

from __future__ import annotations

import argparse

import offaxis
from experiments.data import load_cifar10_features
from offaxis.evaluation import evaluate


def main() -> None:
    """Print the accuracy of plain and reshaped releases, simulated and with real reports."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--exact-seeds", type=int, default=3, help="repetitions with real reports")
    parser.add_argument("--epsilon", type=float, default=7.5)
    arguments = parser.parse_args()
    data = load_cifar10_features()
    head, public, vectors, labels = data.head, data.public, data.vectors, data.labels
    print(
        f"{len(public):,} public vectors, {len(vectors):,} test vectors, {arguments.seeds} seeds "
        f"({arguments.exact_seeds} with real reports)"
    )
    for name in ("laplace", "gaussian", "privunit2", "privunitg-sphere"):
        delta = 1e-5 if name == "gaussian" else None
        for label, settings in (
            ("plain", {"reshaping": "none"}),
            ("centred", {"reshaping": "centre"}),
            ("reshaped, order 1 (published)", {"reshaping": offaxis.Jacobian(order=1)}),
            ("reshaped, matched order", {}),
        ):
            release = offaxis.fit(
                head, public, epsilon=arguments.epsilon, mechanism=name, delta=delta, **settings
            )
            for exact in (False, True):
                seeds = arguments.exact_seeds if exact else arguments.seeds
                result = evaluate(release, head, vectors, labels, seeds=seeds, exact=exact)
                kind = "exact reports" if exact else "simulated"
                print(
                    f"{name:<17} {label:<30} {kind:<14} accuracy {result.mean('accuracy'):.4f} "
                    f"± {result.std('accuracy'):.4f}  (clean {result.clean['accuracy']:.4f})"
                )


if __name__ == "__main__":
    main()
