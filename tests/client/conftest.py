"""A collector, and a device that trusts its publisher."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from offaxis.client import Device
from offaxis.privacy.ledger import Limit
from tests.client.collectors import PUBLISHER, Collector


@pytest.fixture
def collector() -> Iterator[Collector]:
    running = Collector()
    yield running
    running.close()


@pytest.fixture
def device_of(tmp_path: Path, collector: Collector) -> Iterator[Callable[..., Device]]:
    """Return a function that opens the device, or another one by its file name."""
    opened = []

    def open_device(name: str = "my.device", **changes: Any) -> Device:
        options: dict[str, Any] = {
            "publisher": PUBLISHER,
            "limits": [Limit(8)],
            "spread": 0.0,
            "patience": 5.0,
        }
        device = Device(tmp_path / name, collector.url, **options | changes)
        opened.append(device)
        return device

    yield open_device
    for device in opened:
        device.close()


@pytest.fixture
def device(device_of: Callable[..., Device]) -> Device:
    return device_of()
