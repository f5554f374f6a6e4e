"""Which release is best for a task, a budget and a goal, found on public vectors alone.

Contract: the public vectors are cut in three. Releases are fitted on the first part, compared by
simulation on the second, and the winner's utility is estimated on the third, which had no say: the
estimate is not optimistic, for people distributed as the public ones. What is returned is the
winner fitted again on all public vectors. No private vector is looked at, so nothing is spent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from offaxis.errors import InvalidInput
from offaxis.evaluation.candidates import Candidate, candidates
from offaxis.evaluation.sweep import BUDGETS
from offaxis.evaluation.utility import Goal, Judge, Utility
from offaxis.geometry import Geometry, PublicVectors, TaskModel, as_task_model, measure
from offaxis.privacy.guarantee import exact_epsilon
from offaxis.release import Release
from offaxis.theory.ceiling import agreement_ceiling, answer_prior
from offaxis.vectors import Vectors

_SHARES: Final = (0.6, 0.8)
"""Where the public vectors are cut: for fitting, comparing, and estimating."""

_MOST: Final = 20_000
_JUDGED: Final = 3000
"""Public vectors that are used, and that each comparison simulates, at most."""

_FEW: Final = 500


@dataclass(frozen=True, eq=False)
class Tried:
    """One release that was tried, and its utility on the vectors it was compared on."""

    candidate: Candidate
    utility: Utility


@dataclass(frozen=True, eq=False)
class Recommendation:
    """What to release, what it is worth, and what else was tried.

    Attributes
    ----------
    release : Release
        The best one, fitted on all public vectors.
    candidate : Candidate
        How it was made.
    expected : Utility
        On public vectors that had no say.
    tried : tuple of Tried
        All others too, best first.
    ceiling : float or None
        What no ε-LDP report passes, where that is known.
    sentence : str
        The advice in plain words.
    cautions : tuple of str
        What makes it doubtful.
    """

    release: Release
    candidate: Candidate
    expected: Utility
    tried: tuple[Tried, ...]
    ceiling: float | None
    sentence: str
    cautions: tuple[str, ...]


def recommend(
    model: Any,
    public: Any,
    *,
    epsilon: Any,
    goal: Goal = "answers",
    people: int = 1,
    seed: int = 0,
    progress: Callable[[str, int, int], None] | None = None,
) -> Recommendation:
    """Try every admissible pure release on public vectors and return the best one.

    Parameters
    ----------
    model : public task model
        As in :func:`offaxis.fit`.
    public : array (n, m), or callable returning an iterator of batches
        Public vectors.
    epsilon : number
        Budget of one report.
    goal : {"answers", "fidelity", "mean"}
        The model's answer of each vector; the vector itself in the task's metric; or a mean over
        people in that metric.
    people : int
        How many people a mean is taken over.
    seed : int
        Public; decides how the public vectors are cut, and the simulated noise.
    progress : callable, optional
        Called with the title of a candidate, how many are done, and how many there are.
    """
    if goal not in ("answers", "fidelity", "mean"):
        raise InvalidInput(f"goal must be 'answers', 'fidelity' or 'mean', got {goal!r}")
    if people < 1:
        raise InvalidInput(f"people must be at least 1, got people={people}")
    epsilon = exact_epsilon(epsilon)
    task, vectors = as_task_model(model), _collected(public)
    rng = np.random.default_rng(seed)
    first, second, third = _parts(vectors[rng.permutation(len(vectors))])
    geometry = measure(task, PublicVectors(first))
    judge = Judge(task, geometry.gram, geometry.mean, goal, people)
    tried = []
    options = candidates(task, geometry, goal)
    for done, option in enumerate(options):
        if progress:
            progress(option.title, done, len(options))
        release = option.make(task, geometry, first, epsilon)
        if release is not None:
            tried.append(Tried(option, judge(release, second, seed)))
    if progress:
        progress("fitting the best one", len(options), len(options))
    if not tried:
        raise InvalidInput("no release could be fitted to these public vectors")
    tried.sort(key=lambda each: -each.utility.score)
    best = tried[0].candidate
    trial = best.make(task, geometry, first, epsilon)
    assert trial is not None
    expected = judge(trial, third, seed + 1)
    whole = measure(task, PublicVectors(vectors))
    final = best.make(task, whole, vectors, epsilon)
    assert final is not None
    ceiling = _ceiling(task, goal, geometry, vectors, epsilon)
    return Recommendation(
        final,
        best,
        expected,
        tuple(tried),
        ceiling,
        _sentence(goal, geometry.outputs, tried, expected, ceiling),
        _cautions(vectors, geometry, goal, expected),
    )


def smallest_epsilon(
    model: Any,
    public: Any,
    *,
    wanted: float,
    goal: Goal = "answers",
    people: int = 1,
    budgets: Sequence[float] = BUDGETS,
    seed: int = 0,
) -> tuple[float, Recommendation] | None:
    """Return the first of ascending budgets whose expected utility reaches ``wanted``, or None."""
    for epsilon in sorted(budgets):
        found = recommend(model, public, epsilon=epsilon, goal=goal, people=people, seed=seed)
        if found.expected.score >= wanted:
            return epsilon, found
    return None


def _collected(public: Any) -> Vectors:
    """Return the public vectors, or evenly many where they are too many."""
    source = PublicVectors(public)
    batches = list(source.batches(8192))
    whole = np.concatenate(batches)
    stride = -(-len(whole) // _MOST)
    return whole[::stride]


def _parts(vectors: Vectors) -> tuple[Vectors, Vectors, Vectors]:
    cuts = [int(share * len(vectors)) for share in _SHARES]
    first, second, third = np.split(vectors, cuts)
    if min(len(first), len(second), len(third)) < 10:
        raise InvalidInput(
            f"a recommendation needs at least 50 public vectors, got {len(vectors)}; with fewer "
            f"use a plain randomizer (offaxis.fit with reshaping='none') and a radius you know"
        )
    return first, second[:_JUDGED], third[:_JUDGED]


def _ceiling(
    task: TaskModel, goal: Goal, geometry: Geometry, vectors: Vectors, epsilon: Any
) -> float | None:
    if goal == "answers" and geometry.outputs > 1:
        return float(agreement_ceiling(answer_prior(task, vectors), epsilon).probability)
    return None


def _sentence(
    goal: Goal, outputs: int, tried: Sequence[Tried], expected: Utility, ceiling: float | None
) -> str:
    best = tried[0]
    answers = "the model's answers" if outputs > 1 else "the variance of the model's answer"
    words = {
        "answers": f"keeps an expected {100 * expected.score:.1f} % of {answers}",
        "fidelity": f"keeps an expected {100 * expected.score:.1f} % of the variance in the "
        f"task's metric",
        "mean": f"leaves an expected squared error of {-expected.score:.3g} of the variance",
    }[goal]
    sentence = f"{best.candidate.title} {words}"
    if ceiling is not None:
        sentence += f", where no report of this budget allows more than {100 * ceiling:.1f} %"
    if best.candidate.is_answer:
        others = [each for each in tried if not each.candidate.is_answer]
        if others:
            sentence += (
                f". That is the model's answer itself, sent by randomized response; the best "
                f"release of a vector ({others[0].candidate.title}) has "
                f"{100 * others[0].utility.score:.1f} %"
            )
    return sentence + "."


def _cautions(
    vectors: Vectors, geometry: Geometry, goal: Goal, expected: Utility
) -> tuple[str, ...]:
    found = []
    if len(vectors) < _FEW:
        found.append(
            f"only {len(vectors)} public vectors: maps and codebooks are rough, and the estimate "
            f"is uncertain (± {2 * expected.error:.2g})"
        )
    if goal != "mean" and expected.score <= 0 and (goal == "fidelity" or geometry.outputs == 1):
        found.append(
            "at this budget a single report is worth no more than the public mean: average over "
            "people, or use a larger budget"
        )
    found.append("the estimate holds for people distributed as the public vectors")
    return tuple(found)
