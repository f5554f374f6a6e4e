"""Python 3.11 may fail when two threads parse at once; here they parse one after the other.

Its parser counts the depth of a tree in a place that all threads share, and a collection of garbage
in the middle of a tree lets another thread in: python/cpython#106905. NumPy parses the header of
every array that it loads, and torch its own source, so a test and a server beside it may meet.
"""

from __future__ import annotations

import ast
import gc
import sys
import threading
from typing import Any

_parse = ast.parse
_lock = threading.RLock()


def parse_alone(*source: Any, **options: Any) -> ast.AST:
    """Parse while no other thread does, and no garbage is collected."""
    with _lock:
        collects = gc.isenabled()
        gc.disable()
        try:
            return _parse(*source, **options)
        finally:
            if collects:
                gc.enable()


def one_at_a_time() -> None:
    """Let everything in this process parse so."""
    if sys.version_info < (3, 12):
        ast.parse = parse_alone
