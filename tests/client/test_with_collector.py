"""Devices and the real collector understand each other over a real socket."""

from __future__ import annotations

import base64
import json
import threading
import time
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
import uvicorn

from offaxis.client import Device
from offaxis.client.transport import Response, Transport
from offaxis.collector.app import create_app
from offaxis.collector.service import Settings
from offaxis.errors import RoundRefused
from offaxis.formats.documents import sign_release, sign_round
from offaxis.formats.release_file import to_bytes
from offaxis.privacy.ledger import Limit
from tests.client.collectors import KEY, PUBLISHER, make_round


class Running:
    """A running collector with an admin's access and a clock that tests can set."""

    def __init__(self, folder) -> None:
        self.now = datetime(2026, 11, 15, tzinfo=UTC)
        settings = Settings(f"sqlite:///{folder}/c.db", publisher=PUBLISHER, clock=lambda: self.now)
        app = create_app(settings)
        token = app.state.collector.first_token()
        config = uvicorn.Config(app, "127.0.0.1", 0, log_config=None, ws="none")
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run)
        self._thread.start()
        while not self._server.started:
            time.sleep(0.01)
        port = self._server.servers[0].sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self.admin = Transport(self.url, token=token)
        self.token = self.new_token("device")
        self.analyst = Transport(self.url, token=self.new_token("analyst"))

    def close(self) -> None:
        self._server.should_exit = True
        self._thread.join()

    def new_token(self, role: str) -> str:
        body = json.dumps({"name": role, "role": role}).encode()
        return str(json.loads(self.request("POST", "/v1/tokens", body).body)["token"])

    def request(
        self, method: str, path: str, body: bytes = b"", signature: bytes = b""
    ) -> Response:
        headers = {
            "Offaxis-Signature": base64.b64encode(signature).decode(),
            "Content-Type": "application/json",
        }
        if path.startswith("/v1/releases"):
            headers["Content-Type"] = "application/octet-stream"
        response = self.admin.request(method, path, body=body, headers=headers)
        assert response.status in (200, 201), response.message
        return response

    def offer(self, release, **changes):
        path = f"/v1/releases/{release.hash}"
        self.request("PUT", path, to_bytes(release), sign_release(KEY, release.hash))
        round_ = make_round(release, **changes)
        path = f"/v1/rounds/{round_.name}"
        self.request("PUT", path, round_.to_bytes(), sign_round(KEY, round_))
        return round_


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    collector = Running(tmp_path_factory.mktemp("collector"))
    yield collector
    collector.close()


@pytest.fixture
def people(running, tmp_path):
    """Return a function that opens a person's device."""
    opened = []

    def person(name) -> Device:
        device = Device(
            tmp_path / f"{name}.device",
            running.url,
            publisher=PUBLISHER,
            token=running.token,
            limits=[Limit(100)],
        )
        opened.append(device)
        return device

    yield person
    for device in opened:
        device.close()


def test_from_devices_to_means(running, people, release, public):
    """Twenty people in two groups, one of whom has no vector and one who withdraws."""
    running.offer(release, name="means-1", study="means", groups=("a", "b"))
    for i in range(20):
        device = people(i)
        assert "means-1" in [offer.round.name for offer in device.rounds()]
        device.report("means-1", None if i == 7 else public[i], "ab"[i % 2])
        assert device.send(at_once=True)[0].state == "sent"
    device.withdraw("means-1")
    assert device.send()[0].state == "withdrawn"
    response = running.analyst.request("GET", "/v1/rounds/means-1/means")
    assert response.status == 200, response.message
    assert json.loads(response.body)["reports"] == 19


def test_repeating_the_same_bytes_is_fine_and_other_bytes_are_a_conflict(
    running, people, release, public
):
    running.offer(release, name="twice-1", study="twice")
    device = people("one")
    entry = device.report("twice-1", public[0])
    device.send(at_once=True)
    path = f"/v1/rounds/twice-1/reports/{entry.id.hex()}"
    sender = Transport(running.url, token=running.token)
    headers = {"Content-Type": "application/octet-stream"}
    assert sender.request("PUT", path, body=entry.report, headers=headers).status == 200
    other = sender.request("PUT", path, body=release.privatize(public[0]), headers=headers)
    assert (other.status, other.problem_type) == (409, "conflict")


def test_a_report_to_a_future_round_is_retried_and_to_a_closed_one_is_not(
    running, people, release, public
):
    opens = running.now + timedelta(hours=1)
    closes = running.now + timedelta(hours=2)
    running.offer(release, name="later-1", study="later", opens=opens, closes=closes)
    early, late = people("early"), people("late")
    for device in (early, late):
        device.report("later-1", public[0])
        (entry,) = device.send(at_once=True)
        assert entry.state == "queued"
        assert "opens later" in entry.problem
    running.now = opens
    assert early.send(at_once=True)[0].state == "sent"
    running.now = closes
    assert late.send(at_once=True)[0].state == "refused"
    with pytest.raises(RoundRefused, match="is closed"):
        people("too late").report("later-1", np.zeros(6))


def test_a_report_with_an_unknown_token_is_retried(running, people, release, public):
    running.offer(release, name="token-1", study="token")
    device = people("one")
    device.report("token-1", public[0])
    device._transport._token = "wrong"
    assert device.send(at_once=True)[0].state == "queued"
    device._transport._token = running.token
    assert device.send(at_once=True)[0].state == "sent"
