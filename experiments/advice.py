"""What ``offaxis.recommend`` says on the public side of a source, asked once for each budget."""

from __future__ import annotations

import threading
from collections import defaultdict
from dataclasses import dataclass
from typing import Any, Final

from experiments.sources import Source
from offaxis.evaluation.recommend import recommend
from offaxis.evaluation.recommendation import Recommendation
from offaxis.evaluation.utility import Goal, Utility

DEVIATIONS: Final = 3.0
"""Standard errors to either side of a prediction."""


@dataclass(frozen=True)
class Advice:
    """What was recommended, and what was predicted of it.

    Attributes
    ----------
    title : str
        The release in words.
    score, error : float
        Its predicted utility for the goal and the standard error of that.
    """

    title: str
    score: float
    error: float

    @property
    def interval(self) -> tuple[float, float]:
        """Three standard errors to either side."""
        return Utility(self.score, self.error).interval(DEVIATIONS)


def recommended(source: Source, goal: Goal, epsilon: float) -> Recommendation:
    """Return the recommendation; threads that want the same one wait for the first."""
    key, fitted = (f"recommend {goal}", epsilon), source.fitted
    with _turn:
        own = _turns[id(fitted), key]
    with own:
        if key not in fitted:
            fitted[key] = recommend(source.task, source.public, epsilon=epsilon, goal=goal)
    found: Recommendation = fitted[key]
    return found


def advice(source: Source, goal: Goal, epsilon: float) -> Advice:
    """Return what a result keeps of a recommendation."""
    found = recommended(source, goal, epsilon)
    return Advice(found.candidate.title, found.expected.score, found.expected.error)


_turn: Final = threading.Lock()
_turns: Final[defaultdict[Any, threading.Lock]] = defaultdict(threading.Lock)
