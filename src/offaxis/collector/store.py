"""Releases, rounds and tokens in the database, and what is read of reports.

Times come from the caller's clock. SQLite forgets time zones, so every time is UTC when it goes in
and is called UTC when it comes out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal

from sqlalchemy import ColumnElement, Connection, Engine, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from offaxis.collector.access import Role, Token, Tokens, token_hash
from offaxis.collector.database import moments, release, report, round_, take_turns, writing
from offaxis.collector.database import token as tokens
from offaxis.collector.uploads import stored_under
from offaxis.errors import OffaxisError
from offaxis.formats.documents import Round

_PAGE: Final = 8192

Attached = Literal["profile", "curve", "audit"]
"""What can be attached to a release: its column."""


class Differs(OffaxisError, ValueError):
    """Something else is stored under this name, and stays."""


class Deleted(OffaxisError, RuntimeError):
    """Reports were deleted before all of them were read."""


@dataclass(frozen=True)
class StoredRound:
    """A round as it is stored."""

    key: int
    document: Round
    signature: bytes
    base: int
    closed_at: datetime | None
    deleted_at: datetime | None

    @property
    def ends(self) -> datetime:
        """When it closes or has been closed."""
        return min(self.document.closes, self.closed_at or self.document.closes)

    def state(self, now: datetime) -> str:
        """Return waiting, open or closed; what was closed or deleted stays so by any clock."""
        if self.closed_at or self.deleted_at or now >= self.document.closes:
            return "closed"
        return "open" if now >= self.document.opens else "waiting"


def as_utc(value: datetime | None) -> datetime | None:
    """Return a time of the database with its zone."""
    return value if value is None or value.tzinfo else value.replace(tzinfo=UTC)


class Store:
    """What the collector asks of its database, besides storing reports."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def publish(self, hash_: str, content: bytes, signature: bytes, now: datetime) -> bool:
        """Store a release; say whether it is new."""
        row = {"hash": hash_, "content": content, "signature": signature, "published_at": now}
        if self._added(release, row):
            return True
        with self.engine.connect() as connection:
            asked = select(release.c.signature).where(release.c.hash == hash_)
            if bytes(connection.execute(asked).scalar_one()) != signature:
                raise Differs("this release was published with another signature")
        return False

    def releases(self) -> list[dict[str, Any]]:
        """Return hash, signature and time of all releases."""
        asked = select(release.c.hash, release.c.signature, release.c.published_at)
        with self.engine.connect() as connection:
            rows = connection.execute(asked.order_by(release.c.published_at, release.c.hash))
            return [
                {"hash": row.hash, "signature": bytes(row.signature), "at": as_utc(row[2])}
                for row in rows
            ]

    def release_file(self, hash_: str) -> tuple[bytes, bytes] | None:
        """Return content and signature of a release."""
        asked = select(release.c.content, release.c.signature).where(release.c.hash == hash_)
        with self.engine.connect() as connection:
            row = connection.execute(asked).first()
        return None if row is None else (bytes(row[0]), bytes(row[1]))

    def attach(self, hash_: str, kind: Attached, text: str) -> None:
        """Attach JSON to a release, in place of an older one of its kind."""
        with writing(self.engine) as connection:
            changed = update(release).where(release.c.hash == hash_)
            connection.execute(changed.values({kind: text}))

    def attached(self, hash_: str, kind: Attached) -> str | None:
        """Return what of this kind is attached to a release."""
        with self.engine.connect() as connection:
            asked = select(release.c[kind]).where(release.c.hash == hash_)
            return connection.execute(asked).scalar_one_or_none()

    def kinds_attached(self, hash_: str, kinds: Sequence[Attached]) -> list[Attached]:
        """Return which of these kinds are attached to a release."""
        with self.engine.connect() as connection:
            there = [release.c[kind].is_not(None) for kind in kinds]
            row = connection.execute(select(*there).where(release.c.hash == hash_)).one()
        return [kind for kind, found in zip(kinds, row, strict=True) if found]

    def add_round(self, document: Round, signature: bytes) -> bool:
        """Store a round; say whether it is new."""
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
        if self._added(round_, row):
            return True
        with self.engine.connect() as connection:
            asked = select(round_.c.document, round_.c.signature)
            found = connection.execute(asked.where(round_.c.name == document.name)).one()
            if (bytes(found[0]), bytes(found[1])) != (content, signature):
                raise Differs("another round has this name; a round cannot be changed")
        return False

    def rounds(self, known: dict[int, StoredRound]) -> dict[int, StoredRound]:
        """Return all rounds by key; documents that are known are not read again."""
        asked = select(round_.c.id, round_.c.closed_at, round_.c.deleted_at)
        found = {}
        with self.engine.connect() as connection:
            for key, closed_at, deleted_at in connection.execute(asked).all():
                one = known.get(key) or _read_round(connection, key)
                times = (as_utc(closed_at), as_utc(deleted_at))
                if times != (one.closed_at, one.deleted_at):
                    one = StoredRound(key, one.document, one.signature, one.base, *times)
                found[key] = one
        return found

    def close_round(self, key: int, now: datetime) -> None:
        """Close a round for good; closing it again changes nothing."""
        with writing(self.engine) as connection:
            open_ = update(round_).where(round_.c.id == key, round_.c.closed_at.is_(None))
            connection.execute(open_.values(closed_at=now))

    def count(self, key: int) -> int:
        """Return how many reports of a round are stored and not withdrawn.

        Those behind the moments' mark were counted when the mark was moved. One statement, so that
        mark and reports are of the same moment.
        """
        its = select(moments.c.upto, moments.c.counted).where(moments.c.round == key).subquery()
        new = (
            select(func.count())
            .where(
                # As the follower reads them: along their numbers, not along the index by id.
                report.c.round + 0 == key,
                report.c.seq > func.coalesce(select(its.c.upto).scalar_subquery(), round_.c.base),
                report.c.content.is_not(None),
            )
            .correlate(round_)
            .scalar_subquery()
        )
        counted = func.coalesce(select(its.c.counted).scalar_subquery(), 0)
        asked = select(round_.c.deleted_at, counted + new).where(round_.c.id == key)
        with self.engine.connect() as connection:
            deleted_at, count = connection.execute(asked).one()
        return 0 if deleted_at else int(count)

    def stored(self, key: int, ids: Sequence[bytes]) -> list[tuple[bool, bytes | None]]:
        """Say of each id whether it is taken, and with which content; none once withdrawn."""
        with self.engine.connect() as connection:
            found = stored_under(connection, ((key, one) for one in ids))
        return [(True, found[key, one][1]) if (key, one) in found else (False, None) for one in ids]

    def withdraw(self, key: int, id_: bytes, *, take: bool) -> None:
        """Forget a report but not its id; an unknown id is taken too, if wanted.

        The round's moments begin again: what was withdrawn leaves them too. Those of a round whose
        reports are being deleted are final, and stay: there is nothing left to make them of.
        """
        its = (report.c.round == key, report.c.id == id_)
        with writing(self.engine) as connection:
            take_turns(connection, [key])
            kept = update(report).where(*its, report.c.content.is_not(None))
            if connection.execute(kept.values(content=None, label=None)).rowcount:
                growing = update(round_).where(round_.c.id == key, round_.c.deleted_at.is_(None))
                if connection.execute(growing.values(withdrawn=round_.c.withdrawn + 1)).rowcount:
                    connection.execute(moments.delete().where(moments.c.round == key))
            elif take and connection.execute(select(report.c.seq).where(*its)).first() is None:
                connection.execute(insert(report).values(round=key, id=id_))

    def by_id(self, key: int) -> Iterator[Sequence[Any]]:
        """Yield pages of (id, label, content) of a round, as stored at the first page.

        They come in the order of ids, which tells nothing of when they came. None come of a round
        whose reports are deleted.

        Raises
        ------
        Deleted
            If they are deleted after the first page: the pages before are not all there were.
        """
        with self.engine.connect() as connection:
            if _is_deleted(connection, key):
                return
            upto = connection.execute(select(func.max(report.c.seq))).scalar() or 0
        asked = select(report.c.id, report.c.label, report.c.content).where(
            report.c.round == key, report.c.seq <= upto, report.c.content.is_not(None)
        )
        after: ColumnElement[bool] = report.c.id > b""
        while True:
            with self.engine.connect() as connection:
                page = asked.where(after).order_by(report.c.id).limit(_PAGE)
                rows = connection.execute(page).all()
                if _is_deleted(connection, key):
                    raise Deleted("the reports were deleted while they were read")
            if not rows:
                return
            yield rows
            after = report.c.id > rows[-1].id

    def add_token(self, token: str, name: str, role: Role, now: datetime) -> int:
        """Store a token's hash; return its number."""
        row = {"name": name, "role": role, "sha256": token_hash(token.encode()), "created_at": now}
        with writing(self.engine) as connection:
            found = connection.execute(insert(tokens).values(**row)).inserted_primary_key
            assert found is not None
            return int(found[0])

    def revoke_token(self, number: int, now: datetime) -> bool:
        """Make a token invalid for good; False if there is none."""
        with writing(self.engine) as connection:
            valid = update(tokens).where(tokens.c.id == number, tokens.c.revoked_at.is_(None))
            connection.execute(valid.values(revoked_at=now))
            asked = select(tokens.c.id).where(tokens.c.id == number)
            return connection.execute(asked).first() is not None

    def valid_tokens(self) -> Tokens:
        """Return the tokens that were not revoked, by hash."""
        asked = select(tokens).where(tokens.c.revoked_at.is_(None))
        with self.engine.connect() as connection:
            return {
                bytes(row.sha256): Token(row.id, row.name, row.role)
                for row in connection.execute(asked)
            }

    def all_tokens(self) -> list[dict[str, Any]]:
        """Return number, name, role and times of all tokens."""
        shown = (tokens.c.id, tokens.c.name, tokens.c.role)
        asked = select(*shown, tokens.c.created_at, tokens.c.revoked_at)
        with self.engine.connect() as connection:
            rows = connection.execute(asked.order_by(tokens.c.id)).mappings()
            return [
                {**row, **{at: as_utc(row[at]) for at in ("created_at", "revoked_at")}}
                for row in rows
            ]

    def _added(self, table: Any, row: dict[str, Any]) -> bool:
        try:
            with writing(self.engine) as connection:
                connection.execute(insert(table).values(**row))
        except IntegrityError:
            return False
        return True


def _is_deleted(connection: Connection, key: int) -> bool:
    asked = select(round_.c.deleted_at).where(round_.c.id == key)
    return connection.execute(asked).scalar_one() is not None


def _read_round(connection: Connection, key: int) -> StoredRound:
    row = connection.execute(select(round_).where(round_.c.id == key)).one()
    document = Round.from_bytes(bytes(row.document))
    times = (as_utc(row.closed_at), as_utc(row.deleted_at))
    return StoredRound(row.id, document, bytes(row.signature), row.base, *times)
