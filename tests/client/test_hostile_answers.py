"""Malformed responses: the device gives up in time, sends nothing and pays nothing."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from offaxis.errors import OffaxisError
from tests.client.collectors import Handler, assert_refused


def _redirect(handler: Handler) -> None:
    handler.answer(307, Location=handler.path)


def _endless(handler: Handler) -> None:
    handler.send_response(200)
    handler.send_header("Connection", "close")
    handler.end_headers()
    handler.close_connection = True
    while True:
        handler.wfile.write(b"{" * 65536)


def _endless_header(handler: Handler) -> None:
    handler.wfile.write(b"HTTP/1.1 200 OK\r\n")
    while True:
        handler.wfile.write(b"X: y\r\n" * 1000)


def _huge_claim(handler: Handler) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", str(10**15))
    handler.end_headers()
    handler.wfile.write(b"{}")
    handler.close_connection = True


def _slow_body(handler: Handler) -> None:
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
    while True:
        handler.wfile.write(b" ")
        time.sleep(0.02)


def _slow_header(handler: Handler) -> None:
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nX: ")
    while True:
        handler.wfile.write(b"y")
        time.sleep(0.02)


def _hang_up(handler: Handler) -> None:
    handler.close_connection = True


def _not_http(handler: Handler) -> None:
    handler.wfile.write(b"\x00\x01 hello\r\n\r\n")
    handler.close_connection = True


def _garbage_problem(handler: Handler) -> None:
    handler.answer(500, b"\xff{[\x1b]0;title\x07" * 10, Content_Type="application/problem+json")


def _mistyped_problem(handler: Handler) -> None:
    handler.answer(500, '{"type": [1], "detail": {}}', Content_Type="application/problem+json")


def _deep_json(handler: Handler) -> None:
    handler.answer(200, "[" * 500_000)


def _number_json(handler: Handler) -> None:
    handler.answer(200, '{"document": {"number": ' + "9" * 100_000 + "}}")


def _list_json(handler: Handler) -> None:
    handler.answer(200, "[]")


ATTACKS: list[Callable[[Handler], None]] = [
    _redirect,
    _endless,
    _endless_header,
    _huge_claim,
    _slow_body,
    _slow_header,
    _hang_up,
    _not_http,
    _garbage_problem,
    _mistyped_problem,
    _deep_json,
    _number_json,
    _list_json,
]


def patience(attack: Callable[[Handler], None]) -> float:
    """Return a short time limit for attacks that last until they are cut off."""
    return 1.0 if attack in (_slow_body, _slow_header) else 10.0


@pytest.mark.parametrize("attack", ATTACKS)
def test_malformed_rounds_are_refused(collector, device_of, release, public, attack):
    collector.offer(release)
    device = device_of(patience=patience(attack))
    collector.scripts["GET", "/v1/rounds"] = attack
    assert_refused(collector, device, public[0])
    with pytest.raises(OffaxisError):
        device.rounds()


@pytest.mark.parametrize("attack", [_redirect, _huge_claim, _hang_up, _garbage_problem])
def test_malformed_releases_are_refused(collector, device_of, release, public, attack):
    collector.offer(release)
    device = device_of(patience=patience(attack))
    collector.scripts["GET", "/v1/releases"] = attack
    assert_refused(collector, device, public[0])


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_malformed_response_to_an_upload_changes_nothing(
    collector, device_of, release, public, attack
):
    """The report stays queued with its bytes; a redirected upload is not sent elsewhere."""
    collector.offer(release)
    entry = device_of().report("energy-1", public[0])
    collector.scripts["PUT", "/"] = attack
    (attempted,) = device_of(patience=patience(attack)).send()
    status_200 = (_deep_json, _number_json, _list_json)
    assert attempted.state == ("sent" if attack in status_200 else "queued")
    assert attempted.report == (b"" if attempted.state == "sent" else entry.report)
    assert attempted.problem.isprintable()
    assert len(collector.uploads()) == 1
