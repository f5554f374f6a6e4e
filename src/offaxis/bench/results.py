"""What was measured: races between ways to do one thing, and growth with a size.

Both give *ratios*, larger is better, which may be compared between machines; seconds may not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

import numpy as np
from scipy.optimize import nnls

OURS: Final = "offaxis"
"""The contender that the others are compared with."""

Unit = Literal["vectors/s", "coordinates/s", "reports/s", "ms", "s"]


class Contender(NamedTuple):
    """One way to do a thing."""

    action: Callable[[], Any]
    amount: int = 1
    """How many vectors, coordinates or reports one call of the action gets done."""


@dataclass(frozen=True)
class Race:
    """What several ways to do one thing took, in turns.

    Attributes
    ----------
    seconds : mapping
        Of one vector, coordinate or report, or of the whole task; ours is among them.
    unit : str
        How figures are shown: a rate, or the time of one.
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
        """Return how many times faster we are."""
        return self.seconds[name] / self.seconds[OURS]

    def ratios(self) -> dict[str, float]:
        """Return the ratio to every rival, by a name that is the same in every run."""
        return {
            f"{self.group}: {self.task}, against {name}": self.ratio(name)
            for name in self.seconds
            if name != OURS
        }

    def facts(self) -> dict[str, Any]:
        """Return all of it for JSON."""
        figures = [
            {"who": name, "value": self.shown(name), "times_faster": self.ratio(name)}
            for name in self.seconds
        ]
        return {"group": self.group, "task": self.task, "unit": self.unit, "figures": figures}


@dataclass(frozen=True)
class Growth:
    """How a cost grows with a size: sizes doubled, costs measured.

    Attributes
    ----------
    expected : float
        The exponent that the method promises at most.
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
        left = y - y.mean() - slope * x
        spread = float(left @ left) / max(1, x.size - 2)
        return slope, float(np.sqrt(spread / (x @ x)))

    def line(self) -> tuple[float, float]:
        """Return a and b of the line a + b · size that is nearest in relative terms, a, b ≥ 0."""
        costs = np.asarray(self.costs)
        design = np.stack([np.ones(costs.size), np.asarray(self.sizes, dtype=np.float64)], axis=1)
        scale = design.max(axis=0)
        found, _ = nnls(design / scale / costs[:, None], np.ones(costs.size))
        fixed, each = found / scale
        return float(fixed), float(each)

    def off_the_line(self) -> float:
        """Return the largest relative distance of a measured cost from the line."""
        fixed, each = self.line()
        costs = np.asarray(self.costs)
        return float(np.abs((fixed + each * np.asarray(self.sizes)) / costs - 1).max())

    def ratios(self) -> dict[str, float]:
        """Return what the largest size would cost if it grew as expected, over what it costs."""
        promised = self.costs[0] * (self.sizes[-1] / self.sizes[0]) ** self.expected
        return {f"growth: {self.task} with {self.variable}": promised / self.costs[-1]}

    def facts(self) -> dict[str, Any]:
        """Return all of it for JSON."""
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
            "off_the_line": self.off_the_line(),
        }


Result = Race | Growth
