"""A workaround for python/cpython#106905: let only one thread parse at a time.

Python 3.11 may fail when two threads call ``ast.parse``: the parser keeps the recursion depth in
state that all threads share, and a garbage collection during parsing lets another thread run. NumPy
parses the header of every array that it loads, and torch parses its source, so a test and a server
in the same process may collide.
"""

from __future__ import annotations

import ast
import gc
import sys
import threading
from typing import Any

_parse = ast.parse
_lock = threading.RLock()


def parse_exclusively(*source: Any, **options: Any) -> ast.AST:
    """Parse while no other thread parses, and without garbage collection."""
    with _lock:
        was_enabled = gc.isenabled()
        gc.disable()
        try:
            return _parse(*source, **options)
        finally:
            if was_enabled:
                gc.enable()


def serialize_parsing() -> None:
    """Replace ``ast.parse`` in this process, if this Python has the fault."""
    if sys.version_info < (3, 12):
        ast.parse = parse_exclusively  # type: ignore[assignment]
