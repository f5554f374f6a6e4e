"""Means and shares of a round's reports: the moments they come from, as bytes and as facts."""

from __future__ import annotations

import io
import json
import threading
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, Engine, insert, select, update

from offaxis.collector.database import moments, report, round_, take_turns, writing
from offaxis.decoding.aggregate import Moments
from offaxis.randomizers.symbols import SymbolForm
from offaxis.release import Release

_PART_NUMBERS: Final = 1 << 17
MOST_NUMBERS: Final = 1 << 22
"""Groups times numbers of a report: what the moments of one round may hold."""

_FIELDS: Final = ("sums", "mean", "squared_mean", "spread")


@dataclass(eq=False)
class Totals:
    """Moments of reports: decoded, of everybody and by group, and as the randomizer let through.

    The latter by group too where a report is a symbol, whose shares they are.
    """

    observed: Moments = field(default_factory=Moments)
    everybody: Moments = field(default_factory=Moments)
    groups: dict[str, Moments] = field(default_factory=dict)
    symbols: dict[str, Moments] = field(default_factory=dict)

    def add(self, release: Release, rows: Sequence[tuple[bytes, str | None]]) -> None:
        """Add reports with their labels."""
        decoder = release.unbiased_decoder if release.supports_mean else None
        widest = max(release.unbiased_decoder.output_dim if decoder else 1, _width(release))
        step = max(1, _PART_NUMBERS // widest)
        for start in range(0, len(rows), step):
            part = rows[start : start + step]
            seen = release.observe([content for content, _ in part])
            weights = np.ones(len(part))
            places = _places([label for _, label in part])
            self.observed.add(seen, weights)
            if _names_symbols(release):
                _add(self.symbols, seen, places)
            if decoder is not None:
                decoded = decoder.decode(seen)
                self.everybody.add(decoded, weights)
                _add(self.groups, decoded, places)

    def to_bytes(self) -> bytes:
        """Write the moments."""
        parts = {"observed": self.observed, "everybody": self.everybody}
        parts |= {f"group {label}": one for label, one in self.groups.items()}
        parts |= {f"symbols {label}": one for label, one in self.symbols.items()}
        arrays: dict[str, Any] = {}
        for at, one in enumerate(parts.values()):
            arrays |= {f"{at} {name}": getattr(one, name) for name in _FIELDS}
        names = json.dumps([[name, one.count] for name, one in parts.items()])
        arrays["names"] = np.frombuffer(names.encode(), dtype=np.uint8)
        buffer = io.BytesIO()
        np.savez(buffer, allow_pickle=False, **arrays)
        return buffer.getvalue()

    @classmethod
    def from_bytes(cls, state: bytes) -> Totals:
        """Read the moments."""
        totals = cls()
        with np.load(io.BytesIO(state), allow_pickle=False) as arrays:
            for at, (name, count) in enumerate(json.loads(arrays["names"].tobytes())):
                one = Moments(count, *(arrays[f"{at} {part}"] for part in _FIELDS))
                kind, _, label = name.partition(" ")
                if kind in ("group", "symbols"):
                    (totals.groups if kind == "group" else totals.symbols)[label] = one
                else:
                    setattr(totals, name, one)
        return totals


def _places(labels: list[str | None]) -> dict[str, list[int]]:
    """Return the rows of each group."""
    places: dict[str, list[int]] = {}
    for place, label in enumerate(labels):
        if label is not None:
            places.setdefault(label, []).append(place)
    return places


def _add(groups: dict[str, Moments], rows: NDArray[Any], places: dict[str, list[int]]) -> None:
    for label, chosen in places.items():
        groups.setdefault(label, Moments()).add(rows[chosen], np.ones(len(chosen)))


def _names_symbols(release: Release) -> bool:
    return isinstance(release.randomizer, SymbolForm)


def _width(release: Release) -> int:
    return release.decoder.input_dim


def numbers(release: Release, groups: int) -> int:
    """Return how many numbers the moments of a round hold, times three."""
    decoded = release.unbiased_decoder.output_dim * (groups + 1) if release.supports_mean else 0
    return _width(release) * (groups * _names_symbols(release) + 1) + decoded


def can_tell(release: Release) -> bool:
    """Say whether means or shares of symbols can be estimated without bias."""
    return release.supports_mean or _names_symbols(release)


def means_facts(round_name: str, release: Release, totals: Totals) -> dict[str, Any]:
    """Return means and shares with standard errors of everybody and of each group, for JSON."""
    groups = sorted({*totals.groups, *totals.symbols})
    decoded: dict[str | None, Moments] = {None: totals.everybody}
    decoded |= dict(totals.groups.items())
    symbols: dict[str | None, Moments] = {}
    if _names_symbols(release):
        symbols = {None: totals.observed, **dict(totals.symbols.items())}
    entries = [_entry(label, decoded.get(label), symbols.get(label)) for label in (None, *groups)]
    return {
        "round": round_name,
        "release": release.hash,
        "reports": totals.observed.count,
        "means": entries if totals.observed.count else [],
    }


def _entry(label: str | None, decoded: Moments | None, symbols: Moments | None) -> dict[str, Any]:
    mean = decoded if decoded is not None and decoded.count else None
    count = mean.count if mean is not None else symbols.count if symbols is not None else 0
    # Moments older than these counts, whose reports are gone, know no symbols of groups.
    shares = symbols if symbols is not None and symbols.count == count else None
    return {
        "group": label,
        "reports": count,
        "mean": None if mean is None else mean.mean.tolist(),
        "standard_error": _error(mean),
        "shares": None if shares is None else shares.mean.tolist(),
        "shares_error": _error(shares),
    }


def _error(one: Moments | None) -> list[float] | None:
    return None if one is None or one.count < 2 else one.standard_error.tolist()


# ----------------------------------------------------------------------------
# Means that grow: moments of a round's reports up to a mark, stored with the mark.
#
# Contract: what is stored are the moments of exactly the reports with numbers up to the mark that
# were not withdrawn. Mark and moments change in one transaction, and only if nobody else moved the
# mark and no report was withdrawn since it was read. So any number of processes may follow a round.

_PAGE_ROWS: Final = 65_536
_PAGE_BYTES: Final = 64 << 20


@dataclass(frozen=True)
class _Reading:
    withdrawn: int
    mark: int
    state: bytes | None
    rows: list[tuple[bytes, str | None]]
    last: int


class Follower:
    """Keeps the moments of rounds up to date."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._turns: defaultdict[int, threading.Lock] = defaultdict(threading.Lock)

    def follow(self, key: int, release: Release) -> Totals:
        """Bring the moments of a round up to the last report, and return them."""
        with self._turns[key]:
            return self._follow(key, release)[0]

    def finish(self, key: int, release: Release, now: datetime) -> None:
        """Make the moments final, and let no report be read or stored after that."""
        with self._turns[key]:
            while True:
                _, mark = self._follow(key, release)
                with writing(self._engine) as connection:
                    take_turns(connection, [key])
                    # A withdrawal meanwhile takes the moments away; then they are made again.
                    whole = _mark(connection, key)[0] == mark
                    if whole and not _after(connection, key, mark, 1):
                        its = update(round_).where(
                            round_.c.id == key, round_.c.deleted_at.is_(None)
                        )
                        connection.execute(its.values(deleted_at=now))
                        return

    def _follow(self, key: int, release: Release) -> tuple[Totals, int]:
        rows = max(1, min(_PAGE_ROWS, _PAGE_BYTES // release.report_size))
        totals, known = None, None
        while True:
            found = self._read(key, rows)
            if totals is None or known != (found.mark, found.withdrawn):
                # The first reading, or somebody else moved the mark or withdrew a report.
                totals = Totals() if found.state is None else Totals.from_bytes(found.state)
            if found.last == found.mark:
                return totals, found.mark
            if found.rows:
                totals.add(release, found.rows)
            stored = self._store(key, found, totals)
            known = (found.last, found.withdrawn) if stored else None

    def _read(self, key: int, rows: int) -> _Reading:
        with self._engine.connect() as connection:
            withdrawn = connection.execute(
                select(round_.c.withdrawn).where(round_.c.id == key)
            ).scalar_one()
            mark, state = _mark(connection, key)
            page = _after(connection, key, mark, rows)
        kept = [(bytes(content), label) for content, label, _ in page if content is not None]
        last = page[-1].seq if page else mark
        return _Reading(withdrawn, mark, state, kept, last)

    def _store(self, key: int, found: _Reading, totals: Totals) -> bool:
        """Store moments unless they are about something that has changed since."""
        state = totals.to_bytes()
        with writing(self._engine) as connection:
            take_turns(connection, [key])
            asked = select(round_.c.withdrawn).where(round_.c.id == key)
            its = moments.c.round == key
            mark = connection.execute(select(moments.c.upto).where(its)).scalar()
            expected = None if found.state is None else found.mark
            if connection.execute(asked).scalar_one() != found.withdrawn or mark != expected:
                return False
            values = {
                "upto": found.last,
                "state": state,
                "counted": totals.observed.count,
            }
            if found.state is None:
                connection.execute(insert(moments).values(round=key, **values))
            else:
                connection.execute(update(moments).where(its).values(**values))
            return True


def _mark(connection: Connection, key: int) -> tuple[int, bytes | None]:
    """Return up to which number reports are in the moments, and these; before any, the base."""
    asked = select(moments.c.upto, moments.c.state).where(moments.c.round == key)
    stored = connection.execute(asked).first()
    if stored is not None:
        return int(stored.upto), bytes(stored.state)
    base = connection.execute(select(round_.c.base).where(round_.c.id == key)).scalar_one()
    return int(base), None


def _after(connection: Connection, key: int, mark: int, rows: int) -> Sequence[Any]:
    asked = select(report.c.content, report.c.label, report.c.seq)
    # The sum keeps databases from choosing the index by id, behind which they would have to sort.
    asked = asked.where(report.c.round + 0 == key, report.c.seq > mark)
    return connection.execute(asked.order_by(report.c.seq).limit(rows)).all()
