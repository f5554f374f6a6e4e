"""Populations from reports: which weighted public sample stands for the people who reported?

    python -m benchmarks.population PART [options]

Parts:

- *questions*: errors of shares, means, medians and histograms next to asking that question alone
  with the whole ε, coverage of 95 % intervals, and rates of the test of fit. CIFAR-10 features:
  4,000 validation images are public, people are drawn with replacement from the 6,000 others,
  with equal or uneven shares of classes, or from corrupted test images. Releases are fitted to no
  question: ten cells by ``subset``, directions by PrivUnit2 (r = 9), and what
  ``fit(goal="vectors")`` chooses. The classes are those of a public head, the number is one of
  its outputs. Asked alone, shares and histograms are those of subset selection, projected; means
  are those of the hybrid mechanism, and medians of 16, 32 or 64 bins, whichever is best on the
  truth. Errors are towards the people who reported, intervals are for the law that they come
  from. Reports are drawn from the law of the exact ones in floating point. Needs cached CIFAR-10
  features.
- *speed*: seconds and peak memory of likelihoods and of the fit, for 5,000 public vectors of 16
  dimensions in ten clusters, reports of PrivUnit2 with r = 9 and of ten cells, and people in other
  shares of the clusters. Each row is a process of its own. Reports are drawn from the law of the
  exact ones in floating point, which is not timed; with ``--bytes``, they are exact reports of
  20,000 people, read again and again. CPU seconds are those of all threads, from the public vectors
  to the population: on an idle machine of two cores, the total is about half of them.
- *engines*: reports of PrivUnit2 in a Parquet folder, read by ``offaxis.engines.local`` and by
  Spark in two threads: seconds, memory, and the largest difference of shares. Needs the extras
  spark and bench.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import cycle, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np

from benchmarks.population_questions import PEOPLE, cells_of, measure, print_tables
from benchmarks.population_questions import RELEASES as QUESTIONED
from offaxis.learning import Population, cells, fit_pairs, principal
from offaxis.learning.likelihoods import Likelihoods
from offaxis.learning.population import of_likelihoods, prepare
from offaxis.release import Release
from offaxis.simulation import draw_observations

# ---- Speed

PUBLIC: Final = 5_000
DIM: Final = 16
CLUSTERS: Final = 10
RANK: Final = 9
EPSILON: Final = 2.0
BATCH: Final = 4_096
EXACT: Final = 20_000
RELEASES: Final = ("privunit2", "cells")
COUNTS: Final = (100_000, 1_000_000)


class Clusters:
    """Public vectors in equal clusters, and people in unequal ones."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self._centres = 3 * self._rng.standard_normal((CLUSTERS, DIM))
        self._shares = self._rng.dirichlet(np.full(CLUSTERS, 3.0))
        self.public = self._vectors(PUBLIC, None)

    def _vectors(self, size: int, shares: np.ndarray | None) -> np.ndarray:
        drawn = self._rng.choice(CLUSTERS, size, p=shares)
        return self._centres[drawn] + self._rng.standard_normal((size, DIM))

    def people(self, size: int) -> np.ndarray:
        """Return the vectors of some people."""
        return self._vectors(size, self._shares)

    def observations(self, release: Release, count: int) -> Iterator[np.ndarray]:
        """Yield batches of what is observed of the reports of so many people."""
        for start in range(0, count, BATCH):
            encoded = release.encode_private(self.people(min(BATCH, count - start)))
            yield draw_observations(release.randomizer, encoded, self._rng)

    def fitted(self, name: str) -> Release:
        """Return a release of vectors or of symbols."""
        whiten = name == "privunit2"
        features = principal(self.public, rank=RANK) if whiten else cells(self.public, CLUSTERS)
        return fit_pairs(features, None, epsilon=EPSILON)


def speed(counts: list[int], exact: bool) -> None:
    """Print a row for each release and number of reports, measured in a process of its own."""
    print(
        "release      reports  support  likelihoods      fit    total      CPU  peak MiB (imports)"
    )
    for name in RELEASES:
        for count in counts:
            command = [sys.executable, "-m", "benchmarks.population", "row", name, str(count)]
            subprocess.run([*command, *(["--bytes"] if exact else [])], check=True)


def row(name: str, count: int, exact: bool) -> None:
    """Measure one release and number of reports."""
    imports = _peak()
    clusters, drawing = Clusters(0), _Stopwatch()
    release = clusters.fitted(name)
    reports = release.privatize(clusters.people(EXACT)) if exact else []
    cpu = time.process_time()
    began = time.perf_counter()
    likelihoods = Likelihoods(prepare([release], clusters.public, 20))
    supported = time.perf_counter() - began
    began = time.perf_counter()
    if exact:
        likelihoods.add(release, islice(cycle(reports), count))
    else:
        likelihoods.add_observed(release, drawing.timed(clusters.observations(release, count)))
    computed = time.perf_counter() - began - drawing.seconds
    began = time.perf_counter()
    crowd = of_likelihoods(likelihoods)
    fit = time.perf_counter() - began
    total, cpu = supported + computed + fit, time.process_time() - cpu - drawing.cpu
    print(
        f"{name:9} {crowd.fit.count:10,} {supported:7.1f}s {computed:11.1f}s {fit:7.1f}s "
        f"{total:7.1f}s {cpu:7.1f}s {_peak():9.0f} ({imports:.0f})",
        flush=True,
    )


class _Stopwatch:
    """The seconds that an iterator takes, so that simulating reports is not counted."""

    def __init__(self) -> None:
        self.seconds = self.cpu = 0.0

    def timed(self, values: Iterator[Any]) -> Iterator[Any]:
        while True:
            began, cpu = time.perf_counter(), time.thread_time()
            value = next(values, None)
            self.seconds += time.perf_counter() - began
            self.cpu += time.thread_time() - cpu
            if value is None:
                return
            yield value


def _peak() -> float:
    """Return the peak resident memory of this process, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


# ---- Engines


def engines(count: int) -> None:
    """Print seconds, memory and differences of the local engine and Spark."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from benchmarks.spark import MemoryWatch
    from offaxis.engines import local, spark

    clusters = Clusters(0)
    release = clusters.fitted("privunit2")
    table = pa.table({"report": release.privatize(clusters.people(EXACT))})
    with TemporaryDirectory() as folder:
        for part in range(max(1, count // EXACT)):
            pq.write_table(table, f"{folder}/{part:05}.parquet")
        session = spark.session("local[2]", spark__driver__memory="2g")
        frame = session.read.parquet(folder)
        runs: dict[str, Callable[[], Population]] = {
            "local": lambda: local.population(folder, release, clusters.public),
            "spark": lambda: spark.population(frame, release, clusters.public),
        }
        shares = {}
        for name, run in runs.items():
            began = time.perf_counter()
            with MemoryWatch() as watch:
                crowd = run()
            print(f"{name}: {crowd.fit.count:,} reports, {time.perf_counter() - began:.1f} s")
            watch.print_quarters()
            shares[name] = crowd.fit.shares
        session.stop()
    print(f"largest difference of shares: {np.abs(shares['local'] - shares['spark']).max():.1e}")


# ---- Command


# ---- Questions


def questions(options: argparse.Namespace) -> None:
    """Print the tables of questions."""
    listed = cells_of(options.people, options.releases, options.seeds, options.moved)
    print_tables(measure(list(listed), options.jobs, options.out))


def main() -> None:
    """Parse the options and run one part."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parts = parser.add_subparsers(dest="part", required=True)
    part = parts.add_parser("speed", help="seconds and peak memory")
    part.add_argument("--reports", type=int, nargs="+", default=list(COUNTS))
    part.add_argument("--bytes", action="store_true", help="read exact reports")
    part.set_defaults(run=lambda options: speed(options.reports, options.bytes))
    part = parts.add_parser("row", help="one row of speed")
    part.add_argument("release", choices=RELEASES)
    part.add_argument("reports", type=int)
    part.add_argument("--bytes", action="store_true")
    part.set_defaults(run=lambda options: row(options.release, options.reports, options.bytes))
    part = parts.add_parser("questions", help="errors, coverage and the test of fit")
    part.add_argument("--people", type=int, nargs="+", default=list(PEOPLE))
    part.add_argument("--seeds", type=int, default=20, help="rounds of each cell")
    part.add_argument("--moved", type=int, default=10, help="rounds of people who moved")
    part.add_argument("--releases", nargs="+", choices=QUESTIONED, default=list(QUESTIONED))
    part.add_argument("--jobs", type=int, default=2, help="processes")
    part.add_argument("--out", type=Path, help="a JSON line for each round")
    part.set_defaults(run=questions)
    part = parts.add_parser("engines", help="Parquet folders and Spark")
    part.add_argument("--reports", type=int, default=COUNTS[-1])
    part.set_defaults(run=lambda options: engines(options.reports))
    options = parser.parse_args()
    options.run(options)


if __name__ == "__main__":
    main()
