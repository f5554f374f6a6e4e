"""A recommendation: what to release, what it is worth, and how to say so in words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from offaxis.evaluation.candidates import Candidate
from offaxis.evaluation.selection import ScoredCandidate
from offaxis.evaluation.utility import Goal, Utility
from offaxis.release import Release

_DIGITS: Final = 9
"""Scores that differ by less are the same: rounding parts them."""

_SPACE: Final = "\N{NO-BREAK SPACE}"


@dataclass(frozen=True, eq=False)
class Recommendation:
    """What to release, what it is worth, and what else was tried.

    Attributes
    ----------
    release : Release
        The best one, fitted on all public vectors.
    candidate : Candidate
        How it was made.
    epsilon : float
    goal : {"answers", "fidelity", "mean"}
    expected : Utility
        On held-out public vectors; the weighted mean over tasks.
    expected_by_task : mapping of Utility
    candidates : tuple of ScoredCandidate
        The finalists, all scored on the same vectors, best first.
    screened_out : tuple of Candidate
        Those that a first look at a few vectors left out; they have no utility.
    ceiling : float
        What no report of pure ε passes (for means: no unbiased one); infinite with a δ.
    ceiling_by_task : mapping of float
    compared_on, measured_on : int
        Number of public vectors behind ``candidates``; and behind ``expected``, on others.
    summary : str
        The recommendation in plain words.
    cautions : tuple of str
        What makes it doubtful.

    Examples
    --------
    >>> import offaxis
    >>> rng = np.random.default_rng(0)
    >>> task, public = rng.standard_normal((2, 2)), rng.standard_normal((60, 2))
    >>> found = offaxis.recommend(task, public, epsilon=2)
    >>> found.goal, found.release.guarantee.epsilon == 2
    ('answers', True)
    >>> found.best_vector in found.candidates  # the best one whose report carries a vector
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
    ceiling: float
    ceiling_by_task: Mapping[str, float]
    compared_on: int
    measured_on: int
    summary: str
    cautions: tuple[str, ...]

    @property
    def best_vector(self) -> ScoredCandidate | None:
        """The best of those whose report carries a vector, and not just an answer."""
        return best_vector(self.candidates)

    @property
    def frontier(self) -> tuple[ScoredCandidate, ...]:
        """The finalists that none passes in both answers and fidelity; answers descending.

        Empty for means.
        """
        return frontier(self.candidates)


def best_vector(scored: Sequence[ScoredCandidate]) -> ScoredCandidate | None:
    """Return the first that is neither an answer nor silent."""
    vectors = (s for s in scored if not s.candidate.is_answer and not s.candidate.is_silent)
    return next(vectors, None)


def frontier(candidates: Sequence[ScoredCandidate]) -> tuple[ScoredCandidate, ...]:
    """Return those that no other passes in both answers and fidelity; of equals the first."""
    both = []
    for each in candidates:
        answers, fidelity = each.scores.answers, each.scores.fidelity
        if answers is not None and fidelity is not None:
            both.append((round(answers.score, _DIGITS), round(fidelity.score, _DIGITS), each))
    both.sort(key=lambda item: (-item[0], -item[1]))
    kept: list[ScoredCandidate] = []
    highest = float("-inf")
    for _, fidelity_score, each in both:
        if fidelity_score > highest:
            kept.append(each)
            highest = fidelity_score
    return tuple(kept)


def summary(
    goal: Goal,
    outputs: Mapping[str, int],
    best: ScoredCandidate,
    candidates: Sequence[ScoredCandidate],
    expected: Utility,
    ceiling: float,
    measured_on: int,
) -> str:
    """Say what is recommended, what it keeps, what no report passes, and what a vector keeps."""
    measured = f"measured on {measured_on:,} held-out vectors"
    if goal == "mean":
        words = (
            f"{best.candidate.title} leaves an expected squared error of {-expected.score:.3g} of "
            f"the variance, {measured}."
        )
        if math.isfinite(ceiling):
            words += (
                f" No unbiased report of this budget leaves less than {-ceiling:.3g}"
                f"{_beyond(goal, expected, ceiling)}."
            )
        return words
    words = (
        f"{best.candidate.title} keeps an expected {percent(expected)} of {_kept(goal, outputs)}, "
        f"{measured}."
    )
    if math.isfinite(ceiling):
        words += (
            f" No report of this budget allows more than {100 * ceiling:.1f}{_SPACE}%"
            f"{_beyond(goal, expected, ceiling)}."
        )
    if best.candidate.is_silent:
        return f"{words} A single report of this budget is worth no more than none."
    other = best_vector(candidates)
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
    """Say how an estimate can lie beyond its ceiling; nothing where it does not."""
    if expected.score <= ceiling:
        return ""
    if goal == "mean":
        return "; this one may for a little bias, or seem to by chance"
    if expected.interval()[0] <= ceiling:
        return (
            ": the estimate lies above that by chance, and the release is as close to the bound as "
            "this many vectors can show"
        )
    return (
        ": the estimate lies above that by more than three standard errors, which is seldom "
        "chance. Trust the bound, and try another seed or more public vectors"
    )


def percent(utility: Utility) -> str:
    """Write a share with its interval, 58.1 ± 0.9 %, without line breaks inside."""
    half = utility.interval()[1] - utility.score
    return f"{100 * utility.score:.1f}{_SPACE}±{_SPACE}{100 * half:.1f}{_SPACE}%"


def _kept(goal: Goal, outputs: Mapping[str, int]) -> str:
    if goal == "fidelity":
        return "the variance in the task's metric"
    if len(outputs) > 1:
        return "the answers of all tasks, by their weights"
    several = next(iter(outputs.values())) > 1
    return "the model's answers" if several else "the variance of the model's answer"
