"""Reports as rows: which may be stored, and what became of each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, repeat
from operator import itemgetter
from typing import Any, Final, Literal

from sqlalchemy import Connection, func, select

from offaxis.collector.database import take_turns
from offaxis.collector.tables import report as reports
from offaxis.collector.tables import round_ as rounds
from offaxis.errors import InvalidReport
from offaxis.release import Release

Outcome = Literal["accepted", "repeated", "conflict", "closed"]
"""What became of a row; *closed* if the reports of its round were deleted meanwhile."""

_LOOKED_UP: Final = 500
"""Ids in one question to the database."""


@dataclass(frozen=True, eq=False)
class Upload:
    """Reports of one round that came in one request, all with one label.

    Attributes
    ----------
    round : int
        Key of the round.
    release : Release
        What they must be reports of.
    ids : sequence of bytes
        32 each.
    contents : sequence of bytes
        The reports.
    label : str or None
        Their group.
    checked : bool
        Whether the contents are known to be reports of the release.
    """

    round: int
    release: Release
    ids: Sequence[bytes]
    contents: Sequence[bytes]
    label: str | None = None
    checked: bool = False


_Row = tuple[int, bytes, str | None, bytes]
"""Round, id, label and content; plain, because a million of them are made a minute."""


def refused(uploads: list[Upload]) -> dict[Upload, Any]:
    """Return the uploads that hold something else than reports of their release, and why."""
    found: dict[Upload, Any] = {}
    by_release: dict[str, list[Upload]] = {}
    for upload in uploads:
        if not upload.checked:
            by_release.setdefault(upload.release.hash, []).append(upload)
    for together in by_release.values():
        # Reading many at once is much faster; who is wrong is found only if somebody is.
        try:
            together[0].release.observe([one for each in together for one in each.contents])
        except InvalidReport:
            for upload in together:
                try:
                    upload.release.observe(upload.contents)
                except InvalidReport as error:
                    found[upload] = error
    return found


def store(connection: Connection, uploads: Sequence[Upload]) -> list[list[Outcome]]:
    """Insert all rows whose id is new in its round, and say of each what became of it."""
    rows: list[_Row] = []
    for upload in uploads:
        rows += zip(repeat(upload.round), upload.ids, repeat(upload.label), upload.contents)
    keys = {upload.round for upload in uploads}
    take_turns(connection, keys)
    deleted = _deleted(connection, keys)
    if deleted:
        rows = [row for row in rows if row[0] not in deleted]
    # Under the lock every row of these rounds has a number up to the mark, and new ones a larger.
    mark = connection.execute(select(func.max(reports.c.seq))).scalar() or 0
    outcomes: Iterator[Outcome]
    # In the order of the index: neighbours are written together, and arrival leaves no trace.
    if not rows or _INSERT[connection.dialect.name](connection, sorted(rows, key=_key)) == len(
        rows
    ):
        outcomes = repeat("accepted")
    else:
        outcomes = _outcomes(connection, rows, mark)
    return [
        ["closed"] * len(upload.ids)
        if upload.round in deleted
        else list(islice(outcomes, len(upload.ids)))
        for upload in uploads
    ]


_key = itemgetter(0, 1)


def _deleted(connection: Connection, keys: set[int]) -> set[int]:
    """Return the rounds whose reports were deleted: none may come after that."""
    asked = select(rounds.c.id).where(rounds.c.id.in_(keys), rounds.c.deleted_at.is_not(None))
    return set(connection.execute(asked).scalars())


def _outcomes(connection: Connection, rows: Sequence[_Row], mark: int) -> Iterator[Outcome]:
    stored = stored_under(connection, (row[:2] for row in rows))
    fresh = {key for key, (seq, _) in stored.items() if seq > mark}
    for round_, one, _, content in rows:
        key = (round_, one)
        if stored[key][1] != content:
            yield "conflict"
        elif key in fresh:
            fresh.discard(key)
            yield "accepted"
        else:
            yield "repeated"


def stored_under(
    connection: Connection, keys: Iterable[tuple[int, bytes]]
) -> dict[tuple[int, bytes], tuple[int, bytes | None]]:
    """Return number and content of what is stored under rounds and ids."""
    found = {}
    by_round: dict[int, list[bytes]] = {}
    for round_, one in keys:
        by_round.setdefault(round_, []).append(one)
    for key, ids in by_round.items():
        for start in range(0, len(ids), _LOOKED_UP):
            part = ids[start : start + _LOOKED_UP]
            asked = select(reports.c.id, reports.c.seq, reports.c.content)
            asked = asked.where(reports.c.round == key, reports.c.id.in_(part))
            for one, seq, content in connection.execute(asked):
                found[key, bytes(one)] = (seq, None if content is None else bytes(content))
    return found


def _insert_sqlite(connection: Connection, rows: Sequence[_Row]) -> int:
    return connection.exec_driver_sql(
        "INSERT INTO report (round, id, label, content) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
        rows,
    ).rowcount


def _insert_postgresql(connection: Connection, rows: Sequence[_Row]) -> int:
    return connection.exec_driver_sql(
        "INSERT INTO report (round, id, label, content) "
        "SELECT * FROM unnest(%s::int[], %s::bytea[], %s::text[], %s::bytea[]) "
        "ON CONFLICT DO NOTHING",
        tuple(list(column) for column in zip(*rows, strict=True)),
    ).rowcount


_INSERT: Final = {"sqlite": _insert_sqlite, "postgresql": _insert_postgresql}
