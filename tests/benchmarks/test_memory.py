from __future__ import annotations

import subprocess
import sys

from benchmarks.groups import memory
from benchmarks.harness import Effort

KEEPS_ALL = """
import numpy as np
from benchmarks.groups import task
from benchmarks.harness import peak_mebibytes
kept = np.concatenate([task.data().public[:5000]] * 40)
print(peak_mebibytes())
"""


def test_streaming_takes_the_memory_of_one_block_and_keeping_all_vectors_takes_more() -> None:
    effort = Effort("test", seconds=0, rounds=1, doublings=1, streamed=100_000)
    gram = next(memory.measure(effort))
    assert gram.sizes == [10_000, 100_000]
    assert gram.ratios()["growth: peak memory, Gram with N"] > 0.95
    done = subprocess.run(
        [sys.executable, "-c", KEEPS_ALL], check=True, capture_output=True, text=True
    )
    # Two hundred thousand vectors of 64 numbers take 98 MiB, which the peak must include.
    assert float(done.stdout) > 98 + 20
