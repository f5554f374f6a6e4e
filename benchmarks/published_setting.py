"""The published setting on a file of features: what reshaping brings at one budget.

    python benchmarks/published_setting.py [FEATURES.npz] [--seeds 20] [--epsilon 7.5]

FEATURES.npz holds z_train, z_test_brightness5, y_test and an MLP head mlp_relu_w1 … b3 (ResNet-20
features of CIFAR-10 and CIFAR-10-C). Without a file the bundled slice is used. Settings as
published: radius at the 90th percentile, lambda_max 1000, gauge 1. Real reports are drawn fewer
times (--exact-seeds 3), because PrivUnit's take long.
"""

from __future__ import annotations

import argparse

import numpy as np

import offaxis
from offaxis.data import load_cifar10_features
from offaxis.evaluation import evaluate
from offaxis.geometry import Layers


def main() -> None:
    """Print accuracies, plain and reshaped, and of exact reports."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("features", nargs="?")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--exact-seeds", type=int, default=3, help="repetitions with real reports")
    parser.add_argument("--epsilon", type=float, default=7.5)
    arguments = parser.parse_args()
    if arguments.features:
        file = np.load(arguments.features)
        head = Layers(
            [file[f"mlp_relu_w{i}"] for i in (1, 2, 3)], [file[f"mlp_relu_b{i}"] for i in (1, 2, 3)]
        )
        public, vectors, labels = (file[key] for key in ("z_train", "z_test_brightness5", "y_test"))
    else:
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
            ("reshaped, gauge 1 (published)", {"gauge": 1}),
            ("reshaped, matched gauge", {}),
        ):
            release = offaxis.fit(
                head, public, epsilon=arguments.epsilon, randomizer=name, delta=delta, **settings
            )
            for exact in (False, True):
                seeds = arguments.exact_seeds if exact else arguments.seeds
                result = evaluate(release, head, vectors, labels, seeds=seeds, exact=exact)
                face = "exact reports" if exact else "simulated"
                print(
                    f"{name:<17} {label:<30} {face:<14} accuracy {result.mean('accuracy'):.4f} "
                    f"± {result.std('accuracy'):.4f}  (clean {result.clean['accuracy']:.4f})"
                )


if __name__ == "__main__":
    main()
