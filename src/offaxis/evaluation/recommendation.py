"""What a recommendation is, and how it is put in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from offaxis.evaluation.candidates import Candidate
from offaxis.evaluation.trials import Tried
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
        On public vectors that had no say; the weighted mean over tasks.
    each : mapping of Utility
        The same, task by task.
    tried : tuple of Tried
        The finalists, all scored on the same vectors, best first.
    left_out : tuple of Candidate
        Those that a first look on a few vectors left out; they have no utility.
    ceiling : float
        What no ε-LDP report passes (for means: no unbiased one).
    ceilings : mapping of float
        The same, task by task.
    compared_on, measured_on : int
        On how many public vectors ``tried`` was scored; and ``expected``, on others.
    sentence : str
        The advice in plain words.
    cautions : tuple of str
        What makes it doubtful.

    Examples
    --------
    >>> from offaxis.evaluation.recommend import Recommendation, recommend
    >>> rng = np.random.default_rng(0)
    >>> task, public = rng.standard_normal((2, 2)), rng.standard_normal((60, 2))
    >>> found = recommend(task, public, epsilon=2)
    >>> isinstance(found, Recommendation), found.goal, sorted(found.ceilings)
    (True, 'answers', ['task'])
    >>> len(found.tried) > 10, found.best_vector in found.tried  # the best that tells a vector
    (True, True)
    >>> set(found.frontier) <= set(found.tried)
    True
    """

    release: Release
    candidate: Candidate
    epsilon: float
    goal: Goal
    expected: Utility
    each: Mapping[str, Utility]
    tried: tuple[Tried, ...]
    left_out: tuple[Candidate, ...]
    ceiling: float
    ceilings: Mapping[str, float]
    compared_on: int
    measured_on: int
    sentence: str
    cautions: tuple[str, ...]

    @property
    def best_vector(self) -> Tried | None:
        """The best of those whose report tells a vector, and not just an answer."""
        return best_vector(self.tried)

    @property
    def frontier(self) -> tuple[Tried, ...]:
        """The finalists that none passes in both answers and fidelity; answers descending.

        Empty for means.
        """
        return frontier(self.tried)


def best_vector(tried: Sequence[Tried]) -> Tried | None:
    """Return the first that is neither an answer nor silent."""
    told = (t for t in tried if not t.candidate.is_answer and not t.candidate.is_silent)
    return next(told, None)


def frontier(tried: Sequence[Tried]) -> tuple[Tried, ...]:
    """Return those that no other passes in both answers and fidelity; of equals the first."""
    scored = []
    for each in tried:
        answers, fidelity = each.verdict.answers, each.verdict.fidelity
        if answers is not None and fidelity is not None:
            scored.append((round(answers.score, _DIGITS), round(fidelity.score, _DIGITS), each))
    scored.sort(key=lambda item: (-item[0], -item[1]))
    kept: list[Tried] = []
    highest = float("-inf")
    for _, fidelity_score, each in scored:
        if fidelity_score > highest:
            kept.append(each)
            highest = fidelity_score
    return tuple(kept)


def sentence(
    goal: Goal,
    outputs: Mapping[str, int],
    best: Tried,
    tried: Sequence[Tried],
    expected: Utility,
    ceiling: float,
    measured_on: int,
) -> str:
    """Say what is recommended, what it keeps, what nobody passes, and what a vector would keep."""
    measured = f"measured on {measured_on:,} vectors that had no say in the choice"
    if goal == "mean":
        return (
            f"{best.candidate.title} leaves an expected squared error of {-expected.score:.3g} of "
            f"the variance, {measured}. No unbiased report of this budget leaves less than "
            f"{-ceiling:.3g}{_beyond(goal, expected, ceiling)}."
        )
    words = (
        f"{best.candidate.title} keeps an expected {percent(expected)} of {_kept(goal, outputs)}, "
        f"{measured}. No report of this budget allows more than "
        f"{100 * ceiling:.1f}{_SPACE}%{_beyond(goal, expected, ceiling)}."
    )
    if best.candidate.is_silent:
        return f"{words} A single report of this budget is worth no more than none."
    other = best_vector(tried)
    if best.candidate.is_answer and other is not None:
        answer = "the answer" if len(outputs) == 1 else "the answers"
        vector = f"the best release of a vector ({other.candidate.title}) kept"
        if best.utility.interval()[0] > other.utility.score:
            words += f" Send {answer}, not the vector: {vector}"
        else:
            words += f" A vector can be had for the same: {vector}"
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
            ": the estimate lies above that by chance, and the release is as near the bound as so "
            "many vectors can show"
        )
    return (
        ": the estimate lies above that by more than three standard errors, which chance seldom "
        "does. Believe the bound, and ask again with another seed or more public vectors"
    )


def percent(utility: Utility) -> str:
    """Write a share with its interval, 58.1 ± 0.9 %, which no line break parts."""
    half = utility.interval()[1] - utility.score
    return f"{100 * utility.score:.1f}{_SPACE}±{_SPACE}{100 * half:.1f}{_SPACE}%"


def _kept(goal: Goal, outputs: Mapping[str, int]) -> str:
    if goal == "fidelity":
        return "the variance in the task's metric"
    if len(outputs) > 1:
        return "the answers of all tasks, by their weights"
    several = next(iter(outputs.values())) > 1
    return "the model's answers" if several else "the variance of the model's answer"
