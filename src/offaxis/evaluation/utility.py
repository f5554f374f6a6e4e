"""Utility of a release for a goal, on held-out public vectors.

Contract: reports are simulated with a public seed, and the scores of several goals and tasks come
from the same reports. A score has a standard error over the vectors. It holds for people
distributed as the public vectors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from offaxis.encoding import active_directions
from offaxis.errors import InvalidInput, UnsupportedModel
from offaxis.evaluation.metrics import without_noise
from offaxis.geometry import Geometry, MultiTask, PublicVectors, TaskModel, as_task_model, measure
from offaxis.geometry.multitask import checked_weights, prepared
from offaxis.geometry.public import survey
from offaxis.geometry.spectrum import spectrum
from offaxis.mechanisms.base import Goal
from offaxis.release import Release
from offaxis.simulation import simulate
from offaxis.vectors import Vectors, row_dots

_REPETITIONS: Final = 4
_DEVIATIONS: Final = 3.0
"""Half the width of an interval in standard errors; it misses 0.3 % of normal estimates."""


@dataclass(frozen=True)
class Utility:
    """A score, larger is better, with its standard error over vectors.

    The score depends on the goal:

    answers : share of reports with the model's answer; for a model of one output, the explained
    share of the variance of its answer.
    vectors : share of the variance explained in the task's metric, 1 − E‖ẑ − z‖²_Ω / E‖z − μ‖²_Ω.
    means : minus the expected squared error of a mean over people, in the task's metric, as a share
    of E‖z − μ‖²_Ω, averaged over people like either half of the public vectors.
    """

    score: float
    error: float

    def interval(self, deviations: float = _DEVIATIONS) -> tuple[float, float]:
        """Return the score minus and plus this many standard errors."""
        return self.score - deviations * self.error, self.score + deviations * self.error


@dataclass(frozen=True, eq=False)
class Score:
    """A score and the influence of every vector on it, whose spread gives the standard error."""

    score: float
    influence: Vectors

    @property
    def utility(self) -> Utility:
        """The score with its standard error over vectors."""
        n = len(self.influence)
        return Utility(self.score, float(self.influence.std(ddof=1) / np.sqrt(n)) if n > 1 else 0.0)


def weighted(parts: Sequence[Score], weights: Sequence[float]) -> Score:
    """Return the weighted mean of scores on the same vectors."""
    score = float(np.dot(weights, [part.score for part in parts]))
    influence = [weight * part.influence for weight, part in zip(weights, parts, strict=True)]
    return Score(score, np.sum(influence, axis=0))


@dataclass(frozen=True, eq=False)
class TaskScorer:
    """Scores releases for one task on held-out public vectors.

    Attributes
    ----------
    task : TaskModel
    gram : (m, m) array or None
        Ω̂ of the task on public vectors; None to score answers only.
    mean : (m,) array
        The public mean.
    goal : {"answers", "vectors", "means"}
    people : int
        Number of people in a mean.
    """

    task: TaskModel
    gram: Vectors | None
    mean: Vectors
    goal: Goal
    people: int = 1

    def __call__(self, release: Release, vectors: Vectors, seed: int = 0) -> Utility:
        """Simulate reports of the vectors and score the decoded ones."""
        return Scorer({"": self}, {"": 1.0})(release, vectors, seed).utility

    def answers(self, vectors: Vectors, decoded: Vectors) -> Score:
        """Score decoded vectors, stacked rounds of (n, m), by the model's answers."""
        clean, answered = self.task.outputs(vectors), self.task.outputs(decoded)
        rounds = len(decoded) // len(vectors)
        if clean.shape[1] == 1:
            lost = (answered - np.tile(clean, (rounds, 1)))[:, 0] ** 2
            typical = self.task.outputs(self.mean[None])[0, 0]
            return _explained(lost, (clean[:, 0] - typical) ** 2)
        same = answered.argmax(axis=1) == np.tile(clean.argmax(axis=1), rounds)
        shares = same.reshape(rounds, -1).mean(axis=0)
        return Score(float(shares.mean()), shares)

    def fidelity(self, vectors: Vectors, decoded: Vectors) -> Score:
        """Score decoded vectors, stacked rounds of (n, m), by their error in the task's metric."""
        lost = self._squared(decoded - np.tile(vectors, (len(decoded) // len(vectors), 1)))
        return _explained(lost, self._squared(vectors - self.mean))

    def error_of_means(
        self, vectors: Vectors, expected: Vectors, decoded: Vectors, above: NDArray[np.bool_]
    ) -> Score:
        """Return −(‖bias‖² + variance / people) / E‖z − μ‖²_Ω, in the task's metric.

        ``expected`` is the mean of each vector's reports over the noise, known exactly. The bias is
        therefore free of noise. Sampling makes its square too large rather than too small, and this
        is not corrected: for many people, an overlooked bias is the whole error.

        People may differ from the public vectors: ``above``, (s, n), halves the vectors in s ways,
        and the squared bias is the average of those of the halves.
        """
        rounds = len(decoded) // len(vectors)
        offsets = expected - vectors
        noise = self._squared(decoded - np.tile(expected, (rounds, 1))).reshape(rounds, -1)
        variance = noise.mean(axis=0) + self._squared(offsets - offsets.mean(axis=0))
        squared_bias, gradients = 0.0, np.zeros_like(offsets)
        assert self.gram is not None, "means are scored in the task's metric"
        for half in (part for split in above for part in (split, ~split) if part.any()):
            bias = offsets[half].mean(axis=0)
            squared_bias += float(bias @ self.gram @ bias) * half.mean() / len(above)
            gradients[half] += self.gram @ bias / len(above)
        spread = float(self._squared(vectors - self.mean).mean())
        influence = 2 * np.einsum("ij,ij->i", offsets, gradients) + variance / self.people
        return Score(
            -(squared_bias + float(variance.mean()) / self.people) / spread, -influence / spread
        )

    def _squared(self, differences: Vectors) -> Vectors:
        """Return the squared length of every row in the task's metric."""
        assert self.gram is not None, "vectors are scored in the task's metric"
        if self._root is None:
            return row_dots(differences @ self.gram, differences)
        seen = differences @ self._root
        return row_dots(seen, seen)

    @cached_property
    def _root(self) -> Vectors | None:
        """Ω̂^{1/2} as (m, r), if the task sees few directions; then it is faster than Ω̂."""
        assert self.gram is not None, "vectors are scored in the task's metric"
        eigen = spectrum(self.gram)
        seen = eigen.values > 0
        if 2 * np.count_nonzero(seen) > len(self.gram):
            return None
        root: Vectors = eigen.basis[:, seen] * np.sqrt(eigen.values[seen])
        return root


def _explained(lost: Vectors, spread: Vectors) -> Score:
    """Return 1 − mean(lost)/mean(spread); ``lost`` has several rounds of every vector."""
    lost = lost.reshape(-1, len(spread)).mean(axis=0)
    scale = spread.mean()
    ratio = lost.mean() / scale
    return Score(float(1 - ratio), (ratio * spread - lost) / scale)


@dataclass(frozen=True, eq=False)
class Scores:
    """Utility of the same simulated reports, by goal and by task.

    Attributes
    ----------
    utility : Utility
        For the goal: the weighted mean over tasks.
    by_task : mapping of Utility
        For the goal, by task.
    answers, fidelity : Utility or None
        Of the answers and of the vectors, over all tasks; None for means, and the second also
        where the tasks have no geometry.
    """

    utility: Utility
    by_task: Mapping[str, Utility]
    answers: Utility | None = None
    fidelity: Utility | None = None


@dataclass(frozen=True, eq=False)
class Scorer:
    """Scores releases for one or several tasks, all on the same simulated reports.

    Attributes
    ----------
    scorers : mapping of TaskScorer
        By task; all with the same goal.
    weights : mapping of float
        Weight of every task; they sum to one.
    directions : (s, m) array, optional
        For means: the bias is computed separately on either side of the median along each.
    """

    scorers: Mapping[str, TaskScorer]
    weights: Mapping[str, float]
    directions: Vectors | None = None

    @property
    def goal(self) -> Goal:
        """The goal of all task scorers."""
        return next(iter(self.scorers.values())).goal

    def __call__(self, release: Release, vectors: Vectors, seed: int = 0) -> Scores:
        """Simulate several reports of each vector, and score them for every task."""
        weights = [self.weights[name] for name in self.scorers]
        if self.goal == "means":
            unbiased: Any = replace(release, decoder=release.unbiased_decoder, mean_decoder=None)
            expected, decoded = without_noise(release, vectors), _simulated(unbiased, vectors, seed)
            above = self._halves(vectors)
            errors = [
                scorer.error_of_means(vectors, expected, decoded, above)
                for scorer in self.scorers.values()
            ]
            by_task = dict(zip(self.scorers, (part.utility for part in errors), strict=True))
            return Scores(weighted(errors, weights).utility, by_task)
        decoded = _simulated(release, vectors, seed)
        answers = [scorer.answers(vectors, decoded) for scorer in self.scorers.values()]
        if any(scorer.gram is None for scorer in self.scorers.values()):
            by_task = dict(zip(self.scorers, (part.utility for part in answers), strict=True))
            total = weighted(answers, weights).utility
            return Scores(total, by_task, total)
        fidelity = [scorer.fidelity(vectors, decoded) for scorer in self.scorers.values()]
        both = [weighted(parts, weights).utility for parts in (answers, fidelity)]
        parts, total = (answers, both[0]) if self.goal == "answers" else (fidelity, both[1])
        by_task = dict(zip(self.scorers, (part.utility for part in parts), strict=True))
        return Scores(total, by_task, *both)

    def _halves(self, vectors: Vectors) -> NDArray[np.bool_]:
        """Return which vectors are above the median, (s, n); all of them without directions."""
        if self.directions is None:
            return np.ones((1, len(vectors)), dtype=bool)
        along = self.directions @ vectors.T
        halves: NDArray[np.bool_] = along > np.median(along, axis=1, keepdims=True)
        return halves


def _simulated(release: Release, vectors: Vectors, seed: int) -> Vectors:
    """Return decoded simulated reports, several rounds stacked."""
    repeated = np.tile(vectors, (_REPETITIONS, 1))
    decoded: Vectors = simulate(release, repeated, np.random.default_rng([seed, len(vectors)]))
    return decoded


# ---- Public tasks, measured on public vectors

_SPLIT_DIRECTIONS: Final = 8
"""For means: directions along which people may differ from the public vectors."""

ONLY_TASK: Final = "task"
"""The name of a single task."""


@dataclass(frozen=True, eq=False)
class Tasks:
    """Public models by name, with their weights.

    Attributes
    ----------
    models : mapping of TaskModel
    weights : mapping of float
        They sum to one.
    """

    models: Mapping[str, TaskModel]
    weights: Mapping[str, float]

    @classmethod
    def of(cls, model: Any, weights: Mapping[str, float] | None) -> Tasks:
        """Return the tasks of a model, or of a mapping of names to models with weights."""
        if not isinstance(model, Mapping):
            if weights is not None:
                raise InvalidInput("weights are for several tasks: pass a mapping of models too")
            model = {ONLY_TASK: model}
        if not model:
            raise InvalidInput("a recommendation needs at least one model, got an empty mapping")
        models = {name: as_task_model(part) for name, part in model.items()}
        return cls(models, checked_weights(weights, models))

    @property
    def input_dim(self) -> int | None:
        """Dimension m of the vectors; None if no model fixes it."""
        dims = (model.input_dim for model in self.models.values())
        return next((dim for dim in dims if dim is not None), None)


@dataclass(frozen=True, eq=False)
class MeasuredTasks:
    """Tasks on public vectors: what releases are fitted to.

    A geometry is measured when it is first used, because some models have none.

    Attributes
    ----------
    tasks : Tasks
    prepared : mapping of TaskModel
        The models, with centred outputs if the largest one is the answer.
    vectors : (n, m) array
    statement : str
        Origin of the vectors, for the provenance of releases.
    """

    tasks: Tasks
    prepared: Mapping[str, TaskModel]
    vectors: Vectors
    statement: str

    @classmethod
    def of(cls, tasks: Tasks, vectors: Vectors, goal: Goal, statement: str = "") -> MeasuredTasks:
        """Prepare the tasks; for the goal "answers", those of several outputs are centred."""
        ready = prepared(tasks.models, PublicVectors(vectors), centred=goal == "answers")
        return cls(tasks, ready, vectors, statement)

    @cached_property
    def outputs(self) -> dict[str, int]:
        """Number of outputs of every task."""
        first = self.vectors[:1]
        return {name: model.outputs(first).shape[1] for name, model in self.prepared.items()}

    @cached_property
    def geometries(self) -> dict[str, Geometry]:
        """The geometry of every task alone."""
        source = PublicVectors(self.vectors)
        return {name: measure(model, source) for name, model in self.prepared.items()}

    @cached_property
    def task(self) -> TaskModel:
        """The task that maps are fitted to: the only one, or all tasks jointly."""
        if len(self.prepared) == 1:
            return next(iter(self.prepared.values()))
        return MultiTask.weighed(self.prepared, self.geometries, self.tasks.weights)

    @cached_property
    def geometry(self) -> Geometry:
        """The geometry of :attr:`task`."""
        task = self.task
        if isinstance(task, MultiTask) and len(self.prepared) > 1:
            return task.geometry(self.geometries)
        return next(iter(self.geometries.values()))

    @cached_property
    def without_geometry(self) -> str:
        """Why the tasks have no geometry; empty if they have one."""
        try:
            _ = self.geometry
        except UnsupportedModel as error:
            return str(error)
        return ""

    @cached_property
    def mean(self) -> Vectors:
        """The mean of the vectors, (m,)."""
        if "geometry" in self.__dict__:
            return self.geometry.mean
        return survey(PublicVectors(self.vectors)).mean

    def scorer(self, goal: Goal, people: int, *, metric: bool = True) -> Scorer:
        """Return the scorers of all tasks; without a metric, they score answers only."""
        metric = metric and not self.without_geometry
        mean = self.mean
        scorers = {
            name: TaskScorer(
                self.tasks.models[name],
                self.geometries[name].gram if metric else None,
                mean,
                goal,
                people,
            )
            for name in self.prepared
        }
        if goal != "means":
            return Scorer(scorers, self.tasks.weights)
        directions = active_directions(self.geometry).forward[:_SPLIT_DIRECTIONS]
        return Scorer(scorers, self.tasks.weights, directions)

    @cached_property
    def commonest(self) -> Vectors:
        """A public vector with the commonest answers, or the public mean if no task has classes.

        Of the vectors with these answers, it is the nearest to their mean.
        """
        models = [self.tasks.models[name] for name, k in self.outputs.items() if k > 1]
        if not models:
            return self.mean
        answers = np.stack([model.outputs(self.vectors).argmax(axis=1) for model in models], axis=1)
        _, which, counts = np.unique(answers, axis=0, return_inverse=True, return_counts=True)
        group = self.vectors[which.reshape(-1) == counts.argmax()]
        offsets = group - group.mean(axis=0)
        nearest: Vectors = group[row_dots(offsets, offsets).argmin()]
        return nearest
