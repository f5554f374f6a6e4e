"""How long a benchmark measures, and how it measures a race and a growth."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from offaxis.bench.results import Contender, Growth, Race, Unit
from offaxis.bench.timing import take_turns


@dataclass(frozen=True)
class Effort:
    """How much time figures are given.

    Attributes
    ----------
    seconds : float
        Time for the turns of one race; more turns find a quieter moment.
    rounds : int
        Fewest turns of every contender.
    doublings : int
        How often the size of a growth is doubled.
    streamed : int
        Most vectors that the memory of a fresh process is watched over.
    """

    name: str
    seconds: float
    rounds: int
    doublings: int
    streamed: int

    def race(self, group: str, task: str, unit: Unit, contenders: Mapping[str, Contender]) -> Race:
        """Let the contenders take turns."""
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
