"""Threads that parse at once, with and without what tests/parsing.py does about it."""

from __future__ import annotations

import subprocess
import sys

import pytest

# Garbage is collected all the time, and every collection lets another thread in.
_AT_ONCE = """
import ast, gc, sys, threading
from tests import parsing

if sys.argv[1] == "mended":
    parsing.one_at_a_time()
gc.callbacks.append(lambda *_: sum(range(50)))
gc.set_threshold(20)
sys.setswitchinterval(1e-6)
failures = []

def parse(depth):
    return ast.parse("x = [1, 2, (3, {'a': 4})]\\n" * 20) if depth == 0 else parse(depth - 1)

def work(depth):
    for _ in range(300):
        try:
            parse(depth)
        except SystemError as error:
            failures.append(str(error))

threads = [threading.Thread(target=work, args=(depth,)) for depth in (2, 30)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(len(failures), set(failures))
"""


def failures(how: str) -> int:
    found = subprocess.run(
        [sys.executable, "-c", _AT_ONCE, how], capture_output=True, text=True, check=True
    )
    return int(found.stdout.split()[0])


def test_threads_parse_one_after_the_other():
    assert failures("mended") == 0


@pytest.mark.skipif(sys.version_info[:3] > (3, 11, 7), reason="this Python does not have the fault")
def test_threads_that_parse_at_once_fail():
    assert failures("as it is") > 0
