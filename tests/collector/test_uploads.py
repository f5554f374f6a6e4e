"""One report per id and round: uploads are idempotent, the first stays, and the clock decides."""

from __future__ import annotations

import concurrent.futures
import json
import socket
import time
from datetime import timedelta

import pytest

from offaxis.collector.access import MOST_REPORTS
from offaxis.collector.database import lock_rounds, writing
from tests.collector.running import START, new_id


def test_repeating_a_report_changes_nothing(server, for_means, some_reports):
    server.open(for_means, "again")
    id_, (first, second) = new_id(), some_reports[:2]
    assert server.upload("again", id_, first).status == 201
    for _ in range(2):
        got = server.upload("again", id_, first)
        assert (got.status, got.json) == (200, {"outcome": "repeated"})
    got = server.upload("again", id_, second)
    assert (got.status, got.kind) == (409, "conflict")
    assert server.upload("again", id_, first).status == 200
    assert server.request("analyst", "GET", "/v1/rounds/again").json["reports"] == 1


def test_the_same_id_in_another_round_is_another_report(server, for_means, some_reports):
    server.open(for_means, "this")
    server.open(for_means, "that")
    id_ = new_id()
    assert server.upload("this", id_, some_reports[0]).status == 201
    assert server.upload("that", id_, some_reports[1]).status == 201


def test_concurrent_uploads_are_stored_once(server, for_means, some_reports):
    server.open(for_means, "at-once")
    ids = [new_id() for _ in range(40)]
    sent = list(zip(ids, some_reports, strict=False)) * 3
    with concurrent.futures.ThreadPoolExecutor(16) as threads:
        statuses = list(threads.map(lambda pair: server.upload("at-once", *pair).status, sent))
    assert sorted(statuses) == [200] * 80 + [201] * 40
    assert server.request("admin", "GET", "/v1/rounds/at-once").json["reports"] == 40


def test_a_batch_counts_outcomes_and_lists_conflicts(server, for_means, some_reports):
    server.open(for_means, "batch")
    ids = [new_id() for _ in range(6)]
    pairs = list(zip(ids, some_reports, strict=False))
    assert server.batch("batch", pairs[:3]).json == {
        "accepted": 3,
        "repeated": 0,
        "conflicts": [],
    }
    mixed = [pairs[0], (ids[1], some_reports[9]), pairs[3], pairs[3], (ids[3], some_reports[9])]
    assert server.batch("batch", mixed).json == {
        "accepted": 1,
        "repeated": 2,
        "conflicts": [1, 4],
    }


def test_a_batch_with_a_malformed_report_is_not_stored(server, for_means, some_reports):
    server.open(for_means, "malformed")
    good = [(new_id(), report) for report in some_reports[:5]]
    broken = bytearray(some_reports[5])
    broken[4] ^= 1
    got = server.batch("malformed", [*good, (new_id(), bytes(broken))])
    assert (got.status, got.kind) == (422, "invalid-report")
    assert server.batch("malformed", [*good, (b"short", b"")]).status == 422
    assert server.batch("malformed", []).status == 422
    got = server.upload("malformed", new_id(), bytes(broken))
    assert (got.status, got.kind) == (422, "invalid-report")
    assert server.request("admin", "GET", "/v1/rounds/malformed").json["reports"] == 0
    assert server.batch("malformed", good).json["accepted"] == 5


def test_a_body_that_is_too_large_is_not_read(server, for_means, some_reports):
    server.open(for_means, "large")
    got = server.upload("large", new_id(), some_reports[0] + b"x")
    assert (got.status, got.kind) == (413, "too-large")
    size = 32 + for_means.report_size
    head = (
        f"POST /v1/rounds/large/reports HTTP/1.1\r\nHost: x\r\n"
        f"Authorization: Bearer {server.tokens['device']}\r\n"
    )
    for announced in (f"Content-Length: {10**15}", "Transfer-Encoding: chunked"):
        with socket.create_connection(("127.0.0.1", server.port), timeout=180) as link:
            link.sendall(f"{head}{announced}\r\n\r\n".encode())
            if "chunked" in announced:
                chunk = b"%x\r\n" % size + bytes(size) + b"\r\n"
                # Far more than is allowed; the response arrives before all of it is sent.
                try:
                    for _ in range(4 * MOST_REPORTS):
                        link.sendall(chunk)
                except OSError:
                    pass
            try:
                response = link.recv(4096)
            except ConnectionResetError:
                continue
            assert b" 413 " in response.split(b"\r\n")[0]


@pytest.mark.parametrize("id_", ["0" * 63, "0" * 62 + "xy", "A" * 64, " " * 64])
def test_ids_are_64_lower_case_hexadecimal_digits(server, for_means, some_reports, id_):
    if "form" not in server.collector.catalogue.rounds:
        server.open(for_means, "form")
    path = f"/v1/rounds/form/reports/{id_.replace(' ', '%20')}"
    assert server.request("device", "PUT", path, some_reports[0]).status == 422


def test_the_group_must_be_one_of_the_round(server, for_means, some_reports):
    server.open(for_means, "grouped", groups=("north", "south"))
    server.open(for_means, "ungrouped")
    id_ = new_id()
    for group in ({}, {"Offaxis_Group": "west"}):
        got = server.upload("grouped", id_, some_reports[0], **group)
        assert (got.status, got.kind) == (422, "invalid-report")
    assert server.upload("ungrouped", id_, some_reports[0], Offaxis_Group="north").status == 422
    assert server.upload("grouped", id_, some_reports[0], Offaxis_Group="north").status == 201


def test_a_round_opens_and_closes_by_the_clock(server, for_means, some_reports):
    later = START + timedelta(days=10)
    server.open(for_means, "timed", opens=later, closes=later + timedelta(hours=1))
    early, late = new_id(), new_id()
    try:
        server.clock.now = later - timedelta(seconds=1)
        got = server.upload("timed", early, some_reports[0])
        assert (got.status, got.kind, got.headers["retry-after"]) == (409, "not-open", "2")
        assert server.request("device", "GET", "/v1/rounds/timed").json["state"] == "waiting"
        server.clock.now = later
        assert server.upload("timed", early, some_reports[0]).status == 201
        server.clock.now = later + timedelta(hours=1)
        assert server.request("device", "GET", "/v1/rounds/timed").json["state"] == "closed"
        got = server.upload("timed", late, some_reports[1])
        assert (got.status, got.kind) == (410, "closed")
        # A device that lost the response sends again, and learns that the report was stored.
        assert server.upload("timed", early, some_reports[0]).status == 200
        assert server.upload("timed", early, some_reports[1]).status == 409
        assert server.batch("timed", [(early, some_reports[0])]).json["repeated"] == 1
        both = [(early, some_reports[0]), (late, some_reports[1])]
        assert server.batch("timed", both).kind == "closed"
    finally:
        server.clock.now = START


def test_a_report_received_in_time_counts_however_long_it_waits(server, for_means, some_reports):
    end = START + timedelta(days=1)
    server.open(for_means, "waits", closes=end)
    key = server.collector.catalogue.round("waits").key
    with concurrent.futures.ThreadPoolExecutor(2) as threads:
        try:
            with writing(server.collector.engine) as connection:
                lock_rounds(connection, [key])
                early = threads.submit(server.upload, "waits", new_id(), some_reports[0])
                while not server.collector.writer.waiting:
                    assert not early.done(), early.result()
                    time.sleep(0.001)
                server.clock.now = end
                assert server.upload("waits", new_id(), some_reports[1]).status == 410
            assert early.result().status == 201
        finally:
            server.clock.now = START


def test_closing_early_is_permanent(server, for_means, some_reports):
    round_ = server.open(for_means, "early")
    id_ = new_id()
    assert server.upload("early", id_, some_reports[0]).status == 201
    for _ in range(2):
        got = server.request("admin", "POST", "/v1/rounds/early/close")
        assert got.json["state"] == "closed"
        assert got.json["closed_at"] == "2026-11-01T00:00:00Z"
    assert server.upload("early", new_id(), some_reports[0]).status == 410
    assert server.upload("early", id_, some_reports[0]).status == 200
    document = server.request("device", "GET", "/v1/rounds/early").json["document"]
    assert document == json.loads(round_.to_bytes())


def test_a_withdrawn_report_is_deleted_and_its_id_stays_taken(server, for_means, some_reports):
    server.open(for_means, "withdrawn")
    kept, gone, never = new_id(), new_id(), new_id()
    for id_, report in zip((kept, gone), some_reports, strict=False):
        assert server.upload("withdrawn", id_, report).status == 201
    means = server.request("analyst", "GET", "/v1/rounds/withdrawn/means").json
    assert means["reports"] == 2
    for id_ in (gone, gone, never):
        path = f"/v1/rounds/withdrawn/reports/{id_.hex()}"
        assert server.request("device", "DELETE", path).status == 204
    assert server.upload("withdrawn", gone, some_reports[1]).status == 409
    assert server.upload("withdrawn", never, some_reports[2]).status == 409
    means = server.request("analyst", "GET", "/v1/rounds/withdrawn/means").json
    assert means["reports"] == 1
    assert means["means"][0]["mean"] == for_means.aggregate(some_reports[:1]).estimate.tolist()
    assert means["means"][0]["standard_error"] is None
