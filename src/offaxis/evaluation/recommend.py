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
from typing import Any, Final, Literal, get_args

import numpy as np

from offaxis.encoding import active_directions
from offaxis.errors import InvalidInput, UnsupportedModel
from offaxis.evaluation.bounds import Ceilings
from offaxis.evaluation.candidates import (
    Candidate,
    candidates,
    decoders_of,
    of_mechanisms,
    ranks_and_radii,
    sufficient,
)
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
    shown,
)
from offaxis.evaluation.utility import MeasuredTasks, Tasks, Utility
from offaxis.fitting import check_not_targets
from offaxis.geometry import Layers, as_task_model
from offaxis.geometry.public import taken_evenly
from offaxis.mechanisms import Mechanism, find_mechanism
from offaxis.mechanisms.base import Goal
from offaxis.privacy.guarantee import Unit, exact_epsilon
from offaxis.privacy.wording import MEAN_OVER
from offaxis.release import Release
from offaxis.vectors import Vectors, as_integer

Effort = Literal["quick", "full"]

__all__ = [
    "Recommendation",
    "ScoredCandidate",
    "best_decoder",
    "recommend",
    "recommend_range",
    "tune",
]

_MOST: Final = 20_000
"""Largest number of public vectors used; at most as many others are added to the held-out part."""

_SKETCHED: Final = 2_000
"""Number of vectors that "quick" fits all candidates to."""

_NARROW: Final = 128
"""Up to this dimension, "quick" may train a decoder; above, that takes most of its time."""

_FEW: Final = 500
"""Fewer public vectors than this get a caution."""

_FEWEST: Final = round(LEAST_HELD_OUT / SHARE)
_EVERY_RANK: Final = 10
"""Every rank up to this one is tried; above, only 12, 16, 24, 32, 48 …"""

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
    people: int = MEAN_OVER,
    weights: Mapping[str, float] | None = None,
    prior: Prior | None = None,
    effort: Effort = "quick",
    also: Sequence[str | Mechanism | type[Any]] = (),
    seed: int = 0,
    progress: Progress | None = None,
) -> Recommendation:
    """Compare pure releases for a task on public vectors and return the best one.

    Parameters
    ----------
    model : public task model, or mapping of names to such models
        As in :func:`offaxis.fit`. Several tasks are served by one release.
    public : array (n, m), callable returning an iterator of batches, or None
        Public vectors, at least 50; None with a ``prior``.
    epsilon : number
        Budget of one report.
    goal : {"answers", "vectors", "means"}
        The model's answer for each vector; the vector itself in the task's metric; or a mean over
        people in that metric.
    people : int
        Number of people in a mean.
    weights : mapping, optional
        Weight of each of several tasks; equal by default.
    prior : Prior, optional
        Public knowledge about the vectors, instead of public vectors (:func:`offaxis.wide_prior`).
    effort : {"quick", "full"}
        "quick" compares no other candidate if the best report is known, and otherwise fits most
        candidates to a few vectors only. "full" fits and compares all candidates, for example to
        see what a release of the vector would keep.
    also : sequence of str, Mechanism or class
        Mechanisms to compare besides, such as your own; then every candidate is compared.
    seed : int
        Public seed of the split of the public vectors and of the simulated noise.
    progress : callable, optional
        Called with the title of a candidate, the number of candidates done, and their total. By
        default, a line on standard error if that is a terminal.

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
    search = Search.of(model, public, goal, people, weights, prior, seed, effort=effort, also=also)
    with shown(progress) as show:
        return search.at(exact_epsilon(epsilon), show)


def recommend_range(
    model: Any,
    public: Any,
    *,
    epsilons: Sequence[Any],
    goal: Goal = "answers",
    people: int = MEAN_OVER,
    weights: Mapping[str, float] | None = None,
    prior: Prior | None = None,
    effort: Effort = "quick",
    also: Sequence[str | Mechanism | type[Any]] = (),
    seed: int = 0,
    progress: Progress | None = None,
) -> tuple[Recommendation, ...]:
    """Recommend a release for every budget; work that does not depend on the budget is shared.

    Parameters
    ----------
    epsilons : sequence of numbers
    model, public, goal, people, weights, prior, effort, also, seed, progress
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
    search = Search.of(model, public, goal, people, weights, prior, seed, effort=effort, also=also)
    with shown(progress) as show:
        return tuple(search.at(budget, show) for budget in budgets)


def tune(
    model: Any,
    public: Any,
    *,
    epsilon: Any,
    mechanism: str | Mechanism | type[Any] = "privunit2",
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
        raise InvalidInput(f"{chosen.name!r} has no directions to choose; use another mechanism")
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
    with shown(progress) as show:
        return search.at(budget, show)


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
        As in :func:`offaxis.recommend`; the goal "means" is an error, because means need an
        unbiased decoder.

    Examples
    --------
    >>> import offaxis
    >>> from offaxis.evaluation import best_decoder
    >>> rng = np.random.default_rng(0)
    >>> task, public = rng.standard_normal((2, 3)), rng.standard_normal((200, 3))
    >>> release = offaxis.fit(task, public, epsilon=1, mechanism="privunit2")
    >>> best = best_decoder(release, task, public, goal="vectors").release
    >>> best.decoder.kind, best.guarantee == release.guarantee  # devices are not affected
    ('posterior', True)
    """
    if goal == "means":
        raise InvalidInput("a mean is decoded without bias: there is no decoder to choose")
    search = Search.of(
        model,
        public,
        goal,
        seed=seed,
        choose_from=lambda measured: decoders_of(release),
        pure=release.guarantee.pure,
    )
    with shown(progress) as show:
        return search.at(release.guarantee.epsilon, show)


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
    goal : {"answers", "vectors", "means"}
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
        people: int = MEAN_OVER,
        weights: Mapping[str, float] | None = None,
        prior: Prior | None = None,
        seed: int = 0,
        *,
        effort: Effort = "full",
        choose_from: Callable[[MeasuredTasks], list[Candidate]] | None = None,
        also: Sequence[str | Mechanism | type[Any]] = (),
        statement: str = "",
        pure: bool = True,
    ) -> Search:
        """Check the arguments, split the public vectors and measure the tasks on them.

        ``choose_from`` returns the candidates for the tasks on the fitted part; by default those
        of :func:`offaxis.evaluation.candidates.candidates`.
        """
        if goal not in get_args(Goal):
            raise InvalidInput(f"goal must be 'answers', 'vectors' or 'means', got {goal!r}")
        if effort not in get_args(Effort):
            raise InvalidInput(f"effort must be 'quick' or 'full', got {effort!r}")
        people = as_integer(people, "people", 1)
        vectors, others = _collect(public, prior, seed)
        if model is None or (goal != "answers" and _without_derivative(model, vectors)):
            model = _all_directions(goal, vectors)
        _check_tasks(model, goal, vectors)
        tasks = Tasks.of(model, weights)
        if prior is not None:
            statement = f"{SYNTHETIC}: {prior.words}; no public vectors"
        split = Split(vectors, seed)
        to_fit = MeasuredTasks.of(tasks, split.part(0), goal, statement)
        compare_on, estimate_on = split.part(1), np.concatenate([split.part(2), others])
        all_vectors = MeasuredTasks.of(tasks, vectors, goal, statement)
        fit_and_compare = np.concatenate([to_fit.vectors, compare_on])
        sketch, tried = None, []
        quick = effort == "quick" and choose_from is None
        if quick and not also:
            tried = sufficient(to_fit, goal)
        known = bool(tried)
        if not known:
            tried = candidates(to_fit, goal) if choose_from is None else choose_from(to_fit)
            tried += of_mechanisms(also, to_fit, goal)
        if not tried:
            raise InvalidInput("ranks and percentiles must each name at least one value to try")
        if quick and not known and len(to_fit.vectors) > 2 * _SKETCHED:
            few = taken_evenly([to_fit.vectors], len(to_fit.vectors), _SKETCHED)
            sketch = MeasuredTasks.of(tasks, few, goal, statement)
        ceilings = Ceilings(all_vectors, goal, people)
        if goal == "answers" and choose_from is None:
            ceilings.check_answers()
        scorer = to_fit.scorer(goal, people, metric=not known)
        return cls(
            all_vectors,
            MeasuredTasks.of(tasks, fit_and_compare, goal, statement),
            Selection(to_fit, sketch, tried, compare_on, estimate_on, scorer, seed),
            ceilings,
            goal,
            prior is not None,
            pure,
            choose_from is None and not known and (not quick or vectors.shape[1] <= _NARROW),
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
            compared.not_made,
            ceiling,
            self.ceilings.by_task(epsilon) if self.pure else {},
            self.selection.compared_on,
            measured_on,
            summary(
                self.goal,
                self.all_vectors.outputs,
                best,
                compared.finalists,
                scores,
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
        if expected.score <= 0 and (self.goal == "vectors" or scalar):
            cautions.append(
                "at this budget a single report is no better than the public mean: average over "
                "people, or use a larger budget"
            )
        if self.goal == "means":
            cautions.append(
                "the bias of clipping is estimated on halves of the public vectors, and is larger "
                "for people who differ more; intervals of means need a bound on it"
            )
        else:
            cautions.append("the estimate holds for people distributed as the public vectors")
        return tuple(cautions)


def _check_tasks(model: Any, goal: Goal, vectors: Vectors) -> None:
    """Raise for tasks that have no answers, or no metric among several."""
    models = model if isinstance(model, Mapping) else {"": model}
    for name, part in models.items():
        if goal == "answers":
            check_not_targets(part, as_task_model(part).outputs(vectors[:1]).shape[1])
        elif _without_derivative(part, vectors):
            raise InvalidInput(
                f"the task {name!r} has no useful derivative, so no metric to share with others: "
                f"leave it out, or pass None as the model to treat all directions equally"
            )


def _without_derivative(model: Any, vectors: Vectors) -> bool:
    """Whether a single model has no metric, as for :func:`offaxis.fit`: a forest, for example."""
    if isinstance(model, Mapping):
        return False
    try:
        as_task_model(model).gram(vectors[:8])
    except UnsupportedModel:
        return True
    return False


def _all_directions(goal: Goal, vectors: Vectors) -> Layers:
    """Return the task z ↦ z, for vectors whose use is not known yet."""
    if goal == "answers":
        raise InvalidInput(
            "without a model there are no answers to keep: pass a model, or goal='vectors' or "
            "goal='means'"
        )
    dim = vectors.shape[1]
    return Layers([np.eye(dim)], [np.zeros(dim)], name="all directions")


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
