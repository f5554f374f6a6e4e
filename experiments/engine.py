"""The engine of all studies: rows of mechanisms, over budgets and seeds, on every core."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal, cast

import numpy as np
import scipy
from threadpoolctl import ThreadpoolController

from experiments.advice import Advice
from experiments.channels import FastSimulation, Noise, channel
from experiments.lines import WITHOUT_REPORTS, NoReport, line_scores
from experiments.rows import Mechanism
from experiments.scores import Metric, Score
from experiments.sources import Sample, Source, open_source
from offaxis.errors import InvalidInput
from offaxis.vectors import Vectors
from offaxis.version import __version__

# ----------------------------------------------------------------------------
# Finished cells on the disk: a run that is killed goes on where it stopped.
#
# ``cells.jsonl`` holds one line a finished cell, appended and synced as soon as it is known. A line
# that a kill cut short is no cell and is cut off. A cell is found again by the hash of everything
# it depends on, so other data, weights, seeds or versions never meet old figures.

FILE: Final = "cells.jsonl"
FORMAT: Final = 1
"""Raised when the engine draws other numbers for the same cell."""


def versions() -> dict[str, str]:
    """Return what figures may depend on besides their inputs."""
    return {
        "offaxis": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
    }


@dataclass(frozen=True)
class Cell:
    """One number to be: a mechanism at a budget in a setting.

    Attributes
    ----------
    setting, fingerprint : str
        Where it is measured: the source's name, and the hash of what is in it.
    mechanism : str
        The key of the mechanism.
    epsilon : float
    seeds : int
    """

    setting: str
    fingerprint: str
    mechanism: str
    epsilon: float
    seeds: int

    @property
    def id(self) -> str:
        """The hash by which it is found again."""
        parts = [FORMAT, self.fingerprint, self.mechanism, self.epsilon, self.seeds, versions()]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


@dataclass(frozen=True)
class Result:
    """A finished cell: one score a seed, and what was recommended, where something was."""

    runs: tuple[float, ...]
    advice: Advice | None = None


class Store:
    """The cells of a result folder; safe for several threads of one process."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / FILE
        self._turn = threading.Lock()
        self._results: dict[str, Result] = {}
        self._read()

    def _read(self) -> None:
        if not self._path.exists():
            return
        with self._path.open("rb+") as file:
            text = file.read()
            whole = text.rfind(b"\n") + 1
            if whole < len(text):
                file.truncate(whole)
        for number, line in enumerate(text[:whole].splitlines(), 1):
            try:
                entry = json.loads(line)
                runs = tuple(float(run) for run in entry["runs"])
                advice = Advice(**entry["advice"]) if "advice" in entry else None
                self._results[entry["id"]] = Result(runs, advice)
            except (ValueError, KeyError, TypeError) as error:
                raise InvalidInput(
                    f"{self._path} is damaged at line {number}: remove that line, or the file to "
                    f"compute everything again"
                ) from error

    def get(self, cell: Cell) -> Result | None:
        """Return a result, or None where the cell is not finished."""
        return self._results.get(cell.id)

    def add(self, cells: Mapping[Cell, Result]) -> None:
        """Keep finished cells; they are on the disk when this returns."""
        lines = []
        for cell, result in cells.items():
            entry: dict[str, Any] = {
                "id": cell.id,
                "setting": cell.setting,
                "mechanism": cell.mechanism,
                "epsilon": cell.epsilon,
                "runs": list(result.runs),
            }
            if result.advice is not None:
                entry["advice"] = asdict(result.advice)
            lines.append(json.dumps(entry) + "\n")
        with self._turn, self._path.open("ab") as file:
            file.write("".join(lines).encode())
            file.flush()
            os.fsync(file.fileno())
            for cell, result in cells.items():
                self._results[cell.id] = result


# ----------------------------------------------------------------------------
# The engine of all studies: rows of mechanisms, over budgets and seeds, on every core.
#
# Contract: the figures of a cell depend on its inputs, its mechanism, its budget and the number of
# seeds alone: not on how many cores work, what else is computed, or whether the run was
# interrupted. Vectors are simulated in blocks of a fixed size whose random numbers are keyed by
# (mechanism, seed, block), so memory does not grow with seeds, budgets or vectors. Finished cells
# are stored at once.

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
        Which source; see :func:`experiments.sources.open_source`.
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
    channels: Sequence[FastSimulation],
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


# ----------------------------------------------------------------------------
# What a study is: rows for the engine, and a way to show them.

Show = Literal[
    "table", "levels", "clipping", "recovery", "curve", "ellipse", "standing", "predicted", "people"
]


@dataclass(frozen=True)
class Study:
    """One experiment.

    Attributes
    ----------
    name, title : str
    about : str
        What is measured on what, in a sentence or two.
    rows : tuple of Row
    show : str
        How it is shown: a table, a table with levels, where the recommended release stands, what
        was predicted and what came, or one of the figures.
    table : str
        Whose published numbers it is held against; empty where there are none.
    level : str
        What the levels of the rows are.
    """

    name: str
    title: str
    about: str
    rows: tuple[Row, ...]
    show: Show = "table"
    table: str = ""
    level: str = ""

    @property
    def cells(self) -> int:
        """How many numbers it has."""
        return sum(len(row.epsilons) for row in self.rows)
