"""Speed of the experiments: the whole main table, compared with one vector at a time.

    python -m benchmarks.studies [--seeds 20] [--out FILE]

Runs on the bundled slice with every vector twice, which gives 10,000 as in the paper. Fitting is
part of the time. One vector at a time is a plain loop that encodes, randomizes, decodes and calls
the model for each vector, seed and budget; it is timed on 300 vectors and one budget per mechanism.
The scores of two seeds are computed again without fusing, by decoding every observation in float64,
and must be equal.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.harness import publish
from experiments import engine
from experiments.catalogue import study
from experiments.data import load_cifar10_features
from experiments.sources import PublicTask, Setting
from experiments.without_guarantee import Unprotected
from offaxis.evaluation import BUDGETS
from offaxis.simulation import simulate

VECTORS = 10_000
ONE_BY_ONE = 300


def source() -> Setting:
    """Return the setting of the main table, on 10,000 vectors."""
    data = load_cifar10_features()
    index = np.arange(VECTORS) % len(data.vectors)
    sample = data.vectors[index], data.labels[index]
    return Setting("benchmark", PublicTask(data.head, data.public), lambda seed: sample)


def one_by_one(setting: Setting, rows: list[engine.Row]) -> float:
    """Return the seconds per vector, seed and budget of a plain loop, over all mechanisms."""
    vectors = setting.sample(0).vectors[:ONE_BY_ONE]
    rng, spent, count = np.random.default_rng(0), 0.0, 0
    for row in rows:
        for fitted in row.method.make(setting, [5.0]).values():
            run = fitted.simulate if isinstance(fitted, Unprotected) else partial(simulate, fitted)
            start = time.perf_counter()
            for vector in vectors:
                setting.task.outputs(run(vector[None], rng)).argmax()
            spent += time.perf_counter() - start
            count += len(vectors)
    return spent / count


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--out", help="also write the figures as JSON")
    arguments = parser.parse_args()
    rows = list(study("main-mlp-ours").rows)
    setting = source()
    with tempfile.TemporaryDirectory() as folder:
        clock, cpu = time.perf_counter(), time.process_time()
        outcomes = engine.run(
            rows, Path(folder), seeds=arguments.seeds, opener=lambda name: setting
        )
        whole, busy = time.perf_counter() - clock, time.process_time() - cpu
        clock = time.perf_counter()
        engine.run(rows, Path(folder), seeds=arguments.seeds, opener=lambda name: setting)
        resumed = time.perf_counter() - clock
    few = min(2, arguments.seeds)
    different = 0
    for row in rows:
        unfused = engine.measure_row(setting, row.method, [1.0, 7.5], seeds=few, fused=False)
        assert unfused is not None
        fused = {o.epsilon: o.runs[:few] for o in outcomes if o.row == row}
        different += sum(fused[epsilon] != runs for epsilon, runs in unfused.items())
    reporting = sum(row.method.reports for row in rows)
    evaluated = reporting * len(BUDGETS) * arguments.seeds * VECTORS
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
            {"what": "  CPU time", "value": busy, "unit": "s"},
            {"what": "  vectors evaluated", "value": evaluated / whole, "unit": "/s"},
            {"what": "  a second run, from finished cells", "value": resumed, "unit": "s"},
            {
                "what": "cells whose scores differ from decoding in float64",
                "value": different,
                "unit": "cells",
                "target": "0",
                "met": different == 0,
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
