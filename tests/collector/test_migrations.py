"""Migrations make the tables that the code knows, on both databases."""

from __future__ import annotations

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import inspect

from offaxis.collector.database import connect, is_current, migrate, open_database
from offaxis.collector.tables import metadata
from offaxis.errors import InvalidInput


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_migrations_make_the_tables(new_database, kind):
    url = new_database(kind)
    empty = connect(url)
    assert not is_current(empty)
    empty.dispose()
    engine = open_database(url)
    migrate(engine)
    assert is_current(engine)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_server_default": True})
        assert compare_metadata(context, metadata) == []
    assert set(inspect(engine).get_table_names()) == {*metadata.tables, "alembic_version"}
    engine.dispose()


@pytest.mark.parametrize("url", ["", "mysql://x/y", "sqlite://", "no url at all"])
def test_other_databases_are_refused(url):
    with pytest.raises(InvalidInput):
        connect(url)
