from __future__ import annotations

import subprocess
import sys

from benchmarks.groups import memory
from benchmarks.harness import Effort

HOARDER = """
import numpy as np
from benchmarks.groups import memory, task
hoard = np.concatenate([task.data().public[:5000]] * 40)
print(memory.peak_mebibytes())
"""


def test_a_stream_takes_the_memory_of_a_block_and_a_hoard_does_not() -> None:
    effort = Effort("test", seconds=0, rounds=1, doublings=1, streamed=100_000)
    gram = next(memory.measure(effort))
    assert gram.sizes == [10_000, 100_000]
    assert gram.ratios()["growth: peak memory, Gram with N"] > 0.95
    done = subprocess.run(
        [sys.executable, "-c", HOARDER], check=True, capture_output=True, text=True
    )
    # Two hundred thousand vectors of 64 numbers are 98 MiB, and the peak sees them.
    assert float(done.stdout) > 98 + 20
