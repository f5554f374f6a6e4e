"""What reports and releases say over all records: means, and trials of releases."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from offaxis.decoding import Aggregate
from offaxis.engines.arrow import REPORT, VECTOR, fold_means, fold_tallies
from offaxis.engines.local.files import Advance, Source, counted, records_of
from offaxis.evaluation import Evaluation
from offaxis.geometry import as_task_model
from offaxis.release import Release


def group_means(
    source: Source,
    release: Release,
    *,
    reports: str = REPORT,
    groups: str | None = None,
    weights: str | None = None,
    advance: Advance | None = None,
) -> Aggregate:
    """Estimate the mean of all, or of each group, with standard errors; see Release.aggregate.

    Examples
    --------
    >>> import offaxis
    >>> import pyarrow as pa
    >>> from pyarrow import parquet
    >>> from offaxis.engines import local
    >>> vectors = np.random.default_rng(0).standard_normal((100, 3))
    >>> table = pa.table({"id": np.arange(100), "vector": list(vectors)})
    >>> parquet.write_table(table, "people.parquet")
    >>> release = offaxis.fit(None, vectors, epsilon=2, reshaping="none")
    >>> facts = local.privatize("people.parquet", release, "reports")
    >>> found = local.group_means("reports", release)
    >>> found.estimate.shape, found.standard_error.shape, int(found.count)
    ((3,), (3,), 100)
    """
    batches = counted(records_of(source).batches(reports, groups, weights), advance)
    found = fold_means(release, batches, reports=reports, groups=groups, weights=weights)
    return found.summary()


def evaluate(
    source: Source,
    releases: Sequence[Release],
    model: Any,
    *,
    vectors: str = VECTOR,
    targets: str | None = None,
    seeds: int = 20,
    seed: int = 0,
    advance: Advance | None = None,
) -> list[Evaluation]:
    """Measure what a model keeps of its answers under each release, in one pass.

    Examples
    --------
    >>> import offaxis
    >>> import pyarrow as pa
    >>> from pyarrow import parquet
    >>> from offaxis.engines import local
    >>> vectors = np.random.default_rng(0).standard_normal((100, 3))
    >>> table = pa.table({"id": np.arange(100), "vector": list(vectors)})
    >>> parquet.write_table(table, "people.parquet")
    >>> release = offaxis.fit(None, vectors, epsilon=2, reshaping="none")
    >>> task = np.random.default_rng(1).standard_normal((2, 3))
    >>> (found,) = local.evaluate("people.parquet", [release], task, seeds=4)
    >>> found.clean["agreement"], found.runs["agreement"].shape
    (1.0, (4,))
    """
    batches = counted(records_of(source).batches(vectors, targets), advance)
    task = as_task_model(model)
    tallies = fold_tallies(
        releases, task, batches, vectors=vectors, targets=targets, seeds=seeds, seed=seed
    )
    return tallies.evaluations()
