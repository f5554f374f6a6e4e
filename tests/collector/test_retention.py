"""Reports are deleted in time and for good; their means stay, whatever comes between."""

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
        asked = f"SELECT count(*) FROM report WHERE round = {key}"
        return connection.exec_driver_sql(asked).scalar()


def test_purging_leaves_the_means_and_lets_nothing_in(server, for_means, some_reports):
    server.open(for_means, "purged")
    pairs = [(new_id(), report) for report in some_reports[:30]]
    server.batch("purged", pairs)
    assert server.ask("admin", "DELETE", "/v1/rounds/purged/reports").kind == "conflict"
    server.ask("admin", "POST", "/v1/rounds/purged/close")
    assert server.ask("admin", "DELETE", "/v1/rounds/purged/reports").json == {"deleted": 30}
    assert server.ask("admin", "DELETE", "/v1/rounds/purged/reports").json == {"deleted": 0}
    assert _rows(server, server.collector.catalogue.round("purged").key) == 0
    found = server.ask("analyst", "GET", "/v1/rounds/purged/means").json
    mean = for_means.decode_mean(some_reports[:30])
    np.testing.assert_allclose(found["means"][0]["mean"], mean, rtol=1e-9)
    assert server.upload("purged", *pairs[0]).status == 410
    path = f"/v1/rounds/purged/reports/{pairs[0][0].hex()}"
    assert server.ask("device", "DELETE", path).status == 204
    assert server.ask("analyst", "GET", "/v1/rounds/purged/means").json["reports"] == 30


@pytest.mark.parametrize("when", ["before the mark", "while rows go"])
def test_a_withdrawal_amid_a_deletion_leaves_the_means(
    server, for_means, some_reports, monkeypatch, when
):
    """Before the round is marked it leaves them; after that they are final."""
    name = when.replace(" ", "-")
    server.open(for_means, name)
    pairs = [(new_id(), report) for report in some_reports[:20]]
    server.batch(name, pairs)
    one = server.collector.catalogue.round(name)
    server.ask("admin", "POST", f"/v1/rounds/{name}/close")
    follower = Follower(server.collector.engine)
    follow = follower._follow

    def interrupted(key, release):
        found = follow(key, release)
        monkeypatch.setattr(follower, "_follow", follow)
        server.withdraw(name, pairs[0][0])
        return found

    finish = follower.finish

    def finished(key, release, now):
        finish(key, release, now)
        server.withdraw(name, pairs[0][0])

    if when == "before the mark":
        monkeypatch.setattr(follower, "_follow", interrupted)
    else:
        monkeypatch.setattr(follower, "finish", finished)
    catalogue = server.collector.catalogue
    Retention(server.collector.engine, catalogue, follower).delete(one, START)
    counted = some_reports[when == "before the mark" : 20]
    assert _rows(server, one.key) == 0
    found = server.ask("analyst", "GET", f"/v1/rounds/{name}/means").json
    assert found["reports"] == len(counted)
    mean = for_means.decode_mean(counted)
    np.testing.assert_allclose(found["means"][0]["mean"], mean, rtol=1e-9)


def test_nothing_is_exported_of_a_round_that_is_being_deleted(
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


def test_reports_are_deleted_when_their_days_are_over(server, for_means, some_reports):
    server.open(for_means, "kept", keep_days=2)
    server.batch("kept", [(new_id(), report) for report in some_reports[:10]])
    one = server.collector.catalogue.round("kept")
    sweep = server.collector.retention.sweep
    due = START + timedelta(days=3)
    sweep(due - timedelta(seconds=1))
    assert _rows(server, one.key) == 10
    sweep(due)
    assert _rows(server, one.key) == 0
    server.collector.catalogue.refresh()
    assert server.ask("analyst", "GET", "/v1/rounds/kept/means").json["reports"] == 10


def test_a_deleted_round_takes_no_upload_that_was_on_its_way(server, for_means, some_reports):
    server.open(for_means, "on-its-way")
    one = server.collector.catalogue.round("on-its-way")
    # Deleted by another process; this one has not heard of it yet.
    server.collector.follower.finish(one.key, for_means, START)
    assert server.upload("on-its-way", new_id(), some_reports[0]).status == 410
    assert _rows(server, one.key) == 0
