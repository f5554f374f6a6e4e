"""Reports are deleted in time and permanently; their means stay, whatever happens meanwhile."""

from __future__ import annotations

from datetime import timedelta

import numpy as np
import pytest

from offaxis.collector import store
from offaxis.collector.means import Follower
from offaxis.collector.service import Retention
from tests.collector.running import START, new_id


def _rows(server, key):
    with server.collector.engine.connect() as connection:
        query = f"SELECT count(*) FROM report WHERE round = {key}"
        return connection.exec_driver_sql(query).scalar()


def test_a_purged_round_keeps_its_means_and_accepts_nothing(server, for_means, some_reports):
    server.open(for_means, "purged")
    pairs = [(new_id(), report) for report in some_reports[:30]]
    server.batch("purged", pairs)
    assert server.request("admin", "DELETE", "/v1/rounds/purged/reports").kind == "conflict"
    server.request("admin", "POST", "/v1/rounds/purged/close")
    assert server.request("admin", "DELETE", "/v1/rounds/purged/reports").json == {"deleted": 30}
    assert server.request("admin", "DELETE", "/v1/rounds/purged/reports").json == {"deleted": 0}
    assert _rows(server, server.collector.catalogue.round("purged").key) == 0
    means = server.request("analyst", "GET", "/v1/rounds/purged/means").json
    expected = for_means.decode_mean(some_reports[:30])
    np.testing.assert_allclose(means["means"][0]["mean"], expected, rtol=1e-9)
    assert server.upload("purged", *pairs[0]).status == 410
    path = f"/v1/rounds/purged/reports/{pairs[0][0].hex()}"
    assert server.request("device", "DELETE", path).status == 204
    assert server.request("analyst", "GET", "/v1/rounds/purged/means").json["reports"] == 30


@pytest.mark.parametrize("when", ["before the mark", "during deletion"])
def test_means_are_right_if_a_report_is_withdrawn_during_a_deletion(
    server, for_means, some_reports, monkeypatch, when
):
    """Before the round is marked, the report leaves the means; after that they are final."""
    name = when.replace(" ", "-")
    server.open(for_means, name)
    pairs = [(new_id(), report) for report in some_reports[:20]]
    server.batch(name, pairs)
    stored = server.collector.catalogue.round(name)
    server.request("admin", "POST", f"/v1/rounds/{name}/close")
    follower = Follower(server.collector.engine)
    follow = follower._follow

    def follow_then_withdraw(key, release):
        totals = follow(key, release)
        monkeypatch.setattr(follower, "_follow", follow)
        server.withdraw(name, pairs[0][0])
        return totals

    finish = follower.finish

    def finish_then_withdraw(key, release, now):
        finish(key, release, now)
        server.withdraw(name, pairs[0][0])

    if when == "before the mark":
        monkeypatch.setattr(follower, "_follow", follow_then_withdraw)
    else:
        monkeypatch.setattr(follower, "finish", finish_then_withdraw)
    catalogue = server.collector.catalogue
    Retention(server.collector.engine, catalogue, follower, server.collector.populations).delete(
        stored, START
    )
    counted = some_reports[when == "before the mark" : 20]
    assert _rows(server, stored.key) == 0
    means = server.request("analyst", "GET", f"/v1/rounds/{name}/means").json
    assert means["reports"] == len(counted)
    expected = for_means.decode_mean(counted)
    np.testing.assert_allclose(means["means"][0]["mean"], expected, rtol=1e-9)


def test_an_export_fails_if_the_reports_are_deleted_meanwhile(
    server, for_means, some_reports, monkeypatch
):
    monkeypatch.setattr(store, "_PAGE", 3)
    server.open(for_means, "going")
    server.batch("going", [(new_id(), report) for report in some_reports[:7]])
    key = server.collector.catalogue.round("going").key
    pages = server.collector.store.by_id(key)
    assert len(next(pages)) == 3
    server.collector.follower.finish(key, for_means, START)
    with pytest.raises(store.Deleted):
        next(pages)
    assert _rows(server, key) == 7
    assert list(server.collector.store.by_id(key)) == []


def test_reports_are_deleted_after_keep_days(server, for_means, some_reports):
    server.open(for_means, "kept", keep_days=2)
    server.batch("kept", [(new_id(), report) for report in some_reports[:10]])
    key = server.collector.catalogue.round("kept").key
    sweep = server.collector.retention.sweep
    due = START + timedelta(days=3)
    sweep(due - timedelta(seconds=1))
    assert _rows(server, key) == 10
    sweep(due)
    assert _rows(server, key) == 0
    server.collector.catalogue.refresh()
    assert server.request("analyst", "GET", "/v1/rounds/kept/means").json["reports"] == 10


def test_a_deleted_round_rejects_an_upload_in_flight(server, for_means, some_reports):
    server.open(for_means, "in-flight")
    key = server.collector.catalogue.round("in-flight").key
    # Deleted by another process; this one has not refreshed its catalogue yet.
    server.collector.follower.finish(key, for_means, START)
    assert server.upload("in-flight", new_id(), some_reports[0]).status == 410
    assert _rows(server, key) == 0
