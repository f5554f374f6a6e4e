"""The engine of all studies: the rows of a table, over budgets and seeds, on every core.

Contract: the figures of a cell depend on its inputs, its method, its budget and the number of seeds
alone: not on the number of cores, on what else is computed, or on whether the run was interrupted.
Vectors are simulated in blocks of a fixed size whose random numbers are keyed by (method, seed,
block), so memory does not grow with seeds, budgets or vectors. Finished cells are stored at once.
"""

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
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from experiments.methods import Method
from experiments.recommended import Prediction
from experiments.reference_lines import WITHOUT_REPORTS, ReferenceLine, line_scores
from experiments.scores import Metric, Score
from experiments.simulation import Noise, RowSimulation, row_simulation
from experiments.sources import Sample, Source, members, open_source
from experiments.without_guarantee import TASK_AWARE_IMAGES, task_aware_images
from offaxis.errors import InvalidInput
from offaxis.vectors import Vectors
from offaxis.version import __version__

FILE: Final = "cells.jsonl"
FORMAT: Final = 1
"""Raised when the engine draws other numbers for the same cell."""

BLOCK: Final = 2500
"""Vectors simulated at a time. Part of the random streams: another size gives other figures."""

Open = Callable[[str], Source]
Progress = Callable[[str, int, int | None], None]
"""Called with a label, the number of steps finished so far, and their total."""

Show = Literal[
    "table", "levels", "clipping", "recovery", "curve", "ellipse", "standing", "predicted", "people"
]


# ---- Studies


@dataclass(frozen=True)
class Row:
    """One row of a table.

    Attributes
    ----------
    label, level : str
        The paper's names; another label if the paper has no such row.
    setting : str
        The name of a source, or of several that differ in their heads only; see
        :func:`experiments.sources.open_source` and :func:`experiments.sources.members`.
    method : Method
    epsilons : tuple of float
    """

    label: str
    level: str
    setting: str
    method: Method
    epsilons: tuple[float, ...]


@dataclass(frozen=True)
class Study:
    """One experiment: rows for the engine, and how they are shown.

    Attributes
    ----------
    name, title : str
    about : str
        What is measured on which data, in a sentence or two.
    rows : tuple of Row
    show : str
        How it is shown: as a table, a table with levels, the recommended release against the best
        of the paper ("standing"), predictions against measurements, or one of the figures.
    table : str
        The published table it is compared with; empty if none exists.
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
        """The number of cells in its table."""
        return sum(len(row.epsilons) for row in self.rows)


@dataclass(frozen=True)
class Outcome:
    """The scores of one cell.

    Attributes
    ----------
    runs : tuple of float
        One score per head and seed; all seeds of the first head come first.
    prediction : Prediction or None
        What was predicted, if a release was recommended.
    heads : int
        The number of heads: models trained alike from other starts, or on another encoder.
    """

    row: Row
    epsilon: float
    metric: Metric
    runs: tuple[float, ...]
    prediction: Prediction | None = None
    heads: int = 1

    @property
    def _by_head(self) -> NDArray[np.float64]:
        return np.array(self.runs).reshape(self.heads, -1)

    @property
    def seeds(self) -> int:
        """The number of seeds per head."""
        return len(self.runs) // self.heads

    @property
    def mean(self) -> float:
        """The mean over heads and seeds."""
        return float(np.mean(self.runs))

    @property
    def head_means(self) -> tuple[float, ...]:
        """The mean over seeds of every head."""
        return tuple(map(float, self._by_head.mean(axis=1)))

    @property
    def std(self) -> float:
        """The standard deviation over seeds, within heads (0 for a single seed)."""
        if self.seeds == 1:
            return 0.0
        return float(np.sqrt(self._by_head.var(axis=1, ddof=1).mean()))

    @property
    def spread(self) -> float:
        """The standard deviation of the means of heads (0 for a single head)."""
        return float(np.std(self.head_means, ddof=1)) if self.heads > 1 else 0.0


# ---- Finished cells on disk


def versions() -> dict[str, str]:
    """Return the versions that figures may depend on besides their inputs."""
    return {
        "offaxis": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
    }


@dataclass(frozen=True)
class CellKey:
    """The identity of one number: a method at a budget in a setting.

    Attributes
    ----------
    setting, fingerprint : str
        The source's name, and the hash of its content.
    method : str
        The key of the method.
    epsilon : float
    seeds : int
    """

    setting: str
    fingerprint: str
    method: str
    epsilon: float
    seeds: int

    @property
    def id(self) -> str:
        """A hash of everything that the number depends on."""
        parts = [FORMAT, self.fingerprint, self.method, self.epsilon, self.seeds, versions()]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


@dataclass(frozen=True)
class Result:
    """A finished cell: one score per seed, and the prediction if a release was recommended."""

    runs: tuple[float, ...]
    prediction: Prediction | None = None


class Store:
    """The finished cells of a result folder; safe for several threads of one process.

    ``cells.jsonl`` has one line per finished cell, appended and synced as soon as it is known. A
    line that a kill cut short is removed on opening. Cells are looked up by the hash of everything
    they depend on, so results of other data, weights, seeds or versions are never reused.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / FILE
        self._lock = threading.Lock()
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
                prediction = Prediction(**entry["advice"]) if "advice" in entry else None
                self._results[entry["id"]] = Result(runs, prediction)
            except (ValueError, KeyError, TypeError) as error:
                raise InvalidInput(
                    f"{self._path} is damaged at line {number}: remove that line, or the file to "
                    f"compute everything again"
                ) from error

    def get(self, cell: CellKey) -> Result | None:
        """Return a result, or None if the cell is not finished."""
        return self._results.get(cell.id)

    def add(self, cells: Mapping[CellKey, Result]) -> None:
        """Store finished cells; they are on disk when this returns."""
        lines = []
        for cell, result in cells.items():
            entry: dict[str, Any] = {
                "id": cell.id,
                "setting": cell.setting,
                "mechanism": cell.method,
                "epsilon": cell.epsilon,
                "runs": list(result.runs),
            }
            if result.prediction is not None:
                entry["advice"] = asdict(result.prediction)
            lines.append(json.dumps(entry) + "\n")
        with self._lock, self._path.open("ab") as file:
            file.write("".join(lines).encode())
            file.flush()
            os.fsync(file.fileno())
            for cell, result in cells.items():
                self._results[cell.id] = result


# ---- Running studies


def run(
    rows: Sequence[Row],
    folder: Path,
    *,
    seeds: int = 20,
    workers: int | None = None,
    opener: Open = open_source,
    progress: Progress | None = None,
) -> list[Outcome]:
    """Compute the rows, reusing finished cells; return their cells in order.

    Parameters
    ----------
    folder : Path
        Where finished cells are stored and looked up.
    seeds : int
        Independent repetitions, 0 … seeds − 1.
    workers : int, optional
        Number of threads; by default one per core. Results do not depend on it.
    """
    if seeds < 1:
        raise InvalidInput(f"seeds must be at least 1, got {seeds}")
    store = Store(folder)
    settings = [setting for row in rows for setting in members(row.setting)]
    sources = {name: opener(name) for name in dict.fromkeys(settings)}

    def key(setting: str, method: Method, epsilon: float) -> CellKey:
        source = sources[setting]
        return CellKey(source.name, source.fingerprint, method.key, epsilon, seeds)

    jobs: dict[tuple[str, Method], list[float]] = {}
    for row in rows:
        for setting in members(row.setting):
            missing = jobs.setdefault((setting, row.method), [])
            for epsilon in row.epsilons:
                if store.get(key(setting, row.method, epsilon)) is None and epsilon not in missing:
                    missing.append(epsilon)
    _work(jobs, sources, store, seeds, workers or _cores(), progress)
    outcomes = []
    for row in rows:
        heads = members(row.setting)
        metric = sources[heads[0]].metric
        for epsilon in row.epsilons:
            results = [store.get(key(setting, row.method, epsilon)) for setting in heads]
            found = [result for result in results if result is not None]
            assert len(found) == len(heads)
            runs = tuple(run for result in found for run in result.runs)
            prediction = found[0].prediction
            outcomes.append(Outcome(row, epsilon, metric, runs, prediction, len(heads)))
    return outcomes


def _cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _work(
    jobs: dict[tuple[str, Method], list[float]],
    sources: dict[str, Source],
    store: Store,
    seeds: int,
    workers: int,
    progress: Progress | None,
) -> None:
    """Run the jobs on a pool; what is finished before an error or an interruption is kept."""
    todo = {job: budgets for job, budgets in jobs.items() if budgets}
    total, done, lock, stop = sum(map(len, todo.values())), 0, threading.Lock(), threading.Event()

    def work(setting: str, method: Method, epsilons: list[float]) -> None:
        nonlocal done
        source = sources[setting]
        scores = measure_row(source, method, epsilons, seeds=seeds, stop=stop)
        if scores is None:
            return
        store.add(
            {
                CellKey(source.name, source.fingerprint, method.key, epsilon, seeds): Result(
                    runs, method.prediction(source, epsilon)
                )
                for epsilon, runs in scores.items()
            }
        )
        with lock:
            done += len(epsilons)
            if progress:
                progress(f"{source.name}: {method.title}", done, total)

    if progress:
        progress("starting", 0, total)
    # Rows run in parallel, so each matrix product must stay on one core.
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


def _portions(method: Method, budgets: list[float]) -> list[list[float]]:
    """Divide a row into parts that are stored together: single budgets if fitting is slow."""
    return [[budget] for budget in budgets] if method.slow else [budgets]


def measure_row(
    source: Source,
    method: Method,
    epsilons: Sequence[float],
    *,
    seeds: int,
    fused: bool = True,
    stop: threading.Event | None = None,
) -> dict[float, tuple[float, ...]] | None:
    """Return one score per seed at every budget, or None if ``stop`` was set.

    ``fused=False`` decodes every observation and passes it to the task, as a server would: slower,
    with the same scores.
    """
    if method.kind == TASK_AWARE_IMAGES:
        return task_aware_images(epsilons, seeds)
    if method.kind in WITHOUT_REPORTS:
        return line_scores(source, cast(ReferenceLine, method.kind), epsilons, seeds)
    score = source.score

    def simulations_of(source: Source) -> list[RowSimulation]:
        return [
            row_simulation(made, source.scoring, epsilon, fused=fused, means=score.of_means)
            for epsilon, made in method.make(source, epsilons).items()
        ]

    simulations = simulations_of(source)
    total = np.zeros((len(epsilons), seeds, score.size))
    count = [0] * seeds
    together = source.fixed and not method.chooses_again
    groups = [list(range(seeds))] if together else [[seed] for seed in range(seeds)]
    for group in groups:
        if method.chooses_again:
            simulations = simulations_of(source.chosen_again(group[0]))
        sample = source.sample(group[0])
        for seed in group:
            count[seed] = len(sample.vectors)
        for block, start in enumerate(range(0, len(sample.vectors), BLOCK)):
            if stop is not None and stop.is_set():
                return None
            part = Sample(*(array[start : start + BLOCK] for array in sample))
            _add_block(total, simulations, part, method.stream, group, block, score)
    return {
        epsilon: tuple(map(score.finish, sums, count))
        for epsilon, sums in zip(epsilons, total, strict=True)
    }


def _add_block(
    total: Vectors,
    simulations: Sequence[RowSimulation],
    part: Sample,
    stream: str,
    seeds: Sequence[int],
    block: int,
    score: Score,
) -> None:
    """Add a block's part of the scores to the totals, (budgets, seeds, size)."""
    prepared = [simulation.prepare(part.vectors) for simulation in simulations]
    for seed in seeds:
        noise = Noise(stream, seed, block, len(part.vectors))
        for index, simulation in enumerate(simulations):
            outputs = simulation.outputs(prepared[index], noise)
            total[index, seed] += score.add(outputs, part.answers)
