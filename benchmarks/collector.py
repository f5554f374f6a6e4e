"""Capacity of a collector: single uploads, batches, memory and aggregation, on one machine.

    python -m benchmarks.collector [--database URL] [--singles 40000] [--reports 1000000]

The collector runs in a separate process with all checks on; this process uploads over the loopback
interface. Reports are of PrivUnit2 in 64 dimensions, with random ids.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import secrets
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import psutil

import offaxis
from benchmarks.harness import publish
from benchmarks.upload_load import Load, request
from offaxis.collector.database import connect
from offaxis.collector.means import Follower
from offaxis.formats.documents import Round, new_key, sign_release, sign_round
from offaxis.formats.release_file import to_bytes

PORT = 18470
BATCH = 5000
MEDIA = "application/vnd.offaxis.reports"


@contextmanager
def collector(database: str, folder: Path) -> Iterator[tuple[psutil.Process, str]]:
    """Start a collector; yield its process and the administrator's token."""
    log = (folder / "collector.log").open("wb")
    command = [sys.executable, "-m", "offaxis.cli", "serve", "--database", database]
    command += ["--port", str(PORT), "--device-rate", "10000000", "--reader-rate", "10000"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log)
    try:
        assert process.stdout is not None
        token = process.stdout.readline().decode().rsplit(None, 1)[-1]
        for _ in range(200):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{PORT}/readyz", timeout=1).close()
                break
            except OSError:
                time.sleep(0.1)
        yield psutil.Process(process.pid), token
    finally:
        process.terminate()
        process.wait(60)
        log.close()


def call(method: str, path: str, token: str, body: bytes = b"", **headers: str) -> Any:
    """Send a request and return the JSON of the response."""
    fields = {"Authorization": f"Bearer {token}"}
    fields |= {name.replace("_", "-"): value for name, value in headers.items()}
    prepared = urllib.request.Request(
        f"http://127.0.0.1:{PORT}{path}", body or None, fields, method=method
    )
    with urllib.request.urlopen(prepared, timeout=600) as response:
        return json.loads(response.read() or b"null")


def prepare(admin: str) -> tuple[offaxis.Release, dict[str, str]]:
    """Publish a release and one round per measurement; return the release and tokens by role."""
    rng = np.random.default_rng(0)
    release = offaxis.fit(
        rng.standard_normal((10, 64)),
        rng.standard_normal((5000, 64)),
        epsilon=5,
        mechanism="privunit2-mean",
    )
    key = new_key()

    def signed(signature: bytes) -> dict[str, str]:
        return {"Offaxis_Signature": base64.b64encode(signature).decode()}

    octets = {"Content_Type": "application/octet-stream"}
    call(
        "PUT",
        f"/v1/releases/{release.hash}",
        admin,
        to_bytes(release),
        **signed(sign_release(key, release.hash)),
        **octets,
    )
    now = datetime.now(UTC).replace(microsecond=0)
    for number, name in enumerate(("singles", "batches")):
        round_ = Round(
            name=name,
            study="load",
            number=number,
            release=release.hash,
            opens=now - timedelta(hours=1),
            closes=now + timedelta(hours=8),
        )
        call(
            "PUT",
            f"/v1/rounds/{name}",
            admin,
            round_.to_bytes(),
            **signed(sign_round(key, round_)),
            Content_Type="application/json",
        )
    tokens = {}
    for role in ("device", "analyst"):
        body = json.dumps({"name": role, "role": role}).encode()
        created = call("POST", "/v1/tokens", admin, body, Content_Type="application/json")
        tokens[role] = created["token"]
    return release, tokens


def singles(count: int, token: str, reports: list[bytes], connections: int) -> Load:
    """Upload this many reports, one per request."""

    def requests() -> Iterator[bytes]:
        for index in range(count):
            path = f"/v1/rounds/singles/reports/{secrets.token_hex(32)}"
            body = reports[index % len(reports)]
            yield request("PUT", path, token, body, "application/octet-stream")

    return Load().run(PORT, requests(), connections)


def batches(
    count: int, token: str, reports: list[bytes], memory: list[int], process: psutil.Process
) -> Load:
    """Upload this many reports in batches; record the collector's memory after every tenth."""

    def requests() -> Iterator[bytes]:
        for start in range(0, count, BATCH):
            if start % (count // 10) < BATCH:
                memory.append(process.memory_info().rss >> 20)
            rows = (reports[(start + i) % len(reports)] for i in range(BATCH))
            body = b"".join(os.urandom(32) + row for row in rows)
            yield request("POST", "/v1/rounds/batches/reports", token, body, MEDIA)

    load = Load().run(PORT, requests(), 4)
    memory.append(process.memory_info().rss >> 20)
    return load


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--database", default="", help="URL; by default a temporary SQLite file")
    parser.add_argument("--singles", type=int, default=40_000)
    parser.add_argument("--reports", type=int, default=1_000_000)
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--out", help="also write the figures as JSON")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        url = arguments.database or f"sqlite:///{folder}/collector.db"
        memory: list[int] = []
        with collector(url, folder) as (process, admin):
            release, tokens = prepare(admin)
            vectors = np.random.default_rng(1).standard_normal((20_000, 64))
            reports: Any = release.privatize(vectors)
            single = singles(arguments.singles, tokens["device"], reports, arguments.connections)
            bulk = batches(arguments.reports, tokens["device"], reports, memory, process)
            began = time.perf_counter()
            means = call("GET", "/v1/rounds/batches/means", tokens["analyst"])
            waited = time.perf_counter() - began
        assert single.statuses == {201: arguments.singles}, single.statuses
        assert means["reports"] == arguments.reports, means["reports"]
        engine = connect(url)
        with engine.begin() as connection:
            connection.exec_driver_sql("DELETE FROM moments")
        began = time.perf_counter()
        Follower(engine).follow(2, release)
        from_scratch = time.perf_counter() - began
    rate = arguments.singles / single.wall
    slow, median = np.quantile(single.seconds, [0.99, 0.5]) * 1e3
    bulk_rate = arguments.reports / bulk.wall
    growth = memory[-1] - memory[len(memory) // 3]
    figures = [
        {"what": "single uploads", "value": rate, "unit": "/s", "target": "≥ 2,000",
         "met": rate >= 2000},
        {"what": "  median", "value": median, "unit": "ms"},
        {"what": "  99th percentile", "value": slow, "unit": "ms"},
        {"what": f"reports in batches of {BATCH:,}", "value": bulk_rate, "unit": "/s",
         "target": "≥ 50,000", "met": bulk_rate >= 50_000},
        {"what": "memory after the first tenth", "value": memory[1], "unit": "MiB"},
        {"what": "memory at the end", "value": memory[-1], "unit": "MiB"},
        {"what": "  growth over the last two thirds", "value": growth, "unit": "MiB"},
        {"what": "means after the last batch", "value": waited, "unit": "s"},
        {"what": f"means of {arguments.reports:,} from scratch", "value": from_scratch, "unit": "s",
         "target": "< 10", "met": from_scratch < 10},
    ]  # fmt: skip
    print(f"memory in MiB after every tenth of the batches: {memory}")
    publish("collector", figures, arguments.out)


if __name__ == "__main__":
    main()
