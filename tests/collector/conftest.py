"""Databases and collectors, started once per session."""

from __future__ import annotations

import itertools

import psycopg
import pytest

import offaxis
from tests.collector.cli_facts import cli_facts
from tests.collector.running import running

_numbers = itertools.count()


@pytest.fixture(scope="session")
def new_database(request, tmp_path_factory):
    """Return a function that creates a database, "sqlite" or "postgresql", and returns its URL."""

    def make(kind: str) -> str:
        name = f"collector{next(_numbers)}"
        if kind == "sqlite":
            return f"sqlite:///{tmp_path_factory.mktemp(name)}/collector.db"
        # Started on first use.
        postgres = request.getfixturevalue("postgres")
        with psycopg.connect(postgres.get_uri(), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return postgres.get_uri(database=name)

    return make


@pytest.fixture(scope="session", params=["sqlite", "postgresql"])
def server(request, new_database):
    """A collector on each database, shared by tests that use separate rounds."""
    with running(new_database(request.param), reader_rate=1e6) as server:
        yield server


@pytest.fixture(scope="session")
def for_means(public) -> offaxis.Release:
    return offaxis.fit(None, public, epsilon=3, reshaping="none", mechanism="laplace")


@pytest.fixture(scope="session")
def some_reports(for_means, public) -> list[bytes]:
    return for_means.privatize(public)


@pytest.fixture(scope="session")
def printed(tmp_path_factory, for_means, head, public) -> dict[str, bytes]:
    """A curve and an audit as the command line prints them."""
    return cli_facts(tmp_path_factory.mktemp("printed"), for_means, head, public)
