"""Bounds on the memory and time that hostile input may take."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def bounded(*, mebibytes: float, seconds: float = 2.0) -> Iterator[None]:
    """Fail if the block allocates more memory at a time, or takes more processor time.

    All memory that Python and NumPy allocate counts, whether it is used or not.
    """
    tracemalloc.start()
    start = time.process_time()
    try:
        yield
        spent, (_, peak) = time.process_time() - start, tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak <= mebibytes * (1 << 20), f"{peak / (1 << 20):.1f} MiB"
    assert spent <= seconds, f"{spent:.2f} s"
