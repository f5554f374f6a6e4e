"""Bulk jobs at scale: agreement of both engines, constant memory, and lost executors.

    python -m benchmarks.spark same
    python -m benchmarks.spark memory --engine spark --count 10000000
    python -m benchmarks.spark memory --engine local --count 10000000
    python -m benchmarks.spark killed

Needs the extras spark and bench.
"""

from __future__ import annotations

import argparse
import os
import pickle
import signal
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Thread
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from scipy import stats

import offaxis
from offaxis.engines import local, spark
from offaxis.engines.arrow import privatize_batches
from offaxis.engines.columns import lists_of
from offaxis.engines.spark import jobs
from offaxis.geometry import Layers, measure

DIM = 16
FILE_ROWS = 500_000


def task_of(dim: int = DIM) -> Layers:
    """Return a public model of ten classes."""
    rng = np.random.default_rng(1)
    return Layers([rng.standard_normal((10, dim))], [np.zeros(10)])


def write_records(folder: Path, count: int) -> None:
    """Write normal vectors, with their indices as ids, into files of half a million rows."""
    folder.mkdir()
    for start in range(0, count, FILE_ROWS):
        rows = min(FILE_ROWS, count - start)
        vectors = np.random.default_rng([2, start]).standard_normal((rows, DIM), dtype=np.float32)
        table = pa.table({"id": np.arange(start, start + rows), "vector": lists_of(vectors)})
        pq.write_table(table, folder / f"{start:09}.parquet", row_group_size=1 << 16)


def fitted(epsilon: float = 5) -> offaxis.Release:
    """Return a release of that model."""
    public = np.random.default_rng(3).standard_normal((20_000, DIM))
    return offaxis.fit(task_of(), public, epsilon=epsilon, mechanism="laplace")


def same(folder: Path) -> None:
    """Compare the Gram matrix and the noise of reports with those of one machine."""
    count = 100_000
    write_records(folder / "in", count)
    session = spark.session("local[2]")
    frame = session.read.parquet(str(folder / "in")).repartition(7)
    one_machine = measure(task_of(), local.public_vectors(folder / "in"))
    cluster = measure(task_of(), spark.SparkVectors(frame))
    gap = np.abs(cluster.gram - one_machine.gram).max() / np.abs(one_machine.gram).max()
    print(f"Gram over {count:,} vectors: largest relative difference {gap:.1e}")
    release = fitted()
    spark.privatize(frame, release, str(folder / "spark"))
    local.privatize(folder / "in", release, folder / "local")
    noise = {}
    for name in ("spark", "local"):
        table = pq.read_table(folder / name).sort_by("id")
        observed = release.observe(table["report"].to_pylist())
        vectors = pq.read_table(folder / "in").sort_by("id")["vector"].combine_chunks()
        rows = vectors.flatten().to_numpy().reshape(-1, DIM).astype(float)
        clipped = release.randomizer.domain.project(release.encoder.encode(rows))
        noise[name] = (observed - clipped).ravel()
    p = stats.ks_2samp(noise["spark"], noise["local"]).pvalue
    print(f"noise of {count:,} reports, two-sample Kolmogorov-Smirnov: p = {p:.3f}")
    session.stop()


class MemoryWatch:
    """Records the resident memory of this process and its children, by kind, over time."""

    def __init__(self) -> None:
        self.samples: list[dict[str, float]] = []
        self._done = Event()

    def __enter__(self) -> MemoryWatch:
        """Start recording."""
        self._thread = Thread(target=self._run)
        self._thread.start()
        return self

    def __exit__(self, *failure: Any) -> None:
        """Stop recording."""
        self._done.set()
        self._thread.join()

    def _run(self) -> None:
        driver = psutil.Process()
        while not self._done.wait(2):
            resident: dict[str, float] = defaultdict(float)
            for process in [driver, *driver.children(recursive=True)]:
                try:
                    name = "driver" if process == driver else process.name()
                    kind = {"driver": "driver", "java": "JVM"}.get(name, "workers")
                    resident[kind] += process.memory_info().rss / 2**20
                except psutil.Error:
                    continue
            self.samples.append(dict(resident))

    def print_quarters(self) -> None:
        """Print the mean memory of the first, second and last quarter of the time."""
        quarter = max(1, len(self.samples) // 4)
        for kind in ("driver", "JVM", "workers"):
            values = [sample.get(kind, 0.0) for sample in self.samples]
            if any(values):
                second, last = values[quarter : 2 * quarter], values[-quarter:]
                print(
                    f"  {kind}: first quarter {np.mean(values[:quarter]):.0f} MiB, second "
                    f"{np.mean(second):.0f}, last {np.mean(last):.0f}, peak {max(values):.0f}"
                )


def memory(folder: Path, engine: str, count: int) -> None:
    """Privatize many vectors and record the memory."""
    write_records(folder / "in", count)
    release = fitted()
    session = None
    if engine == "spark":
        session = spark.session("local[2]", spark__driver__memory="2g")
    began = time.perf_counter()
    with MemoryWatch() as watch:
        if session is None:
            facts = local.privatize(folder / "in", release, folder / "out")
        else:
            frame = session.read.parquet(str(folder / "in"))
            facts = spark.privatize(frame, release, str(folder / "out"))
    seconds = time.perf_counter() - began
    print(
        f"{engine}: {facts['reports']:,} reports in {seconds:.0f} s, "
        f"{count / seconds:,.0f} per second"
    )
    watch.print_quarters()
    if session is not None:
        session.stop()


def killed(folder: Path, count: int) -> None:
    """Kill an executor in the middle of a job, with a log of every report that was drawn."""
    write_records(folder / "in", count)
    logs = folder / "logs"
    logs.mkdir()
    log_folder = str(logs)

    def logged(release: Any, key: Any, batches: Any, **columns: str) -> Iterator[Any]:
        """Log the reports of a task before Spark receives them."""
        from pyspark import TaskContext

        context = TaskContext.get()
        name = f"{context.partitionId()}-{context.attemptNumber()}-{os.getpid()}"
        with Path(log_folder, name).open("wb") as file:
            for batch in privatize_batches(release, key, batches, **columns):
                pickle.dump([column.to_pylist() for column in batch.columns], file)
                file.flush()
                yield batch

    small_batches = {"spark__sql__execution__arrow__maxRecordsPerBatch": "2000"}
    session = spark.session("local-cluster[2,1,1024]", **small_batches)
    frame = session.read.parquet(str(folder / "in")).repartition(8)
    jobs.privatize_batches = logged
    Thread(target=_kill_one, args=(logs,), daemon=True).start()
    release = fitted()
    facts = spark.privatize(frame, release, str(folder / "out"))
    jobs.privatize_batches = privatize_batches
    drawn: dict[int, set[bytes]] = defaultdict(set)
    times: dict[int, int] = defaultdict(int)
    for path in logs.iterdir():
        for ids, reports in _read_log(path):
            for name, report in zip(ids, reports, strict=True):
                drawn[name].add(report)
                times[name] += 1
    table = pq.read_table(folder / "out")
    committed = dict(zip(table["id"].to_pylist(), table["report"].to_pylist(), strict=True))
    print(f"{facts['reports']:,} reports committed of {count:,} records, {len(committed):,} ids")
    print(f"attempts: {', '.join(sorted(path.name for path in logs.iterdir()))}")
    print(f"records drawn more than once: {sum(n > 1 for n in times.values()):,}")
    print(f"records with two different reports: {sum(len(r) > 1 for r in drawn.values()):,}")
    changed = sum({report} != drawn[name] for name, report in committed.items())
    print(f"committed reports that differ from the drawn ones: {changed:,}")
    session.stop()


def _kill_one(logs: Path) -> None:
    """Wait until tasks have drawn some reports, then kill the executor of one of them."""
    enough = 1 << 19
    while not (busy := [path for path in logs.iterdir() if path.stat().st_size > enough]):
        time.sleep(0.05)
    worker = psutil.Process(int(busy[0].name.rsplit("-", 1)[1]))
    for process in worker.parents():
        if "CoarseGrainedExecutorBackend" in " ".join(process.cmdline()):
            print(f"killing executor {process.pid}")
            process.send_signal(signal.SIGKILL)
            return
    raise RuntimeError("no executor found")


def _read_log(path: Path) -> Iterator[list[list[Any]]]:
    with path.open("rb") as file:
        while True:
            try:
                yield pickle.load(file)
            except (EOFError, pickle.UnpicklingError):
                return  # the end, or where the kill truncated it


def main() -> None:
    """Parse the options and run one part."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=("same", "memory", "killed"))
    parser.add_argument("--engine", choices=("spark", "local"), default="spark")
    parser.add_argument("--count", type=int, default=10_000_000)
    parser.add_argument(
        "--folder", help="where to write the data; the system's temporary folder by default"
    )
    options = parser.parse_args()
    with TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        if options.part == "same":
            same(folder)
        elif options.part == "memory":
            memory(folder, options.engine, options.count)
        else:
            killed(folder, min(options.count, 400_000))


if __name__ == "__main__":
    main()
