"""Means and shares of a round's reports, and the stored moments that they are computed from.

Contract: the stored moments are those of exactly the reports with a seq up to the mark that were
not withdrawn. Mark and moments change in one transaction, and only if no other process moved the
mark and no report was withdrawn since they were read. So any number of processes may follow a
round.
"""

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

from offaxis.collector.database import lock_rounds, moments, report, round_, writing
from offaxis.decoding import Shares
from offaxis.decoding.aggregate import Moments
from offaxis.decoding.pairs import PairDecoder
from offaxis.decoding.second_moments import SecondMomentsDecoder
from offaxis.encoding.pairs import PairEncoder
from offaxis.learning.sums import FOLDS, PairSums
from offaxis.randomizers.memoised import Memoised
from offaxis.randomizers.symbols import SymbolForm
from offaxis.release import Release

_PART_NUMBERS: Final = 1 << 17
MOST_NUMBERS: Final = 1 << 22
"""Largest :func:`moments_size` that a round may have."""

LEVEL: Final = 0.95
"""Level of intervals."""

_FIELDS: Final = ("sums", "mean", "squared_mean", "spread")


@dataclass(eq=False)
class Totals:
    """Moments of reports.

    Attributes
    ----------
    observed : Moments
        Of the observations (randomizer outputs) of all reports.
    everybody, groups : Moments, and dict of Moments
        Of the decoded reports, of all people and per group.
    symbols : dict of Moments
        Of the observations per group, if a report is a symbol; their means are its shares.
    folds : (folds, 1 + D) array or None
        Of pairs to learn from: the number of reports and the sums of their observations, as in
        :class:`~offaxis.learning.PairSums`.
    """

    observed: Moments = field(default_factory=Moments)
    everybody: Moments = field(default_factory=Moments)
    groups: dict[str, Moments] = field(default_factory=dict)
    symbols: dict[str, Moments] = field(default_factory=dict)
    folds: NDArray[np.float64] | None = None

    @property
    def summed(self) -> int:
        """Number of reports in the folds."""
        return 0 if self.folds is None else int(self.folds[:, 0].sum())

    def add(self, release: Release, rows: Sequence[tuple[bytes, str | None]]) -> None:
        """Add reports with their labels."""
        decoder = release.unbiased_decoder if release.supports_mean else None
        widest = max(decoder.output_dim if decoder else 1, release.decoder.input_dim)
        step = max(1, _PART_NUMBERS // widest)
        for start in range(0, len(rows), step):
            part = rows[start : start + step]
            observations = release.observe([content for content, _ in part])
            weights = np.ones(len(part))
            rows_by_group = _rows_by_group([label for _, label in part])
            self.observed.add(observations, weights)
            if learns(release):
                self.folds = _with_reports(self.folds, release, observations)
            if _reports_symbols(release):
                _add(self.symbols, observations, rows_by_group)
            if decoder is not None:
                decoded = decoder.decode(observations)
                self.everybody.add(decoded, weights)
                _add(self.groups, decoded, rows_by_group)

    def to_bytes(self) -> bytes:
        """Serialize the moments."""
        parts = {"observed": self.observed, "everybody": self.everybody}
        parts |= {f"group {label}": part for label, part in self.groups.items()}
        parts |= {f"symbols {label}": part for label, part in self.symbols.items()}
        arrays: dict[str, Any] = {}
        for i, part in enumerate(parts.values()):
            arrays |= {f"{i} {name}": getattr(part, name) for name in _FIELDS}
        names = json.dumps([[name, part.count] for name, part in parts.items()])
        if self.folds is not None:
            arrays["folds"] = self.folds
        arrays["names"] = np.frombuffer(names.encode(), dtype=np.uint8)
        buffer = io.BytesIO()
        np.savez(buffer, allow_pickle=False, **arrays)
        return buffer.getvalue()

    @classmethod
    def from_bytes(cls, state: bytes) -> Totals:
        """Read serialized moments."""
        totals = cls()
        with np.load(io.BytesIO(state), allow_pickle=False) as arrays:
            for i, (name, count) in enumerate(json.loads(arrays["names"].tobytes())):
                part = Moments(count, *(arrays[f"{i} {key}"] for key in _FIELDS))
                kind, _, label = name.partition(" ")
                if kind in ("group", "symbols"):
                    (totals.groups if kind == "group" else totals.symbols)[label] = part
                else:
                    setattr(totals, name, part)
            totals.folds = arrays["folds"] if "folds" in arrays.files else None
        return totals


def _rows_by_group(labels: list[str | None]) -> dict[str, list[int]]:
    by_group: dict[str, list[int]] = {}
    for row, label in enumerate(labels):
        if label is not None:
            by_group.setdefault(label, []).append(row)
    return by_group


def _add(
    groups: dict[str, Moments], values: NDArray[Any], rows_by_group: dict[str, list[int]]
) -> None:
    for label, rows in rows_by_group.items():
        groups.setdefault(label, Moments()).add(values[rows], np.ones(len(rows)))


def learns(release: Release) -> bool:
    """Whether the reports are of pairs that a model can be learnt from."""
    encoder = release.encoder
    single = not isinstance(release.randomizer, Memoised)
    pairs = isinstance(encoder, PairEncoder) and encoder.form != "right" and bool(release.asked)
    return pairs and single


def _with_reports(
    folds: NDArray[np.float64] | None, release: Release, observations: NDArray[Any]
) -> NDArray[np.float64]:
    """Return sums over the reports of pairs so far and over further observations."""
    sums = PairSums(release)
    sums.squares = None
    if folds is not None:
        sums.counts, sums.totals = folds[:, :1].astype(np.int64), folds[:, None, 1:].copy()
    sums.add_observed(observations)
    return np.hstack([sums.counts, sums.totals[:, 0]])


def _reports_symbols(release: Release) -> bool:
    return isinstance(release.randomizer, SymbolForm)


def moments_size(release: Release, groups: int) -> int:
    """Return the number of coordinates in a round's moments, which hold three numbers for each."""
    decoded = release.unbiased_decoder.output_dim * (groups + 1) if release.supports_mean else 0
    folds = FOLDS * learns(release)
    return release.decoder.input_dim * (groups * _reports_symbols(release) + 1 + folds) + decoded


def has_estimates(release: Release) -> bool:
    """Return whether means or shares of symbols can be estimated without bias."""
    return release.supports_mean or _reports_symbols(release)


def without_estimates(release: Release) -> str:
    """Return what to do with reports of a release that has no estimates."""
    if isinstance(release.decoder, SecondMomentsDecoder):
        return f"{release.decoder.instead}: export the reports"
    if isinstance(release.decoder, PairDecoder):
        return (
            "these reports are about vectors and answers together, so they have no mean: export "
            "them, and learn a model with offaxis.learn"
        )
    return "fit a release for means, or export the reports"


def means_facts(round_name: str, release: Release, totals: Totals) -> dict[str, Any]:
    """Return means and shares with standard errors, of all people and per group, for JSON.

    The simultaneous 95 % intervals of the shares of an entry are from ``shares_low`` to
    ``shares_high`` (:meth:`offaxis.decoding.Shares.interval`). ``names`` are those of the symbols,
    if the release has them.
    """
    groups = sorted({*totals.groups, *totals.symbols})
    decoded: dict[str | None, Moments] = {}
    if release.supports_mean:  # stored moments may be of a version that averaged symbols
        decoded = {None: totals.everybody, **dict(totals.groups.items())}
    symbols: dict[str | None, Moments] = {}
    if _reports_symbols(release):
        symbols = {None: totals.observed, **dict(totals.symbols.items())}
    entries = [
        _entry(release, label, decoded.get(label), symbols.get(label)) for label in (None, *groups)
    ]
    names = {} if release.symbol_names is None else {"names": list(release.symbol_names)}
    return names | {
        "round": round_name,
        "release": release.hash,
        "reports": totals.observed.count,
        "means": entries if totals.observed.count else [],
    }


def _entry(
    release: Release, label: str | None, decoded: Moments | None, symbols: Moments | None
) -> dict[str, Any]:
    mean = decoded if decoded is not None and decoded.count else None
    count = mean.count if mean is not None else symbols.count if symbols is not None else 0
    # Moments from before migration 0002 whose reports are deleted have no symbols per group.
    shares = None
    if symbols is not None and symbols.count == count > 0:
        shares = shares_of(release, symbols)
    low, high = (None, None) if shares is None else shares.interval(LEVEL)
    return {
        "group": label,
        "reports": count,
        "mean": None if mean is None else mean.mean.tolist(),
        "standard_error": _standard_error(mean),
        "shares": None if shares is None else shares.estimate.tolist(),
        "shares_error": _standard_error(shares),
        "shares_low": None if low is None else low.tolist(),
        "shares_high": None if high is None else high.tolist(),
    }


def shares_of(release: Release, observed: Moments) -> Shares:
    """Return the shares of a release's symbols from the moments of observations."""
    randomizer = release.randomizer
    assert isinstance(randomizer, SymbolForm)
    return Shares.from_mean(observed.mean, observed.count, randomizer)


def _standard_error(part: Moments | Shares | None) -> list[float] | None:
    return None if part is None or part.count < 2 else part.standard_error.tolist()


# ---- Following a round

_PAGE_ROWS: Final = 65_536
_PAGE_BYTES: Final = 64 << 20


@dataclass(frozen=True)
class _Snapshot:
    """A page of a round's reports after the mark, with the moments up to the mark."""

    withdrawn: int
    mark: int
    state: bytes | None
    rows: list[tuple[bytes, str | None]]
    last: int


class Follower:
    """Keeps the moments of rounds up to date."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._locks: defaultdict[int, threading.Lock] = defaultdict(threading.Lock)

    def follow(self, key: int, release: Release) -> Totals:
        """Bring the moments of a round up to the last report, and return them."""
        with self._locks[key]:
            return self._follow(key, release)[0]

    def finish(self, key: int, release: Release, now: datetime) -> None:
        """Make the moments final; no report of the round is read or stored afterwards."""
        with self._locks[key]:
            while True:
                _, mark = self._follow(key, release)
                with writing(self._engine) as connection:
                    lock_rounds(connection, [key])
                    # A withdrawal meanwhile deletes the moments; then they are computed again.
                    complete = _mark(connection, key)[0] == mark
                    if complete and not _after(connection, key, mark, 1):
                        unmarked = update(round_).where(
                            round_.c.id == key, round_.c.deleted_at.is_(None)
                        )
                        connection.execute(unmarked.values(deleted_at=now))
                        return

    def _follow(self, key: int, release: Release) -> tuple[Totals, int]:
        rows = max(1, min(_PAGE_ROWS, _PAGE_BYTES // release.report_size))
        totals, expected = None, None
        while True:
            snapshot = self._read(key, rows)
            if totals is None or expected != (snapshot.mark, snapshot.withdrawn):
                # The first read, or another process moved the mark or withdrew a report.
                totals = Totals() if snapshot.state is None else Totals.from_bytes(snapshot.state)
            if snapshot.last == snapshot.mark:
                return totals, snapshot.mark
            if snapshot.rows:
                totals.add(release, snapshot.rows)
            stored = self._store(key, snapshot, totals)
            expected = (snapshot.last, snapshot.withdrawn) if stored else None

    def _read(self, key: int, rows: int) -> _Snapshot:
        with self._engine.connect() as connection:
            withdrawn = connection.execute(
                select(round_.c.withdrawn).where(round_.c.id == key)
            ).scalar_one()
            mark, state = _mark(connection, key)
            page = _after(connection, key, mark, rows)
        kept = [(bytes(content), label) for content, label, _ in page if content is not None]
        last = page[-1].seq if page else mark
        return _Snapshot(withdrawn, mark, state, kept, last)

    def _store(self, key: int, snapshot: _Snapshot, totals: Totals) -> bool:
        """Store moments, unless mark or withdrawals have changed since the snapshot."""
        state = totals.to_bytes()
        with writing(self._engine) as connection:
            lock_rounds(connection, [key])
            query = select(round_.c.withdrawn).where(round_.c.id == key)
            of_round = moments.c.round == key
            mark = connection.execute(select(moments.c.upto).where(of_round)).scalar()
            expected = None if snapshot.state is None else snapshot.mark
            if connection.execute(query).scalar_one() != snapshot.withdrawn or mark != expected:
                return False
            values = {
                "upto": snapshot.last,
                "state": state,
                "counted": totals.observed.count,
            }
            if snapshot.state is None:
                connection.execute(insert(moments).values(round=key, **values))
            else:
                connection.execute(update(moments).where(of_round).values(**values))
            return True


def _mark(connection: Connection, key: int) -> tuple[int, bytes | None]:
    """Return the mark and the stored moments; the base and None before any are stored."""
    query = select(moments.c.upto, moments.c.state).where(moments.c.round == key)
    stored = connection.execute(query).first()
    if stored is not None:
        return int(stored.upto), bytes(stored.state)
    base = connection.execute(select(round_.c.base).where(round_.c.id == key)).scalar_one()
    return int(base), None


def _after(connection: Connection, key: int, mark: int, rows: int) -> Sequence[Any]:
    query = select(report.c.content, report.c.label, report.c.seq)
    # The addition keeps databases from using the index by id, after which they would have to sort.
    query = query.where(report.c.round + 0 == key, report.c.seq > mark)
    return connection.execute(query.order_by(report.c.seq).limit(rows)).all()
