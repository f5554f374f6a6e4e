"""How fast studies are: the whole main table, and the ratio to evaluating one vector at a time.

    python -m benchmarks.studies [--seeds 20] [--out FILE]

On the bundled slice, each of its vectors twice, so that there are 10,000 as in the paper. Fitting
is part of the time. One vector at a time is what a plain loop does: encode, randomize, decode, ask
the model, for each vector, seed and budget; it is timed on 300 vectors and one budget a mechanism.
The scores of two seeds are computed again without fusing, by decoding every observation in float64,
and must be equal.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.harness import publish
from experiments import engine
from experiments.catalogue import study
from experiments.data import load_cifar10_features
from experiments.sources import PublicTask, Setting
from offaxis.evaluation import BUDGETS
from offaxis.simulation import simulate

VECTORS = 10_000
ONE_BY_ONE = 300


def source() -> Setting:
    """Return the setting of the main table, on 10,000 vectors."""
    data = load_cifar10_features()
    place = np.arange(VECTORS) % len(data.vectors)
    sample = data.vectors[place], data.labels[place]
    return Setting("benchmark", PublicTask(data.head, data.public), lambda seed: sample)


def one_by_one(setting: Setting, rows: list[engine.Row]) -> float:
    """Return seconds a vector, seed and budget of a plain loop, over all mechanisms."""
    vectors = setting.sample(0).vectors[:ONE_BY_ONE]
    rng, spent, count = np.random.default_rng(0), 0.0, 0
    for row in rows:
        for release in row.mechanism.make(setting, [5.0]).values():
            start = time.perf_counter()
            for vector in vectors:
                setting.task.outputs(simulate(release, vector[None], rng)).argmax()
            spent += time.perf_counter() - start
            count += len(vectors)
    return spent / count


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--out", help="also write the figures as JSON")
    arguments = parser.parse_args()
    rows = list(study("main-mlp").rows)
    setting = source()
    with tempfile.TemporaryDirectory() as folder:
        clock, cpu = time.perf_counter(), time.process_time()
        outcomes = engine.run(
            rows, Path(folder), seeds=arguments.seeds, opener=lambda name: setting
        )
        whole, busy = time.perf_counter() - clock, time.process_time() - cpu
        clock = time.perf_counter()
        engine.run(rows, Path(folder), seeds=arguments.seeds, opener=lambda name: setting)
        again = time.perf_counter() - clock
    few = min(2, arguments.seeds)
    differ = 0
    for row in rows:
        slow = engine.measure_row(setting, row.mechanism, [1.0, 7.5], seeds=few, fused=False)
        assert slow is not None
        quick = {o.epsilon: o.runs[:few] for o in outcomes if o.row == row}
        differ += sum(quick[epsilon] != runs for epsilon, runs in slow.items())
    evaluated = (len(rows) - 1) * len(BUDGETS) * arguments.seeds * VECTORS
    loop = one_by_one(setting, rows) * evaluated
    full = arguments.seeds >= 20
    publish(
        "studies",
        [
            {
                "what": f"main table: {len(rows)} rows, {len(BUDGETS)} budgets, "
                f"{arguments.seeds} seeds, {VECTORS:,} vectors",
                "value": whole,
                "unit": "s",
                "target": "< 60 on 2 quiet cores",
                "met": whole < 60 or not full,
            },
            {"what": "  processor time of it", "value": busy, "unit": "s"},
            {"what": "  vectors evaluated", "value": evaluated / whole, "unit": "/s"},
            {"what": "  the same again, from finished cells", "value": again, "unit": "s"},
            {
                "what": "cells whose scores differ from decoding in float64",
                "value": differ,
                "unit": "cells",
                "target": "0",
                "met": differ == 0,
            },
            {"what": "one vector at a time would take", "value": loop, "unit": "s"},
            {
                "what": "ratio to one vector at a time",
                "value": loop / whole,
                "unit": "times",
                "target": "> 20",
                "met": loop / whole > 20,
            },
        ],
        arguments.out,
    )


if __name__ == "__main__":
    main()
