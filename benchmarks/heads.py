"""How much ReLU heads differ that the same recipe trains from other starts.

    python -m benchmarks.heads [--encoder 0] [--heads 16]

Trains heads of the reference recipe on the features of an encoder, from starts that the bundled
heads do not have. Prints for each the accuracy without privacy and at ε = 7.5 as published, on
brightness 5. About 15 s per head on one core. Needs torch and the cached features
(``python -m experiments.features``).
"""

from __future__ import annotations

import argparse
from dataclasses import replace

import numpy as np
import torch

from experiments.engine import measure_row
from experiments.features import load_features
from experiments.methods import METHODS
from experiments.models import heads
from experiments.models.weights import CIFAR_ENCODERS
from experiments.reference_protocol import JACOBIANS
from experiments.sources import PublicTask, Setting

EPSILON = 7.5
ROWS = ("No randomization", "Laplace+PA", "PrivUnit2", "PrivUnit2+PA")
FIRST_SEED = 100


def main() -> None:
    """Print one line per head, then the mean and the range."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--encoder", type=int, default=0, choices=range(len(CIFAR_ENCODERS)))
    parser.add_argument("--heads", type=int, default=16)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    network = CIFAR_ENCODERS[arguments.encoder]
    parts = {p: load_features("cifar10", part=p, network=network) for p in heads.PUBLIC}
    vectors = {part: features.vectors for part, features in parts.items()}
    labels = {part: features.labels for part, features in parts.items()}
    bright = load_features("cifar10-c", corruption="brightness", severity=5, network=network)
    print(f"| start | {' | '.join(ROWS)} |\n|---|{'---:|' * len(ROWS)}")
    table = []
    for seed in range(FIRST_SEED, FIRST_SEED + arguments.heads):
        head, _ = heads.train_head("relu", vectors, labels, heads.HeadRecipe.reference(seed))
        task = heads.as_layers(head, "relu", f"start {seed}")
        side = PublicTask(task, vectors["train"], jacobians=JACOBIANS)
        setting = Setting("heads", side, lambda seed: (bright.vectors, bright.labels))
        scores = []
        for label in ROWS:
            method = replace(METHODS[label], protocol="published")
            runs = measure_row(setting, method, [EPSILON], seeds=4)
            assert runs is not None
            scores.append(float(np.mean(runs[EPSILON])))
        table.append(scores)
        print(f"| {seed} | {' | '.join(f'{score:.4f}' for score in scores)} |", flush=True)
    for name, summary in (("mean", np.mean), ("least", np.min), ("largest", np.max)):
        print(f"| {name} | {' | '.join(f'{score:.4f}' for score in summary(table, axis=0))} |")


if __name__ == "__main__":
    main()
