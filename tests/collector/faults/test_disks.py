"""A disk that fills during uploads: 503 while it is full, nothing lost, and automatic recovery."""

from __future__ import annotations

import asyncio

import pytest

from tests.collector.faults.checking import compare_rows, prepare_database
from tests.collector.faults.delivery import Delivery, parcels_of
from tests.collector.faults.disks import DISKS


@pytest.mark.parametrize("disk", DISKS, ids=lambda disk: disk.__name__)
def test_nothing_is_lost_while_the_disk_is_full(
    disk, new_database, start, for_means, many, tmp_path
):
    with disk(new_database, tmp_path) as (url, fill, grow):
        tokens = prepare_database(url, for_means, "full")
        collector = start(url)
        sent = dict(many(4_000))
        parcels = parcels_of(list(sent.items()), 25)
        delivery = Delivery([collector.port], "full", tokens["device"], parcels, seed=10)
        while_full = []

        async def fill_and_grow(delivery: Delivery) -> None:
            while delivery.share < 0.05:
                await asyncio.sleep(0.002)
            await asyncio.to_thread(fill, collector)
            while delivery.statuses[503] < 30:
                assert not delivery.done, "the disk was never full"
                await asyncio.sleep(0.002)
            acknowledged = dict(delivery.acknowledged)
            while_full.append(
                await asyncio.to_thread(compare_rows, url, "full", sent, acknowledged)
            )
            while_full.append(await asyncio.to_thread(collector.status, "/healthz"))
            while_full.append(await asyncio.to_thread(collector.status, "/readyz"))
            await asyncio.to_thread(grow, collector)

        delivery.run(4, fill_and_grow)
        assert while_full[0].sound
        assert while_full[0].rows < len(sent)
        assert while_full[1:] == [200, 503]
        assert not delivery.refused
        assert delivery.acknowledged == sent
        assert not delivery.accepted_twice
        final = compare_rows(url, "full", sent, sent)
        assert final.sound
        assert final.rows == len(sent)
        collector.wait_until_ready()
        collector.close()
