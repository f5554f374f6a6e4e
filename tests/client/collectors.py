"""A minimal collector on a real socket whose responses a test can script."""

from __future__ import annotations

import base64
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from json import dumps
from typing import Any, NamedTuple

import pytest

from offaxis.client import Device
from offaxis.errors import OffaxisError
from offaxis.formats.documents import Round, new_key, sign_round
from offaxis.formats.release_file import to_bytes
from offaxis.release import Release

KEY = new_key()
PUBLISHER = KEY.public_key().public_bytes_raw().hex()


def make_round(release: Release | str, name: str = "energy-1", **changes: Any) -> Round:
    fields: dict[str, Any] = {
        "name": name,
        "study": "energy",
        "number": 1,
        "release": release if isinstance(release, str) else release.hash,
        "opens": datetime(2026, 11, 1, tzinfo=UTC),
        "closes": datetime(2096, 12, 1, tzinfo=UTC),
    }
    return Round(**fields | changes)


def signed_entry(round_: Round, key: Any = KEY, state: str = "open") -> dict[str, Any]:
    signature = base64.b64encode(sign_round(key, round_)).decode()
    return {"document": round_.model_dump(mode="json"), "signature": signature, "state": state}


class Request(NamedTuple):
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


Script = Callable[["Handler"], None]


class Collector:
    """Serves rounds and releases honestly, except for scripted paths.

    Attributes
    ----------
    seen : list of Request
        Every request received.
    scripts : dict
        Handlers that replace the honest one, by ``(method, path prefix)``.
    """

    def __init__(self) -> None:
        self.seen: list[Request] = []
        self.rounds: dict[str, dict[str, Any]] = {}
        self.releases: dict[str, bytes] = {}
        self.stored: dict[str, bytes | None] = {}
        self.scripts: dict[tuple[str, str], Script] = {}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.collector = self  # type: ignore[attr-defined]
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def offer(self, release: Release, **changes: Any) -> Round:
        """Publish a release and open a round for it."""
        round_ = make_round(release, **changes)
        self.releases[release.hash] = to_bytes(release)
        self.rounds[round_.name] = signed_entry(round_)
        return round_

    def uploads(self) -> list[Request]:
        """Return every request that carried any part of a report."""
        return [
            request
            for request in self.seen
            if request.body or request.method not in ("GET", "DELETE")
        ]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, status: int, body: bytes | str = b"", **headers: str) -> None:
        content = body.encode() if isinstance(body, str) else body
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def problem(self, status: int, kind: str, **headers: str) -> None:
        body = dumps({"type": kind, "title": kind, "detail": f"this is {kind}"})
        self.answer(status, body, Content_Type="application/problem+json", **headers)

    def log_message(self, *_: Any) -> None:
        pass

    def serve(self) -> None:
        collector: Collector = self.server.collector  # type: ignore[attr-defined]
        announced = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(announced)
        headers = {name.lower(): value for name, value in self.headers.items()}
        collector.seen.append(Request(self.command, self.path, headers, body))
        if len(body) < announced:
            return  # the sender is gone
        with suppress(OSError):
            for (method, prefix), script in list(collector.scripts.items()):
                if method == self.command and self.path.startswith(prefix):
                    script(self)
                    return
            self._answer_honestly(collector, body)

    def _answer_honestly(self, collector: Collector, body: bytes) -> None:
        parts = self.path.removeprefix("/v1/").split("/")
        match self.command, parts:
            case "GET", ["rounds"]:
                self.answer(200, dumps({"rounds": list(collector.rounds.values())}))
            case "GET", ["rounds", name] if name in collector.rounds:
                self.answer(200, dumps(collector.rounds[name]))
            case "GET", ["releases", name] if name in collector.releases:
                self.answer(200, collector.releases[name])
            case "PUT", ["rounds", name, "reports", _] if name in collector.rounds:
                stored = collector.stored.setdefault(self.path, body)
                if stored == body:
                    self.answer(201)
                else:
                    self.problem(409, "conflict")
            case "DELETE", ["rounds", _, "reports", _]:
                collector.stored[self.path] = None
                self.answer(204)
            case _:
                self.problem(404, "not-found")


for _method in ("GET", "PUT", "POST", "DELETE"):
    setattr(Handler, f"do_{_method}", Handler.serve)


def assert_refused(collector: Collector, device: Device, vector: object, *words: str) -> None:
    """Check that a round is refused, nothing is paid and nothing is sent."""
    spent = device.ledger.spent()
    with pytest.raises(OffaxisError) as caught:
        device.report("energy-1", vector)
    for word in words:
        assert word in str(caught.value)
    device.send(at_once=True)
    assert collector.uploads() == []
    assert device.ledger.spent() == spent
