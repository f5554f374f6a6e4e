"""Small public tasks that many tests share."""

from __future__ import annotations

import warnings
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

import offaxis
from offaxis.geometry import Layers

settings.register_profile(
    "offaxis",
    deadline=None,
    max_examples=60,
    derandomize=True,
    # Machines are shared: how long an example takes to make says nothing about the code.
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("offaxis")

DIM = 6
ONCE = {
    "spark": "spark",
    "postgresql": "postgresql",
    "postgres": "postgresql",
    "browser": "browser",
    "demo_run": "demo",
}
"""What takes long to start, by the fixture or parameter that asks for it."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Send all tests that need the same server to one worker, and keep files together."""
    for item in items:
        callspec = getattr(item, "callspec", None)
        asked = [
            *getattr(item, "fixturenames", ()),
            *(callspec.params.values() if callspec else ()),
        ]
        wanted = [ONCE[name] for name in asked if isinstance(name, str) and name in ONCE]
        group = wanted[0] if wanted else str(item.path)
        item.add_marker(pytest.mark.xdist_group(group))


@pytest.fixture(scope="session")
def public() -> np.ndarray:
    rng = np.random.default_rng(11)
    return rng.standard_normal((500, DIM)) @ rng.standard_normal((DIM, DIM)) + 0.5


@pytest.fixture(scope="session")
def head() -> Layers:
    rng = np.random.default_rng(12)
    sizes = [DIM, 5, 4, 3]
    weights = [rng.standard_normal((o, i)) for i, o in pairwise(sizes)]
    return Layers(weights, [rng.standard_normal(o) for o in sizes[1:]])


@pytest.fixture(scope="session")
def release(head: Layers, public: np.ndarray) -> offaxis.Release:
    return offaxis.fit(head, public, epsilon=3)


@pytest.fixture(scope="session")
def spark():
    """Spark on two threads; a task that fails is tried again, as on a cluster."""
    pytest.importorskip("pyspark")
    from offaxis.engines.spark import session

    with warnings.catch_warnings():
        # pyspark 3.5 still asks distutils for versions and leaves sockets to be collected.
        warnings.simplefilter("ignore")
        started = session(
            "local[2,3]",
            spark__driver__memory="1g",
            spark__sql__shuffle__partitions="2",
            spark__sql__execution__arrow__maxRecordsPerBatch="200",
        )
        yield started
        started.stop()
