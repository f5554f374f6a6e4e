"""Collectors for tests that run in a thread, with a settable clock, and requests to them."""

from __future__ import annotations

import base64
import http.client
import json
import os
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import get_args

import uvicorn

from offaxis.collector.access import Role, new_token
from offaxis.collector.app import create_app
from offaxis.collector.service import Settings
from offaxis.formats.documents import Round, new_key, sign_release, sign_round
from offaxis.formats.release_file import to_bytes

START = datetime(2026, 11, 1, tzinfo=UTC)
KEY = new_key()


@dataclass
class Clock:
    now: datetime = START

    def __call__(self) -> datetime:
        return self.now


@dataclass
class Response:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def kind(self) -> str:
        assert self.headers["content-type"] == "application/problem+json", self
        assert self.json["status"] == self.status
        return self.json["type"]


def http_request(port, method, path, body=None, token=None, **headers) -> Response:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=180)
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    if token is not None:
        sent["Authorization"] = f"Bearer {token}"
    try:
        connection.request(method, path, body, sent)
        got = connection.getresponse()
        return Response(got.status, {k.lower(): v for k, v in got.getheaders()}, got.read())
    finally:
        connection.close()


def encoded(signature: bytes) -> str:
    return base64.b64encode(signature).decode()


def make_round(release, name, **more) -> Round:
    values = {"study": "s", "number": 1, "opens": START, "closes": START + timedelta(days=1)}
    return Round(name=name, release=release.hash, **(values | more))


def new_id() -> bytes:
    return os.urandom(32)


@dataclass
class Running:
    """A running collector, with a token for every role."""

    port: int
    clock: Clock
    app: object
    tokens: dict[str, str] = field(default_factory=dict)

    @property
    def collector(self):
        return self.app.state.collector

    def request(self, role, method, path, body=None, **headers) -> Response:
        return http_request(self.port, method, path, body, self.tokens.get(role), **headers)

    def publish(self, release) -> None:
        signature = encoded(sign_release(KEY, release.hash))
        path = f"/v1/releases/{release.hash}"
        got = self.request("admin", "PUT", path, to_bytes(release), Offaxis_Signature=signature)
        assert got.status in (200, 201), got

    def open(self, release, name, **more) -> Round:
        self.publish(release)
        round_ = make_round(release, name, **more)
        signature = encoded(sign_round(KEY, round_))
        path = f"/v1/rounds/{name}"
        got = self.request("admin", "PUT", path, round_.to_bytes(), Offaxis_Signature=signature)
        assert got.status == 201, got
        return round_

    def upload(self, name, id_, report, **headers) -> Response:
        return self.request(
            "device", "PUT", f"/v1/rounds/{name}/reports/{id_.hex()}", report, **headers
        )

    def withdraw(self, name, id_) -> None:
        got = self.request("device", "DELETE", f"/v1/rounds/{name}/reports/{id_.hex()}")
        assert got.status == 204, got

    def batch(self, name, pairs, **headers) -> Response:
        body = b"".join(id_ + report for id_, report in pairs)
        return self.request("device", "POST", f"/v1/rounds/{name}/reports", body, **headers)


@contextmanager
def running(database: str, **settings):
    """Serve from a thread of this process until the block ends."""
    clock = Clock()
    app = create_app(Settings(database=database, clock=clock, **settings))
    server = uvicorn.Server(
        uvicorn.Config(
            app, port=0, log_config=None, access_log=False, loop="asyncio", http="httptools"
        )
    )
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    started = Running(port, clock, app)
    for role in get_args(Role):
        started.tokens[role] = new_token()
        started.collector.store.add_token(started.tokens[role], f"the {role}", role, START)
    started.collector.catalogue.refresh()
    try:
        yield started
    finally:
        server.should_exit = True
        thread.join(180)
        assert not thread.is_alive()
