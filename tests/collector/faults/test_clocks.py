"""Clocks that are wrong.

A round closes by its collector's clock. If that is set back over the closing time, the round takes
reports again until the time has come once more: those that came before are still there, and count
once. What was closed early or deleted stays closed, whatever the clock says.
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
    """A collector with a clock of its own, which tests set to where they need it."""
    with running(new_database("sqlite"), reader_rate=1e6) as one:
        yield one


def reports_of(server, name: str) -> int:
    return server.ask("analyst", "GET", f"/v1/rounds/{name}/means").json["reports"]


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


def test_what_was_closed_early_stays_closed(shared, for_means, some_reports):
    shared.clock.now = START + 3 * HOUR
    shared.open(for_means, "early")
    assert shared.ask("admin", "POST", "/v1/rounds/early/close").status == 200
    for now in (START + 2 * HOUR, START - HOUR, START + 4 * HOUR):
        shared.clock.now = now
        assert shared.ask("admin", "GET", "/v1/rounds/early").json["state"] == "closed"
        assert shared.upload("early", new_id(), some_reports[0]).kind == "closed"


def test_what_was_deleted_stays_closed(shared, for_means, some_reports):
    shared.clock.now = START
    round_ = shared.open(for_means, "deleted")
    one = new_id()
    assert shared.upload("deleted", one, some_reports[0]).status == 201
    shared.clock.now = round_.closes
    assert shared.ask("admin", "DELETE", "/v1/rounds/deleted/reports").json == {"deleted": 1}
    shared.clock.now = START
    assert shared.ask("admin", "GET", "/v1/rounds/deleted").json["state"] == "closed"
    for id_ in (one, new_id()):
        assert shared.upload("deleted", id_, some_reports[0]).kind == "closed"
    assert reports_of(shared, "deleted") == 1


def test_a_collector_whose_clock_is_behind_knows_what_another_closed(
    new_database, for_means, some_reports
):
    url = new_database("postgresql")
    with running(url) as one, running(url) as behind:
        behind.tokens = one.tokens
        one.clock.now, behind.clock.now = START + 2 * HOUR, START + HOUR
        one.open(for_means, "skewed")
        one.ask("admin", "POST", "/v1/rounds/skewed/close")
        behind.collector.catalogue.refresh()
        assert behind.upload("skewed", new_id(), some_reports[0]).kind == "closed"


@pytest.mark.parametrize("hours", [-30, -5, 5, 30])
def test_a_device_whose_clock_is_wrong_reports_like_any_other(
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
        # A time to send that is hours ahead holds it back up to six hours, never longer.
        sent = device.send()
        assert len(sent) == (hours != 5)
        sent = sent or device.send(at_once=True)
        assert sent[0].state == "sent"
        assert shared.upload(names[0], entry.id, entry.report).status == 200
        # Whoever paid in the future has still paid.
        if ahead:
            with pytest.raises(BudgetExceeded):
                device.report(names[1], public[1])
        off[0] = 100 * 3600.0
        device.report(names[1], public[1])
        off[0] = 1000 * 3600.0
        with pytest.raises(BudgetExceeded):
            device.report(names[2], public[2])
        assert device.ledger.spent()[0] == 2 * epsilon
