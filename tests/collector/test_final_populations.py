"""Before reports are deleted their population is stored, whatever happens meanwhile."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import numpy as np
import pytest

import offaxis
from offaxis.collector import populations as module
from offaxis.collector.populations import Populations
from offaxis.collector.problems import Problem
from offaxis.collector.service import Retention
from tests.collector.running import START, new_id
from tests.collector.test_population import COLOUR, PUBLIC, arrived, asks, column, drawn, npy, send
from tests.collector.test_population import weights as weights_file


@pytest.fixture(scope="module")
def release():
    return offaxis.fit(None, drawn(500, 60), epsilon=4, reshaping="none", mechanism="privunit2")


@pytest.fixture
def closed(server, release, tmp_path):
    """A function that opens a round, sends reports and closes it; it returns their ids."""
    server.publish(release)
    path = f"/v1/releases/{release.hash}"
    assert server.request("admin", "PUT", f"{path}/support", npy(PUBLIC)).status == 204
    colour = weights_file(COLOUR, tmp_path)
    assert server.request("admin", "PUT", f"{path}/questions/colour", colour).status == 204

    def close(name: str, count: int = 600) -> list[bytes]:
        server.open(release, name)
        ids = send(server, name, release.privatize(drawn(count, 61)))
        server.request("admin", "POST", f"/v1/rounds/{name}/close")
        server.collector.catalogue.refresh()
        return ids

    return close


def rows(server, name) -> int:
    key = server.collector.catalogue.round(name).key
    with server.collector.engine.connect() as connection:
        query = f"SELECT count(*) FROM report WHERE round = {key}"
        return connection.exec_driver_sql(query).scalar()


def shares(release, server, name):
    crowd = offaxis.population(release, arrived(server, name), support=PUBLIC)
    return crowd.share(COLOUR).estimate


def purge(server, name):
    got = server.request("admin", "DELETE", f"/v1/rounds/{name}/reports")
    server.collector.catalogue.refresh()
    return got


def test_withdrawals_during_a_deletion_leave_a_population(server, release, closed, monkeypatch):
    """Those before the mark count nowhere: means and population are of the same reports."""
    ids = closed("withdrawing")
    estimate, expected = module.of_likelihoods, []

    def withdrawing(likelihoods):
        expected.append(shares(release, server, "withdrawing"))
        server.withdraw("withdrawing", ids.pop())
        return estimate(likelihoods)

    monkeypatch.setattr(module, "of_likelihoods", withdrawing)
    assert purge(server, "withdrawing").json["deleted"] == 600
    withdrawn = module._ATTEMPTS
    # The last withdrawal was after the mark.
    assert len(expected) == withdrawn + 1
    facts = asks(server, "withdrawing", "colour").json
    assert (facts["reports"], facts["stored"]) == (600 - withdrawn, 600 - withdrawn)
    key = server.collector.catalogue.round("withdrawing").key
    totals = server.collector.follower.follow(key, release)
    assert totals.observed.count == 600 - withdrawn
    np.testing.assert_allclose(column(facts["shares"], "estimate"), expected[-1], rtol=1e-5)


def test_an_interrupted_deletion_is_continued_with_the_population(server, release, closed):
    closed("interrupted")
    expected = shares(release, server, "interrupted")
    collector = server.collector
    key = collector.catalogue.round("interrupted").key
    collector.follower.finish(key, release, START)  # and then the process ended
    collector.catalogue.refresh()
    assert asks(server, "interrupted", "colour").kind == "computing"
    assert collector.retention.delete(collector.catalogue.round("interrupted"), START) == 600
    facts = asks(server, "interrupted", "colour").json
    assert facts["reports"] == 600
    np.testing.assert_allclose(column(facts["shares"], "estimate"), expected, rtol=1e-5)
    assert collector.retention.delete(collector.catalogue.round("interrupted"), START) == 0


def test_some_of_the_reports_have_no_population(server, release, closed):
    closed("partly")
    collector = server.collector
    key = collector.catalogue.round("partly").key
    collector.follower.finish(key, release, START)
    pages = collector.store.by_arrival(key, marked=True)
    assert len(next(pages)) == 600
    collector.store.begin_emptying(key, START)  # by another process
    assert not collector.store.store_population(key, "0" * 64, 600, b"", None)
    with pytest.raises(module.Deleted):
        next(pages)
    collector.catalogue.refresh()
    assert collector.retention.delete(collector.catalogue.round("partly"), START) == 600
    assert asks(server, "partly", "colour").kind == "no-population"


def test_a_population_of_another_version_is_estimated_again(server, release, closed):
    closed("versions", 500)
    expected = asks(server, "versions", "colour").json["shares"]
    store, key = server.collector.store, server.collector.catalogue.round("versions").key
    hash_, count, _ = store.population(key)
    for state in (b"", b"PK of something else"):
        assert store.store_population(key, hash_, count, state, store.withdrawn(key))
        assert asks(server, "versions", "colour").json["shares"] == expected
    assert store.store_population(key, hash_, count, b"", store.withdrawn(key))
    assert purge(server, "versions").json["deleted"] == 500
    assert asks(server, "versions", "colour").json["shares"] == expected


def test_a_round_that_cannot_be_deleted_holds_up_no_other(server, release, closed, monkeypatch):
    collector = server.collector
    for name in ("broken-deletion", "whole-deletion"):
        closed(name, 5)
    finish, broken = collector.follower.finish, collector.catalogue.round("broken-deletion").key

    def failing(key, *arguments):
        if key == broken:
            raise RuntimeError("no disk")
        return finish(key, *arguments)

    monkeypatch.setattr(collector.follower, "finish", failing)
    with pytest.raises(RuntimeError, match="no disk"):
        collector.retention.sweep(START + timedelta(days=4000))
    assert (rows(server, "broken-deletion"), rows(server, "whole-deletion")) == (5, 0)


def test_an_open_round_is_not_read_as_marked(server, release, closed):
    closed("unmarked", 300)
    key = server.collector.catalogue.round("unmarked").key
    assert server.collector.store.final_count(key) is None
    assert not server.collector.store.store_population(key, "0" * 64, 300, b"", None)


def test_a_stop_during_a_deletion_keeps_the_reports(server, release, closed):
    """The deletion waits behind another estimate, which the stop lets finish."""
    closed("stopping")
    collector = server.collector
    stored = collector.catalogue.round("stopping")
    populations = Populations(collector.store)
    retention = Retention(collector.engine, collector.catalogue, collector.follower, populations)
    go = threading.Event()
    populations._thread.submit(go.wait, 180)
    with ThreadPoolExecutor(2) as threads:
        deletion = threads.submit(retention.delete, stored, START)
        while stored.key not in populations._pending:
            assert not deletion.done()
            time.sleep(0.01)
        stop = threads.submit(populations.close)
        with pytest.raises(Problem, match="stopping"):
            deletion.result(180)
        go.set()
        stop.result(180)
    with pytest.raises(Problem, match="stopping"):
        retention.delete(stored, START)
    assert rows(server, "stopping") == 600
    collector.catalogue.refresh()
    assert collector.catalogue.round("stopping").deleted_at is None
    assert server.upload("stopping", new_id(), b"").kind in ("closed", "invalid-report")
    assert purge(server, "stopping").json["deleted"] == 600
    assert asks(server, "stopping", "colour").json["reports"] == 600
