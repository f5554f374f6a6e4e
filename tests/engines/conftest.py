"""Records in Parquet files, as a folder and as a DataFrame."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from offaxis.engines.columns import lists_of

COUNT = 3000


@pytest.fixture(scope="session")
def vectors(public) -> np.ndarray:
    rng = np.random.default_rng(21)
    return public[rng.integers(0, len(public), COUNT)] + 0.1 * rng.standard_normal((COUNT, 6))


@pytest.fixture(scope="session")
def records(vectors, head, tmp_path_factory) -> Path:
    """A folder of three files: ids, vectors, labels, groups and weights."""
    folder = tmp_path_factory.mktemp("records") / "in"
    folder.mkdir()
    table = pa.table(
        {
            "id": [f"person {number}" for number in range(COUNT)],
            "vector": lists_of(vectors),
            "label": head.outputs(vectors).argmax(axis=1),
            "group": np.array(["a", "b", "c"])[np.arange(COUNT) % 3],
            "weight": 1.0 + np.arange(COUNT) % 2,
        }
    )
    for part in range(3):
        pq.write_table(table.slice(part * 1000, 1000), folder / f"{part}.parquet")
    return folder


@pytest.fixture
def frame(spark, records):
    return spark.read.parquet(str(records)).repartition(2)
