"""What a release is worth for a goal, on public vectors it was not fitted to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from offaxis.encoding import active_directions
from offaxis.errors import InvalidInput
from offaxis.evaluation.metrics import without_noise
from offaxis.geometry import Geometry, MultiTask, PublicVectors, TaskModel, as_task_model, measure
from offaxis.geometry.multitask import checked_weights, prepared
from offaxis.release import Release
from offaxis.simulation import simulate
from offaxis.vectors import Vectors, row_dots

Goal = Literal["answers", "fidelity", "mean"]
"""The model's answer of each vector; the vector itself in the task's metric; a mean over people."""

_REPETITIONS: Final = 4
_DEVIATIONS: Final = 3.0
"""Standard errors on either side that an interval has: all but 0.3 % of estimates lie within."""


@dataclass(frozen=True)
class Utility:
    """A score, larger is better, with its standard error over vectors.

    answers : share of reports with the model's own answer, or the share of the answer's variance
    that is explained where there is one output.
    fidelity : share of the variance explained in the task's metric, 1 − E‖ẑ − z‖²_Ω / E‖z − μ‖²_Ω.
    mean : minus the expected squared error of a mean over people, in the task's metric, as a share
    of E‖z − μ‖²_Ω; people may be like either half of the public vectors.
    """

    score: float
    error: float

    def interval(self, deviations: float = _DEVIATIONS) -> tuple[float, float]:
        """Return the score minus and plus this many standard errors."""
        return self.score - deviations * self.error, self.score + deviations * self.error


@dataclass(frozen=True, eq=False)
class Scored:
    """A score, and every vector's influence on it, whose spread is the score's error."""

    score: float
    influence: Vectors

    @property
    def utility(self) -> Utility:
        """The score with its standard error over vectors."""
        n = len(self.influence)
        return Utility(self.score, float(self.influence.std(ddof=1) / np.sqrt(n)) if n > 1 else 0.0)


def weighted(parts: Sequence[Scored], weights: Sequence[float]) -> Scored:
    """Return the weighted mean of scores on the same vectors."""
    score = float(np.dot(weights, [part.score for part in parts]))
    influence = [weight * part.influence for weight, part in zip(weights, parts, strict=True)]
    return Scored(score, np.sum(influence, axis=0))


@dataclass(frozen=True, eq=False)
class TaskScorer:
    """Scores releases for one task on held-out public vectors.

    Attributes
    ----------
    task : TaskModel
    gram : (m, m) array
        Ω̂ of the task on public vectors.
    mean : (m,) array
        The public mean.
    goal : {"answers", "fidelity", "mean"}
    people : int
        Number of people a mean is taken over.
    """

    task: TaskModel
    gram: Vectors
    mean: Vectors
    goal: Goal
    people: int = 1

    def __call__(self, release: Release, vectors: Vectors, seed: int = 0) -> Utility:
        """Simulate reports of the vectors and score what a receiver makes of them."""
        return Scorer({"": self}, {"": 1.0})(release, vectors, seed).utility

    def answers(self, vectors: Vectors, decoded: Vectors) -> Scored:
        """Score decoded vectors, some rounds of each, by the model's answers."""
        clean, answered = self.task.outputs(vectors), self.task.outputs(decoded)
        rounds = len(decoded) // len(vectors)
        if clean.shape[1] == 1:
            lost = (answered - np.tile(clean, (rounds, 1)))[:, 0] ** 2
            usual = self.task.outputs(self.mean[None])[0, 0]
            return _explained(lost, (clean[:, 0] - usual) ** 2)
        same = answered.argmax(axis=1) == np.tile(clean.argmax(axis=1), rounds)
        each = same.reshape(rounds, -1).mean(axis=0)
        return Scored(float(each.mean()), each)

    def fidelity(self, vectors: Vectors, decoded: Vectors) -> Scored:
        """Score decoded vectors, some rounds of each, by their error in the task's metric."""
        lost = self._squared(decoded - np.tile(vectors, (len(decoded) // len(vectors), 1)))
        return _explained(lost, self._squared(vectors - self.mean))

    def error_of_means(
        self, vectors: Vectors, kept: Vectors, decoded: Vectors, above: NDArray[np.bool_]
    ) -> Scored:
        """Return minus ‖bias‖² + variance / people, in the task's metric.

        ``kept`` is what reports tend to: their mean over the noise, known exactly. So the bias has
        no noise in it, and its square, which sampling makes too large rather than too small, is
        left as it is: a bias that is overlooked is all that counts when people are many.

        Who asks for a mean does not take people for the public: ``above``, (s, n), halves the
        vectors in s ways, and the squared bias is the average of those of the halves.
        """
        rounds = len(decoded) // len(vectors)
        off = kept - vectors
        noise = self._squared(decoded - np.tile(kept, (rounds, 1))).reshape(rounds, -1)
        variance = noise.mean(axis=0) + self._squared(off - off.mean(axis=0))
        squared, pull = 0.0, np.zeros_like(off)
        for half in (part for split in above for part in (split, ~split) if part.any()):
            bias = off[half].mean(axis=0)
            squared += float(bias @ self.gram @ bias) * half.mean() / len(above)
            pull[half] += self.gram @ bias / len(above)
        spread = float(self._squared(vectors - self.mean).mean())
        influence = 2 * np.einsum("ij,ij->i", off, pull) + variance / self.people
        return Scored(
            -(squared + float(variance.mean()) / self.people) / spread, -influence / spread
        )

    def _squared(self, differences: Vectors) -> Vectors:
        """Return the squared length of every row in the task's metric."""
        squared: Vectors = np.einsum("ij,ij->i", differences @ self.gram, differences)
        return squared


def _explained(lost: Vectors, spread: Vectors) -> Scored:
    """Return 1 − mean(lost)/mean(spread); lost has some rounds of every vector."""
    lost = lost.reshape(-1, len(spread)).mean(axis=0)
    scale = spread.mean()
    ratio = lost.mean() / scale
    return Scored(float(1 - ratio), (ratio * spread - lost) / scale)


@dataclass(frozen=True, eq=False)
class Scores:
    """What the same simulated reports are worth.

    Attributes
    ----------
    utility : Utility
        For the goal, the weighted mean over tasks.
    by_task : mapping of Utility
        For the goal, task by task.
    answers, fidelity : Utility or None
        For both of these goals, over all tasks; None where the goal is a mean.
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
        Importance of every task; the sum is one.
    directions : (s, m) array, optional
        Vectors on either side of their median along each are scored apart, for means.
    """

    scorers: Mapping[str, TaskScorer]
    weights: Mapping[str, float]
    directions: Vectors | None = None

    @property
    def goal(self) -> Goal:
        """The goal of all task scorers."""
        return next(iter(self.scorers.values())).goal

    def __call__(self, release: Release, vectors: Vectors, seed: int = 0) -> Scores:
        """Simulate reports of the vectors, a few of each, and score them for every task."""
        weights = [self.weights[name] for name in self.scorers]
        if self.goal == "mean":
            means: Any = replace(release, decoder=release.unbiased_decoder, mean_decoder=None)
            kept, decoded = without_noise(release, vectors), _simulated(means, vectors, seed)
            scorers, above = self.scorers.values(), self._halves(vectors)
            errors = [scorer.error_of_means(vectors, kept, decoded, above) for scorer in scorers]
            named = dict(zip(self.scorers, (part.utility for part in errors), strict=True))
            return Scores(weighted(errors, weights).utility, named)
        decoded = _simulated(release, vectors, seed)
        answers = [scorer.answers(vectors, decoded) for scorer in self.scorers.values()]
        fidelity = [scorer.fidelity(vectors, decoded) for scorer in self.scorers.values()]
        both = [weighted(parts, weights).utility for parts in (answers, fidelity)]
        asked = answers if self.goal == "answers" else fidelity
        each = dict(zip(self.scorers, (part.utility for part in asked), strict=True))
        return Scores(both[0] if self.goal == "answers" else both[1], each, *both)

    def _halves(self, vectors: Vectors) -> NDArray[np.bool_]:
        """Return on which side of the median vectors are, (s, n); all on one without directions."""
        if self.directions is None:
            return np.ones((1, len(vectors)), dtype=bool)
        along = self.directions @ vectors.T
        halves: NDArray[np.bool_] = along > np.median(along, axis=1, keepdims=True)
        return halves


def _simulated(release: Release, vectors: Vectors, seed: int) -> Vectors:
    """Return decoded simulated reports, a few rounds stacked."""
    repeated = np.tile(vectors, (_REPETITIONS, 1))
    decoded: Vectors = simulate(release, repeated, np.random.default_rng([seed, len(vectors)]))
    return decoded


# ----------------------------------------------------------------------------
# What releases are fitted to when they are compared: public tasks and public vectors.

_APART: Final = 8
"""Directions along which people may differ from the public vectors, for the goal of means."""

ONLY_TASK: Final = "task"
"""The name of a task that is alone."""


@dataclass(frozen=True, eq=False)
class Tasks:
    """Public models by name, and how much each of them counts.

    Attributes
    ----------
    models : mapping of TaskModel
    weights : mapping of float
        Their sum is one.
    """

    models: Mapping[str, TaskModel]
    weights: Mapping[str, float]

    @classmethod
    def of(cls, model: Any, weights: Mapping[str, float] | None) -> Tasks:
        """Read a model, or a mapping of names to models with their weights."""
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
        """Dimension m of the vectors, where one of the models knows it."""
        known = (model.input_dim for model in self.models.values())
        return next((dim for dim in known if dim is not None), None)


@dataclass(frozen=True, eq=False)
class PublicSide:
    """Tasks measured on public vectors.

    Attributes
    ----------
    tasks : Tasks
    task : TaskModel
        What maps are fitted to: the task, centred where its largest output is the answer, or
        several of them together.
    geometries : mapping of Geometry
        Of every task alone.
    geometry : Geometry
        Of ``task``.
    vectors : (n, m) array
    statement : str
        Where the vectors came from, for the provenance of releases.
    """

    tasks: Tasks
    task: TaskModel
    geometries: Mapping[str, Geometry]
    geometry: Geometry
    vectors: Vectors
    statement: str

    @classmethod
    def of(cls, tasks: Tasks, vectors: Vectors, goal: Goal, statement: str = "") -> PublicSide:
        """Measure the tasks; those of several outputs are centred if the answers are wanted."""
        source = PublicVectors(vectors)
        ready = prepared(tasks.models, source, centred=goal == "answers")
        found = {name: measure(model, source) for name, model in ready.items()}
        if len(ready) == 1:
            name = next(iter(ready))
            return cls(tasks, ready[name], found, found[name], vectors, statement)
        joint = MultiTask.weighed(ready, found, tasks.weights)
        return cls(tasks, joint, found, joint.geometry(found), vectors, statement)

    @property
    def outputs(self) -> dict[str, int]:
        """Number of outputs of every task."""
        return {name: part.outputs for name, part in self.geometries.items()}

    def scorer(self, goal: Goal, people: int) -> Scorer:
        """Return the scorers of all tasks."""
        scorers = {
            name: TaskScorer(self.tasks.models[name], part.gram, part.mean, goal, people)
            for name, part in self.geometries.items()
        }
        if goal != "mean":
            return Scorer(scorers, self.tasks.weights)
        apart = active_directions(self.geometry).forward[:_APART]
        return Scorer(scorers, self.tasks.weights, apart)

    @cached_property
    def commonest(self) -> Vectors:
        """A public vector with the commonest answers, or the public mean if no task has any.

        Of the vectors that are answered so, it is the nearest to their mean.
        """
        models = [self.tasks.models[name] for name, k in self.outputs.items() if k > 1]
        if not models:
            return self.geometry.mean
        answers = np.stack([model.outputs(self.vectors).argmax(axis=1) for model in models], axis=1)
        _, which, counts = np.unique(answers, axis=0, return_inverse=True, return_counts=True)
        alike = self.vectors[which.reshape(-1) == counts.argmax()]
        away = alike - alike.mean(axis=0)
        nearest: Vectors = alike[row_dots(away, away).argmin()]
        return nearest
