"""Databases that fail: 503 and when to come again, nothing half stored, and recovery by itself."""

from __future__ import annotations

import time

import psycopg
import pytest
from sqlalchemy import event

from offaxis.collector.access import Buckets
from offaxis.collector.problems import Problem
from tests.collector.running import new_id, running


def _ready_again(server) -> None:
    end = time.monotonic() + 180
    while server.ask("nobody", "GET", "/readyz").status != 200:
        assert time.monotonic() < end, "not ready again"
        time.sleep(0.02)


def test_a_full_disk(new_database, for_means, some_reports):
    with running(new_database("sqlite")) as server:
        server.open(for_means, "full")
        engine = server.collector.writer.engine
        room = [1 << 30]

        @event.listens_for(engine, "checkout")
        def _limit(connection, record, proxy):
            # SQLite's own limit of pages gives its own error of a full disk.
            connection.execute(f"PRAGMA max_page_count = {room[0]}")

        first = [(new_id(), report) for report in some_reports[:20]]
        assert server.batch("full", first).json["accepted"] == 20
        room[0] = 1
        many = [(new_id(), report) for report in some_reports]
        got = server.batch("full", many)
        assert (got.status, got.kind) == (503, "unavailable")
        assert int(got.headers["retry-after"]) > 0
        assert server.ask("nobody", "GET", "/readyz").kind == "unavailable"
        assert server.ask("admin", "GET", "/v1/rounds/full").json["reports"] == 20
        room[0] = 1 << 30
        assert server.batch("full", many).json["accepted"] == len(many)
        assert server.ask("nobody", "GET", "/readyz").status == 200
        assert server.batch("full", first).json["repeated"] == 20


def test_a_lost_database(new_database, for_means, some_reports):
    url = new_database("postgresql")
    name = url.split("/")[3].split("?")[0]
    with (
        running(url, retry_seconds=1.0) as server,
        psycopg.connect(url.replace(f"/{name}", "/postgres"), autocommit=True) as master,
    ):
        server.open(for_means, "lost")
        one = new_id()
        assert server.upload("lost", one, some_reports[0]).status == 201
        cut = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"
        # Connections that die are replaced, and nobody notices.
        master.execute(cut)
        assert server.upload("lost", one, some_reports[0]).status in (200, 503)
        master.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
        master.execute(cut)
        two = new_id()
        got = server.upload("lost", two, some_reports[1])
        assert (got.status, got.kind) == (503, "unavailable")
        assert "retry-after" in got.headers
        assert server.ask("nobody", "GET", "/readyz").kind == "unavailable"
        assert server.ask("nobody", "GET", "/healthz").status == 200
        assert server.ask("analyst", "GET", "/v1/rounds/lost/means").kind == "unavailable"
        master.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
        # Nobody sends to one that is not ready: it says so for a while only.
        _ready_again(server)
        assert server.upload("lost", two, some_reports[1]).status == 201
        assert server.upload("lost", one, some_reports[0]).status == 200


def test_what_is_known_too_long_is_not_trusted(new_database, for_means, some_reports, monkeypatch):
    from offaxis.collector import service as catalogue

    with running(new_database("sqlite")) as server:
        server.open(for_means, "stale")
        monkeypatch.setattr(catalogue, "_STALE", -1.0)
        assert server.upload("stale", new_id(), some_reports[0]).kind == "unavailable"
        monkeypatch.undo()
        assert server.upload("stale", new_id(), some_reports[0]).status == 201


def test_two_processes_on_one_database_learn_from_each_other(new_database, for_means, some_reports):
    url = new_database("postgresql")
    with running(url) as one, running(url) as two:
        two.tokens = one.tokens
        one.open(for_means, "shared")
        two.collector.catalogue.refresh()
        same = new_id()
        assert one.upload("shared", same, some_reports[0]).status == 201
        assert two.upload("shared", same, some_reports[0]).status == 200
        assert two.upload("shared", same, some_reports[1]).status == 409
        assert two.upload("shared", new_id(), some_reports[1]).status == 201
        for server in (one, two):
            found = server.ask("analyst", "GET", "/v1/rounds/shared/means").json
            assert found["reports"] == 2
        one.ask("admin", "POST", "/v1/rounds/shared/close")
        two.collector.catalogue.refresh()
        assert two.upload("shared", new_id(), some_reports[2]).status == 410


def test_a_token_that_asks_too_much_must_wait(new_database, for_means, some_reports):
    with running(new_database("sqlite"), device_rate=1.0, reader_rate=1000.0) as server:
        server.collector.device_buckets._clock = lambda: 0.0  # no time passes
        server.open(for_means, "rate")
        found = [server.upload("rate", new_id(), report) for report in some_reports[:4]]
        assert [one.status for one in found] == [201, 201, 429, 429]
        assert (found[3].kind, found[3].headers["retry-after"]) == ("too-many", "1")
        assert server.ask("admin", "GET", "/v1/rounds/rate").status == 200


def test_buckets_fill_with_time():
    now = [0.0]
    buckets = Buckets(10.0, lambda: now[0])
    buckets.take(1, 20)
    with pytest.raises(Problem) as refused:
        buckets.take(1)
    assert refused.value.headers["retry-after"] == "1"
    buckets.take(2, 20)
    now[0] = 0.5
    buckets.take(1, 5)
    with pytest.raises(Problem):
        buckets.take(1)
    # More than the whole bucket is let through when it is full, and owed.
    now[0] = 100.0
    buckets.take(1, 100)
    now[0] = 107.0
    with pytest.raises(Problem):
        buckets.take(1)
    now[0] = 108.2
    buckets.take(1)


def test_a_body_that_does_not_come_is_not_waited_for(new_database, for_means):
    import socket

    url = new_database("sqlite")
    with running(url) as server:
        server.open(for_means, "slow")  # which may take its time
    with running(url, body_seconds=0.05) as server:
        head = (
            f"PUT /v1/rounds/slow/reports/{'0' * 64} HTTP/1.1\r\nHost: x\r\n"
            f"Authorization: Bearer {server.tokens['device']}\r\nContent-Length: 20\r\n\r\nhalf"
        )
        with socket.create_connection(("127.0.0.1", server.port), timeout=180) as link:
            link.sendall(head.encode())
            assert b" 408 " in link.recv(4096).split(b"\r\n")[0]
