"""Rows of a DataFrame to reports, and back: what is written appears whole or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from offaxis.engines.arrow import ID, REPORT, VECTOR, Batches, decode_batches, privatize_batches
from offaxis.engines.job import FACTS, check_ids, job_facts, written
from offaxis.engines.spark.files import appearing
from offaxis.engines.spark.fold import DataFrame, select, shared
from offaxis.engines.spark.plan import check_steady
from offaxis.engines.spark.starting import pyspark
from offaxis.engines.spark.watch import Tasks, watched
from offaxis.errors import InvalidInput
from offaxis.release import Release
from offaxis.sampling.record_entropy import JobKey

_IDS: Final = ("tinyint", "smallint", "int", "bigint", "string", "binary")


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

    Examples
    --------
    >>> import offaxis
    >>> from offaxis.engines import spark
    >>> session = spark.session("local[2]")
    >>> vectors = np.random.default_rng(0).standard_normal((40, 3))
    >>> frame = session.createDataFrame(enumerate(vectors.tolist()), "id int, vector array<double>")
    >>> release = offaxis.fit(None, vectors, epsilon=2, reshaping="none")
    >>> facts = spark.privatize(frame, release, "reports")
    >>> facts["reports"], facts["guarantee"]["epsilon"]
    (40, '2')
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
    """Decode reports into a folder of Parquet files, other columns kept; return how many.

    Examples
    --------
    >>> import offaxis
    >>> from offaxis.engines import spark
    >>> session = spark.session("local[2]")
    >>> vectors = np.random.default_rng(0).standard_normal((40, 3))
    >>> release = offaxis.fit(None, vectors, epsilon=2, reshaping="none")
    >>> reports = enumerate(bytearray(report) for report in release.privatize(vectors))
    >>> frame = session.createDataFrame(reports, "id int, report binary")
    >>> spark.decode(frame, release, "decoded")
    40
    """
    spark = frame.sparkSession
    with (
        watched(spark, progress),
        shared(spark, release) as public,
        appearing(frame, out, force=force, reports=False) as folder,
    ):
        _decoded(frame, public, reports).write.parquet(folder.address)
        return int(spark.read.parquet(folder.address).count())


def _decoded(frame: DataFrame, public: Any, reports: str = REPORT) -> DataFrame:
    """Return the frame with decoded vectors in place of reports; ``public`` is shared."""
    types = pyspark().sql.types
    vectors = types.StructField(VECTOR, types.ArrayType(types.DoubleType()))
    schema = types.StructType([vectors if f.name == reports else f for f in frame.schema])

    def task(batches: Batches) -> Iterator[Any]:
        return decode_batches(public.value, batches, reports=reports, fixed=False)

    select(frame, reports)
    return frame.mapInArrow(task, schema)
