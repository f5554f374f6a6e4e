"""Bounds on what hostile input may cost."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def bounded(*, mebibytes: float, seconds: float = 2.0) -> Iterator[None]:
    """Fail if the block asks for more memory at a time, or takes more processor time.

    What Python and NumPy ask for counts, whether they touch it or not.
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
