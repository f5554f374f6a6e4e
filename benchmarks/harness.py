"""How benchmarks measure and compare: races, growth, a guard of ratios, and their text.

A race compares several ways to do one thing; a growth measures how a cost grows with a size. Both
give *ratios*, larger is better, which may be compared between machines; seconds may not. Contenders
take turns in one process, and the best of several runs counts.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import numpy as np
from scipy.optimize import nnls

from offaxis.errors import InvalidInput
from offaxis.version import __version__

OURS: Final = "offaxis"
"""The contender that the others are compared with."""

Unit = Literal["vectors/s", "coordinates/s", "reports/s", "ms", "s"]


# ---- Results


@dataclass(frozen=True)
class Race:
    """The times of several ways to do one thing.

    Attributes
    ----------
    seconds : mapping
        Contender → seconds per vector, coordinate or report, or for the whole task; includes ours.
    unit : str
        How figures are shown: a rate, or a time.
    """

    group: str
    task: str
    unit: Unit
    seconds: Mapping[str, float]

    def shown(self, name: str) -> float:
        """Return a contender's figure in the race's unit."""
        seconds = self.seconds[name]
        return {"ms": 1e3 * seconds, "s": seconds}.get(self.unit, 1 / seconds)

    def ratio(self, name: str) -> float:
        """Return how many times faster ours is."""
        return self.seconds[name] / self.seconds[OURS]

    def ratios(self) -> dict[str, float]:
        """Return the ratio to every rival, by a name that is the same in every run."""
        return {
            f"{self.group}: {self.task}, against {name}": self.ratio(name)
            for name in self.seconds
            if name != OURS
        }

    def facts(self) -> dict[str, Any]:
        """Return everything for JSON."""
        figures = [
            {"who": name, "value": self.shown(name), "times_faster": self.ratio(name)}
            for name in self.seconds
        ]
        return {"group": self.group, "task": self.task, "unit": self.unit, "figures": figures}


@dataclass(frozen=True)
class Growth:
    """How a cost grows with a size that is doubled.

    Attributes
    ----------
    expected : float
        The largest exponent that the method should have.
    """

    task: str
    variable: str
    unit: Literal["s", "MiB"]
    sizes: Sequence[int]
    costs: Sequence[float]
    expected: float

    def exponent(self) -> tuple[float, float]:
        """Return the slope of log cost over log size, and its standard error."""
        x, y = np.log(self.sizes), np.log(self.costs)
        x = x - x.mean()
        slope = float(x @ y / (x @ x))
        residuals = y - y.mean() - slope * x
        variance = float(residuals @ residuals) / max(1, x.size - 2)
        return slope, float(np.sqrt(variance / (x @ x)))

    def line(self) -> tuple[float, float]:
        """Return a, b ≥ 0 of the line a + b · size with the least relative error."""
        costs = np.asarray(self.costs)
        design = np.stack([np.ones(costs.size), np.asarray(self.sizes, dtype=np.float64)], axis=1)
        scale = design.max(axis=0)
        solution, _ = nnls(design / scale / costs[:, None], np.ones(costs.size))
        fixed, each = solution / scale
        return float(fixed), float(each)

    def line_error(self) -> float:
        """Return the largest relative distance of a measured cost from the line."""
        fixed, each = self.line()
        costs = np.asarray(self.costs)
        return float(np.abs((fixed + each * np.asarray(self.sizes)) / costs - 1).max())

    def ratios(self) -> dict[str, float]:
        """Return the expected cost of the largest size over its measured cost."""
        expected = self.costs[0] * (self.sizes[-1] / self.sizes[0]) ** self.expected
        return {f"growth: {self.task} with {self.variable}": expected / self.costs[-1]}

    def facts(self) -> dict[str, Any]:
        """Return everything for JSON."""
        (exponent, error), (fixed, each) = self.exponent(), self.line()
        return {
            "task": self.task,
            "variable": self.variable,
            "unit": self.unit,
            "sizes": list(self.sizes),
            "costs": list(self.costs),
            "exponent": exponent,
            "standard_error": error,
            "expected_at_most": self.expected,
            "fixed": fixed,
            "each": each,
            "off_the_line": self.line_error(),
        }


Result = Race | Growth


# ---- Measuring


class Contender(NamedTuple):
    """One way to do a thing."""

    action: Callable[[], Any]
    amount: int = 1
    """The number of vectors, coordinates or reports that one call of the action handles."""


@dataclass(frozen=True)
class Effort:
    """How long benchmarks measure.

    Attributes
    ----------
    seconds : float
        Time for the turns of one race; more turns find a quieter moment.
    rounds : int
        Least number of turns of every contender.
    doublings : int
        How often the size of a growth is doubled.
    streamed : int
        Largest number of vectors in a measurement of memory.
    """

    name: str
    seconds: float
    rounds: int
    doublings: int
    streamed: int

    def race(self, group: str, task: str, unit: Unit, contenders: Mapping[str, Contender]) -> Race:
        """Time the contenders in turns."""
        best = take_turns(
            {name: c.action for name, c in contenders.items()}, self.seconds, self.rounds
        )
        return Race(group, task, unit, {n: best[n] / contenders[n].amount for n in contenders})

    def growth(
        self,
        task: str,
        variable: str,
        actions: Mapping[int, Callable[[], Any]],
        expected: float,
    ) -> Growth:
        """Time an action of several sizes, also in turns."""
        named = {str(n): action for n, action in actions.items()}
        best = take_turns(named, self.seconds, self.rounds + 1)
        sizes = sorted(actions)
        return Growth(task, variable, "s", sizes, [best[str(n)] for n in sizes], expected)

    def doubled(self, first: int) -> Sequence[int]:
        """Return the sizes of a growth."""
        return [first << step for step in range(self.doublings + 1)]


QUICK: Final = Effort("quick", seconds=0.1, rounds=1, doublings=3, streamed=100_000)
USUAL: Final = Effort("usual", seconds=1.0, rounds=3, doublings=4, streamed=1_000_000)
FULL: Final = Effort("full", seconds=6.0, rounds=5, doublings=5, streamed=10_000_000)


def take_turns(
    actions: Mapping[str, Callable[[], Any]], seconds: float, rounds: int = 3
) -> dict[str, float]:
    """Return the shortest run of each action; they take turns, so that a busy spell hits them all.

    One run of each warms up. Then there are at least ``rounds`` rounds, and more until ``seconds``
    have passed.
    """
    for action in actions.values():
        action()
    best = dict.fromkeys(actions, float("inf"))
    started, done = time.perf_counter(), 0
    while done < rounds or time.perf_counter() - started < seconds:
        for name, action in actions.items():
            best[name] = min(best[name], _seconds(action))
        done += 1
    return best


def best_seconds(action: Callable[[], Any], repeats: int = 5) -> float:
    """Return the shortest of several runs, after one to warm up."""
    action()
    return min(_seconds(action) for _ in range(repeats))


def _seconds(action: Callable[[], Any]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def peak_mebibytes() -> float:
    """Return the peak memory of this process so far."""
    status = Path("/proc/self/status")
    if status.exists():
        # getrusage includes pages of the parent from before this program was started.
        line = next(line for line in status.read_text().splitlines() if "VmHWM" in line)
        return int(line.split()[1]) / 1024
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1024**2 if sys.platform == "darwin" else 1024)


def conditions() -> dict[str, Any]:
    """Return what figures depend on."""
    return {
        "offaxis": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "processor": platform.machine(),
        "cores": _cores(),
        "dtype": "float64",
        # Windows has no load average.
        "load_average": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
    }


def _cores() -> int | None:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


# ---- The guard: ratios of a run compared with recorded ones, never seconds

FRACTION: Final = 0.5
"""Machines differ and are shared: a ratio may fall to half before the guard reports it."""

MEASUREMENTS: Final = 3
"""The guard reports a ratio only if it is too low this many times."""

Ratios = Mapping[str, float]


class Regression(NamedTuple):
    """A ratio that is too far below the recorded one."""

    name: str
    recorded: float
    now: float


def read_ratios(path: Path) -> dict[str, float]:
    """Read the ratios of a file written by ``python -m benchmarks --record`` or ``--json``."""
    try:
        ratios = json.loads(path.read_text(encoding="utf-8"))["ratios"]
        by_name = {str(name): float(ratio) for name, ratio in ratios.items()}
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise InvalidInput(
            f"{path} contains no recorded ratios; write such a file with "
            f"python -m benchmarks --record FILE"
        ) from error
    if not all(0 < ratio < float("inf") for ratio in by_name.values()):
        raise InvalidInput(f"{path} contains a ratio that is not positive; record it again")
    return by_name


def regressions(now: Ratios, recorded: Ratios, fraction: float = FRACTION) -> list[Regression]:
    """Return the ratios below ``fraction`` of the recorded ones.

    Only ratios in both runs are compared: a rival may be missing here.

    Raises
    ------
    InvalidInput
        If no ratio is in both runs, because then nothing is guarded.
    """
    both = [name for name in recorded if name in now]
    if not both:
        raise InvalidInput(
            "no recorded ratio was measured in this run, so nothing is guarded; "
            "measure the groups that were recorded, or record again"
        )
    return [
        Regression(name, recorded[name], now[name])
        for name in both
        if now[name] < fraction * recorded[name]
    ]


def confirmed_regressions(
    groups: Mapping[str, Ratios],
    recorded: Ratios,
    remeasure: Callable[[str], Ratios],
    fraction: float = FRACTION,
) -> list[Regression]:
    """Return the regressions that persist when their group is measured again.

    Other work on the machine may slow one run; slower code is slow in all of them.
    """
    now = {name: ratio for ratios in groups.values() for name, ratio in ratios.items()}
    for _ in range(MEASUREMENTS - 1):
        suspects = {entry.name for entry in regressions(now, recorded, fraction)}
        for group in [name for name, ratios in groups.items() if suspects & ratios.keys()]:
            again = remeasure(group)
            now |= {name: max(ratio, now.get(name, 0.0)) for name, ratio in again.items()}
    return regressions(now, recorded, fraction)


# ---- Text, the same on a terminal and in a document

_PREFIXES: Final = ((1e6, " M"), (1e3, " k"), (1, ""))
_TIMES: Final = ((1, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"), (1e-12, "ps"))


def number_text(value: float) -> str:
    """Format a number with three digits: 17.3 M, 588 k, 0.171."""
    size, prefix = _largest_unit(value, _PREFIXES)
    return f"{value / size:.3g}{prefix}"


def ratio_text(ratio: float) -> str:
    """Format a ratio: 30.3× faster, 4× slower."""
    size, word = (ratio, "faster") if ratio >= 1 else (1 / ratio, "slower")
    return f"{size:,.0f}× {word}" if size >= 100 else f"{size:.3g}× {word}"


def cost_text(value: float, unit: str) -> str:
    """Format a time or an amount of memory."""
    if unit != "s":
        return f"{value:.0f} {unit}"
    size, name = _largest_unit(value, _TIMES)
    return f"{value / size:.3g} {name}"


def line_text(growth: Growth) -> str:
    """Format the line a + b · size, and its largest relative error."""
    fixed, each = growth.line()
    parts = [cost_text(fixed, growth.unit)] if fixed > 1e-3 * growth.costs[0] else []
    parts.append(f"{cost_text(each, growth.unit)} × {growth.variable}")
    return f"{' + '.join(parts)}, within {growth.line_error():.0%}"


def _largest_unit(value: float, units: tuple[tuple[float, str], ...]) -> tuple[float, str]:
    """Return the largest unit that the value, rounded to three digits, reaches."""
    return next((unit for unit in units if float(f"{value:.3g}") >= unit[0]), units[-1])


# ---- Figures of single scripts


def publish(name: str, figures: list[dict[str, Any]], out: str | None) -> None:
    """Print a script's figures as a table and, if ``out`` is given, write them as JSON.

    Raises
    ------
    SystemExit
        With status 1, if a figure missed its target.
    """
    record: dict[str, Any] = {"conditions": conditions(), "figures": figures}
    lines = [f"# {name}: " + ", ".join(f"{k} {v}" for k, v in record["conditions"].items())]
    width = max(len(f["what"]) for f in figures)
    for figure in figures:
        value = f"{figure['value']:>12,.4g} {figure['unit']:<14}"
        mark = "" if figure.get("met", True) else "   MISSED"
        lines.append(f"{figure['what']:<{width}}  {value} {figure.get('target', '')}{mark}")
    sys.stdout.write("\n".join(lines) + "\n")
    if out:
        Path(out).write_text(json.dumps(record, indent=1, default=bool))
    if not all(figure.get("met", True) for figure in figures):
        raise SystemExit(1)
