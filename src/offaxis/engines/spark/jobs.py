"""Whether the rows of a DataFrame come out the same when they are computed again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from offaxis.decoding import Aggregate
from offaxis.decoding.aggregate import GroupMoments
from offaxis.engines.arrow import (
    FACTS,
    ID,
    REPORT,
    VECTOR,
    Batches,
    check_ids,
    decode_batches,
    fold_means,
    job_facts,
    privatize_batches,
    written,
)
from offaxis.engines.spark.cluster import Tasks, pyspark, watched
from offaxis.engines.spark.data import DataFrame, appearing, fold, select, shared
from offaxis.engines.tallies import Tallies, fold_tallies
from offaxis.errors import InvalidInput
from offaxis.evaluation import Evaluation
from offaxis.evaluation.metrics import SweepCell, fit_cells
from offaxis.geometry import as_task_model
from offaxis.release import Release
from offaxis.sampling.entropy import JobKey

_UNSTEADY: Final = frozenset(
    {"Aggregate", "Deduplicate", "Distinct", "GlobalLimit", "LocalLimit", "Offset", "Sample"}
    | {"Tail", "Window"}
)
"""What may give other rows, or sums rounded otherwise, when it is computed again."""


def check_steady(frame: DataFrame) -> None:
    """Refuse a plan that may give a record another vector when a task is tried again."""
    plan = frame._jdf.queryExecution().analyzed()
    unsteady = sorted(_UNSTEADY & set(_steps(plan)))
    if plan.deterministic() and not unsteady:
        return
    why = f"it has {', '.join(unsteady)}" if unsteady else "it has random columns"
    raise InvalidInput(
        f"these rows may come out otherwise when they are computed again ({why}), and a record "
        f"would be released twice: write them to Parquet first and privatize what was written"
    )


def _steps(plan: Any) -> Iterator[str]:
    yield plan.nodeName()
    children = plan.children()
    for at in range(children.size()):
        yield from _steps(children.apply(at))


# ----------------------------------------------------------------------------
# Rows of a DataFrame to reports, and back: what is written appears whole or not at all.

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


# ----------------------------------------------------------------------------
# What reports and releases say over all rows of a DataFrame: means, and trials of releases.


def group_means(
    frame: DataFrame,
    release: Release,
    *,
    reports: str = REPORT,
    groups: str | None = None,
    weights: str | None = None,
    progress: Tasks | None = None,
) -> Aggregate:
    """Estimate the mean of all, or of each group, with standard errors; see Release.aggregate.

    Examples
    --------
    >>> import offaxis
    >>> from offaxis.engines import spark
    >>> session = spark.session("local[2]")
    >>> vectors = np.random.default_rng(0).standard_normal((40, 3))
    >>> release = offaxis.fit(None, vectors, epsilon=2, reshaping="none")
    >>> reports = enumerate(bytearray(report) for report in release.privatize(vectors))
    >>> frame = session.createDataFrame(reports, "id int, report binary")
    >>> found = spark.group_means(frame, release)
    >>> found.estimate.shape, int(found.count)
    ((3,), 40)
    """
    _ = release.unbiased_decoder
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

    Examples
    --------
    >>> import offaxis
    >>> from offaxis.engines import spark
    >>> session = spark.session("local[2]")
    >>> vectors = np.random.default_rng(0).standard_normal((40, 3))
    >>> frame = session.createDataFrame(enumerate(vectors.tolist()), "id int, vector array<double>")
    >>> release = offaxis.fit(None, vectors, epsilon=2, reshaping="none")
    >>> task = np.random.default_rng(1).standard_normal((2, 3))
    >>> (found,) = spark.evaluate(frame, [release], task, seeds=4)
    >>> found.clean["agreement"], found.runs["agreement"].shape
    (1.0, (4,))
    """
    spark, task_model = frame.sparkSession, as_task_model(model)
    context = pyspark().TaskContext
    with shared(spark, (list(releases), task_model)) as public:

        def part(batches: Batches) -> Tallies:
            known, task = public.value
            number = context.get().partitionId()
            return fold_tallies(
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
        total = fold(chosen, part, Tallies(len(releases), seeds), progress)
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
    """Evaluate a grid of settings, as :func:`offaxis.evaluation.sweep` does, in one pass.

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
    found = evaluate(frame, releases, model, **columns, seeds=seeds, seed=seed, progress=progress)
    return [cell.scored(scores) for cell, scores in zip(cells, found, strict=True)]
