"""Devices killed at random times while their collector is killed too: one report a round, paid."""

from __future__ import annotations

import time

import pytest

from tests.collector.faults.checking import check_devices, order_of, prepared
from tests.collector.faults.dying import devices


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_devices_that_die_answer_each_round_once(kind, new_database, start, for_means, tmp_path):
    """Their limit allows three of five rounds."""
    url = new_database(kind)
    rounds = [f"dying-{number}" for number in range(5)]
    tokens = prepared(url, for_means, *rounds)
    collector = start(url)
    order = order_of(collector.port, tokens["device"], for_means, rounds, tmp_path)
    order |= {"devices": 3, "seed": 9}
    with devices(order) as process:
        while process.poll() is None:
            time.sleep(0.3)
            if not collector.kills and list(tmp_path.iterdir()):
                collector.kill()
        assert process.stdout is not None
        kills = int(process.stdout.read())
    assert kills
    assert check_devices(url, order) == (9, 6)
