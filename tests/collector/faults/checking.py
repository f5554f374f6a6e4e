"""Preparing a database for collectors, and checking its content afterwards."""

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
from tests.collector.faults.dying import open_device
from tests.collector.running import KEY

PUBLISHER = KEY.public_key().public_bytes_raw().hex()


def prepare_database(url: str, release: Release, *names: str) -> dict[str, str]:
    """Publish a release with open rounds; return tokens by role."""
    now = datetime.now(UTC).replace(microsecond=0)
    engine = open_database(url)
    store = Store(engine)
    store.publish(release.hash, to_bytes(release), sign_release(KEY, release.hash), now)
    times = {"opens": now - timedelta(days=1), "closes": now + timedelta(days=1)}
    for number, name in enumerate(names):
        document = Round(name=name, study="faults", number=number, release=release.hash, **times)
        store.add_round(document, sign_round(KEY, document))
    tokens = {role: new_token() for role in ("device", "analyst")}
    for role, token in tokens.items():
        store.add_token(token, role, role, now)
    engine.dispose()
    return tokens


@dataclass(frozen=True)
class Comparison:
    """A round's rows compared with what was sent."""

    rows: int
    lost: int
    double: int
    unknown: int

    @property
    def sound(self) -> bool:
        """Whether nothing acknowledged is lost, stored twice or unknown."""
        return not (self.lost or self.double or self.unknown)


def rows_of(url: str, name: str) -> list[tuple[bytes, bytes]]:
    """Return ids and reports of a round as they are stored."""
    engine = connect(url)
    query = select(report.c.id, report.c.content).join(round_).where(round_.c.name == name)
    with engine.connect() as connection:
        rows = [(bytes(id_), bytes(content)) for id_, content in connection.execute(query)]
    engine.dispose()
    return rows


def compare_rows(
    url: str, name: str, sent: Mapping[bytes, bytes], acknowledged: Mapping[bytes, bytes]
) -> Comparison:
    """Compare a round's rows with the reports that were sent, and those acknowledged."""
    rows = rows_of(url, name)
    stored = dict(rows)
    return Comparison(
        rows=len(rows),
        lost=sum(stored.get(id_) != content for id_, content in acknowledged.items()),
        double=len(rows) - len(stored),
        unknown=sum(sent.get(id_) != content for id_, content in stored.items()),
    )


def mean_error(release: Release, facts: dict[str, Any], sent: Mapping[bytes, bytes]) -> float:
    """Return the error of a collector's mean against that of the reports, in standard errors."""
    assert facts["reports"] == len(sent)
    decoded = release.unbiased_decoder.decode(release.observe(list(sent.values())))
    everybody = facts["means"][0]
    error = np.abs(np.asarray(everybody["mean"]) - decoded.mean(axis=0))
    return float(np.max(error / np.asarray(everybody["standard_error"])))


def check_devices(url: str, job: dict[str, Any]) -> tuple[int, int]:
    """Compare payments of devices with stored reports; return the reports and refused rounds.

    Each device has answered as many rounds as its limit allows, and each of its answers is stored
    once, under its id. Nothing else is stored.
    """
    stored = {name: rows_of(url, name) for name in job["rounds"]}
    allowed = int(Fraction(job["limit"]) / Fraction(job["epsilon"]))
    reports = refused = 0
    for number in range(job["devices"]):
        with open_device(job, number) as device:
            kept = [entry for entry in device.status() if entry.answered]
            refused += len(job["rounds"]) - len(kept)
            assert [entry.state for entry in kept] == ["sent"] * allowed
            assert device.ledger.spent()[0] == Fraction(job["epsilon"]) * len(kept)
            assert device.ledger.spent()[0] <= Fraction(job["limit"])
        for entry in kept:
            assert [id_ for id_, _ in stored[entry.round]].count(entry.id) == 1
        reports += len(kept)
    assert sum(map(len, stored.values())) == reports
    return reports, refused


def device_job(
    port: int, token: str, release: Release, rounds: Sequence[str], folder: Path
) -> dict[str, Any]:
    """Return the configuration of devices; their limit allows all rounds but two."""
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
