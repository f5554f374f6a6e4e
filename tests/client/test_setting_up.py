"""Setting up a device, and configurations that are rejected."""

from __future__ import annotations

import pytest

import offaxis
from offaxis.client import Device, Terms
from offaxis.errors import BudgetExceeded, InvalidInput
from offaxis.privacy.ledger import Ledger, Limit
from tests.client.collectors import PUBLISHER


def test_a_created_device_is_opened_by_its_file(tmp_path, collector, release, public):
    collector.offer(release)
    terms = Terms(collector.url, "7/2", publisher=PUBLISHER, token="secret-token")
    assert "secret-token" not in repr(terms)
    path = tmp_path / "my.device"
    Device.create(path, terms, Limit(4)).close()
    with pytest.raises(InvalidInput, match="already"):
        Device.create(path, terms, Limit(100))
    with Device.open(path) as device:
        assert device.terms == terms
        device.report("energy-1", public[0])
        device.send(at_once=True)
    assert collector.seen[-1].headers["authorization"] == "Bearer secret-token"


def test_a_ledger_becomes_a_device_and_keeps_its_payments(tmp_path, collector, release, public):
    """So does the ledger of a setup that ended halfway."""
    path = tmp_path / "my.ledger"
    with Ledger.create(path, Limit(4)) as ledger:
        ledger.spend(release.guarantee, release.hash)
    with pytest.raises(InvalidInput, match="not a device"):
        Device.open(path)
    terms = Terms(collector.url, "4", publisher=PUBLISHER)
    with pytest.raises(InvalidInput, match="already"):
        Device.create(path, terms, Limit(5))
    collector.offer(release)
    with Device.create(path, terms, Limit(4)) as device, pytest.raises(BudgetExceeded):
        device.report("energy-1", public[0])


@pytest.mark.parametrize(
    "changes",
    [
        {"publisher": None},
        {"publisher": "12"},
        {"release": "12"},
        {"unit": "house"},
        {"epsilon": 0},
        {"limits": ()},
        {"token": "two words"},
        {"token": "line\r\nbreak: 1"},
    ],
)
def test_an_invalid_configuration_is_rejected(device_of, changes):
    with pytest.raises((InvalidInput, offaxis.errors.InvalidDocument)):
        device_of(**changes)
