"""Wrong clocks.

A round closes by its collector's clock. If that is set back over the closing time, the round
accepts reports again until it reaches the closing time once more; earlier reports are kept and
count once. A round that was closed early or deleted stays closed, whatever the clock says.
"""

from __future__ import annotations

import time
from datetime import timedelta
from fractions import Fraction
from types import SimpleNamespace

import pytest

from offaxis.client import Device
from offaxis.errors import BudgetExceeded
from offaxis.privacy.ledger import Limit
from tests.collector.faults.checking import PUBLISHER
from tests.collector.running import START, new_id, running

HOUR = timedelta(hours=1)


@pytest.fixture(scope="module")
def shared(new_database):
    """A collector whose clock the tests set."""
    with running(new_database("sqlite"), reader_rate=1e6) as server:
        yield server


def reports_of(server, name: str) -> int:
    return server.request("analyst", "GET", f"/v1/rounds/{name}/means").json["reports"]


def test_a_clock_set_back_over_the_closing_time_loses_nothing(shared, for_means, some_reports):
    shared.clock.now = START
    round_ = shared.open(for_means, "back")
    early, between, late = new_id(), new_id(), new_id()
    assert shared.upload("back", early, some_reports[0]).status == 201
    shared.clock.now = round_.closes + HOUR
    assert shared.upload("back", late, some_reports[1]).kind == "closed"
    assert shared.upload("back", early, some_reports[0]).status == 200
    assert reports_of(shared, "back") == 1
    shared.clock.now = round_.closes - HOUR
    assert shared.upload("back", early, some_reports[0]).status == 200
    assert shared.upload("back", between, some_reports[2]).status == 201
    shared.clock.now = START - HOUR
    assert shared.upload("back", late, some_reports[1]).kind == "not-open"
    shared.clock.now = round_.closes
    assert shared.upload("back", late, some_reports[1]).kind == "closed"
    assert shared.upload("back", between, some_reports[2]).status == 200
    assert reports_of(shared, "back") == 2


def test_a_round_closed_early_stays_closed(shared, for_means, some_reports):
    shared.clock.now = START + 3 * HOUR
    shared.open(for_means, "early")
    assert shared.request("admin", "POST", "/v1/rounds/early/close").status == 200
    for now in (START + 2 * HOUR, START - HOUR, START + 4 * HOUR):
        shared.clock.now = now
        assert shared.request("admin", "GET", "/v1/rounds/early").json["state"] == "closed"
        assert shared.upload("early", new_id(), some_reports[0]).kind == "closed"


def test_a_deleted_round_stays_closed(shared, for_means, some_reports):
    shared.clock.now = START
    round_ = shared.open(for_means, "deleted")
    stored = new_id()
    assert shared.upload("deleted", stored, some_reports[0]).status == 201
    shared.clock.now = round_.closes
    assert shared.request("admin", "DELETE", "/v1/rounds/deleted/reports").json == {"deleted": 1}
    shared.clock.now = START
    assert shared.request("admin", "GET", "/v1/rounds/deleted").json["state"] == "closed"
    for id_ in (stored, new_id()):
        assert shared.upload("deleted", id_, some_reports[0]).kind == "closed"
    assert reports_of(shared, "deleted") == 1


def test_a_collector_whose_clock_is_behind_respects_what_another_closed(
    new_database, for_means, some_reports
):
    url = new_database("postgresql")
    with running(url) as ahead, running(url) as behind:
        behind.tokens = ahead.tokens
        ahead.clock.now, behind.clock.now = START + 2 * HOUR, START + HOUR
        ahead.open(for_means, "skewed")
        ahead.request("admin", "POST", "/v1/rounds/skewed/close")
        behind.collector.catalogue.refresh()
        assert behind.upload("skewed", new_id(), some_reports[0]).kind == "closed"


@pytest.mark.parametrize("hours", [-30, -5, 5, 30])
def test_a_device_with_a_wrong_clock_reports_like_any_other(
    hours, shared, for_means, public, tmp_path, monkeypatch
):
    """It is off by hours when it reports, right when it sends, and off again when it spends."""
    shared.clock.now = START
    ahead = hours > 0
    names = [f"off-{hours % 100}-{number}" for number in range(3)]
    for number, name in enumerate(names):
        shared.open(for_means, name, study=f"off-{hours % 100}", number=number)
    epsilon = Fraction(for_means.guarantee.epsilon)
    limits = [Limit(2 * epsilon), Limit(epsilon, seconds=3600.0)]
    off = [0.0]
    # One clock for outbox, device and ledger.
    clock = SimpleNamespace(time=lambda: time.time() + off[0], monotonic=time.monotonic)
    for module in ("client.outbox", "client.device", "privacy.ledger"):
        monkeypatch.setattr(f"offaxis.{module}.time", clock)
    url = f"http://127.0.0.1:{shared.port}"
    with Device(
        tmp_path / "a.device",
        url,
        publisher=PUBLISHER,
        token=shared.tokens["device"],
        limits=limits,
        spread=0.0,
    ) as device:
        off[0] = hours * 3600.0
        entry = device.report(names[0], public[0])
        off[0] = 0.0
        # A wrong clock delays the first send by at most six hours.
        sent = device.send()
        assert len(sent) == (hours != 5)
        sent = sent or device.send(at_once=True)
        assert sent[0].state == "sent"
        assert shared.upload(names[0], entry.id, entry.report).status == 200
        # A payment dated in the future still counts.
        if ahead:
            with pytest.raises(BudgetExceeded):
                device.report(names[1], public[1])
        off[0] = 100 * 3600.0
        device.report(names[1], public[1])
        off[0] = 1000 * 3600.0
        with pytest.raises(BudgetExceeded):
            device.report(names[2], public[2])
        assert device.ledger.spent()[0] == 2 * epsilon
