"""Which release is best for a task, a budget and a goal, found on public vectors alone.

Contract: the public vectors are cut in three. Releases are fitted on the first part, compared by
simulation on the second, and the winner, fitted again to both, is estimated on the third, which had
no say: the estimate is not optimistic, for people distributed as the public ones. What is returned
is the winner fitted on all public vectors. No private vector is looked at, so nothing is spent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, get_args

import numpy as np

from offaxis.errors import InvalidInput
from offaxis.evaluation.ceilings import Ceilings
from offaxis.evaluation.priors import Prior
from offaxis.evaluation.public_side import PublicSide, Tasks
from offaxis.evaluation.recommendation import Recommendation, sentence
from offaxis.evaluation.splits import LEAST_HELD_OUT, SHARE, Split, sample
from offaxis.evaluation.trials import Compared, Progress, Trials, Tried
from offaxis.evaluation.utility import Goal, Utility
from offaxis.privacy.guarantee import exact_epsilon
from offaxis.release import Release
from offaxis.vectors import Vectors, as_integer

__all__ = ["Recommendation", "Tried", "recommend", "recommend_range"]

_MOST: Final = 20_000
"""Public vectors that releases are fitted to, at most; as many others help to estimate."""

_FEW: Final = 500
_FEWEST: Final = round(LEAST_HELD_OUT / SHARE)

SYNTHETIC: Final = "synthetic prior"
"""How the provenance of a release calls vectors that were drawn from a prior."""


def recommend(
    model: Any,
    public: Any,
    *,
    epsilon: Any,
    goal: Goal = "answers",
    people: int = 1,
    weights: Mapping[str, float] | None = None,
    prior: Prior | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Recommendation:
    """Try every admissible pure release on public vectors and return the best one.

    Parameters
    ----------
    model : public task model, or mapping of names to such models
        As in :func:`offaxis.fit`. Several tasks are served by one release.
    public : array (n, m), callable returning an iterator of batches, or None
        Public vectors, at least 50; None with a ``prior``.
    epsilon : number
        Budget of one report.
    goal : {"answers", "fidelity", "mean"}
        The model's answer of each vector; the vector itself in the task's metric; or a mean over
        people in that metric.
    people : int
        How many people a mean is taken over.
    weights : mapping, optional
        Importance of every one of several tasks; all are alike by default.
    prior : Prior, optional
        In place of public vectors: what is publicly known of them (:func:`wide_prior`).
    seed : int
        Public; decides how the public vectors are cut, and the simulated noise.
    progress : callable, optional
        Called with the title of a candidate, how many are done, and how many there are.

    Examples
    --------
    >>> import offaxis
    >>> rng = np.random.default_rng(0)
    >>> task, public = rng.standard_normal((2, 2)), rng.standard_normal((60, 2))
    >>> found = offaxis.recommend(task, public, epsilon=2)
    >>> found.release.guarantee.epsilon == 2, found.expected.score <= 1
    (True, True)
    >>> print(found.sentence)
    the model's answer by randomized response keeps an expected ... of the model's answers, ...
    >>> found.compared_on, found.measured_on  # the second had no say in the choice
    (12, 12)
    >>> found.cautions[0]
    'only 60 public vectors: maps and codebooks are rough, and the estimate is uncertain (...)'
    """
    question = Question.of(model, public, goal, people, weights, prior, seed)
    return question.answer(exact_epsilon(epsilon), progress)


def recommend_range(
    model: Any,
    public: Any,
    *,
    epsilons: Sequence[Any],
    goal: Goal = "answers",
    people: int = 1,
    weights: Mapping[str, float] | None = None,
    prior: Prior | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> tuple[Recommendation, ...]:
    """Recommend a release for every budget; what does not depend on the budget is done once.

    Parameters
    ----------
    epsilons : sequence of numbers
    model, public, goal, people, weights, prior, seed, progress
        As in :func:`recommend`.

    Examples
    --------
    >>> from offaxis.evaluation.recommend import recommend_range
    >>> rng = np.random.default_rng(0)
    >>> task, public = rng.standard_normal((2, 2)), rng.standard_normal((60, 2))
    >>> low, high = recommend_range(task, public, epsilons=[1, 4])
    >>> low.epsilon, high.epsilon, low.ceiling < high.ceiling
    (1.0, 4.0, True)
    """
    budgets = [exact_epsilon(epsilon) for epsilon in epsilons]
    if not budgets:
        raise InvalidInput("epsilons must name at least one budget")
    question = Question.of(model, public, goal, people, weights, prior, seed)
    return tuple(question.answer(budget, progress) for budget in budgets)


@dataclass(frozen=True, eq=False)
class Question:
    """Everything about a recommendation but the budget.

    Attributes
    ----------
    whole : PublicSide
        Of all public vectors.
    known : PublicSide
        Of those that had a say: what the best release is worth is estimated on the others.
    trials : Trials
        Of candidates fitted on a part of them.
    ceilings : Ceilings
    goal : {"answers", "fidelity", "mean"}
    synthetic : bool
        Whether the vectors were drawn from a prior.
    """

    whole: PublicSide
    known: PublicSide
    trials: Trials
    ceilings: Ceilings
    goal: Goal
    synthetic: bool

    @classmethod
    def of(
        cls,
        model: Any,
        public: Any,
        goal: Goal,
        people: int,
        weights: Mapping[str, float] | None,
        prior: Prior | None,
        seed: int,
    ) -> Question:
        """Check what was asked, cut the public vectors and measure the tasks on them."""
        if goal not in get_args(Goal):
            raise InvalidInput(f"goal must be 'answers', 'fidelity' or 'mean', got {goal!r}")
        people = as_integer(people, "people", 1)
        tasks = Tasks.of(model, weights)
        vectors, others = _collected(public, prior, seed)
        statement = "" if prior is None else f"{SYNTHETIC}: {prior.words}; no public vectors"
        split = Split(vectors, seed)
        side = PublicSide.of(tasks, split.part(0), goal, statement)
        second, third = split.part(1), np.concatenate([split.part(2), others])
        return cls(
            whole := PublicSide.of(tasks, vectors, goal, statement),
            PublicSide.of(tasks, np.concatenate([side.vectors, second]), goal, statement),
            Trials(side, second, third, goal, people, seed),
            Ceilings(whole, goal, people),
            goal,
            prior is not None,
        )

    def answer(self, epsilon: Any, progress: Progress | None = None) -> Recommendation:
        """Compare the candidates at a budget and return the best one with its estimate."""
        ceiling = self.ceilings(epsilon)
        compared = self.trials.compare(epsilon, ceiling, progress)
        best, tried, release = self._fitted(epsilon, compared)
        # Fitted to more vectors than it was compared on, so that less is left to hope for.
        verdict = self.trials.estimate(best.candidate.make(self.known, epsilon) or tried)
        expected, measured_on = verdict.utility, self.trials.measured_on
        return Recommendation(
            release,
            best.candidate,
            float(epsilon),
            self.goal,
            expected,
            verdict.each,
            compared.tried,
            compared.left_out,
            ceiling,
            self.ceilings.each(epsilon),
            self.trials.compared_on,
            measured_on,
            sentence(
                self.goal,
                self.whole.outputs,
                best,
                compared.tried,
                expected,
                ceiling,
                measured_on,
            ),
            self._cautions(expected),
        )

    def _fitted(self, epsilon: Any, compared: Compared) -> tuple[Tried, Release, Release]:
        """Return the best one, its release as it was compared, and fitted on all vectors."""
        for each, tried in zip(compared.tried, compared.releases, strict=True):
            # Rounding may hide a faint direction in all vectors together; then the next one is it.
            release = each.candidate.make(self.whole, epsilon)
            if release is not None:
                return each, tried, release
        raise InvalidInput("no release could be fitted to these public vectors")

    def _cautions(self, expected: Utility) -> tuple[str, ...]:
        found, count = [], len(self.whole.vectors)
        if self.synthetic:
            return (
                "there were no public vectors: everything was fitted to a synthetic prior. The "
                "maps are valid and the guarantee is the same, but utility and ceiling are those "
                "of the prior, not of people",
            )
        if count < _FEW:
            found.append(
                f"only {count} public vectors: maps and codebooks are rough, and the estimate is "
                f"uncertain (± {expected.interval()[1] - expected.score:.2g})"
            )
        number = self.goal == "answers" and max(self.whole.outputs.values()) == 1
        if expected.score <= 0 and (self.goal == "fidelity" or number):
            found.append(
                "at this budget a single report is worth no more than the public mean: average "
                "over people, or use a larger budget"
            )
        if self.goal == "mean":
            found.append(
                "the mean is right as the task sees it; directions that are not sent are filled "
                "with their public mean, and the bias of that, of clipping and of codebooks is "
                "estimated on halves of the public vectors: people who differ more have another"
            )
        else:
            found.append("the estimate holds for people distributed as the public vectors")
        return tuple(found)


def _collected(public: Any, prior: Prior | None, seed: int) -> tuple[Vectors, Vectors]:
    """Return the public vectors, or draw them; of too many evenly many, and as many others."""
    if prior is not None:
        if public is not None:
            raise InvalidInput("give public vectors or a prior, not both: real ones are better")
        drawn = prior.draw(seed=seed)
        return drawn, drawn[:0]
    if public is None:
        raise InvalidInput(f"there are no public vectors. {_INSTEAD}")
    vectors, others = sample(public, _MOST)
    if len(vectors) < _FEWEST:
        raise InvalidInput(
            f"a recommendation needs at least {_FEWEST} public vectors, got {len(vectors)}. "
            f"{_INSTEAD}"
        )
    return vectors, others


_INSTEAD: Final = (
    "What can be done without: recommend(model, None, prior=wide_prior(dim, low=…, high=…)) for "
    "what is publicly known of the vectors; a plain randomizer with a radius you know, such as "
    "offaxis.randomizers.Laplace; from 10 vectors on offaxis.fit with randomizer='class-response', "
    "which needs little but the model. What cannot: codebooks, posterior decoders and estimates of "
    "utility, which are as good as the vectors they are fitted to"
)
