"""Database failures: 503 with Retry-After, no partial batches, and automatic recovery."""

from __future__ import annotations

import socket
import time

import psycopg
import pytest
from sqlalchemy import event

from offaxis.collector import service
from offaxis.collector.access import Buckets
from offaxis.collector.problems import Problem
from tests.collector.running import new_id, running


def _wait_until_ready(server) -> None:
    end = time.monotonic() + 180
    while server.request("nobody", "GET", "/readyz").status != 200:
        assert time.monotonic() < end, "not ready again"
        time.sleep(0.02)


def test_a_full_disk_is_unavailable_until_there_is_space(new_database, for_means, some_reports):
    with running(new_database("sqlite")) as server:
        server.open(for_means, "full")
        engine = server.collector.writer.engine
        pages = [1 << 30]

        @event.listens_for(engine, "checkout")
        def _limit(connection, record, proxy):
            # Exceeding SQLite's page limit raises the same error as a full disk.
            connection.execute(f"PRAGMA max_page_count = {pages[0]}")

        first = [(new_id(), report) for report in some_reports[:20]]
        assert server.batch("full", first).json["accepted"] == 20
        pages[0] = 1
        many = [(new_id(), report) for report in some_reports]
        got = server.batch("full", many)
        assert (got.status, got.kind) == (503, "unavailable")
        assert int(got.headers["retry-after"]) > 0
        assert server.request("nobody", "GET", "/readyz").kind == "unavailable"
        assert server.request("admin", "GET", "/v1/rounds/full").json["reports"] == 20
        pages[0] = 1 << 30
        assert server.batch("full", many).json["accepted"] == len(many)
        assert server.request("nobody", "GET", "/readyz").status == 200
        assert server.batch("full", first).json["repeated"] == 20


def test_a_lost_database_is_unavailable_until_it_returns(new_database, for_means, some_reports):
    url = new_database("postgresql")
    name = url.split("/")[3].split("?")[0]
    with (
        running(url, retry_seconds=1.0) as server,
        psycopg.connect(url.replace(f"/{name}", "/postgres"), autocommit=True) as master,
    ):
        server.open(for_means, "lost")
        first = new_id()
        assert server.upload("lost", first, some_reports[0]).status == 201
        cut = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"
        # Dead connections are replaced without an error.
        master.execute(cut)
        assert server.upload("lost", first, some_reports[0]).status in (200, 503)
        master.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
        master.execute(cut)
        second = new_id()
        got = server.upload("lost", second, some_reports[1])
        assert (got.status, got.kind) == (503, "unavailable")
        assert "retry-after" in got.headers
        assert server.request("nobody", "GET", "/readyz").kind == "unavailable"
        assert server.request("nobody", "GET", "/healthz").status == 200
        assert server.request("analyst", "GET", "/v1/rounds/lost/means").kind == "unavailable"
        master.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
        # A load balancer sends nothing to a collector that is not ready, so this state must end.
        _wait_until_ready(server)
        assert server.upload("lost", second, some_reports[1]).status == 201
        assert server.upload("lost", first, some_reports[0]).status == 200


def test_a_stale_catalogue_accepts_nothing(new_database, for_means, some_reports, monkeypatch):
    with running(new_database("sqlite")) as server:
        server.open(for_means, "stale")
        monkeypatch.setattr(service, "_STALE", -1.0)
        assert server.upload("stale", new_id(), some_reports[0]).kind == "unavailable"
        monkeypatch.undo()
        assert server.upload("stale", new_id(), some_reports[0]).status == 201


def test_two_processes_share_one_database(new_database, for_means, some_reports):
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
            means = server.request("analyst", "GET", "/v1/rounds/shared/means").json
            assert means["reports"] == 2
        one.request("admin", "POST", "/v1/rounds/shared/close")
        two.collector.catalogue.refresh()
        assert two.upload("shared", new_id(), some_reports[2]).status == 410


def test_a_token_above_its_rate_must_wait(new_database, for_means, some_reports):
    with running(new_database("sqlite"), device_rate=1.0, reader_rate=1000.0) as server:
        server.collector.device_buckets._clock = lambda: 0.0  # no time passes
        server.open(for_means, "rate")
        got = [server.upload("rate", new_id(), report) for report in some_reports[:4]]
        assert [response.status for response in got] == [201, 201, 429, 429]
        assert (got[3].kind, got[3].headers["retry-after"]) == ("too-many", "1")
        assert server.request("admin", "GET", "/v1/rounds/rate").status == 200


def test_buckets_refill_over_time():
    now = [0.0]
    buckets = Buckets(10.0, lambda: now[0])
    buckets.take(1, 20)
    with pytest.raises(Problem) as caught:
        buckets.take(1)
    assert caught.value.headers["retry-after"] == "1"
    buckets.take(2, 20)
    now[0] = 0.5
    buckets.take(1, 5)
    with pytest.raises(Problem):
        buckets.take(1)
    # A count above the capacity passes when the bucket is full, and the rest is owed.
    now[0] = 100.0
    buckets.take(1, 100)
    now[0] = 107.0
    with pytest.raises(Problem):
        buckets.take(1)
    now[0] = 108.2
    buckets.take(1)


def test_an_incomplete_body_times_out(new_database, for_means):
    url = new_database("sqlite")
    with running(url) as server:
        server.open(for_means, "slow")  # without the short limit on bodies
    with running(url, body_seconds=0.05) as server:
        head = (
            f"PUT /v1/rounds/slow/reports/{'0' * 64} HTTP/1.1\r\nHost: x\r\n"
            f"Authorization: Bearer {server.tokens['device']}\r\nContent-Length: 20\r\n\r\nhalf"
        )
        with socket.create_connection(("127.0.0.1", server.port), timeout=180) as link:
            link.sendall(head.encode())
            assert b" 408 " in link.recv(4096).split(b"\r\n")[0]
