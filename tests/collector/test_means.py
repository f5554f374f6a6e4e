"""Means grow with the reports, are those of the reports, and stay when the reports go."""

from __future__ import annotations

import io
import threading

import numpy as np
import pyarrow.parquet as pq

from offaxis.collector import means as module
from offaxis.collector.means import Follower, Totals
from tests.collector.running import new_id


def _check(found, release, reports, labels):
    by_group = {one["group"]: one for one in found["means"]}
    whole = release.aggregate(reports)
    assert found["reports"] == by_group[None]["reports"] == len(reports)
    np.testing.assert_allclose(by_group[None]["mean"], whole.estimate, rtol=1e-9)
    np.testing.assert_allclose(by_group[None]["standard_error"], whole.standard_error, rtol=1e-9)
    grouped = release.aggregate(reports, groups=labels)
    for label in set(labels):
        one = grouped.of(label)
        assert by_group[label]["reports"] == one.count
        np.testing.assert_allclose(by_group[label]["mean"], one.estimate, rtol=1e-9)
        np.testing.assert_allclose(by_group[label]["standard_error"], one.standard_error, rtol=1e-9)


def test_means_are_those_of_the_reports_that_came(server, for_means, some_reports):
    server.open(for_means, "growing", groups=("north", "south"))
    labels = ["north" if at % 3 else "south" for at in range(len(some_reports))]
    done = 0
    for upto in (5, 6, 200, len(some_reports)):
        for label in ("north", "south"):
            chosen = [r for r, own in zip(some_reports[done:upto], labels[done:upto], strict=True)
                      if own == label]  # fmt: skip
            if chosen:
                pairs = [(new_id(), report) for report in chosen]
                got = server.batch("growing", pairs, Offaxis_Group=label)
                assert got.json["accepted"] == len(chosen)
        done = upto
        found = server.ask("analyst", "GET", "/v1/rounds/growing/means").json
        _check(found, for_means, some_reports[:upto], labels[:upto])


def test_many_followers_count_every_report_once(server, for_means, some_reports, monkeypatch):
    monkeypatch.setattr(module, "_PAGE_ROWS", 7)
    server.open(for_means, "followed")
    key = server.collector.catalogue.round("followed").key
    stop = threading.Event()
    failed = []

    def follow():
        # Followers of their own, as other processes have.
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
    assert server.ask("device", "DELETE", f"/v1/rounds/followed/reports/{gone}").status == 204
    stop.set()
    for thread in threads:
        thread.join()
    assert not failed
    found = server.ask("analyst", "GET", "/v1/rounds/followed/means").json
    kept = [report for at, (_, report) in enumerate(pairs) if at != 17]
    assert found["reports"] == 59
    np.testing.assert_allclose(found["means"][0]["mean"], for_means.decode_mean(kept), rtol=1e-9)


def test_moments_that_missed_a_withdrawal_are_not_stored(server, for_means, some_reports):
    """A follower that read a report before it was withdrawn must not bring it back."""
    server.open(for_means, "missed")
    one = new_id()
    server.batch("missed", [(one, some_reports[0]), (new_id(), some_reports[1])])
    key = server.collector.catalogue.round("missed").key
    follower = Follower(server.collector.engine)
    reading = follower._read(key, 100)
    assert len(reading.rows) == 2
    assert server.ask("device", "DELETE", f"/v1/rounds/missed/reports/{one.hex()}").status == 204
    totals = Totals()
    totals.add(for_means, reading.rows)
    assert not follower._store(key, reading, totals)
    assert follower.follow(key, for_means).everybody.count == 1


def test_moments_that_another_made_again_are_taken_over(
    server, for_means, some_reports, monkeypatch
):
    """A report is withdrawn and another follower comes to the same mark between two readings."""
    monkeypatch.setattr(module, "_PAGE_ROWS", 2)
    server.open(for_means, "made-again")
    ids = [new_id() for _ in range(3)]
    server.batch("made-again", list(zip(ids[:2], some_reports[:2], strict=True)))
    key = server.collector.catalogue.round("made-again").key
    slow, quick = Follower(server.collector.engine), Follower(server.collector.engine)
    read, times = slow._read, []

    def interrupted(key, rows):
        times.append(key)
        if len(times) == 2:
            server.withdraw("made-again", ids[0])
            quick.follow(key, for_means)
            server.batch("made-again", [(ids[2], some_reports[2])])
        return read(key, rows)

    monkeypatch.setattr(slow, "_read", interrupted)
    for found in (slow.follow(key, for_means), quick.follow(key, for_means)):
        assert found.everybody.count == 2
        np.testing.assert_allclose(
            found.everybody.mean, for_means.decode_mean(some_reports[1:3]), rtol=1e-9
        )


def test_moments_survive_writing(for_means, some_reports):
    totals = Totals()
    totals.add(for_means, [(report, "x" if at % 2 else None) for at, report in
                           enumerate(some_reports)])  # fmt: skip
    again = Totals.from_bytes(totals.to_bytes())
    assert again.to_bytes() == totals.to_bytes()
    assert again.groups["x"].count == len(some_reports) // 2
    again.add(for_means, [(some_reports[0], None)])
    assert again.everybody.count == len(some_reports) + 1


def test_export_holds_every_report_in_the_order_of_ids(server, for_means, some_reports):
    server.open(for_means, "exported", groups=("a",))
    pairs = [(new_id(), report) for report in some_reports[:50]]
    server.batch("exported", pairs, Offaxis_Group="a")
    server.ask("device", "DELETE", f"/v1/rounds/exported/reports/{pairs[3][0].hex()}")
    got = server.ask("analyst", "GET", "/v1/rounds/exported/export")
    table = pq.read_table(io.BytesIO(got.body))
    expected = sorted(pair for at, pair in enumerate(pairs) if at != 3)
    found = zip(table["id"].to_pylist(), table["report"].to_pylist(), strict=True)
    assert list(found) == expected
    assert set(table["group"].to_pylist()) == {"a"}
    server.open(for_means, "empty")
    got = server.ask("analyst", "GET", "/v1/rounds/empty/export")
    assert pq.read_table(io.BytesIO(got.body)).num_rows == 0


def test_a_release_without_unbiased_decoder_has_no_means(server, public, head):
    import offaxis

    biased = offaxis.fit(head, public, epsilon=3, mechanism="privunit2")
    assert not biased.supports_mean
    server.open(biased, "biased")
    got = server.ask("analyst", "GET", "/v1/rounds/biased/means")
    assert (got.status, got.kind) == (409, "no-means")


def test_a_round_is_counted_behind_its_mark_and_before_it(server, for_means, some_reports):
    """Whatever was followed, withdrawn or taken meanwhile, the count is that of the reports."""
    server.open(for_means, "counted")
    server.open(for_means, "beside")
    key = server.collector.catalogue.round("counted").key
    ids = [new_id() for _ in range(30)]
    expected = 0
    for at, id_ in enumerate(ids):
        server.batch("counted", [(id_, some_reports[at])])
        server.batch("beside", [(new_id(), some_reports[at])])
        expected += 1
        if at % 7 == 3:
            server.collector.follower.follow(key, for_means)
        if at % 11 == 5:
            # One of before, and one that never came.
            for gone in (ids[at - 4], new_id()):
                server.ask("device", "DELETE", f"/v1/rounds/counted/reports/{gone.hex()}")
            expected -= 1
        assert server.collector.store.count(key) == expected
        assert server.ask("admin", "GET", "/v1/rounds/counted").json["reports"] == expected
    server.ask("admin", "POST", "/v1/rounds/counted/close")
    server.ask("admin", "DELETE", "/v1/rounds/counted/reports")
    assert server.collector.store.count(key) == 0
