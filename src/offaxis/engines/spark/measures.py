"""What reports and releases say over all rows of a DataFrame: means, and trials of releases."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from offaxis.decoding import Aggregate
from offaxis.decoding.aggregate import GroupMoments
from offaxis.engines.arrow import REPORT, VECTOR, Batches, Tallies, fold_means, fold_tallies
from offaxis.engines.spark.fold import DataFrame, fold, select, shared
from offaxis.engines.spark.starting import pyspark
from offaxis.engines.spark.watch import Tasks
from offaxis.evaluation import Evaluation
from offaxis.evaluation.sweep import Row, fit_cells
from offaxis.geometry import as_task_model
from offaxis.release import Release


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
) -> list[Row]:
    """Evaluate a grid of settings, as :func:`offaxis.evaluation.sweep` does, in one pass.

    ``public`` may be :class:`SparkVectors`.

    Examples
    --------
    >>> from offaxis.engines import spark
    >>> session = spark.session("local[2]")
    >>> vectors = np.random.default_rng(0).standard_normal((40, 3))
    >>> frame = session.createDataFrame(enumerate(vectors.tolist()), "id int, vector array<double>")
    >>> task = np.random.default_rng(1).standard_normal((2, 3))
    >>> grid = {"randomizers": ["laplace"], "epsilons": [2.0, 8.0], "shapes": ["none"]}
    >>> rows = spark.sweep(frame, task, vectors, seeds=2, **grid)
    >>> [(row.randomizer, row.epsilon) for row in rows]
    [('laplace', 2.0), ('laplace', 8.0)]
    """
    cells = list(fit_cells(model, public, **grid))
    columns: dict[str, Any] = {"vectors": vectors, "targets": targets}
    releases = [cell.release for cell in cells]
    found = evaluate(frame, releases, model, **columns, seeds=seeds, seed=seed, progress=progress)
    return [cell.row(scores) for cell, scores in zip(cells, found, strict=True)]
