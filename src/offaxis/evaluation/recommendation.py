"""The result of a search: the recommended release, its expected utility, and a summary in words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from offaxis.evaluation.candidates import Candidate
from offaxis.evaluation.selection import NotMade, ScoredCandidate
from offaxis.evaluation.utility import Scores, Utility
from offaxis.mechanisms.base import Goal
from offaxis.privacy.wording import PLUG_IN
from offaxis.release import Release

_DIGITS: Final = 9
"""Scores are compared after rounding to this many digits: below, they differ only by rounding."""

_SPACE: Final = "\N{NO-BREAK SPACE}"


@dataclass(frozen=True, eq=False)
class Recommendation:
    """The recommended release, its expected utility, and the other candidates.

    Attributes
    ----------
    release : Release
        The best release, fitted to all public vectors or an even sample of at most 20,000.
    candidate : Candidate
        The candidate it was made from.
    epsilon : float
    goal : {"answers", "vectors", "means"}
    expected : Utility
        Utility on held-out public vectors; the weighted mean over tasks.
    expected_by_task : mapping of Utility
    candidates : tuple of ScoredCandidate
        The finalists, all scored on the same vectors, best first.
    screened_out : tuple of Candidate
        Candidates that did worse on a few vectors; their utility is not reported.
    not_made : tuple of NotMade
        Candidates that the model, the public vectors or the installation do not allow, with the
        reason.
    ceiling : float
        An upper bound on the utility of any report of pure ε (for means: of any unbiased report);
        infinite with a δ.
    ceiling_by_task : mapping of float
    compared_on, measured_on : int
        Number of public vectors that ``candidates`` and ``expected`` are scored on; the latter are
        held out.
    summary : str
        The recommendation in plain words.
    cautions : tuple of str
        Reasons to doubt it.

    Examples
    --------
    >>> import offaxis
    >>> rng = np.random.default_rng(0)
    >>> task, public = rng.standard_normal((2, 2)), rng.standard_normal((60, 2))
    >>> recommendation = offaxis.recommend(task, public, epsilon=2, effort="full")
    >>> report = recommendation.release.privatize(rng.standard_normal(2))
    >>> recommendation.best_vector in recommendation.candidates  # if the vector itself is needed
    True
    """

    release: Release
    candidate: Candidate
    epsilon: float
    goal: Goal
    expected: Utility
    expected_by_task: Mapping[str, Utility]
    candidates: tuple[ScoredCandidate, ...]
    screened_out: tuple[Candidate, ...]
    not_made: tuple[NotMade, ...]
    ceiling: float
    ceiling_by_task: Mapping[str, float]
    compared_on: int
    measured_on: int
    summary: str
    cautions: tuple[str, ...]

    @property
    def best_vector(self) -> ScoredCandidate | None:
        """The best finalist whose report carries a vector, not only an answer."""
        return best_vector(self.candidates)

    @property
    def frontier(self) -> tuple[ScoredCandidate, ...]:
        """The Pareto-optimal finalists for answers and fidelity, by descending answers.

        Empty for means.
        """
        return frontier(self.candidates)


def best_vector(scored: Sequence[ScoredCandidate]) -> ScoredCandidate | None:
    """Return the first candidate whose report carries more than an answer, and is read."""
    vectors = (s for s in scored if not s.candidate.is_answer and not s.candidate.is_silent)
    return next(vectors, None)


def frontier(candidates: Sequence[ScoredCandidate]) -> tuple[ScoredCandidate, ...]:
    """Return the candidates that no other beats in both answers and fidelity; of equals the first.

    Sorted by descending answers.
    """
    points = []
    for candidate in candidates:
        answers, fidelity = candidate.scores.answers, candidate.scores.fidelity
        if answers is not None and fidelity is not None:
            point = round(answers.score, _DIGITS), round(fidelity.score, _DIGITS)
            points.append((*point, candidate))
    points.sort(key=lambda point: (-point[0], -point[1]))
    optimal: list[ScoredCandidate] = []
    highest = float("-inf")
    for _, fidelity_score, candidate in points:
        if fidelity_score > highest:
            optimal.append(candidate)
            highest = fidelity_score
    return tuple(optimal)


def summary(
    goal: Goal,
    outputs: Mapping[str, int],
    best: ScoredCandidate,
    candidates: Sequence[ScoredCandidate],
    scores: Scores,
    ceiling: float,
    measured_on: int,
) -> str:
    """State what is recommended, its utility, the ceiling, and the utility of the best vector."""
    expected = scores.utility
    measured = f"measured on {measured_on:,} held-out vectors"
    if goal == "means":
        words = (
            f"{best.candidate.title} leaves an expected squared error of {-expected.score:.3g} of "
            f"the variance, {measured}."
        )
        if math.isfinite(ceiling):
            words += (
                f" No unbiased report of this budget leaves less than {max(-ceiling, 0.0):.3g}"
                f"{_beyond(goal, expected, ceiling)}. {PLUG_IN} too low."
            )
        return words
    words = (
        f"{best.candidate.title} keeps an expected {_kept_by_task(goal, outputs, scores)}, "
        f"{measured}."
    )
    kept_on_average = "" if len(outputs) == 1 else " on average, by the weights of the tasks,"
    if math.isfinite(ceiling):
        words += (
            f" No report of this budget allows{kept_on_average} more than "
            f"{100 * ceiling:.1f}{_SPACE}%{_beyond(goal, expected, ceiling)}. {PLUG_IN} too high."
        )
    if best.candidate.is_silent:
        return f"{words} At this budget a single report is no better than none."
    other = best_vector(candidates)
    if best.candidate.is_answer and other is None:
        words += " Releases of the vector were not compared; effort='full' compares them."
    if best.candidate.is_answer and other is not None:
        answer = "the answer" if len(outputs) == 1 else "the answers"
        vector = f"the best release of a vector ({other.candidate.title}) kept"
        if best.utility.interval()[0] > other.utility.score:
            words += f" Send {answer}, not the vector: {vector}"
        else:
            words += f" A release of the vector does equally well: {vector}"
        words += f" {percent(other.utility)} where both were compared."
    return words


def _beyond(goal: Goal, expected: Utility, ceiling: float) -> str:
    """Explain an estimate beyond its ceiling; empty if it is not beyond."""
    if expected.score <= ceiling:
        return ""
    if goal == "means":
        return "; this one may, because it is slightly biased, or may seem to by chance"
    if not expected.error or expected.interval()[0] <= ceiling:
        return (
            ": the estimate is above that by chance, and the release is as close to the bound as "
            "this many vectors can show"
        )
    return (
        ": the estimate is above that by more than three standard errors, which is rarely "
        "chance. Trust the bound, and try another seed or more public vectors"
    )


def percent(utility: Utility) -> str:
    """Write a share with its interval, 58.1 ± 0.9 %, without line breaks inside."""
    half = utility.interval()[1] - utility.score
    return f"{100 * utility.score:.1f}{_SPACE}±{_SPACE}{100 * half:.1f}{_SPACE}%"


def _kept_by_task(goal: Goal, outputs: Mapping[str, int], scores: Scores) -> str:
    """State what is kept of every task: tasks of different kinds have no common percentage."""
    if goal == "vectors" and len(outputs) == 1:
        return f"{percent(scores.utility)} of the variance in the task's metric"
    if len(outputs) == 1:
        several = next(iter(outputs.values())) > 1
        what = "the model's answers" if several else "the variance of the model's answer"
        return f"{percent(scores.utility)} of {what}"
    parts = []
    for name, count in outputs.items():
        if goal == "vectors":
            what = f"the variance in the metric of {name}"
        else:
            what = f"the answers of {name}" if count > 1 else f"the variance of {name}"
        parts.append(f"{percent(scores.by_task[name])} of {what}")
    return f"{', '.join(parts[:-1])} and {parts[-1]}"
