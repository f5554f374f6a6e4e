"""Collectors and databases killed during uploads: no acknowledged report is lost or doubled."""

from __future__ import annotations

import random
from functools import partial

import pytest

from offaxis.collector.database import connect
from tests.collector.faults.checking import compare_rows, mean_error, prepare_database
from tests.collector.faults.delivery import Delivery, parcels_of, troubles
from tests.collector.faults.servers import cut_connections, kill_a_backend, restart

REPORTS = 20_000
PARCEL = 25


def check(url, sent, delivery) -> None:
    """Check that every report was acknowledged and is stored once."""
    assert not delivery.refused
    assert delivery.acknowledged == sent
    assert not delivery.accepted_twice
    comparison = compare_rows(url, "kills", sent, delivery.acknowledged)
    assert comparison.sound, comparison
    assert comparison.rows == len(sent)


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_collector_killed_during_uploads_loses_nothing(
    kind, new_database, start, for_means, many
):
    """On PostgreSQL two collectors get the same uploads, and either may be killed."""
    url = new_database(kind)
    tokens = prepare_database(url, for_means, "kills")
    collectors = [start(url) for _ in range(1 if kind == "sqlite" else 2)]
    sent = dict(many(REPORTS))
    parcels = parcels_of(list(sent.items()), PARCEL)
    ports = [collector.port for collector in collectors]
    delivery = Delivery(ports, "kills", tokens["device"], parcels, seed=1)
    rng = random.Random(2)
    kills = [rng.choice(collectors).kill for _ in range(5)]
    delivery.run(8, troubles(kills, seed=3))
    check(url, sent, delivery)
    assert delivery.unanswered, "no kill interrupted an upload"
    for collector in collectors:
        collector.wait_until_ready()
        means = collector.get_json("/v1/rounds/kills/means", tokens["analyst"])
        assert mean_error(for_means, means, sent) < 1e-9


def test_a_database_that_fails_during_uploads_loses_nothing(
    new_database, postgres, start, for_means, many
):
    """Cut connections, a killed backend and a crash of the server: 503, then recovery."""
    url = new_database("postgresql")
    tokens = prepare_database(url, for_means, "kills")
    collector = start(url)
    sent = dict(many(5_000))
    parcels = parcels_of(list(sent.items()), PARCEL)
    delivery = Delivery([collector.port], "kills", tokens["device"], parcels, seed=4)
    actions = [partial(cut_connections, url)] * 3
    actions += [partial(kill_a_backend, url), partial(restart, postgres)]
    delivery.run(8, troubles(actions, seed=5))
    check(url, sent, delivery)
    assert delivery.statuses[503], "no upload met a failed database"
    assert not collector.kills
    means = collector.get_json("/v1/rounds/kills/means", tokens["analyst"])
    assert mean_error(for_means, means, sent) < 1e-9


def test_a_collector_that_acknowledges_before_it_commits_is_caught(
    new_database, start, for_means, many
):
    url = new_database("sqlite")
    tokens = prepare_database(url, for_means, "kills")
    collector = start(url, broken="early")
    sent = dict(many(2_000))
    parcels = parcels_of(list(sent.items()), 5)
    delivery = Delivery([collector.port], "kills", tokens["device"], parcels, seed=6)
    delivery.run(8, troubles([collector.kill] * 3, seed=7))
    assert compare_rows(url, "kills", sent, delivery.acknowledged).lost


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_database_without_its_unique_index_is_caught(kind, new_database, start, for_means, many):
    url = new_database(kind)
    tokens = prepare_database(url, for_means, "kills")
    engine = connect(url)
    with engine.begin() as connection:
        connection.exec_driver_sql("DROP INDEX uq_report_round_id")
    engine.dispose()
    collector = start(url)
    sent = dict(many(500))
    parcels = parcels_of(list(sent.items()), 5)
    delivery = Delivery([collector.port], "kills", tokens["device"], parcels, seed=8).run(8)
    assert compare_rows(url, "kills", sent, delivery.acknowledged).double
    assert delivery.accepted_twice
