"""Threads that parse at the same time, with and without the workaround of tests/parsing.py."""

from __future__ import annotations

import subprocess
import sys

import pytest

# Garbage is collected constantly, and every collection lets another thread run.
_SCRIPT = """
import ast, gc, sys, threading
from tests import parsing

if sys.argv[1] == "fixed":
    parsing.serialize_parsing()
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


def count_failures(variant: str) -> int:
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT, variant], capture_output=True, text=True, check=True
    )
    return int(done.stdout.split()[0])


def test_threads_parse_with_the_workaround():
    assert count_failures("fixed") == 0


@pytest.mark.skipif(sys.version_info[:3] > (3, 11, 7), reason="this Python does not have the fault")
def test_threads_fail_without_the_workaround():
    assert count_failures("unchanged") > 0
