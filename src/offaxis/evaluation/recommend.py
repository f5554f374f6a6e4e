"""Recommend a release for a task, a budget and a goal, with public vectors only.

Contract: releases are fitted to one part of the public vectors and compared by simulation on a
second one (:mod:`offaxis.evaluation.selection`). The best one is fitted again to both parts and its
utility estimated on a third, held-out part, so the estimate is not optimistic for people
distributed as the public vectors. The release that is returned is fitted to all public vectors, or
to an even sample of 20,000. No private vector is used, so no budget is spent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any, Final, get_args

import numpy as np

from offaxis.encoding import active_directions
from offaxis.errors import InvalidInput
from offaxis.evaluation.bounds import Ceilings
from offaxis.evaluation.candidates import Candidate, candidates, decoders_of, ranks_and_radii
from offaxis.evaluation.priors import Prior
from offaxis.evaluation.recommendation import Recommendation, summary
from offaxis.evaluation.selection import (
    LEAST_HELD_OUT,
    SHARE,
    Comparison,
    Progress,
    ScoredCandidate,
    Selection,
    Split,
    sample,
)
from offaxis.evaluation.utility import Goal, MeasuredTasks, Tasks, Utility
from offaxis.mechanisms import find_mechanism
from offaxis.privacy.guarantee import Unit, exact_epsilon
from offaxis.release import Release
from offaxis.vectors import Vectors, as_integer, as_number

__all__ = [
    "Recommendation",
    "ScoredCandidate",
    "best_decoder",
    "recommend",
    "recommend_range",
    "smallest_epsilon",
    "tune",
]

_MOST: Final = 20_000
"""Largest number of public vectors used; at most as many others are added to the held-out part."""

_FEW: Final = 500
"""Fewer public vectors than this get a caution."""

_FEWEST: Final = round(LEAST_HELD_OUT / SHARE)
_EVERY_RANK: Final = 10
"""Every rank up to this one is tried; above, only 12, 16, 24, 32, 48 …"""

_STEP: Final = Fraction(1, 20)
"""Distance of the budgets that ``smallest_epsilon`` tries."""

SYNTHETIC: Final = "synthetic prior"
"""The origin of vectors drawn from a prior, in the provenance of a release."""

_INSTEAD: Final = (
    "Without them, state what is publicly known about the vectors: recommend(model, None, "
    "prior=wide_prior(dim, low=…, high=…)); or use a plain randomizer with a known radius, such as "
    "offaxis.randomizers.Laplace; or, from 10 vectors on, offaxis.fit with "
    "mechanism='class-response', which needs little but the model. Codebooks, posterior decoders "
    "and estimates of utility are only as good as the vectors they are fitted to"
)


# ---- Recommendations


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
    """Compare all pure releases for a task on public vectors and return the best one.

    Parameters
    ----------
    model : public task model, or mapping of names to such models
        As in :func:`offaxis.fit`. Several tasks are served by one release.
    public : array (n, m), callable returning an iterator of batches, or None
        Public vectors, at least 50; None with a ``prior``.
    epsilon : number
        Budget of one report.
    goal : {"answers", "fidelity", "mean"}
        The model's answer for each vector; the vector itself in the task's metric; or a mean over
        people in that metric.
    people : int
        Number of people in a mean.
    weights : mapping, optional
        Weight of each of several tasks; equal by default.
    prior : Prior, optional
        Public knowledge about the vectors, instead of public vectors (:func:`offaxis.wide_prior`).
    seed : int
        Public seed of the split of the public vectors and of the simulated noise.
    progress : callable, optional
        Called with the title of a candidate, the number of candidates done, and their total.

    Examples
    --------
    >>> import offaxis
    >>> rng = np.random.default_rng(0)
    >>> task, public = rng.standard_normal((2, 2)), rng.standard_normal((60, 2))
    >>> recommendation = offaxis.recommend(task, public, epsilon=2)
    >>> print(recommendation.summary)
    the model's answer by randomized response keeps an expected ... of the model's answers, ...
    >>> recommendation.cautions[0]
    'only 60 public vectors: maps and codebooks are rough, and the estimate is uncertain (...)'
    """
    search = Search.of(model, public, goal, people, weights, prior, seed)
    return search.at(exact_epsilon(epsilon), progress)


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
    """Recommend a release for every budget; work that does not depend on the budget is shared.

    Parameters
    ----------
    epsilons : sequence of numbers
    model, public, goal, people, weights, prior, seed, progress
        As in :func:`recommend`.

    Examples
    --------
    >>> import offaxis
    >>> rng = np.random.default_rng(0)
    >>> task, public = rng.standard_normal((2, 2)), rng.standard_normal((60, 2))
    >>> low, high = offaxis.recommend_range(task, public, epsilons=[1, 4])
    >>> low.epsilon, high.epsilon, low.ceiling < high.ceiling
    (1.0, 4.0, True)
    """
    budgets = [exact_epsilon(epsilon) for epsilon in epsilons]
    if not budgets:
        raise InvalidInput("epsilons must name at least one budget")
    search = Search.of(model, public, goal, people, weights, prior, seed)
    return tuple(search.at(budget, progress) for budget in budgets)


def tune(
    model: Any,
    public: Any,
    *,
    epsilon: Any,
    mechanism: str = "privunit2",
    delta: Any = None,
    unit: Unit = "item",
    ranks: Sequence[int] | None = None,
    percentiles: Sequence[float] = (50.0, 70.0, 90.0),
    goal: Goal = "answers",
    seed: int = 0,
    statement: str = "",
    progress: Progress | None = None,
) -> Recommendation:
    """Choose the rank and the radius of one mechanism with the optimal reshaping.

    The search is that of :func:`offaxis.recommend`, over fewer candidates.

    Parameters
    ----------
    model, public, epsilon, mechanism, delta, unit, statement
        As in :func:`offaxis.fit`, with at least 50 public vectors; codebooks have no rank.
    ranks : sequence of int, optional
        Numbers of directions to try; by default all up to 10, then 12, 16, 24, 32, 48 …
    percentiles : sequence of float
        Percentiles of the encoded norms to try as the radius.
    goal, seed, progress
        As in :func:`offaxis.recommend`.

    Examples
    --------
    >>> from offaxis.evaluation import tune
    >>> rng = np.random.default_rng(0)
    >>> task, public = rng.standard_normal((3, 4)), rng.standard_normal((200, 4))
    >>> tuned = tune(task, public, epsilon=4, mechanism="laplace", ranks=[1, 2])
    >>> tuned.release.encoder.output_dim in (1, 2), len(tuned.candidates)
    (True, 6)
    """
    chosen = find_mechanism(mechanism)
    if chosen.order is None or chosen.reshaping != "coordinates":
        raise InvalidInput(f"{mechanism!r} has no directions to choose; use another mechanism")
    chosen.check_delta(delta)
    budget = exact_epsilon(epsilon)
    radii = [chosen.read_percentile(percentile) for percentile in percentiles]
    settings: dict[str, Any] = {"unit": unit}
    if delta is not None:
        settings["delta"] = delta

    def choose_from(measured: MeasuredTasks) -> list[Candidate]:
        most = active_directions(measured.geometry).effects.size
        return ranks_and_radii(mechanism, _ranks(ranks, most), radii, settings)

    search = Search.of(
        model,
        public,
        goal,
        seed=seed,
        choose_from=choose_from,
        statement=statement,
        pure=delta is None,
    )
    return search.at(budget, progress)


def _ranks(ranks: Sequence[int] | None, most: int) -> list[int]:
    """Return the ranks to try, at most the number of directions."""
    if ranks is None:
        steps = [2**e * b // 2 for e in range(3, 40) for b in (3, 4)]
        ladder = [*range(1, _EVERY_RANK + 1), *steps, most]
        return sorted({rank for rank in ladder if rank <= most})
    meaning = "of the directions that vary and that the model sees"
    return [as_integer(rank, "rank", 1, most, meaning=meaning) for rank in ranks]


def best_decoder(
    release: Release,
    model: Any,
    public: Any,
    *,
    goal: Goal = "answers",
    seed: int = 0,
    progress: Progress | None = None,
) -> Recommendation:
    """Choose the decoder of a release; encoder, randomizer and therefore the guarantee stay.

    The search is that of :func:`offaxis.recommend`, over the release's own decoder, the linear one
    of least error, the posterior mean, and a constant one that always returns the public mean.
    Means over people are decoded as before.

    Parameters
    ----------
    release : Release
    model, public, goal, seed, progress
        As in :func:`offaxis.recommend`; the goal "mean" is an error, because means need an
        unbiased decoder.

    Examples
    --------
    >>> import offaxis
    >>> from offaxis.evaluation import best_decoder
    >>> rng = np.random.default_rng(0)
    >>> task, public = rng.standard_normal((2, 3)), rng.standard_normal((200, 3))
    >>> release = offaxis.fit(task, public, epsilon=1, mechanism="privunit2")
    >>> best = best_decoder(release, task, public, goal="fidelity").release
    >>> best.decoder.kind, best.guarantee == release.guarantee  # devices are not affected
    ('posterior', True)
    """
    if goal == "mean":
        raise InvalidInput("a mean is decoded without bias: there is no decoder to choose")
    search = Search.of(
        model,
        public,
        goal,
        seed=seed,
        choose_from=lambda measured: decoders_of(release),
        pure=release.guarantee.pure,
    )
    return search.at(release.guarantee.epsilon, progress)


# ---- The smallest budget for a target


@dataclass(frozen=True, eq=False)
class SmallestBudget:
    """The smallest budget found for a target utility, and the smallest possible one.

    Attributes
    ----------
    target : float
        The requested utility.
    epsilon : float or None
        The smallest budget found whose expected utility reaches the target; None if none does.
    recommendation : Recommendation or None
        The recommendation at that budget.
    least_possible : float or None
        No report of a smaller budget reaches the target, as far as the ceiling is a bound; None if
        no report of a budget up to ``max_epsilon`` does.
    max_epsilon : float
        The largest budget that was tried.
    """

    target: float
    epsilon: float | None
    recommendation: Recommendation | None
    least_possible: float | None
    max_epsilon: float

    @property
    def summary(self) -> str:
        """The outcome in plain words."""
        if self.least_possible is None:
            return f"No report of a budget up to {self.max_epsilon:g} can reach {self.target:g}."
        limit = f"below ε = {self.least_possible:.3g} no report of any kind can."
        if self.recommendation is None:
            return (
                f"No budget up to {self.max_epsilon:g} was found to reach {self.target:g}; {limit}"
            )
        low, high = self.recommendation.expected.interval()
        return (
            f"ε = {self.epsilon:g} is the smallest budget found to reach {self.target:g} "
            f"(expected {self.recommendation.expected.score:.3f}, between {low:.3f} and "
            f"{high:.3f}); {limit}"
        )


def smallest_epsilon(
    model: Any,
    public: Any,
    *,
    target: float,
    max_epsilon: Any = 10,
    goal: Goal = "answers",
    people: int = 1,
    weights: Mapping[str, float] | None = None,
    prior: Prior | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> SmallestBudget:
    """Find the smallest budget whose best release reaches a target utility.

    Contract: budgets are multiples of 0.05. A budget reaches the target if its best release does,
    on the vectors it was chosen on *and* on held-out ones, so that luck on either does not suffice.
    A bisection finds a budget that reaches the target while the one before it does not. Scores come
    from simulations and need not rise with every step, so a smaller budget may be missed. The
    result is an estimate with an interval, not a certainty; because the budget is chosen by it, it
    is optimistic by a part of its error.

    Parameters
    ----------
    target : float
        The utility, as in ``Recommendation.expected.score``; negative for means.
    max_epsilon : number
        The largest budget to try.
    model, public, goal, people, weights, prior, seed, progress
        As in :func:`offaxis.recommend`.

    Examples
    --------
    >>> import offaxis
    >>> rng = np.random.default_rng(0)
    >>> task, public = rng.standard_normal((2, 2)), rng.standard_normal((60, 2))
    >>> offaxis.smallest_epsilon(task, public, target=0.99, max_epsilon=0.5).summary
    'No report of a budget up to 0.5 can reach 0.99.'
    """
    goal_score, limit = as_number(target, "target"), exact_epsilon(max_epsilon)
    search = Search.of(model, public, goal, people, weights, prior, seed)
    possible = search.ceilings.least_epsilon(goal_score, float(limit))
    # Estimates may exceed the ceiling by luck: budgets that it rules out are not tried.
    first, last = math.ceil(Fraction(possible or 0) / _STEP) or 1, int(limit / _STEP)

    @cache
    def reached(step: int) -> bool:
        # Decoders are trained only for the budget that is returned.
        compared = search.selection.compare(step * _STEP, None, progress)
        if compared.finalists[0].utility.score < goal_score:
            return False
        return search.selection.estimate(compared.releases[0]).utility.score >= goal_score

    if possible is None or first > last:
        return SmallestBudget(goal_score, None, None, possible, float(limit))
    # The answer is often near the ceiling: steps of doubling length from there bracket it.
    low, high = first - 1, first
    while not reached(high):
        if high == last:
            return SmallestBudget(goal_score, None, None, possible, float(limit))
        low, high = high, min(last, 2 * high - first + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if reached(middle) else (middle, high)
    best = search.at(high * _STEP, progress)
    return SmallestBudget(goal_score, best.epsilon, best, possible, float(limit))


# ---- The search behind all of these


@dataclass(frozen=True, eq=False)
class Search:
    """A recommendation without its budget.

    Attributes
    ----------
    all_vectors : MeasuredTasks
        The tasks on all public vectors.
    not_held_out : MeasuredTasks
        The tasks on the vectors used to fit and compare.
    selection : Selection
    ceilings : Ceilings
    goal : {"answers", "fidelity", "mean"}
    synthetic : bool
        Whether the vectors were drawn from a prior.
    pure : bool
        Whether all candidates are pure, so that the ceilings hold for them.
    trains : bool
        Whether a decoder network may be trained in addition to the candidates.
    """

    all_vectors: MeasuredTasks
    not_held_out: MeasuredTasks
    selection: Selection
    ceilings: Ceilings
    goal: Goal
    synthetic: bool
    pure: bool
    trains: bool

    @classmethod
    def of(
        cls,
        model: Any,
        public: Any,
        goal: Goal,
        people: int = 1,
        weights: Mapping[str, float] | None = None,
        prior: Prior | None = None,
        seed: int = 0,
        *,
        choose_from: Callable[[MeasuredTasks], list[Candidate]] | None = None,
        statement: str = "",
        pure: bool = True,
    ) -> Search:
        """Check the arguments, split the public vectors and measure the tasks on them.

        ``choose_from`` returns the candidates for the tasks on the fitted part; by default those
        of :func:`offaxis.evaluation.candidates.candidates`.
        """
        if goal not in get_args(Goal):
            raise InvalidInput(f"goal must be 'answers', 'fidelity' or 'mean', got {goal!r}")
        people = as_integer(people, "people", 1)
        tasks = Tasks.of(model, weights)
        vectors, others = _collect(public, prior, seed)
        if prior is not None:
            statement = f"{SYNTHETIC}: {prior.words}; no public vectors"
        split = Split(vectors, seed)
        to_fit = MeasuredTasks.of(tasks, split.part(0), goal, statement)
        compare_on, estimate_on = split.part(1), np.concatenate([split.part(2), others])
        tried = candidates(to_fit, goal) if choose_from is None else choose_from(to_fit)
        if not tried:
            raise InvalidInput("ranks and percentiles must each name at least one value to try")
        all_vectors = MeasuredTasks.of(tasks, vectors, goal, statement)
        fit_and_compare = np.concatenate([to_fit.vectors, compare_on])
        return cls(
            all_vectors,
            MeasuredTasks.of(tasks, fit_and_compare, goal, statement),
            Selection(to_fit, tried, compare_on, estimate_on, goal, people, seed),
            Ceilings(all_vectors, goal, people),
            goal,
            prior is not None,
            pure,
            choose_from is None,
        )

    def at(self, epsilon: Any, progress: Progress | None = None) -> Recommendation:
        """Compare the candidates at a budget and return the best one with its estimate."""
        ceiling = self.ceilings(epsilon) if self.pure else math.inf
        compared = self.selection.compare(epsilon, ceiling if self.trains else None, progress)
        best, as_compared, release = self._fit_best(epsilon, compared)
        # Fit to all but the held-out vectors, so that the estimate is not too low.
        refitted = best.candidate.make(self.not_held_out, epsilon) or as_compared
        scores, measured_on = self.selection.estimate(refitted), self.selection.measured_on
        return Recommendation(
            release,
            best.candidate,
            float(epsilon),
            self.goal,
            scores.utility,
            scores.by_task,
            compared.finalists,
            compared.screened_out,
            ceiling,
            self.ceilings.by_task(epsilon) if self.pure else {},
            self.selection.compared_on,
            measured_on,
            summary(
                self.goal,
                self.all_vectors.outputs,
                best,
                compared.finalists,
                scores.utility,
                ceiling,
                measured_on,
            ),
            self._cautions(scores.utility),
        )

    def _fit_best(
        self, epsilon: Any, compared: Comparison
    ) -> tuple[ScoredCandidate, Release, Release]:
        """Return the best finalist, its release as compared, and fitted to all vectors."""
        for finalist, as_compared in zip(compared.finalists, compared.releases, strict=True):
            # In all vectors together, rounding may hide a faint direction; then try the next one.
            release = finalist.candidate.make(self.all_vectors, epsilon)
            if release is not None:
                return finalist, as_compared, release
        raise InvalidInput("no release could be fitted to these public vectors")

    def _cautions(self, expected: Utility) -> tuple[str, ...]:
        if self.synthetic:
            return (
                "without public vectors, everything was fitted to a synthetic prior. The maps are "
                "valid and the guarantee is the same, but utility and ceiling are those of the "
                "prior, not of people",
            )
        cautions, count = [], len(self.all_vectors.vectors)
        if count < _FEW:
            cautions.append(
                f"only {count} public vectors: maps and codebooks are rough, and the estimate is "
                f"uncertain (± {expected.interval()[1] - expected.score:.2g})"
            )
        scalar = self.goal == "answers" and max(self.all_vectors.outputs.values()) == 1
        if expected.score <= 0 and (self.goal == "fidelity" or scalar):
            cautions.append(
                "at this budget a single report is no better than the public mean: average over "
                "people, or use a larger budget"
            )
        if self.goal == "mean":
            cautions.append(
                "the mean is right in the task's metric; directions that are not sent are filled "
                "with their public mean. The bias of this, of clipping and of codebooks is "
                "estimated on halves of the public vectors, and is different for people who "
                "differ more"
            )
        else:
            cautions.append("the estimate holds for people distributed as the public vectors")
        return tuple(cautions)


def _collect(public: Any, prior: Prior | None, seed: int) -> tuple[Vectors, Vectors]:
    """Return the public vectors, or draw them from a prior, and others for the held-out part.

    Of more than ``_MOST`` vectors, an even sample is returned, and at most as many others.
    """
    if prior is not None:
        if public is not None:
            raise InvalidInput("give public vectors or a prior, not both: real vectors are better")
        drawn = prior.draw(seed=seed)
        return drawn, drawn[:0]
    if public is None:
        raise InvalidInput(f"a recommendation needs public vectors, got none. {_INSTEAD}")
    vectors, others = sample(public, _MOST)
    if len(vectors) < _FEWEST:
        raise InvalidInput(
            f"a recommendation needs at least {_FEWEST} public vectors, got {len(vectors)}. "
            f"{_INSTEAD}"
        )
    return vectors, others
