"""Stored means follow the reports of a round and stay after the reports are deleted."""

from __future__ import annotations

import io
import threading

import numpy as np
import pyarrow.parquet as pq

import offaxis
from offaxis.collector import means as module
from offaxis.collector.means import Follower, Totals
from tests.collector.running import new_id


def _check(facts, release, reports, labels):
    by_group = {entry["group"]: entry for entry in facts["means"]}
    overall = release.aggregate(reports)
    assert facts["reports"] == by_group[None]["reports"] == len(reports)
    np.testing.assert_allclose(by_group[None]["mean"], overall.estimate, rtol=1e-9)
    np.testing.assert_allclose(by_group[None]["standard_error"], overall.standard_error, rtol=1e-9)
    grouped = release.aggregate(reports, groups=labels)
    for label in set(labels):
        expected, entry = grouped.of(label), by_group[label]
        assert entry["reports"] == expected.count
        np.testing.assert_allclose(entry["mean"], expected.estimate, rtol=1e-9)
        np.testing.assert_allclose(entry["standard_error"], expected.standard_error, rtol=1e-9)


def test_means_are_those_of_the_reports_received(server, for_means, some_reports):
    server.open(for_means, "growing", groups=("north", "south"))
    labels = ["north" if i % 3 else "south" for i in range(len(some_reports))]
    done = 0
    for upto in (5, 6, 200, len(some_reports)):
        part = list(zip(some_reports[done:upto], labels[done:upto], strict=True))
        for label in ("north", "south"):
            reports = [report for report, group in part if group == label]
            if reports:
                pairs = [(new_id(), report) for report in reports]
                got = server.batch("growing", pairs, Offaxis_Group=label)
                assert got.json["accepted"] == len(reports)
        done = upto
        facts = server.request("analyst", "GET", "/v1/rounds/growing/means").json
        _check(facts, for_means, some_reports[:upto], labels[:upto])


def test_concurrent_followers_count_every_report_once(server, for_means, some_reports, monkeypatch):
    monkeypatch.setattr(module, "_PAGE_ROWS", 7)
    server.open(for_means, "followed")
    key = server.collector.catalogue.round("followed").key
    stop = threading.Event()
    failed = []

    def follow():
        # A separate follower, as in another process.
        follower = Follower(server.collector.engine)
        while not stop.is_set():
            try:
                follower.follow(key, for_means)
            except Exception as error:
                failed.append(error)
                return

    threads = [threading.Thread(target=follow) for _ in range(2)]
    for thread in threads:
        thread.start()
    pairs = [(new_id(), report) for report in some_reports[:60]]
    for start in range(0, 60, 10):
        server.batch("followed", pairs[start : start + 10])
    gone = pairs[17][0].hex()
    assert server.request("device", "DELETE", f"/v1/rounds/followed/reports/{gone}").status == 204
    stop.set()
    for thread in threads:
        thread.join()
    assert not failed
    facts = server.request("analyst", "GET", "/v1/rounds/followed/means").json
    kept = [report for i, (_, report) in enumerate(pairs) if i != 17]
    assert facts["reports"] == 59
    np.testing.assert_allclose(facts["means"][0]["mean"], for_means.decode_mean(kept), rtol=1e-9)


def test_moments_that_missed_a_withdrawal_are_not_stored(server, for_means, some_reports):
    """A follower that read a report before its withdrawal must not restore it."""
    server.open(for_means, "missed")
    id_ = new_id()
    server.batch("missed", [(id_, some_reports[0]), (new_id(), some_reports[1])])
    key = server.collector.catalogue.round("missed").key
    follower = Follower(server.collector.engine)
    snapshot = follower._read(key, 100)
    assert len(snapshot.rows) == 2
    server.withdraw("missed", id_)
    totals = Totals()
    totals.add(for_means, snapshot.rows)
    assert not follower._store(key, snapshot, totals)
    assert follower.follow(key, for_means).everybody.count == 1


def test_a_follower_adopts_moments_that_another_recomputed(
    server, for_means, some_reports, monkeypatch
):
    """Between two reads a report is withdrawn and another follower reaches the same mark."""
    monkeypatch.setattr(module, "_PAGE_ROWS", 2)
    server.open(for_means, "made-again")
    ids = [new_id() for _ in range(3)]
    server.batch("made-again", list(zip(ids[:2], some_reports[:2], strict=True)))
    key = server.collector.catalogue.round("made-again").key
    slow, quick = Follower(server.collector.engine), Follower(server.collector.engine)
    read, calls = slow._read, []

    def interrupted(key, rows):
        calls.append(key)
        if len(calls) == 2:
            server.withdraw("made-again", ids[0])
            quick.follow(key, for_means)
            server.batch("made-again", [(ids[2], some_reports[2])])
        return read(key, rows)

    monkeypatch.setattr(slow, "_read", interrupted)
    for totals in (slow.follow(key, for_means), quick.follow(key, for_means)):
        assert totals.everybody.count == 2
        np.testing.assert_allclose(
            totals.everybody.mean, for_means.decode_mean(some_reports[1:3]), rtol=1e-9
        )


def test_moments_survive_serialization(for_means, some_reports):
    totals = Totals()
    totals.add(
        for_means,
        [(report, "x" if i % 2 else None) for i, report in enumerate(some_reports)],
    )
    again = Totals.from_bytes(totals.to_bytes())
    assert again.to_bytes() == totals.to_bytes()
    assert again.groups["x"].count == len(some_reports) // 2
    again.add(for_means, [(some_reports[0], None)])
    assert again.everybody.count == len(some_reports) + 1


def test_an_export_has_every_report_in_the_order_of_ids(server, for_means, some_reports):
    server.open(for_means, "exported", groups=("a",))
    pairs = [(new_id(), report) for report in some_reports[:50]]
    server.batch("exported", pairs, Offaxis_Group="a")
    server.request("device", "DELETE", f"/v1/rounds/exported/reports/{pairs[3][0].hex()}")
    got = server.request("analyst", "GET", "/v1/rounds/exported/export")
    table = pq.read_table(io.BytesIO(got.body))
    expected = sorted(pair for i, pair in enumerate(pairs) if i != 3)
    exported = zip(table["id"].to_pylist(), table["report"].to_pylist(), strict=True)
    assert list(exported) == expected
    assert set(table["group"].to_pylist()) == {"a"}
    server.open(for_means, "empty")
    got = server.request("analyst", "GET", "/v1/rounds/empty/export")
    assert pq.read_table(io.BytesIO(got.body)).num_rows == 0


def test_a_release_without_an_unbiased_decoder_has_no_means(server, public, head):
    biased = offaxis.fit(head, public, epsilon=3, mechanism="privunit2")
    assert not biased.supports_mean
    server.open(biased, "biased")
    got = server.request("analyst", "GET", "/v1/rounds/biased/means")
    assert (got.status, got.kind) == (409, "no-means")


def test_the_count_of_a_round_includes_reports_on_both_sides_of_its_mark(
    server, for_means, some_reports
):
    """Whatever was followed or withdrawn meanwhile, the count is that of the stored reports."""
    server.open(for_means, "counted")
    server.open(for_means, "beside")
    key = server.collector.catalogue.round("counted").key
    ids = [new_id() for _ in range(30)]
    expected = 0
    for i, id_ in enumerate(ids):
        server.batch("counted", [(id_, some_reports[i])])
        server.batch("beside", [(new_id(), some_reports[i])])
        expected += 1
        if i % 7 == 3:
            server.collector.follower.follow(key, for_means)
        if i % 11 == 5:
            # An earlier report, and an id that was never sent.
            for gone in (ids[i - 4], new_id()):
                server.request("device", "DELETE", f"/v1/rounds/counted/reports/{gone.hex()}")
            expected -= 1
        assert server.collector.store.count(key) == expected
        assert server.request("admin", "GET", "/v1/rounds/counted").json["reports"] == expected
    server.request("admin", "POST", "/v1/rounds/counted/close")
    server.request("admin", "DELETE", "/v1/rounds/counted/reports")
    assert server.collector.store.count(key) == 0
