"""Peak memory of fresh processes that take in more and more vectors or reports.

    python -m benchmarks.groups.memory Gram 100000

prints the peak in MiB.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from itertools import chain, repeat
from pathlib import Path

import numpy as np

from benchmarks.groups import task
from benchmarks.harness import Effort, Growth
from offaxis.geometry import PublicVectors
from offaxis.geometry import measure as measure_geometry

_BLOCK = 5_000
_TASKS = ("Gram", "means")


def measure(effort: Effort) -> Iterator[Growth]:
    """Watch the peak over ten and a hundred times as many vectors; it should not grow."""
    counts = [10_000]
    while counts[-1] < effort.streamed:
        counts.append(10 * counts[-1])
    for name in _TASKS:
        peaks = [_of_fresh_process(name, count) for count in counts]
        yield Growth(f"peak memory, {name}", "N", "MiB", counts, peaks, 0)


def _of_fresh_process(name: str, count: int) -> float:
    command = [sys.executable, "-m", "benchmarks.groups.memory", name, str(count)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(done.stdout)


def take_in(name: str, count: int) -> None:
    """Stream so many vectors into a Gram, or so many reports into means."""
    blocks = count // _BLOCK
    if name == "Gram":
        block = np.ascontiguousarray(task.data().public[:_BLOCK])
        measure_geometry(task.data().head, PublicVectors(lambda: repeat(block, blocks)))
    else:
        release = task.release("laplace")
        made = release.privatize(task.many(_BLOCK))
        assert isinstance(made, list)
        release.decode_mean(chain.from_iterable(repeat(made, blocks)))


def peak_mebibytes() -> float:
    """Return the most memory this process has held so far."""
    status = Path("/proc/self/status")
    if status.exists():
        # getrusage counts the parent's pages too, from before this program was started.
        line = next(line for line in status.read_text().splitlines() if "VmHWM" in line)
        return int(line.split()[1]) / 1024
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1024**2 if sys.platform == "darwin" else 1024)


if __name__ == "__main__":
    take_in(sys.argv[1], int(sys.argv[2]))
    sys.stdout.write(f"{peak_mebibytes()}\n")
