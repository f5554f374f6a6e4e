"""The collector's tables. What is not here is not kept: no address, no time of a single report."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Column,
    DateTime,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
)

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

_number = BigInteger().with_variant(Integer, "sqlite")
"""Counts up by itself in both databases."""

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
    # No report of the round has a number up to this one: reading it need not start at the first.
    Column("base", _number, nullable=False),
    # Counts withdrawals: moments that began before one are not stored after it.
    Column("withdrawn", Integer, nullable=False),
    Column("closed_at", DateTime(timezone=True)),
    Column("deleted_at", DateTime(timezone=True)),
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
    # A number that was used is never used again: marks of the means rely on it.
    sqlite_autoincrement=True,
)

moments = Table(
    "moments",
    metadata,
    Column("round", ForeignKey("round.id"), primary_key=True),
    Column("upto", _number, nullable=False),
    Column("state", LargeBinary, nullable=False),
    # Reports up to the mark that were not withdrawn; null where they were gone before it was kept.
    Column("counted", Integer),
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
