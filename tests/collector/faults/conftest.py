"""Collectors that are forked, and databases made ready."""

from __future__ import annotations

import os
from contextlib import ExitStack

import pytest

from tests.collector.faults.processes import Collector, Forks


@pytest.fixture(scope="session")
def forks():
    one = Forks()
    yield one
    one.close()


@pytest.fixture
def start(forks):
    """Start a collector on a database; it is killed in the end."""
    with ExitStack() as running:

        def collector(url: str, twin: str = "") -> Collector:
            one = Collector(lambda url, port: forks.start(url, port, twin), url)
            running.callback(one.close)
            one.ready()
            return one

        yield collector


@pytest.fixture
def many(some_reports):
    """Return so many reports under ids of their own."""

    def pairs(count: int) -> list[tuple[bytes, bytes]]:
        return [(os.urandom(32), some_reports[at % len(some_reports)]) for at in range(count)]

    return pairs
