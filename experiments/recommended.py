"""Recommendations of :func:`offaxis.recommend` on the public side of a source, computed once."""

from __future__ import annotations

import threading
from collections import defaultdict
from dataclasses import dataclass
from typing import Any, Final

from experiments.sources import Source
from offaxis.evaluation.recommend import recommend
from offaxis.evaluation.recommendation import Recommendation
from offaxis.evaluation.utility import Utility
from offaxis.mechanisms.base import Goal

DEVIATIONS: Final = 3.0
"""Standard errors on either side of a prediction."""


@dataclass(frozen=True)
class Prediction:
    """A recommended release and the utility predicted for it.

    Attributes
    ----------
    title : str
        The release in words.
    score, error : float
        The predicted utility for the goal, and its standard error.
    """

    title: str
    score: float
    error: float

    @classmethod
    def of(cls, recommendation: Recommendation) -> Prediction:
        """Return the part of a recommendation that a result keeps."""
        expected = recommendation.expected
        return cls(recommendation.candidate.title, expected.score, expected.error)

    @property
    def interval(self) -> tuple[float, float]:
        """Three standard errors on either side."""
        return Utility(self.score, self.error).interval(DEVIATIONS)


def recommendation_for(source: Source, goal: Goal, epsilon: float) -> Recommendation:
    """Return the recommendation; threads that need the same one wait for the first."""
    key, cache = (f"recommend {goal}", epsilon), source.fitted
    with _registry:
        lock = _locks[id(cache), key]
    with lock:
        if key not in cache:
            cache[key] = recommend(
                source.task, source.public, epsilon=epsilon, goal=goal, effort="full"
            )
    recommendation: Recommendation = cache[key]
    return recommendation


_registry: Final = threading.Lock()
_locks: Final[defaultdict[Any, threading.Lock]] = defaultdict(threading.Lock)
