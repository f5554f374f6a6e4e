"""Populations from reports in DataFrames.

Likelihoods are computed once, on the cluster, and stored on its disks. Every step of the fit is a
job that returns sums over them.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from functools import reduce
from typing import Any, Self

from offaxis.engines.arrow import REPORT, Batches
from offaxis.engines.populations import (
    COLUMNS,
    LIKELIHOODS,
    SAMPLE,
    fold_samples,
    fold_terms,
    likelihood_batches,
    paired,
)
from offaxis.engines.spark.cluster import Tasks, pyspark
from offaxis.engines.spark.data import DataFrame, broadcast, fold, select
from offaxis.learning import Population
from offaxis.learning.likelihoods import CELLS, ReportLikelihoods, Sample, Sums, Support, Terms
from offaxis.learning.population import of_likelihoods, prepare
from offaxis.release import Release
from offaxis.vectors import Vectors


def population(
    frames: Any,
    releases: Any,
    support: Any,
    *,
    reports: str = REPORT,
    cells: int = CELLS,
    progress: Tasks | None = None,
) -> Population:
    """Weight public vectors so that they stand for the people who reported.

    The population of :func:`offaxis.population`, up to the rounding of sums. The frames may be any,
    as reports are protected already: nothing is drawn. Likelihoods of reports, a few hundred bytes
    per report, are stored on the disks of the cluster until the population is fitted.

    Parameters
    ----------
    frames : DataFrame, or list of them
        One report per person; for several releases, one frame each. Several rounds of one release
        are several entries.
    releases : Release, or list of them
        Of vectors or of symbols.
    support : array (n, m), callable returning an iterator of batches, or SparkVectors
        Public vectors. At most 5,000 of them are used, evenly spaced.
    reports : str
        The column of reports.
    cells : int
        At most so many cells of public vectors.

    Examples
    --------
    >>> import offaxis
    >>> from offaxis.engines import spark
    >>> session = spark.session("local[2]")
    >>> rng = np.random.default_rng(0)
    >>> public = 4 * np.eye(3)[rng.integers(3, size=900)] + rng.standard_normal((900, 3))
    >>> release = offaxis.fit(None, public, epsilon=4, goal="vectors")
    >>> reports = enumerate(map(bytearray, release.privatize(public)))
    >>> frame = session.createDataFrame(reports, "id int, report binary")
    >>> crowd = spark.population(frame, release, public)
    >>> crowd.fit.count, bool(abs(crowd.share(np.eye(3)).estimate[0] - 1 / 3) < 0.1)
    (900, True)
    """
    sources = paired(releases, frames)
    columns = [(release, select(frame, reports)) for release, frame in sources]
    public = prepare([release for release, _ in sources], support, cells)
    with SparkLikelihoods(public, progress) as likelihoods:
        for release, column in columns:
            likelihoods.add(release, column)
        return of_likelihoods(likelihoods)


class SparkLikelihoods(ReportLikelihoods):
    """Likelihoods of reports on the disks of a cluster; they exist within the ``with`` block.

    Parameters
    ----------
    support : Support
    progress : function, optional
        Called with the numbers of finished and of known tasks of each job.
    """

    def __init__(self, support: Support, progress: Tasks | None = None) -> None:
        super().__init__(support)
        self._progress = progress
        self._stored: list[tuple[Release, DataFrame]] = []
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *failure: Any) -> None:
        """Remove what is stored."""
        self._stack.close()

    def add(self, release: Release, column: DataFrame) -> None:
        """Add the reports of a release, a DataFrame of one column."""
        spark, (name,) = column.sparkSession, column.columns
        shared = self._stack.enter_context(broadcast(spark, (release, self.support)))

        def task(batches: Batches) -> Any:
            return likelihood_batches(shared.value, batches, reports=name)

        def part(batches: Batches) -> Sample:
            return fold_samples(shared.value[0], batches)

        level = pyspark().StorageLevel.DISK_ONLY
        stored = column.mapInArrow(task, COLUMNS).persist(level)
        self._stack.callback(stored.unpersist)
        samples = stored.where(f"{SAMPLE} is not null").select(SAMPLE)
        sample = fold(samples, part, Sample(release), self._progress)
        if not sample.count:
            release.observe([])  # the error of no reports
        self.sample_of(release).merge(sample)
        self._stored.append((release, stored.select(LIKELIHOODS)))

    def sums(self, terms: Terms, release: Release | None = None) -> Sequence[Vectors]:
        """Return the sums of the terms of all blocks, or of those of a release, in one job."""
        width = self.width

        def part(batches: Batches) -> Sums:
            return fold_terms(terms, width, batches)

        stored = [rows for own, rows in self._stored if release is None or own == release]
        rows = reduce(lambda one, other: one.union(other), stored)
        return fold(rows, part, Sums(), self._progress).totals
