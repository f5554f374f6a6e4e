"""Bulk jobs on the rows of a DataFrame.

An output folder appears completely or not at all. Rows are privatized only if they are known to
repeat when Spark computes them again (plans.py): a record could otherwise be released twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

from offaxis.decoding import Aggregate
from offaxis.decoding.aggregate import GroupMoments
from offaxis.engines.arrow import (
    FACTS,
    ID,
    NO_SEQUENCES,
    REPORT,
    VECTOR,
    AnswerColumns,
    Batches,
    check_ids,
    decode_batches,
    facts_file,
    fold_means,
    job_facts,
    private_columns,
    privatize_batches,
)
from offaxis.engines.spark.cluster import Tasks, pyspark, watched
from offaxis.engines.spark.data import (
    DataFrame,
    broadcast,
    complete_folder,
    fold,
    quoted,
    select,
)
from offaxis.engines.spark.plans import check_repeating
from offaxis.engines.sums import empty_sums, fold_sums
from offaxis.engines.tallies import Tallies, fold_tallies
from offaxis.errors import InvalidInput
from offaxis.evaluation import Evaluation
from offaxis.evaluation.metrics import SweepCell, fit_cells
from offaxis.geometry import as_task_model
from offaxis.learning import PairSums
from offaxis.release import Release
from offaxis.sampling.entropy import JobKey

_IDS: Final = ("tinyint", "smallint", "int", "bigint", "string", "binary")


def privatize(
    frame: DataFrame,
    release: Release,
    out: str,
    *,
    ids: str = ID,
    vectors: str = VECTOR,
    answers: AnswerColumns = None,
    force: bool = False,
    progress: Tasks | None = None,
) -> dict[str, Any]:
    """Write one report per row to a folder of Parquet files; return the facts of the job.

    A second job on the same rows draws a new key and spends the budget again.

    Parameters
    ----------
    frame : DataFrame
        Read from files. Selecting columns, built-in functions, filters, joins, unions, sorting
        and repartitioning keep it valid. Anything else raises an error, because rows might change
        when they are computed again: Python functions, aggregates, limits, generators, rows of
        ``createDataFrame`` or of an RDD. Write such rows to Parquet first.
    out : str
        A folder that does not exist, on a file system that all machines reach. It appears
        completely or not at all.
    ids, vectors : str
        The columns; ids must be present and unique.
    answers : str or mapping, optional
        For a release of pairs: the column of the private answer, or a mapping from the names of
        several answers to their columns. A missing value is a missing answer.
    force : bool
        Replace an existing folder.

    Examples
    --------
    >>> import offaxis
    >>> import pyarrow as pa
    >>> from pyarrow import parquet
    >>> from offaxis.engines import spark
    >>> session = spark.session("local[2]")
    >>> vectors = np.random.default_rng(0).standard_normal((40, 3))
    >>> table = pa.table({"id": np.arange(40), "vector": list(vectors)})
    >>> parquet.write_table(table, "people.parquet")
    >>> frame = spark.reader(session)("people.parquet")
    >>> release = offaxis.fit(None, vectors, epsilon=2, reshaping="none", mechanism="laplace")
    >>> facts = spark.privatize(frame, release, "reports")
    >>> facts["reports"], facts["guarantee"]["epsilon"]
    (40, '2')
    """
    release.require_single_reports(NO_SEQUENCES)
    private = private_columns(release, ids, vectors, answers)
    spark, records = frame.sparkSession, select(frame, *dict.fromkeys((ids, *private)))
    check_repeating(records)
    with (
        watched(spark, progress),
        complete_folder(records, out, force=force, reports=True) as folder,
    ):
        kind = _id_type(records, ids)
        rows = _check_records(records, ids)
        with broadcast(spark, release) as shared, _job_key() as key:

            def task(batches: Batches) -> Iterator[Any]:
                return privatize_batches(
                    shared.value, key, batches, ids=ids, vectors=vectors, answers=answers
                )

            reports = records.mapInArrow(task, f"{quoted(ids)} {kind}, {REPORT} binary")
            reports.write.parquet(folder.address)
        committed = _check_records(spark.read.parquet(folder.address), ids)
        if committed != rows:
            raise InvalidInput(
                f"{committed:,} of {rows:,} records were written: the source changed while it was "
                f"read, or its reader drops malformed rows, which depends on the columns that are "
                f"read; nothing was released"
            )
        facts = job_facts(release, rows)
        folder.write(FACTS, facts_file(facts))
    return facts


def decode(
    frame: DataFrame,
    release: Release,
    out: str,
    *,
    reports: str = REPORT,
    force: bool = False,
    progress: Tasks | None = None,
) -> int:
    """Decode reports into a folder of Parquet files and keep other columns; return the number.

    Examples
    --------
    >>> import offaxis
    >>> from offaxis.engines import spark
    >>> session = spark.session("local[2]")
    >>> vectors = np.random.default_rng(0).standard_normal((40, 3))
    >>> release = offaxis.fit(None, vectors, epsilon=2, reshaping="none", mechanism="laplace")
    >>> reports = enumerate(bytearray(report) for report in release.privatize(vectors))
    >>> frame = session.createDataFrame(reports, "id int, report binary")
    >>> spark.decode(frame, release, "decoded")
    40
    """
    spark = frame.sparkSession
    with (
        watched(spark, progress),
        broadcast(spark, release) as shared,
        complete_folder(frame, out, force=force, reports=False) as folder,
    ):
        _decoded(frame, shared, reports).write.parquet(folder.address)
        return int(spark.read.parquet(folder.address).count())


def group_means(
    frame: DataFrame,
    release: Release,
    *,
    reports: str = REPORT,
    groups: str | None = None,
    weights: str | None = None,
    progress: Tasks | None = None,
) -> Aggregate:
    """Estimate the mean of all reports or of each group; see Release.aggregate.

    Examples
    --------
    >>> import offaxis
    >>> from offaxis.engines import spark
    >>> session = spark.session("local[2]")
    >>> vectors = np.random.default_rng(0).standard_normal((40, 3))
    >>> release = offaxis.fit(None, vectors, epsilon=2, reshaping="none", mechanism="laplace")
    >>> reports = enumerate(bytearray(report) for report in release.privatize(vectors))
    >>> frame = session.createDataFrame(reports, "id int, report binary")
    >>> mean = spark.group_means(frame, release)
    >>> mean.estimate.shape, int(mean.count)
    ((3,), 40)
    """
    _ = release.unbiased_decoder  # raises for a biased mechanism, before the job starts
    spark = frame.sparkSession
    with broadcast(spark, release) as shared:

        def part(batches: Batches) -> GroupMoments:
            return fold_means(
                shared.value, batches, reports=reports, groups=groups, weights=weights
            )

        columns = select(frame, *(name for name in (reports, groups, weights) if name))
        total = fold(columns, part, GroupMoments(grouped=groups is not None), progress)
    return replace(total.summary(), known_error=release.known_error)


def pair_sums(
    frame: DataFrame,
    release: Release,
    *,
    reports: str = REPORT,
    labels: str | None = None,
    answers: Any = None,
    progress: Tasks | None = None,
) -> PairSums:
    """Sum reports of pairs on the cluster, for :func:`offaxis.learn`.

    Counts of cells are exact; sums of moments depend on the partitions in their last digits. The
    frame may be any, as reports are protected already: nothing is drawn.

    Parameters
    ----------
    frame : DataFrame
    release : Release
        Of pairs.
    reports : str
        The column of reports.
    labels : str, optional
        The column of public labels, if the release asks for no answer.
    answers : Classes, Number, int or list of str, optional
        What the public labels are.

    Examples
    --------
    >>> import offaxis
    >>> from offaxis.engines import spark
    >>> from offaxis.learning import cells, fit_pairs
    >>> session = spark.session("local[2]")
    >>> vectors = np.random.default_rng(0).standard_normal((40, 3))
    >>> release = fit_pairs(cells(vectors, size=2), ["no", "yes"], epsilon=2)
    >>> answers = np.where(vectors[:, 0] > 0, "yes", "no")
    >>> reports = enumerate(map(bytearray, release.privatize(vectors, answers=answers)))
    >>> frame = session.createDataFrame(reports, "id int, report binary")
    >>> sums = spark.pair_sums(frame, release)
    >>> sums.count, offaxis.learn(release, sums).predict(vectors).shape
    (40, (40,))
    """
    total = empty_sums(release, labels, answers)  # raises before the job starts
    with broadcast(frame.sparkSession, release) as shared:

        def part(batches: Batches) -> PairSums:
            return fold_sums(shared.value, batches, reports=reports, labels=labels, answers=answers)

        return fold(select(frame, *filter(None, (reports, labels))), part, total, progress)


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
    """Measure the utility of a model under each release, in one pass.

    The vectors must be public: nothing here protects them. The noise is the same for the same seed
    as long as the frame has the same partitions.

    Examples
    --------
    >>> import offaxis
    >>> from offaxis.engines import spark
    >>> session = spark.session("local[2]")
    >>> vectors = np.random.default_rng(0).standard_normal((40, 3))
    >>> frame = session.createDataFrame(enumerate(vectors.tolist()), "id int, vector array<double>")
    >>> release = offaxis.fit(None, vectors, epsilon=2, reshaping="none", mechanism="laplace")
    >>> task = np.random.default_rng(1).standard_normal((2, 3))
    >>> (scores,) = spark.evaluate(frame, [release], task, seeds=4)
    >>> scores.clean["agreement"], scores.runs["agreement"].shape
    (1.0, (4,))
    """
    spark, task_model = frame.sparkSession, as_task_model(model)
    context = pyspark().TaskContext
    with broadcast(spark, (list(releases), task_model)) as shared:

        def part(batches: Batches) -> Tallies:
            shared_releases, task = shared.value
            return fold_tallies(
                shared_releases,
                task,
                batches,
                vectors=vectors,
                targets=targets,
                seeds=seeds,
                seed=seed,
                part=context.get().partitionId(),
            )

        columns = select(frame, vectors, *([targets] if targets else []))
        total = fold(columns, part, Tallies(len(releases), seeds), progress)
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
) -> list[SweepCell]:
    """Evaluate a grid of settings in one pass, like :func:`offaxis.evaluation.sweep`.

    ``public`` may be :class:`SparkVectors`.

    Examples
    --------
    >>> from offaxis.engines import spark
    >>> session = spark.session("local[2]")
    >>> vectors = np.random.default_rng(0).standard_normal((40, 3))
    >>> frame = session.createDataFrame(enumerate(vectors.tolist()), "id int, vector array<double>")
    >>> task = np.random.default_rng(1).standard_normal((2, 3))
    >>> grid = {"mechanisms": ["laplace"], "epsilons": [2.0, 8.0], "reshapings": ["none"]}
    >>> cells = spark.sweep(frame, task, vectors, seeds=2, **grid)
    >>> [(cell.mechanism, cell.epsilon) for cell in cells]
    [('laplace', 2.0), ('laplace', 8.0)]
    """
    cells = list(fit_cells(model, public, **grid))
    columns: dict[str, Any] = {"vectors": vectors, "targets": targets}
    releases = [cell.release for cell in cells]
    results = evaluate(frame, releases, model, **columns, seeds=seeds, seed=seed, progress=progress)
    return [cell.scored(scores) for cell, scores in zip(cells, results, strict=True)]


# ---- Checks and tasks


@contextmanager
def _job_key() -> Iterator[JobKey]:
    key = JobKey()
    try:
        yield key
    finally:
        key.destroy()


def _id_type(frame: DataFrame, ids: str) -> str:
    kind: str = frame.schema[ids].dataType.simpleString()
    if kind not in _IDS:
        raise InvalidInput(
            f"column {ids!r} must hold whole numbers, text or bytes, its type is {kind}"
        )
    return kind


def _check_records(frame: DataFrame, ids: str) -> int:
    """Return the number of records; raise for missing or repeated ids."""
    functions = pyspark().sql.functions
    counts = frame.agg(
        functions.count(functions.lit(1)),
        functions.count(frame[quoted(ids)]),
        functions.countDistinct(frame[quoted(ids)]),
    ).first()
    check_ids(ids, *counts)
    return int(counts[0])


def _decoded(frame: DataFrame, shared: Any, reports: str) -> DataFrame:
    """Return the frame with decoded vectors in place of reports; ``shared`` is a broadcast."""
    types = pyspark().sql.types
    vectors = types.StructField(VECTOR, types.ArrayType(types.DoubleType()))
    schema = types.StructType([vectors if f.name == reports else f for f in frame.schema])

    def task(batches: Batches) -> Iterator[Any]:
        return decode_batches(shared.value, batches, reports=reports, fixed=False)

    select(frame, reports)
    return frame.mapInArrow(task, schema)
