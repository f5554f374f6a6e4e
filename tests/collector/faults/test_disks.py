"""A full disk amid uploads: 503 while it lasts, nothing lost, and on it goes when there is room."""

from __future__ import annotations

import asyncio

import pytest

from tests.collector.faults.checking import look, prepared
from tests.collector.faults.delivery import Delivery, parcels_of
from tests.collector.faults.disks import DISKS


@pytest.mark.parametrize("disk", DISKS, ids=lambda disk: disk.__name__)
def test_a_disk_that_is_full_for_a_while(disk, new_database, start, for_means, many, tmp_path):
    with disk(new_database, tmp_path) as (url, fill, grow):
        tokens = prepared(url, for_means, "full")
        collector = start(url)
        sent = dict(many(4_000))
        parcels = parcels_of(list(sent.items()), 25)
        delivery = Delivery([collector.port], "full", tokens["device"], parcels, seed=10)
        seen = []

        async def fill_and_grow(delivery: Delivery) -> None:
            while delivery.share < 0.05:
                await asyncio.sleep(0.002)
            await asyncio.to_thread(fill, collector)
            while delivery.statuses[503] < 30:
                assert not delivery.done, "the disk was never full"
                await asyncio.sleep(0.002)
            acknowledged = dict(delivery.acknowledged)
            seen.append(await asyncio.to_thread(look, url, "full", sent, acknowledged))
            seen.append(await asyncio.to_thread(collector.status, "/healthz"))
            seen.append(await asyncio.to_thread(collector.status, "/readyz"))
            await asyncio.to_thread(grow, collector)

        delivery.run(4, fill_and_grow)
        assert seen[0].sound
        assert seen[0].rows < len(sent)
        assert seen[1:] == [200, 503]
        assert not delivery.refused
        assert delivery.acknowledged == sent
        assert not delivery.accepted_twice
        found = look(url, "full", sent, sent)
        assert found.sound
        assert found.rows == len(sent)
        collector.ready()
        collector.close()
