"""A collector on this machine, and phones that report to it over HTTP."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import time
from base64 import b64encode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from pyarrow import parquet

from offaxis import Release
from offaxis.client import Device
from offaxis.client.transport import Transport
from offaxis.errors import InvalidInput, Unreachable
from offaxis.formats.documents import Round, new_key, sign_release, sign_round
from offaxis.formats.release_file import to_bytes
from offaxis.privacy.ledger import Limit
from tools.ports import free_port

_BATCH: Final = 10_000
_START: Final = 60.0
"""Seconds after which a collector that does not answer is an error."""


class Collector:
    """A running collector, seen by its publisher; start one with :func:`running`."""

    def __init__(self, url: str, token: str, folder: Path, key: Any) -> None:
        self._url, self._folder, self._key = url, folder, key
        self._admin = Transport(url, token=token)
        self._device = self._new_token("device")
        self._analyst = Transport(url, token=self._new_token("analyst"))
        self.publisher = key.public_key().public_bytes_raw().hex()

    def open_round(self, name: str, number: int, release: Release) -> None:
        """Publish a release, and open a round that asks for one report of it."""
        signature = sign_release(self._key, release.hash)
        self._put(f"/v1/releases/{release.hash}", to_bytes(release), signature)
        now = datetime.now(UTC).replace(microsecond=0)
        closes = now + timedelta(days=1)
        round_ = Round(
            name=name, study="digits", number=number, release=release.hash, opens=now, closes=closes
        )
        self._put(f"/v1/rounds/{name}", round_.to_bytes(), sign_round(self._key, round_))

    def devices_report(self, name: str, private: list[Any], epsilon: Any) -> None:
        """Let one device per private row answer a round.

        Each verifies the publisher's signature, recomputes the guarantee, and pays from a ledger of
        its own. A real one waits for a random time before it sends.
        """

        def report(place: int) -> None:
            with Device(
                self._folder / f"{name}-{place}.device",
                self._url,
                publisher=self.publisher,
                token=self._device,
                limits=[Limit(epsilon)],
            ) as device:
                device.report(name, private[place])
                device.send(at_once=True)

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(report, range(len(private))))

    def upload(self, name: str, reports: list[bytes]) -> None:
        """Send reports that were made elsewhere, each under a random id, in batches."""
        device = Transport(self._url, token=self._device)
        headers = {"Content-Type": "application/vnd.offaxis.reports"}
        for start in range(0, len(reports), _BATCH):
            body = b"".join(os.urandom(32) + report for report in reports[start : start + _BATCH])
            path = f"/v1/rounds/{name}/reports"
            _checked(device.request("POST", path, body=body, headers=headers))

    def reports(self, name: str) -> list[bytes]:
        """Return the reports of a round, from its export as a Parquet file."""
        path = f"/v1/rounds/{name}/export"
        answer = _checked(self._analyst.request("GET", path, largest=1 << 28))
        reports: list[bytes] = parquet.read_table(io.BytesIO(answer))["report"].to_pylist()
        return reports

    def _put(self, path: str, body: bytes, signature: bytes) -> None:
        headers = {"Offaxis-Signature": b64encode(signature).decode()}
        _checked(self._admin.request("PUT", path, body=body, headers=headers))

    def _new_token(self, role: str) -> str:
        body = json.dumps({"name": f"example {role}", "role": role}).encode()
        answer = _checked(self._admin.request("POST", "/v1/tokens", body=body))
        token: str = json.loads(answer)["token"]
        return token


@contextmanager
def running(folder: Path) -> Iterator[Collector]:
    """Start a collector with a database in a folder, and stop it at the end."""
    key, port = new_key(), free_port()
    command = [sys.executable, "-m", "offaxis.cli", "serve", "--port", str(port)]
    command += ["--database", f"sqlite:///{folder / 'collector.db'}"]
    command += ["--publisher", key.public_key().public_bytes_raw().hex()]
    with (folder / "collector.log").open("w") as log:
        server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        assert server.stdout is not None
        printed = server.stdout.readline()
        if not printed:
            raise InvalidInput(
                f"the collector did not start:\n{(folder / 'collector.log').read_text()}"
            )
        url = f"http://127.0.0.1:{port}"
        token = printed.split()[-1]
        _wait_for(Transport(url, token=token))
        yield Collector(url, token, folder, key)
    finally:
        server.terminate()
        server.communicate()


def _wait_for(collector: Transport) -> None:
    end = time.monotonic() + _START
    while True:
        try:
            collector.request("GET", "/v1/rounds")
            return
        except Unreachable:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


def _checked(answer: Any) -> bytes:
    if not 200 <= answer.status < 300:
        raise InvalidInput(f"the collector refused: {answer.message}")
    body: bytes = answer.body
    return body
