"""All groups of figures by name, and one run of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from offaxis.bench import collecting, geometry, growth, memory, reports, simulation, sweeping
from offaxis.bench.effort import Effort
from offaxis.bench.results import Growth, Race, Result
from offaxis.bench.rivals import absent, gpu
from offaxis.bench.timing import conditions

GROUPS: Final[dict[str, Callable[[Effort], Iterator[Result]]]] = {
    "reports": reports.measure,
    "simulate": simulation.measure,
    "gram": geometry.measure,
    "fit": geometry.measure_fits,
    "decode": collecting.measure,
    "sweep": sweeping.measure,
    "memory": memory.measure,
    "growth": growth.measure,
}
"""What ``offaxis bench`` measures, in this order."""


def ratios_of(results: Iterable[Result]) -> dict[str, float]:
    """Return every ratio by its name."""
    return {name: ratio for result in results for name, ratio in result.ratios().items()}


@dataclass(frozen=True)
class Run:
    """What was measured in one process, on one machine.

    The conditions are those before the first measurement, which is a load of its own.
    """

    effort: Effort
    conditions: dict[str, Any]
    results: tuple[Result, ...] = ()

    @classmethod
    def start(cls, effort: Effort) -> Run:
        """Return a run without results yet."""
        return cls(effort, conditions() | {"gpu": gpu()})

    def having(self, results: Iterable[Result]) -> Run:
        """Return the run with its results."""
        return replace(self, results=tuple(results))

    def record(self) -> dict[str, Any]:
        """Return what a guard needs: ratios, and where they come from."""
        ratios = {name: float(f"{ratio:.4g}") for name, ratio in ratios_of(self.results).items()}
        return {"effort": self.effort.name, "conditions": self.conditions, "ratios": ratios}

    def facts(self) -> dict[str, Any]:
        """Return everything for JSON."""
        return {
            **self.record(),
            "not_installed": absent(),
            "races": [r.facts() for r in self.results if isinstance(r, Race)],
            "growth": [r.facts() for r in self.results if isinstance(r, Growth)],
        }
