"""A recommendation as a page or a table shows it: numbers and words, nothing to work out."""

from __future__ import annotations

from dataclasses import dataclass

from offaxis.evaluation.recommend import Recommendation, Tried
from offaxis.evaluation.utility import Utility


@dataclass(frozen=True)
class Advice:
    """What is recommended at one budget.

    Attributes
    ----------
    epsilon : float
    title : str
        The release that is recommended.
    expected : Utility
        What it is worth, on public vectors that had no say.
    ceiling : float or None
        What no ε-LDP report passes, where that is known.
    vector : Tried or None
        The best release of a vector, where the recommended one tells the answer alone.
    sentence : str
    cautions : tuple of str
    """

    epsilon: float
    title: str
    expected: Utility
    ceiling: float | None
    vector: Tried | None
    sentence: str
    cautions: tuple[str, ...]


def advice(found: Recommendation) -> Advice:
    """Put a recommendation into the form that is shown."""
    vectors = (each for each in found.tried if not each.candidate.is_answer)
    return Advice(
        float(found.release.guarantee.epsilon),
        found.candidate.title,
        found.expected,
        found.ceiling,
        next(vectors, None) if found.candidate.is_answer else None,
        found.sentence,
        found.cautions,
    )
