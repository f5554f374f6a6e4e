"""Sums over the rows of a DataFrame, partition by partition, merged on the way to the driver."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, Protocol, TypeVar

from offaxis.engines.arrow import Batches
from offaxis.engines.columns import arrow
from offaxis.engines.spark.watch import Tasks, watched
from offaxis.errors import InvalidInput

DataFrame = Any
Total = TypeVar("Total", bound="Mergeable")


class Mergeable(Protocol):
    """A sum over some of the rows."""

    def merge(self, other: Any, /) -> None:
        """Add the sum over others."""
        ...


_AT_ONCE: Final = 8
"""So many partial sums reach the driver; more are merged on the way."""


@contextmanager
def shared(spark: Any, value: Any) -> Iterator[Any]:
    """Send something public, and perhaps large, to the machines once."""
    public = spark.sparkContext.broadcast(value)
    try:
        yield public
    finally:
        public.unpersist()


def select(frame: DataFrame, *columns: str) -> DataFrame:
    """Return the frame of these columns, or say which there are."""
    for name in columns:
        if name not in frame.columns:
            raise InvalidInput(f"there is no column {name!r}; there are {', '.join(frame.columns)}")
    return frame.select(*(frame[name] for name in columns))


def fold(
    frame: DataFrame, part: Callable[[Batches], Any], total: Total, progress: Tasks | None = None
) -> Total:
    """Merge what ``part`` makes of every partition into ``total``, and return it.

    Partial sums travel as pickles, from machines that run this job's code anyway.
    """

    def task(batches: Batches) -> Iterator[Any]:
        yield _state(part(batches))

    def join(batches: Batches) -> Iterator[Any]:
        total = None
        for other in (other for batch in batches for other in _states(batch)):
            if total is None:
                total = other
            else:
                total.merge(other)
        if total is not None:
            yield _state(total)

    spark = frame.sparkSession
    several = frame.coalesce(max(1, spark.sparkContext.defaultParallelism))
    sums = several.mapInArrow(task, "state binary")
    if spark.sparkContext.defaultParallelism > _AT_ONCE:
        sums = sums.repartition(_AT_ONCE).mapInArrow(join, "state binary")
    with watched(spark, progress):
        found = sums.collect()
    for row in found:
        total.merge(pickle.loads(row.state))
    return total


def _state(total: Any) -> Any:
    pa = arrow()
    return pa.RecordBatch.from_arrays([pa.array([pickle.dumps(total)], pa.binary())], ["state"])


def _states(batch: Any) -> Iterator[Any]:
    return (pickle.loads(state) for state in batch.column(0).to_pylist())
