"""What removing silent units changes, on validation images, which are public.

    python -m benchmarks.silent_units [--seeds 20]

A ReLU unit that no training vector activates is silent. Prints the accuracy of PrivUnit2, reshaped,
at ε = 7.5, for the bundled ReLU heads of our recipe, with and without their silent units. Needs the
features of the validation images (``python -m experiments.features``).
"""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

import numpy as np

from experiments.engine import measure_row
from experiments.features import Features, load_features
from experiments.methods import METHODS
from experiments.models import load_model
from experiments.sources import PublicTask, Setting

EPSILON = 7.5


def _sample(held: Features, seed: int) -> tuple[Any, Any]:
    return held.vectors, held.labels


def main() -> None:
    """Print one line per head."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    seeds = parser.parse_args().seeds
    print("| head | silent units | with them | without them |\n|---|---:|---:|---:|")
    for data in ("cifar10", "mnist"):
        public = load_features(data, part="train").vectors
        held = load_features(data, part="validation")
        whole = load_model(f"{data}-relu")
        scores = []
        for head in (whole, whole.without_silent_units(public)):
            side = PublicTask(head, public)
            setting = Setting(data, side, partial(_sample, held))
            runs = measure_row(setting, METHODS["PrivUnit2+PA"], [EPSILON], seeds=seeds)
            assert runs is not None
            scores.append(f"{np.mean(runs[EPSILON]):.4f} ± {np.std(runs[EPSILON]):.4f}")
        silent = int(whole.silent_units(public).sum())
        print(f"| {data}-relu | {silent} | {' | '.join(scores)} |", flush=True)


if __name__ == "__main__":
    main()
