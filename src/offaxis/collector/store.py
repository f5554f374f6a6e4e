"""Releases, rounds and tokens in the database, and reading reports from it.

Times come from the caller's clock. SQLite does not store time zones, so every time is written in
UTC and read as UTC.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal

from sqlalchemy import ColumnElement, Connection, Engine, delete, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from offaxis.collector.access import Role, Token, Tokens, token_hash
from offaxis.collector.database import (
    lock_rounds,
    moments,
    population,
    question,
    release,
    report,
    round_,
    support,
    writing,
)
from offaxis.collector.database import token as tokens
from offaxis.collector.uploads import find_stored
from offaxis.errors import OffaxisError
from offaxis.formats.documents import Round

_PAGE: Final = 8192

Attached = Literal["profile", "curve", "audit"]
"""Column of a document that is attached to a release."""


class Differs(OffaxisError, ValueError):
    """Other content is stored under this name, and stays."""


class Deleted(OffaxisError, RuntimeError):
    """Reports were deleted before all of them were read."""


@dataclass(frozen=True)
class StoredRound:
    """A round with its key in the database, its signature and its state."""

    key: int
    document: Round
    signature: bytes
    base: int
    closed_at: datetime | None
    deleted_at: datetime | None

    @property
    def ends(self) -> datetime:
        """The time at which it closes, or was closed early."""
        return min(self.document.closes, self.closed_at or self.document.closes)

    def state(self, now: datetime) -> str:
        """Return waiting, open or closed; a closed or deleted round stays closed by any clock."""
        if self.closed_at or self.deleted_at or now >= self.document.closes:
            return "closed"
        return "open" if now >= self.document.opens else "waiting"


@dataclass(frozen=True)
class AttachedModel:
    """What is known of the model of a question without its weights.

    Attributes
    ----------
    name : str
        Of the question.
    hash : str
        SHA-256 of the stored weights file.
    outputs : int
    answers : tuple of str, or None
        Names of the answers, if it has any.
    """

    name: str
    hash: str
    outputs: int
    answers: tuple[str, ...] | None


def as_utc(value: datetime | None) -> datetime | None:
    """Return a time from the database with its time zone."""
    return value if value is None or value.tzinfo else value.replace(tzinfo=UTC)


class Store:
    """The collector's queries, except storing reports."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def publish(self, hash_: str, content: bytes, signature: bytes, now: datetime) -> bool:
        """Store a release; return whether it is new."""
        row = {"hash": hash_, "content": content, "signature": signature, "published_at": now}
        if self._insert(release, row):
            return True
        with self.engine.connect() as connection:
            query = select(release.c.signature).where(release.c.hash == hash_)
            if bytes(connection.execute(query).scalar_one()) != signature:
                raise Differs("this release was published with another signature")
        return False

    def releases(self) -> list[dict[str, Any]]:
        """Return hash, signature and time of all releases."""
        query = select(release.c.hash, release.c.signature, release.c.published_at)
        with self.engine.connect() as connection:
            rows = connection.execute(query.order_by(release.c.published_at, release.c.hash))
            return [
                {"hash": row.hash, "signature": bytes(row.signature), "at": as_utc(row[2])}
                for row in rows
            ]

    def release_file(self, hash_: str) -> tuple[bytes, bytes] | None:
        """Return content and signature of a release."""
        query = select(release.c.content, release.c.signature).where(release.c.hash == hash_)
        with self.engine.connect() as connection:
            row = connection.execute(query).first()
        return None if row is None else (bytes(row[0]), bytes(row[1]))

    def attach(self, hash_: str, kind: Attached, text: str) -> None:
        """Attach JSON to a release, replacing an older document of this kind."""
        with writing(self.engine) as connection:
            statement = update(release).where(release.c.hash == hash_)
            connection.execute(statement.values({kind: text}))

    def attached(self, hash_: str, kind: Attached) -> str | None:
        """Return the document of this kind that is attached to a release."""
        with self.engine.connect() as connection:
            query = select(release.c[kind]).where(release.c.hash == hash_)
            return connection.execute(query).scalar_one_or_none()

    def kinds_attached(self, hash_: str, kinds: Sequence[Attached]) -> list[Attached]:
        """Return which of these kinds are attached to a release."""
        with self.engine.connect() as connection:
            exists = [release.c[kind].is_not(None) for kind in kinds]
            row = connection.execute(select(*exists).where(release.c.hash == hash_)).one()
        return [kind for kind, attached in zip(kinds, row, strict=True) if attached]

    # ---- Public vectors, questions and populations

    def attach_support(self, hash_: str, content_hash: str, content: bytes) -> None:
        """Attach public vectors to a release, replacing earlier ones."""
        values = {"hash": content_hash, "content": content}
        if not self._insert(support, {"release": hash_, **values}):
            with writing(self.engine) as connection:
                statement = update(support).where(support.c.release == hash_)
                connection.execute(statement.values(**values))

    def support_hash(self, hash_: str) -> str | None:
        """Return the hash of the public vectors that are attached to a release."""
        with self.engine.connect() as connection:
            query = select(support.c.hash).where(support.c.release == hash_)
            return connection.execute(query).scalar_one_or_none()

    def support_content(self, hash_: str) -> tuple[str, bytes] | None:
        """Return hash and content of the public vectors that are attached to a release."""
        with self.engine.connect() as connection:
            query = select(support.c.hash, support.c.content).where(support.c.release == hash_)
            row = connection.execute(query).first()
        return None if row is None else (row.hash, bytes(row.content))

    def attach_question(self, hash_: str, model: AttachedModel, content: bytes, most: int) -> bool:
        """Attach a question to a release, replacing one of this name; False if it has too many."""
        of_release = question.c.release == hash_
        values = {
            "content": content,
            "hash": model.hash,
            "outputs": model.outputs,
            "answers": None if model.answers is None else json.dumps(model.answers),
        }
        with writing(self.engine) as connection:
            own = update(question).where(of_release, question.c.name == model.name)
            if connection.execute(own.values(**values)).rowcount:
                return True
            counted = select(func.count()).select_from(question).where(of_release)
            if connection.execute(counted).scalar_one() >= most:
                return False
        # False only if another request has attached a question of this name in the meantime.
        self._insert(question, {"release": hash_, "name": model.name, **values})
        return True

    def remove_question(self, hash_: str, name: str) -> bool:
        """Remove a question from a release; return False if there is none of this name."""
        with writing(self.engine) as connection:
            own = question.c.release == hash_, question.c.name == name
            return bool(connection.execute(delete(question).where(*own)).rowcount)

    def questions(self, hash_: str) -> list[AttachedModel]:
        """Return the questions that are attached to a release, by name, without their weights."""
        known = (question.c.name, question.c.hash, question.c.outputs, question.c.answers)
        query = select(*known).where(question.c.release == hash_).order_by(question.c.name)
        with self.engine.connect() as connection:
            rows = connection.execute(query).all()
        return [
            AttachedModel(
                row.name,
                row.hash,
                row.outputs,
                None if row.answers is None else tuple(json.loads(row.answers)),
            )
            for row in rows
        ]

    def model(self, hash_: str, model: AttachedModel) -> bytes | None:
        """Return the weights file of a question; None if it was removed or replaced."""
        own = question.c.release == hash_, question.c.name == model.name
        query = select(question.c.content).where(*own, question.c.hash == model.hash)
        with self.engine.connect() as connection:
            content = connection.execute(query).scalar_one_or_none()
        return None if content is None else bytes(content)

    def population(self, key: int) -> tuple[str, int, bytes] | None:
        """Return a round's population: hash of the public vectors, number of reports, state."""
        query = select(population.c.support, population.c.counted, population.c.state)
        with self.engine.connect() as connection:
            row = connection.execute(query.where(population.c.round == key)).first()
        return None if row is None else (row.support, int(row.counted), bytes(row.state))

    def withdrawn(self, key: int) -> int:
        """Return how many reports of a round were withdrawn."""
        query = select(round_.c.withdrawn).where(round_.c.id == key)
        with self.engine.connect() as connection:
            return int(connection.execute(query).scalar_one())

    def store_population(
        self, key: int, support_hash: str, counted: int, state: bytes, withdrawn: int | None
    ) -> bool:
        """Store a round's population, unless a report was withdrawn or deleted meanwhile.

        With ``withdrawn=None`` the round is marked: no withdrawal changes it any more, but rows may
        have been deleted.
        """
        values = {"support": support_hash, "counted": counted, "state": state}
        times = (round_.c.deleted_at, round_.c.emptied_at)
        with writing(self.engine) as connection:
            lock_rounds(connection, [key])
            query = select(round_.c.withdrawn, *times).where(round_.c.id == key)
            found, deleted_at, emptied_at = connection.execute(query).one()
            if withdrawn is None:
                changed = deleted_at is None or emptied_at is not None
            else:
                changed = (found, deleted_at) != (withdrawn, None)
            if changed:
                return False
            connection.execute(population.delete().where(population.c.round == key))
            connection.execute(insert(population).values(round=key, **values))
            return True

    def final_count(self, key: int) -> int | None:
        """Return how many reports a marked round had; None if it has no mark, or rows may lack."""
        counted = select(moments.c.counted).where(moments.c.round == key).scalar_subquery()
        query = select(round_.c.deleted_at, round_.c.emptied_at, func.coalesce(counted, 0))
        with self.engine.connect() as connection:
            row = connection.execute(query.where(round_.c.id == key)).one()
        return int(row[2]) if row.deleted_at is not None and row.emptied_at is None else None

    def begin_emptying(self, key: int, now: datetime) -> None:
        """State that the rows of a marked round are being deleted."""
        with writing(self.engine) as connection:
            lock_rounds(connection, [key])
            full = update(round_).where(round_.c.id == key, round_.c.emptied_at.is_(None))
            connection.execute(full.values(emptied_at=now))

    def by_arrival(self, key: int, *, marked: bool = False) -> Iterator[list[bytes]]:
        """Yield pages of the contents of a round's reports, as stored at the first page.

        Those of a marked round are read with ``marked``, as long as their rows are all there.

        Raises
        ------
        Deleted
            If the reports are deleted.
        """
        with self.engine.connect() as connection:
            upto = connection.execute(select(func.max(report.c.seq))).scalar() or 0
            base = select(round_.c.base).where(round_.c.id == key)
            mark = int(connection.execute(base).scalar_one())
        query = select(report.c.seq, report.c.content).where(
            # As the follower reads them: in the order of seq, not along the index by id.
            report.c.round + 0 == key,
            report.c.seq <= upto,
        )
        while True:
            with self.engine.connect() as connection:
                page = query.where(report.c.seq > mark).order_by(report.c.seq).limit(_PAGE)
                rows = connection.execute(page).all()
                if _is_deleted(connection, key, marked=marked):
                    raise Deleted("the reports were deleted while they were being read")
            if not rows:
                return
            mark = rows[-1].seq
            yield [bytes(row.content) for row in rows if row.content is not None]

    # ---- Rounds

    def add_round(self, document: Round, signature: bytes) -> bool:
        """Store a round; return whether it is new."""
        content = document.to_bytes()
        with self.engine.connect() as connection:
            last = connection.execute(select(func.max(report.c.seq))).scalar() or 0
        row = {
            "name": document.name,
            "document": content,
            "signature": signature,
            "release": document.release,
            "base": last,
            "withdrawn": 0,
        }
        if self._insert(round_, row):
            return True
        with self.engine.connect() as connection:
            query = select(round_.c.document, round_.c.signature)
            stored = connection.execute(query.where(round_.c.name == document.name)).one()
            if (bytes(stored[0]), bytes(stored[1])) != (content, signature):
                raise Differs("another round has this name; a round cannot be changed")
        return False

    def rounds(self, cached: dict[int, StoredRound]) -> dict[int, StoredRound]:
        """Return all rounds by key; documents in ``cached`` are not read again."""
        query = select(round_.c.id, round_.c.closed_at, round_.c.deleted_at)
        rounds = {}
        with self.engine.connect() as connection:
            for key, closed_at, deleted_at in connection.execute(query).all():
                stored = cached.get(key) or _read_round(connection, key)
                times = (as_utc(closed_at), as_utc(deleted_at))
                if times != (stored.closed_at, stored.deleted_at):
                    stored = StoredRound(
                        key, stored.document, stored.signature, stored.base, *times
                    )
                rounds[key] = stored
        return rounds

    def close_round(self, key: int, now: datetime) -> None:
        """Close a round permanently; closing it again changes nothing."""
        with writing(self.engine) as connection:
            open_ = update(round_).where(round_.c.id == key, round_.c.closed_at.is_(None))
            connection.execute(open_.values(closed_at=now))

    def count(self, key: int) -> int:
        """Return how many reports of a round are stored and not withdrawn.

        Reports up to the moments' mark were counted when the mark was moved. A single statement
        reads the mark and the later reports consistently.
        """
        marks = select(moments.c.upto, moments.c.counted).where(moments.c.round == key).subquery()
        later = (
            select(func.count())
            .where(
                # As the follower reads them: in the order of seq, not along the index by id.
                report.c.round + 0 == key,
                report.c.seq > func.coalesce(select(marks.c.upto).scalar_subquery(), round_.c.base),
                report.c.content.is_not(None),
            )
            .correlate(round_)
            .scalar_subquery()
        )
        counted = func.coalesce(select(marks.c.counted).scalar_subquery(), 0)
        query = select(round_.c.deleted_at, counted + later).where(round_.c.id == key)
        with self.engine.connect() as connection:
            deleted_at, count = connection.execute(query).one()
        return 0 if deleted_at else int(count)

    def stored(self, key: int, ids: Sequence[bytes]) -> list[tuple[bool, bytes | None]]:
        """Return for each id whether it is taken, and its content (None once withdrawn)."""
        with self.engine.connect() as connection:
            rows = find_stored(connection, ((key, id_) for id_ in ids))
        return [(True, rows[key, id_][1]) if (key, id_) in rows else (False, None) for id_ in ids]

    def withdraw(self, key: int, id_: bytes, *, take: bool) -> None:
        """Delete a report's content but keep its id; with ``take``, keep an unknown id as well.

        The round's moments and its population are recomputed without the report. If the reports of
        the round are being deleted, both are final and stay, because they can no longer be
        recomputed.
        """
        row = (report.c.round == key, report.c.id == id_)
        with writing(self.engine) as connection:
            lock_rounds(connection, [key])
            clear = update(report).where(*row, report.c.content.is_not(None))
            if connection.execute(clear.values(content=None, label=None)).rowcount:
                count = update(round_).where(round_.c.id == key, round_.c.deleted_at.is_(None))
                if connection.execute(count.values(withdrawn=round_.c.withdrawn + 1)).rowcount:
                    connection.execute(moments.delete().where(moments.c.round == key))
                    connection.execute(population.delete().where(population.c.round == key))
            elif take and connection.execute(select(report.c.seq).where(*row)).first() is None:
                connection.execute(insert(report).values(round=key, id=id_))

    def by_id(self, key: int) -> Iterator[Sequence[Any]]:
        """Yield pages of (id, label, content) of a round, as stored at the first page.

        Rows are in the order of ids, which reveals nothing about the order of arrival. A round
        whose reports are deleted yields none.

        Raises
        ------
        Deleted
            If the reports are deleted after the first page, so that the pages are incomplete.
        """
        with self.engine.connect() as connection:
            if _is_deleted(connection, key):
                return
            upto = connection.execute(select(func.max(report.c.seq))).scalar() or 0
        query = select(report.c.id, report.c.label, report.c.content).where(
            report.c.round == key, report.c.seq <= upto, report.c.content.is_not(None)
        )
        after: ColumnElement[bool] = report.c.id > b""
        while True:
            with self.engine.connect() as connection:
                page = query.where(after).order_by(report.c.id).limit(_PAGE)
                rows = connection.execute(page).all()
                if _is_deleted(connection, key):
                    raise Deleted("the reports were deleted while they were being read")
            if not rows:
                return
            yield rows
            after = report.c.id > rows[-1].id

    def add_token(self, token: str, name: str, role: Role, now: datetime) -> int:
        """Store a token's hash; return its number."""
        row = {"name": name, "role": role, "sha256": token_hash(token.encode()), "created_at": now}
        with writing(self.engine) as connection:
            key = connection.execute(insert(tokens).values(**row)).inserted_primary_key
            assert key is not None
            return int(key[0])

    def revoke_token(self, number: int, now: datetime) -> bool:
        """Revoke a token permanently; return False if it does not exist."""
        with writing(self.engine) as connection:
            valid = update(tokens).where(tokens.c.id == number, tokens.c.revoked_at.is_(None))
            connection.execute(valid.values(revoked_at=now))
            query = select(tokens.c.id).where(tokens.c.id == number)
            return connection.execute(query).first() is not None

    def valid_tokens(self) -> Tokens:
        """Return the tokens that were not revoked, by hash."""
        query = select(tokens).where(tokens.c.revoked_at.is_(None))
        with self.engine.connect() as connection:
            return {
                bytes(row.sha256): Token(row.id, row.name, row.role)
                for row in connection.execute(query)
            }

    def all_tokens(self) -> list[dict[str, Any]]:
        """Return number, name, role and times of all tokens."""
        times = ("created_at", "revoked_at")
        query = select(tokens.c.id, tokens.c.name, tokens.c.role, *(tokens.c[at] for at in times))
        with self.engine.connect() as connection:
            rows = connection.execute(query.order_by(tokens.c.id)).mappings()
            return [{**row, **{at: as_utc(row[at]) for at in times}} for row in rows]

    def _insert(self, table: Any, row: dict[str, Any]) -> bool:
        try:
            with writing(self.engine) as connection:
                connection.execute(insert(table).values(**row))
        except IntegrityError:
            return False
        return True


def _is_deleted(connection: Connection, key: int, *, marked: bool = False) -> bool:
    time = round_.c.emptied_at if marked else round_.c.deleted_at
    query = select(time).where(round_.c.id == key)
    return connection.execute(query).scalar_one() is not None


def _read_round(connection: Connection, key: int) -> StoredRound:
    row = connection.execute(select(round_).where(round_.c.id == key)).one()
    document = Round.from_bytes(bytes(row.document))
    times = (as_utc(row.closed_at), as_utc(row.deleted_at))
    return StoredRound(row.id, document, bytes(row.signature), row.base, *times)
