"""The collector's tables, and opening its database: a SQLite file, or PostgreSQL by URL.

Nothing beyond these tables is kept: no addresses, and no times of single reports.

Contract: what :func:`writing` commits is on the disk when it returns, and survives a killed process
or a lost machine as far as the disk keeps what it acknowledged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.resources import files
from typing import Any, Final

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    DateTime,
    Engine,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    create_engine,
    event,
    make_url,
)
from sqlalchemy.exc import ArgumentError

from offaxis.errors import InvalidInput

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

_number = BigInteger().with_variant(Integer, "sqlite")
"""Auto-incremented in both databases."""

release = Table(
    "release",
    metadata,
    Column("hash", String(64), primary_key=True),
    Column("content", LargeBinary, nullable=False),
    Column("signature", LargeBinary, nullable=False),
    Column("profile", Text),
    Column("published_at", DateTime(timezone=True), nullable=False),
    Column("curve", Text),
    Column("audit", Text),
)

round_ = Table(
    "round",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", String(63), nullable=False, unique=True),
    Column("document", LargeBinary, nullable=False),
    Column("signature", LargeBinary, nullable=False),
    Column("release", ForeignKey("release.hash"), nullable=False),
    # Every report of the round has a larger seq, so reading can start here.
    Column("base", _number, nullable=False),
    # Number of withdrawals: moments read before a withdrawal are not stored after it.
    Column("withdrawn", Integer, nullable=False),
    Column("closed_at", DateTime(timezone=True)),
    # Marked: the moments are final, and no report is read for them any more.
    Column("deleted_at", DateTime(timezone=True)),
    # Rows may be missing; until then the population of a marked round can be estimated.
    Column("emptied_at", DateTime(timezone=True)),
)

report = Table(
    "report",
    metadata,
    Column("seq", _number, primary_key=True),
    Column("round", ForeignKey("round.id"), nullable=False),
    Column("id", LargeBinary(32), nullable=False),
    Column("label", String(100)),
    Column("content", LargeBinary),
    Index("uq_report_round_id", "round", "id", unique=True),
    # A seq is never reused: the marks of the moments rely on it.
    sqlite_autoincrement=True,
)

moments = Table(
    "moments",
    metadata,
    Column("round", ForeignKey("round.id"), primary_key=True),
    Column("upto", _number, nullable=False),
    Column("state", LargeBinary, nullable=False),
    # Reports up to the mark that were not withdrawn; null if they were deleted before this column.
    Column("counted", Integer),
)

support = Table(
    "support",
    metadata,
    Column("release", ForeignKey("release.hash"), primary_key=True),
    Column("hash", String(64), nullable=False),
    Column("content", LargeBinary, nullable=False),
)

question = Table(
    "question",
    metadata,
    Column("release", ForeignKey("release.hash"), primary_key=True),
    Column("name", String(63), primary_key=True),
    Column("content", LargeBinary, nullable=False),
    # Of the content, so that questions are listed without reading it.
    Column("hash", String(64), nullable=False),
    Column("outputs", Integer, nullable=False),
    # JSON, or null for numbers without names.
    Column("answers", Text),
)

population = Table(
    "population",
    metadata,
    Column("round", ForeignKey("round.id"), primary_key=True),
    # Of the public vectors that were weighted; others need another fit.
    Column("support", String(64), nullable=False),
    Column("counted", Integer, nullable=False),
    Column("state", LargeBinary, nullable=False),
)

token = Table(
    "token",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", String(100), nullable=False),
    Column("role", String(10), nullable=False),
    Column("sha256", LargeBinary(32), nullable=False, unique=True),
    Column("created_at", DateTime(timezone=True), nullable=False),
    Column("revoked_at", DateTime(timezone=True)),
)


# ---- Opening

_WAIT: Final = 30.0
"""Seconds to wait for another process that is writing."""

_MIGRATION: Final = 7079
_ROUNDS: Final = 7080
"""First keys of PostgreSQL's advisory locks."""

_TIMEOUTS: Final = {
    "connect_timeout": 5,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
}
"""Detect an unresponsive PostgreSQL after seconds instead of the operating system's hours."""

_DRIVERS: Final = {
    "sqlite": "sqlite+pysqlite",
    "postgresql": "postgresql+psycopg",
    "postgres": "postgresql+psycopg",
}


def open_database(url: str) -> Engine:
    """Return an engine for ``sqlite:///FILE`` or ``postgresql://…``, with migrated tables."""
    engine = connect(url)
    migrate(engine)
    return engine


def connect(url: str, cache: int = 4) -> Engine:
    """Return an engine without checking its tables; ``cache`` is MiB per SQLite connection."""
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise InvalidInput(
            "the database must be a URL like sqlite:///collector.db or postgresql://user@host/name"
        ) from None
    backend = parsed.get_backend_name()
    if backend not in _DRIVERS:
        raise InvalidInput(f"the database must be SQLite or PostgreSQL, got {backend!r}")
    parsed = parsed.set(drivername=_DRIVERS[backend])
    if backend == "sqlite":
        if not parsed.database:
            raise InvalidInput("the database URL has no file; use sqlite:///collector.db")
        engine = create_engine(parsed, connect_args={"timeout": _WAIT}, hide_parameters=True)
        event.listen(engine, "connect", partial(_prepare_sqlite, cache))
        event.listen(engine, "begin", _begin_sqlite)
        return engine
    # hide_parameters: contents of reports must not appear in error messages.
    return create_engine(
        parsed,
        pool_pre_ping=True,
        pool_size=8,
        hide_parameters=True,
        connect_args=_TIMEOUTS,
    )


def _prepare_sqlite(cache: int, connection: Any, _record: Any) -> None:
    # _begin_sqlite begins transactions, not the driver.
    connection.isolation_level = None
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute(f"PRAGMA cache_size = {-1024 * cache}")
    connection.execute("PRAGMA wal_autocheckpoint = 16000")
    # Overwrite what is deleted or withdrawn.
    connection.execute("PRAGMA secure_delete = ON")


def _begin_sqlite(connection: Connection) -> None:
    writes = connection.get_execution_options().get("writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


@contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """Run a write transaction: commit at the end, roll back on any error."""
    with engine.connect().execution_options(writes=True) as connection, connection.begin():
        yield connection


def lock_rounds(connection: Connection, rounds: Iterable[int]) -> None:
    """Let one transaction at a time write to these rounds, so that seq is committed in order.

    SQLite needs no lock, because it has one writer at a time.
    """
    if connection.dialect.name == "postgresql":
        for key in sorted(rounds):
            connection.exec_driver_sql("SELECT pg_advisory_xact_lock(%s, %s)", (_ROUNDS, key))


def migrate(engine: Engine) -> None:
    """Migrate the tables to this version, one process at a time."""
    with writing(engine) as connection:
        if connection.dialect.name == "postgresql":
            connection.exec_driver_sql("SELECT pg_advisory_xact_lock(%s, 0)", (_MIGRATION,))
        command.upgrade(_alembic(connection), "head")


def is_current(engine: Engine) -> bool:
    """Return whether the database responds and its tables have this version."""
    with engine.connect() as connection:
        revision = MigrationContext.configure(connection).get_current_revision()
        return revision == ScriptDirectory.from_config(_alembic(connection)).get_current_head()


def _alembic(connection: Connection) -> Config:
    config = Config()
    config.set_main_option("script_location", str(files("offaxis.collector") / "migrations"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    return config
