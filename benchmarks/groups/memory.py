"""Peak memory of new processes that stream more and more vectors or reports.

    python -m benchmarks.groups.memory Gram 100000

prints the peak in MiB.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from itertools import chain, repeat

import numpy as np

from benchmarks.groups import task
from benchmarks.harness import Effort, Growth, peak_mebibytes
from offaxis.geometry import PublicVectors
from offaxis.geometry import measure as measure_geometry

_BLOCK = 5_000
_TASKS = ("Gram", "means")


def measure(effort: Effort) -> Iterator[Growth]:
    """Measure the peak for ten times as many vectors, repeatedly; it should not grow."""
    counts = [10_000]
    while counts[-1] < effort.streamed:
        counts.append(10 * counts[-1])
    for name in _TASKS:
        peaks = [_peak_of_process(name, count) for count in counts]
        yield Growth(f"peak memory, {name}", "N", "MiB", counts, peaks, 0)


def _peak_of_process(name: str, count: int) -> float:
    command = [sys.executable, "-m", "benchmarks.groups.memory", name, str(count)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(done.stdout)


def stream(name: str, count: int) -> None:
    """Stream this many vectors into a Gram, or this many reports into means."""
    blocks = count // _BLOCK
    if name == "Gram":
        block = np.ascontiguousarray(task.data().public[:_BLOCK])
        measure_geometry(task.data().head, PublicVectors(lambda: repeat(block, blocks)))
    else:
        release = task.release("laplace")
        reports = release.privatize(task.vectors(_BLOCK))
        assert isinstance(reports, list)
        release.decode_mean(chain.from_iterable(repeat(reports, blocks)))


if __name__ == "__main__":
    stream(sys.argv[1], int(sys.argv[2]))
    sys.stdout.write(f"{peak_mebibytes()}\n")
