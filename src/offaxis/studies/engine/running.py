"""The engine of all studies: rows of mechanisms, over budgets and seeds, on every core.

Contract: the figures of a cell depend on its inputs, its mechanism, its budget and the number of
seeds alone: not on how many cores work, what else is computed, or whether the run was interrupted.
Vectors are simulated in blocks of a fixed size whose random numbers are keyed by (mechanism, seed,
block), so memory does not grow with seeds, budgets or vectors. Finished cells are stored at once.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

import numpy as np
from threadpoolctl import ThreadpoolController

from offaxis.errors import InvalidInput
from offaxis.studies.advice import Advice
from offaxis.studies.engine.channels import Channel, Noise, channel
from offaxis.studies.engine.store import Cell, Result, Store
from offaxis.studies.lines import WITHOUT_REPORTS, NoReport, line_scores
from offaxis.studies.mechanisms import Mechanism
from offaxis.studies.scores import Metric, Score
from offaxis.studies.sources import Sample, Source, open_source
from offaxis.vectors import Vectors

BLOCK: Final = 2500
"""Vectors simulated at a time. Part of the random streams: another size gives other figures."""

Open = Callable[[str], Source]
Progress = Callable[[str, int, int | None], None]
"""Called with a label, the steps finished so far and the steps in all."""


@dataclass(frozen=True)
class Row:
    """One row of a table.

    Attributes
    ----------
    label, level : str
        The paper's names; a label of our own where the paper has no such row.
    setting : str
        Which source; see :func:`offaxis.studies.sources.open_source`.
    mechanism : Mechanism
    epsilons : tuple of float
    """

    label: str
    level: str
    setting: str
    mechanism: Mechanism
    epsilons: tuple[float, ...]


@dataclass(frozen=True)
class Outcome:
    """Scores of one cell of a table, one a seed, and what was recommended there, if anything."""

    row: Row
    epsilon: float
    metric: Metric
    runs: tuple[float, ...]
    advice: Advice | None = None

    @property
    def mean(self) -> float:
        """The mean over seeds."""
        return float(np.mean(self.runs))

    @property
    def std(self) -> float:
        """The standard deviation over seeds (0 for a single one)."""
        return float(np.std(self.runs, ddof=1)) if len(self.runs) > 1 else 0.0


def run(
    rows: Sequence[Row],
    folder: Path,
    *,
    seeds: int = 20,
    workers: int | None = None,
    opener: Open = open_source,
    progress: Progress | None = None,
) -> list[Outcome]:
    """Compute the rows, or read what of them is finished; return their cells in order.

    Parameters
    ----------
    folder : Path
        Where finished cells are kept, and looked for.
    seeds : int
        Independent repetitions, 0 … seeds − 1.
    workers : int, optional
        Threads; as many as cores when not given. Results do not depend on it.
    """
    if seeds < 1:
        raise InvalidInput(f"seeds must be at least 1, got {seeds}")
    store = Store(folder)
    sources = {name: opener(name) for name in dict.fromkeys(row.setting for row in rows)}

    def cell(row: Row, epsilon: float) -> Cell:
        source = sources[row.setting]
        return Cell(source.name, source.fingerprint, row.mechanism.key, epsilon, seeds)

    jobs: dict[tuple[str, Mechanism], list[float]] = {}
    for row in rows:
        missing = jobs.setdefault((row.setting, row.mechanism), [])
        for epsilon in row.epsilons:
            if store.get(cell(row, epsilon)) is None and epsilon not in missing:
                missing.append(epsilon)
    _work(jobs, sources, store, seeds, workers or _cores(), progress)
    outcomes = []
    for row in rows:
        for epsilon in row.epsilons:
            found = store.get(cell(row, epsilon))
            assert found is not None
            metric = sources[row.setting].metric
            outcomes.append(Outcome(row, epsilon, metric, found.runs, found.advice))
    return outcomes


def _cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _work(
    jobs: dict[tuple[str, Mechanism], list[float]],
    sources: dict[str, Source],
    store: Store,
    seeds: int,
    workers: int,
    progress: Progress | None,
) -> None:
    """Do the jobs on a pool; what is finished before an error or an interruption stays."""
    todo = {job: budgets for job, budgets in jobs.items() if budgets}
    total, done, turn, stop = sum(map(len, todo.values())), 0, threading.Lock(), threading.Event()

    def work(setting: str, mechanism: Mechanism, epsilons: list[float]) -> None:
        nonlocal done
        source = sources[setting]
        scores = measure_row(source, mechanism, epsilons, seeds=seeds, stop=stop)
        if scores is None:
            return
        store.add(
            {
                Cell(source.name, source.fingerprint, mechanism.key, epsilon, seeds): Result(
                    runs, mechanism.advice(source, epsilon)
                )
                for epsilon, runs in scores.items()
            }
        )
        with turn:
            done += len(epsilons)
            if progress:
                progress(f"{source.name}: {mechanism.title}", done, total)

    if progress:
        progress("starting", 0, total)
    # Rows run in parallel, so each matrix product must stay on its own core.
    with (
        ThreadpoolController().limit(limits=1, user_api="blas"),
        ThreadPoolExecutor(workers) as pool,
    ):
        futures = [
            pool.submit(work, *job, part)
            for job, budgets in todo.items()
            for part in _portions(job[1], budgets)
        ]
        try:
            finished, _ = wait(futures, return_when=FIRST_EXCEPTION)
        finally:
            stop.set()
            pool.shutdown(wait=True, cancel_futures=True)
        for future in finished:
            future.result()


def _portions(mechanism: Mechanism, budgets: list[float]) -> list[list[float]]:
    """Divide a row into what is stored at once: all of it, or where fitting is slow, a budget."""
    return [[budget] for budget in budgets] if mechanism.slow else [budgets]


def measure_row(
    source: Source,
    mechanism: Mechanism,
    epsilons: Sequence[float],
    *,
    seeds: int,
    fused: bool = True,
    stop: threading.Event | None = None,
) -> dict[float, tuple[float, ...]] | None:
    """Return one score a seed at every budget, or None if it was told to stop.

    ``fused=False`` decodes every observation and gives it to the task, as a receiver would: slower,
    and the same scores.
    """
    if mechanism.way in WITHOUT_REPORTS:
        return line_scores(source, cast(NoReport, mechanism.way), epsilons, seeds)
    channels = {
        epsilon: channel(made, source.scoring, epsilon, fused=fused, means=source.score.of_means)
        for epsilon, made in mechanism.make(source, epsilons).items()
    }
    score = source.score
    total = np.zeros((len(epsilons), seeds, score.size))
    count = [0] * seeds
    groups = [list(range(seeds))] if source.fixed else [[seed] for seed in range(seeds)]
    for group in groups:
        sample = source.sample(group[0])
        for seed in group:
            count[seed] = len(sample.vectors)
        for block, start in enumerate(range(0, len(sample.vectors), BLOCK)):
            if stop is not None and stop.is_set():
                return None
            part = Sample(*(array[start : start + BLOCK] for array in sample))
            _add_block(total, list(channels.values()), part, mechanism.stream, group, block, score)
    return {
        epsilon: tuple(map(score.finish, line, count))
        for epsilon, line in zip(epsilons, total, strict=True)
    }


def _add_block(
    total: Vectors,
    channels: Sequence[Channel],
    part: Sample,
    stream: str,
    seeds: Sequence[int],
    block: int,
    score: Score,
) -> None:
    """Add a block's part of the scores to the totals, (budgets, seeds, size)."""
    prepared = [one.prepare(part.vectors) for one in channels]
    for seed in seeds:
        noise = Noise(stream, seed, block, len(part.vectors))
        for index, one in enumerate(channels):
            outputs = one.outputs(prepared[index], noise)
            total[index, seed] += score.add(outputs, part.answers)
