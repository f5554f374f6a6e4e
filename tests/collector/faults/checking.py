"""A database made ready for collectors, and what it must hold in the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from sqlalchemy import select

from offaxis.collector.access import new_token
from offaxis.collector.database import connect, open_database, report, round_
from offaxis.collector.store import Store
from offaxis.formats.documents import Round, sign_release, sign_round
from offaxis.formats.release_file import to_bytes
from offaxis.release import Release
from tests.collector.faults.dying import opened
from tests.collector.running import KEY

PUBLISHER = KEY.public_key().public_bytes_raw().hex()


def prepared(url: str, release: Release, *names: str) -> dict[str, str]:
    """Publish a release with open rounds of it; return tokens by role."""
    now = datetime.now(UTC).replace(microsecond=0)
    engine = open_database(url)
    store = Store(engine)
    store.publish(release.hash, to_bytes(release), sign_release(KEY, release.hash), now)
    times = {"opens": now - timedelta(days=1), "closes": now + timedelta(days=1)}
    for number, name in enumerate(names):
        one = Round(name=name, study="faults", number=number, release=release.hash, **times)
        store.add_round(one, sign_round(KEY, one))
    tokens = {role: new_token() for role in ("device", "analyst")}
    for role, token in tokens.items():
        store.add_token(token, role, role, now)
    engine.dispose()
    return tokens


@dataclass(frozen=True)
class Found:
    """What a round's rows look like beside what was sent."""

    rows: int
    lost: int
    double: int
    strange: int

    @property
    def sound(self) -> bool:
        """Whether nothing acknowledged is lost, nothing is there twice and nothing was made up."""
        return not (self.lost or self.double or self.strange)


def rows_of(url: str, name: str) -> list[tuple[bytes, bytes]]:
    """Return ids and reports of a round as they are stored."""
    engine = connect(url)
    asked = select(report.c.id, report.c.content).join(round_).where(round_.c.name == name)
    with engine.connect() as connection:
        rows = [(bytes(one), bytes(content)) for one, content in connection.execute(asked)]
    engine.dispose()
    return rows


def look(
    url: str, name: str, sent: Mapping[bytes, bytes], acknowledged: Mapping[bytes, bytes]
) -> Found:
    """Compare a round's rows with what was sent, and what of that was acknowledged."""
    rows = rows_of(url, name)
    stored = dict(rows)
    return Found(
        rows=len(rows),
        lost=sum(stored.get(one) != content for one, content in acknowledged.items()),
        double=len(rows) - len(stored),
        strange=sum(sent.get(one) != content for one, content in stored.items()),
    )


def mean_error(release: Release, found: dict[str, Any], sent: Mapping[bytes, bytes]) -> float:
    """Return how far a collector's mean is from that of the reports, in standard errors."""
    assert found["reports"] == len(sent)
    decoded = release.unbiased_decoder.decode(release.observe(list(sent.values())))
    everybody = found["means"][0]
    off = np.abs(np.asarray(everybody["mean"]) - decoded.mean(axis=0))
    return float(np.max(off / np.asarray(everybody["standard_error"])))


def check_devices(url: str, order: dict[str, Any]) -> tuple[int, int]:
    """Compare what devices paid for with what came; return how many reports and rounds refused.

    Each device has answered as many rounds as its limit allows, and each of its answers is stored
    once, as it was kept. Nothing else is stored.
    """
    stored = {name: rows_of(url, name) for name in order["rounds"]}
    allowed = int(Fraction(order["limit"]) / Fraction(order["epsilon"]))
    reports = refused = 0
    for number in range(order["devices"]):
        with opened(order, number) as device:
            kept = [entry for entry in device.status() if entry.report]
            refused += len(order["rounds"]) - len(kept)
            assert [entry.state for entry in kept] == ["sent"] * allowed
            assert device.ledger.spent()[0] == Fraction(order["epsilon"]) * len(kept)
            assert device.ledger.spent()[0] <= Fraction(order["limit"])
        for entry in kept:
            assert stored[entry.round].count((entry.id, entry.report)) == 1
        reports += len(kept)
    assert sum(map(len, stored.values())) == reports
    return reports, refused


def order_of(
    port: int, token: str, release: Release, rounds: Sequence[str], folder: Path
) -> dict[str, Any]:
    """Return what devices must know; their limit allows all rounds but the last two."""
    epsilon = release.guarantee.epsilon
    return {
        "folder": str(folder),
        "url": f"http://127.0.0.1:{port}",
        "publisher": PUBLISHER,
        "token": token,
        "rounds": list(rounds),
        "epsilon": str(epsilon),
        "limit": str(epsilon * (len(rounds) - 2)),
        "dim": release.input_dim,
        "seconds": 0.1,
        "growing": 1.3,
    }
