"""Devices and their collector are killed at random times: one paid report per round arrives."""

from __future__ import annotations

import time

import pytest

from tests.collector.faults.checking import check_devices, device_job, prepare_database
from tests.collector.faults.dying import devices


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_killed_devices_answer_each_round_once(kind, new_database, start, for_means, tmp_path):
    """Their limit allows three of five rounds."""
    url = new_database(kind)
    rounds = [f"dying-{number}" for number in range(5)]
    tokens = prepare_database(url, for_means, *rounds)
    collector = start(url)
    job = device_job(collector.port, tokens["device"], for_means, rounds, tmp_path)
    job |= {"devices": 3, "seed": 9}
    with devices(job) as process:
        while process.poll() is None:
            time.sleep(0.3)
            if not collector.kills and list(tmp_path.iterdir()):
                collector.kill()
        assert process.stdout is not None
        kills = int(process.stdout.read())
    assert kills
    assert check_devices(url, job) == (9, 6)
