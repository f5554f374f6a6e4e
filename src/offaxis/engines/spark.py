"""Releases on Apache Spark: fit to public vectors of a DataFrame, privatize, decode, average, try.

A cluster that privatizes in bulk sees the raw vectors and must be trusted: the promise of local
privacy then holds towards whoever sees the reports alone, not towards the cluster. A job draws one
key (sampling/record_entropy.py), sends it with its tasks, and destroys it when the job ends; a task
that is lost, repeated or run twice gives the same reports.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from offaxis.decoding import Aggregate
from offaxis.decoding.aggregate import GroupMoments
from offaxis.engines.arrow import (
    ID,
    REPORT,
    VECTOR,
    Batches,
    Trials,
    decode_batches,
    fold_means,
    fold_trials,
    privatize_batches,
)
from offaxis.engines.job import FACTS, check_ids, job_facts, written
from offaxis.engines.spark_files import appearing, located
from offaxis.engines.spark_fold import DataFrame, fold, select, shared
from offaxis.engines.spark_plan import check_steady
from offaxis.engines.spark_session import opened, pyspark, session
from offaxis.engines.spark_vectors import SparkVectors
from offaxis.engines.spark_watch import Tasks, watched
from offaxis.errors import InvalidInput
from offaxis.evaluation import Evaluation
from offaxis.evaluation.sweep import Row, fit_cells
from offaxis.geometry import as_task_model
from offaxis.release import Release
from offaxis.sampling.record_entropy import JobKey

__all__ = [
    "SparkVectors",
    "decode",
    "evaluate",
    "group_means",
    "number_of",
    "opened",
    "privatize",
    "public_vectors",
    "reader",
    "session",
    "sweep",
]

public_vectors = SparkVectors


_IDS: Final = ("tinyint", "smallint", "int", "bigint", "string", "binary")


def reader(spark: Any) -> Callable[[str], DataFrame]:
    """Return a function that opens Parquet files or folders, or says that it cannot."""
    failed = pyspark().errors.AnalysisException

    def read(path: str) -> DataFrame:
        try:
            return spark.read.parquet(located(spark, path))
        except failed as error:
            raise InvalidInput(f"cannot read {path}: {str(error).splitlines()[0]}") from None

    return read


def number_of(frame: DataFrame) -> int:
    """Return how many rows there are."""
    return int(frame.count())


def privatize(
    frame: DataFrame,
    release: Release,
    out: str,
    *,
    ids: str = ID,
    vectors: str = VECTOR,
    force: bool = False,
    progress: Tasks | None = None,
) -> dict[str, Any]:
    """Write one report a row to a folder of Parquet files, and say what was made.

    A second job on the same rows draws a new key and spends the budget again.

    Parameters
    ----------
    frame : DataFrame
        Best read from files. Rows that might come out otherwise when they are computed again are
        refused: random columns, aggregates, limits, samples.
    out : str
        A folder that does not exist, on a file system that all machines reach. It appears whole or
        not at all.
    ids, vectors : str
        The columns; every id must be there and different from the others.
    force : bool
        Replace a folder that is already there.
    """
    spark, chosen = frame.sparkSession, select(frame, ids, vectors)
    check_steady(chosen)
    with (
        watched(spark, progress),
        appearing(chosen, out, force=force, reports=True) as folder,
    ):
        kind = _kind_of_ids(chosen, ids)
        rows = _check_records(chosen, ids)
        with shared(spark, release) as public, _job() as key:

            def task(batches: Batches) -> Iterator[Any]:
                return privatize_batches(public.value, key, batches, ids=ids, vectors=vectors)

            drawn = chosen.mapInArrow(task, f"`{ids}` {kind}, {REPORT} binary")
            drawn.write.parquet(folder.address)
        committed = _check_records(spark.read.parquet(folder.address), ids)
        if committed != rows:
            raise InvalidInput(
                f"{committed:,} of {rows:,} records were written: the source changed while it was "
                f"read; nothing was released"
            )
        facts = job_facts(release, rows)
        folder.write(FACTS, written(facts))
    return facts


@contextmanager
def _job() -> Iterator[JobKey]:
    key = JobKey()
    try:
        yield key
    finally:
        key.destroy()


def _kind_of_ids(frame: DataFrame, ids: str) -> str:
    kind: str = frame.schema[ids].dataType.simpleString()
    if kind not in _IDS:
        raise InvalidInput(
            f"column {ids!r} must hold whole numbers, text or bytes, it is of type {kind}"
        )
    return kind


def _check_records(frame: DataFrame, ids: str) -> int:
    """Return the number of records, or refuse ids that are missing or there twice."""
    functions = pyspark().sql.functions
    counted = frame.agg(
        functions.count(functions.lit(1)),
        functions.count(frame[ids]),
        functions.countDistinct(frame[ids]),
    ).first()
    check_ids(ids, *counted)
    return int(counted[0])


def decode(
    frame: DataFrame,
    release: Release,
    out: str,
    *,
    reports: str = REPORT,
    force: bool = False,
    progress: Tasks | None = None,
) -> int:
    """Decode reports into a folder of Parquet files, other columns kept; return how many."""
    spark = frame.sparkSession
    with (
        watched(spark, progress),
        shared(spark, release) as public,
        appearing(frame, out, force=force, reports=False) as folder,
    ):
        decoded_frame(frame, public, reports).write.parquet(folder.address)
        return int(spark.read.parquet(folder.address).count())


def decoded_frame(frame: DataFrame, public: Any, reports: str = REPORT) -> DataFrame:
    """Return the frame with decoded vectors in place of reports; ``public`` is a broadcast."""
    types = pyspark().sql.types
    vectors = types.StructField(VECTOR, types.ArrayType(types.DoubleType()))
    schema = types.StructType([vectors if f.name == reports else f for f in frame.schema])

    def task(batches: Batches) -> Iterator[Any]:
        return decode_batches(public.value, batches, reports=reports, fixed=False)

    select(frame, reports)
    return frame.mapInArrow(task, schema)


def group_means(
    frame: DataFrame,
    release: Release,
    *,
    reports: str = REPORT,
    groups: str | None = None,
    weights: str | None = None,
    progress: Tasks | None = None,
) -> Aggregate:
    """Estimate the mean of all, or of each group, with standard errors; see Release.aggregate."""
    _ = release.decoder_of_means
    spark = frame.sparkSession
    with shared(spark, release) as public:

        def part(batches: Batches) -> GroupMoments:
            return fold_means(
                public.value, batches, reports=reports, groups=groups, weights=weights
            )

        chosen = select(frame, *(name for name in (reports, groups, weights) if name))
        total = fold(chosen, part, GroupMoments(grouped=groups is not None), progress)
    return total.summary()


def evaluate(
    frame: DataFrame,
    releases: Sequence[Release],
    model: Any,
    *,
    vectors: str = VECTOR,
    targets: str | None = None,
    seeds: int = 20,
    seed: int = 0,
    progress: Tasks | None = None,
) -> list[Evaluation]:
    """Measure what a model keeps of its answers under each release, all in one pass.

    Vectors are public ones: nothing here protects them. The noise repeats with the seed as long as
    the frame has the same partitions.
    """
    spark, task_model = frame.sparkSession, as_task_model(model)
    context = pyspark().TaskContext
    with shared(spark, (list(releases), task_model)) as public:

        def part(batches: Batches) -> Trials:
            known, task = public.value
            number = context.get().partitionId()
            return fold_trials(
                known,
                task,
                batches,
                vectors=vectors,
                targets=targets,
                seeds=seeds,
                seed=seed,
                part=number,
            )

        chosen = select(frame, vectors, *([targets] if targets else []))
        total = fold(chosen, part, Trials(len(releases), seeds), progress)
    return total.evaluations()


def sweep(
    frame: DataFrame,
    model: Any,
    public: Any,
    *,
    vectors: str = VECTOR,
    targets: str | None = None,
    seeds: int = 20,
    seed: int = 0,
    progress: Tasks | None = None,
    **grid: Any,
) -> list[Row]:
    """Evaluate a grid of settings, as :func:`offaxis.evaluation.sweep` does, in one pass.

    ``public`` may be :class:`SparkVectors`.
    """
    cells = list(fit_cells(model, public, **grid))
    columns: dict[str, Any] = {"vectors": vectors, "targets": targets}
    releases = [cell.release for cell in cells]
    found = evaluate(frame, releases, model, **columns, seeds=seeds, seed=seed, progress=progress)
    return [cell.row(scores) for cell, scores in zip(cells, found, strict=True)]
