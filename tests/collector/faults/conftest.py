"""Forked collectors, and reports to send to them."""

from __future__ import annotations

import os
from contextlib import ExitStack

import pytest

from tests.collector.faults.processes import Collector, Forks


@pytest.fixture(scope="session")
def forks():
    server = Forks()
    yield server
    server.close()


@pytest.fixture
def start(forks):
    """Return a function that starts a collector on a database; it is killed after the test."""
    with ExitStack() as running:

        def start_collector(url: str, broken: str = "") -> Collector:
            collector = Collector(lambda url, port: forks.start(url, port, broken), url)
            running.callback(collector.close)
            collector.wait_until_ready()
            return collector

        yield start_collector


@pytest.fixture
def many(some_reports):
    """Return a function that returns this many reports under new ids."""

    def pairs(count: int) -> list[tuple[bytes, bytes]]:
        return [(os.urandom(32), some_reports[i % len(some_reports)]) for i in range(count)]

    return pairs
