"""Bulk work at scale: the same as on one machine, in memory that does not grow, and with losses.

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
from offaxis.engines.spark import jobs as records
from offaxis.geometry import Layers, measure

DIM = 16
FILE_ROWS = 500_000


def task_of(dim: int = DIM) -> Layers:
    """Return a public model of ten classes."""
    rng = np.random.default_rng(1)
    return Layers([rng.standard_normal((10, dim))], [np.zeros(10)])


def write_records(folder: Path, count: int) -> None:
    """Write normal vectors, whose ids are their places, into files of half a million rows."""
    folder.mkdir()
    for start in range(0, count, FILE_ROWS):
        rows = min(FILE_ROWS, count - start)
        vectors = np.random.default_rng([2, start]).standard_normal((rows, DIM), dtype=np.float32)
        table = pa.table({"id": np.arange(start, start + rows), "vector": lists_of(vectors)})
        pq.write_table(table, folder / f"{start:09}.parquet", row_group_size=1 << 16)


def fitted(epsilon: float = 5) -> offaxis.Release:
    """Return a release of that model."""
    public = np.random.default_rng(3).standard_normal((20_000, DIM))
    return offaxis.fit(task_of(), public, epsilon=epsilon)


def same(folder: Path) -> None:
    """Compare Gram matrix, release and reports with those of one machine."""
    count = 100_000
    write_records(folder / "in", count)
    session = spark.session("local[2]")
    frame = session.read.parquet(str(folder / "in")).repartition(7)
    here = measure(task_of(), local.public_vectors(folder / "in"))
    there = measure(task_of(), spark.SparkVectors(frame))
    gap = np.abs(there.gram - here.gram).max() / np.abs(here.gram).max()
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


class Watch:
    """Resident memory of this process and its children, by kind, over time."""

    def __init__(self) -> None:
        self.samples: list[dict[str, float]] = []
        self._done = Event()

    def __enter__(self) -> Watch:
        """Begin to look."""
        self._thread = Thread(target=self._run)
        self._thread.start()
        return self

    def __exit__(self, *failure: Any) -> None:
        """Stop looking."""
        self._done.set()
        self._thread.join()

    def _run(self) -> None:
        me = psutil.Process()
        while not self._done.wait(2):
            found: dict[str, float] = defaultdict(float)
            for process in [me, *me.children(recursive=True)]:
                try:
                    name = "driver" if process == me else process.name()
                    kind = {"driver": "driver", "java": "JVM"}.get(name, "workers")
                    found[kind] += process.memory_info().rss / 2**20
                except psutil.Error:
                    continue
            self.samples.append(dict(found))

    def tell(self) -> None:
        """Print what was seen by quarters of the time."""
        quarter = max(1, len(self.samples) // 4)
        for kind in ("driver", "JVM", "workers"):
            values = [sample.get(kind, 0.0) for sample in self.samples]
            if any(values):
                second, last = values[quarter : 2 * quarter], values[-quarter:]
                print(
                    f"  {kind}: first quarter {np.mean(values[:quarter]):.0f} MiB, second "
                    f"{np.mean(second):.0f}, last {np.mean(last):.0f}, most {max(values):.0f}"
                )


def memory(folder: Path, engine: str, count: int) -> None:
    """Privatize many vectors and watch the memory."""
    write_records(folder / "in", count)
    release = fitted()
    session = None
    if engine == "spark":
        session = spark.session("local[2]", spark__driver__memory="2g")
    began = time.perf_counter()
    with Watch() as watch:
        if session is None:
            facts = local.privatize(folder / "in", release, folder / "out")
        else:
            frame = session.read.parquet(str(folder / "in"))
            facts = spark.privatize(frame, release, str(folder / "out"))
    seconds = time.perf_counter() - began
    print(
        f"{engine}: {facts['reports']:,} reports in {seconds:.0f} s, "
        f"{count / seconds:,.0f} a second"
    )
    watch.tell()
    if session is not None:
        session.stop()


def killed(folder: Path, count: int) -> None:
    """Kill an executor in the middle of a job; every report that was ever drawn is noted."""
    write_records(folder / "in", count)
    notes = folder / "notes"
    notes.mkdir()
    place = str(notes)

    def noted(release: Any, key: Any, batches: Any, **columns: str) -> Iterator[Any]:
        """Note what a task draws before Spark sees it."""
        from pyspark import TaskContext

        context = TaskContext.get()
        name = f"{context.partitionId()}-{context.attemptNumber()}-{os.getpid()}"
        with Path(place, name).open("wb") as file:
            for batch in privatize_batches(release, key, batches, **columns):
                pickle.dump([column.to_pylist() for column in batch.columns], file)
                file.flush()
                yield batch

    few = {"spark__sql__execution__arrow__maxRecordsPerBatch": "2000"}
    session = spark.session("local-cluster[2,1,1024]", **few)
    frame = session.read.parquet(str(folder / "in")).repartition(8)
    records.privatize_batches = noted
    Thread(target=_kill_one, args=(notes,), daemon=True).start()
    release = fitted()
    facts = spark.privatize(frame, release, str(folder / "out"))
    records.privatize_batches = privatize_batches
    drawn: dict[int, set[bytes]] = defaultdict(set)
    times: dict[int, int] = defaultdict(int)
    for path in notes.iterdir():
        for ids, reports in _notes(path):
            for name, report in zip(ids, reports, strict=True):
                drawn[name].add(report)
                times[name] += 1
    table = pq.read_table(folder / "out")
    committed = dict(zip(table["id"].to_pylist(), table["report"].to_pylist(), strict=True))
    print(f"{facts['reports']:,} reports committed of {count:,} records, {len(committed):,} ids")
    print(f"attempts: {', '.join(sorted(path.name for path in notes.iterdir()))}")
    print(f"records drawn more than once: {sum(n > 1 for n in times.values()):,}")
    print(f"records with two different reports: {sum(len(r) > 1 for r in drawn.values()):,}")
    print(f"committed otherwise than drawn: {sum({r} != drawn[i] for i, r in committed.items()):,}")
    session.stop()


def _kill_one(notes: Path) -> None:
    """Wait until tasks have drawn some reports, then kill the executor of one of them."""
    some = 1 << 19
    while not (busy := [path for path in notes.iterdir() if path.stat().st_size > some]):
        time.sleep(0.05)
    worker = psutil.Process(int(busy[0].name.rsplit("-", 1)[1]))
    for process in worker.parents():
        if "CoarseGrainedExecutorBackend" in " ".join(process.cmdline()):
            print(f"killing executor {process.pid}")
            process.send_signal(signal.SIGKILL)
            return
    raise RuntimeError("no executor found")


def _notes(path: Path) -> Iterator[list[list[Any]]]:
    with path.open("rb") as file:
        while True:
            try:
                yield pickle.load(file)
            except (EOFError, pickle.UnpicklingError):
                return  # the end, or where the kill cut it


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=("same", "memory", "killed"))
    parser.add_argument("--engine", choices=("spark", "local"), default="spark")
    parser.add_argument("--count", type=int, default=10_000_000)
    parser.add_argument("--folder", help="where the data may lie; the system's temporary one")
    given = parser.parse_args()
    with TemporaryDirectory(dir=given.folder) as name:
        folder = Path(name)
        if given.part == "same":
            same(folder)
        elif given.part == "memory":
            memory(folder, given.engine, given.count)
        else:
            killed(folder, min(given.count, 400_000))


if __name__ == "__main__":
    main()
