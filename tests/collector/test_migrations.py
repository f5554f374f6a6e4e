"""Migrations create the tables that the code defines, on both databases."""

from __future__ import annotations

import numpy as np
import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import DateTime, bindparam, inspect, text

from offaxis.collector.database import (
    _alembic,
    connect,
    is_current,
    metadata,
    migrate,
    open_database,
    writing,
)
from offaxis.collector.means import Follower, Totals, means_facts
from offaxis.collector.store import Store
from offaxis.errors import InvalidInput
from offaxis.formats.release_file import to_bytes
from tests.collector.running import START, make_round, new_id


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_migrations_create_the_tables(new_database, kind):
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
def test_other_databases_are_rejected(url):
    with pytest.raises(InvalidInput):
        connect(url)


_OLD = {
    "release": "(hash, content, signature, published_at) VALUES (:hash, :content, :sign, :at)",
    "round": "(id, name, document, signature, release, base, withdrawn, deleted_at) "
    "VALUES (:id, :name, :document, :sign, :hash, 0, 0, :gone)",
    "report": "(round, id, label, content) VALUES (:round, :id, 'a', :content)",
    "moments": "(round, upto, state) VALUES (:round, :upto, :state)",
}


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_content_of_0001_survives_0002(new_database, kind, for_means, some_reports):
    """Reports stay; means are recomputed from existing reports, and kept if they are deleted."""
    engine = connect(new_database(kind))
    old = Totals()
    old.add(for_means, [(report, "a") for report in some_reports[:7]])
    document = make_round(for_means, "old", groups=("a",)).to_bytes()
    deleted = make_round(for_means, "gone", groups=("a",)).to_bytes()
    facts = {"hash": for_means.hash, "sign": bytes(64), "content": to_bytes(for_means), "at": START}
    rows = [
        ("release", facts),
        ("round", facts | {"id": 1, "name": "old", "document": document, "gone": None}),
        ("round", facts | {"id": 2, "name": "gone", "document": deleted, "gone": START}),
        *(("report", {"round": 1, "id": new_id(), "content": each}) for each in some_reports[:9]),
        ("moments", {"round": 1, "upto": 7, "state": old.to_bytes()}),
        ("moments", {"round": 2, "upto": 0, "state": old.to_bytes()}),
    ]
    with writing(engine) as connection:
        command.upgrade(_alembic(connection), "0001")
        for table, values in rows:
            insert = text(f"INSERT INTO {table} {_OLD[table]}")
            # Typed as times: Python 3.12 deprecates sqlite3's default adapter for them.
            times = [bindparam(name, type_=DateTime(timezone=True)) for name in ("at", "gone")]
            used = [time for time in times if f":{time.key}" in _OLD[table]]
            connection.execute(insert.bindparams(*used), values)
    assert not is_current(engine)
    migrate(engine)
    assert is_current(engine)
    store = Store(engine)
    assert store.release_file(for_means.hash) == (to_bytes(for_means), bytes(64))
    assert store.attached(for_means.hash, "curve") is None
    assert store.kinds_attached(for_means.hash, ("curve", "audit")) == []
    assert store.count(1) == 9
    assert store.final_count(2) is None  # its rows may be gone
    for key, count in ((1, 9), (2, 7)):
        facts = means_facts("r", for_means, Follower(engine).follow(key, for_means))
        assert facts["reports"] == count
        expected = for_means.decode_mean(some_reports[:count])
        np.testing.assert_allclose(facts["means"][1]["mean"], expected, rtol=1e-9)
    assert (store.count(1), store.count(2)) == (9, 0)
    with writing(engine) as connection:
        command.downgrade(_alembic(connection), "0001")
    columns = {column["name"] for column in inspect(engine).get_columns("release")}
    assert columns == {"hash", "content", "signature", "profile", "published_at"}
    engine.dispose()
