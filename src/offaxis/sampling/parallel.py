"""Seeded simulation over all cores, with results that do not depend on how many there are."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import numpy as np
from threadpoolctl import ThreadpoolController

from offaxis.vectors import Vectors

_CHUNK_NUMBERS = 1 << 16
"""A chunk holds about this many numbers (512 KiB), so that its work stays in the cache."""

_turn = threading.Lock()
"""One simulation at a time: each uses every core and sets BLAS's thread count meanwhile."""

_threadpools = cache(ThreadpoolController)


def simulate_in_chunks(
    simulate: Callable[[Vectors, np.random.Generator], Vectors],
    Z: Vectors,
    rng: np.random.Generator,
    output_dim: int,
) -> Vectors:
    """Apply ``simulate`` to row chunks of Z on all cores, each with a child generator of ``rng``.

    The chunks and their generators depend on the shape of Z and the state of ``rng`` alone.
    """
    rows = max(1, _CHUNK_NUMBERS // max(Z.shape[1], output_dim))
    starts = range(0, len(Z), rows)
    seeds = np.random.SeedSequence(rng.integers(0, 1 << 63, size=4).tolist()).spawn(len(starts))
    out = np.empty((len(Z), output_dim))

    def run(job: tuple[int, np.random.SeedSequence]) -> None:
        start, seed = job
        child = np.random.Generator(np.random.SFC64(seed))
        out[start : start + rows] = simulate(Z[start : start + rows], child)

    jobs = list(zip(starts, seeds, strict=True))
    workers = min(len(jobs), os.cpu_count() or 1)
    if workers == 1:
        for job in jobs:
            run(job)
    else:
        # Chunks run in parallel, so each matrix product must stay on its own core.
        with (
            _turn,
            _threadpools().limit(limits=1, user_api="blas"),
            ThreadPoolExecutor(workers) as pool,
        ):
            list(pool.map(run, jobs))
    return out
