"""What releases are fitted to when they are compared: public tasks and public vectors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np

from offaxis.encoding import active_directions
from offaxis.errors import InvalidInput
from offaxis.evaluation.utility import Goal, Judge, Panel
from offaxis.geometry import Geometry, PublicVectors, TaskModel, Together, as_task_model, measure
from offaxis.geometry.together import checked_weights, prepared
from offaxis.vectors import Vectors, row_dots

_APART: Final = 8
"""Directions along which people may differ from the public when their mean is asked for."""

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
        joint = Together.weighed(ready, found, tasks.weights)
        return cls(tasks, joint, found, joint.geometry(found), vectors, statement)

    @property
    def outputs(self) -> dict[str, int]:
        """Number of outputs of every task."""
        return {name: part.outputs for name, part in self.geometries.items()}

    def panel(self, goal: Goal, people: int) -> Panel:
        """Return the judges of all tasks."""
        judges = {
            name: Judge(self.tasks.models[name], part.gram, part.mean, goal, people)
            for name, part in self.geometries.items()
        }
        if goal != "mean":
            return Panel(judges, self.tasks.weights)
        apart = active_directions(self.geometry).forward[:_APART]
        return Panel(judges, self.tasks.weights, apart)

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
