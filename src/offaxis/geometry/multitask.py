"""Tasks built from other tasks: classifiers with centred outputs, and several tasks as one."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, Protocol, runtime_checkable

import numpy as np
from scipy.linalg import block_diag

from offaxis.errors import InvalidInput
from offaxis.geometry.jacobian import AcceleratedModel, Geometry, GramAndMoments, GramRule, measure
from offaxis.geometry.layers import POINTWISE, Layers
from offaxis.geometry.models import (
    LONGEST_NAME,
    ModelIdentity,
    TaskModel,
    answer_names,
    as_task_model,
    gram_of,
    layers_for_answers,
)
from offaxis.geometry.public import PublicVectors
from offaxis.vectors import Vectors, as_number


@runtime_checkable
class SelfCentring(Protocol):
    """A model that can centre its outputs itself, at less cost than a wrapper."""

    def centred(self) -> TaskModel | None:
        """Return the same model with the mean subtracted from its outputs; None if it cannot."""
        ...


@dataclass(frozen=True, eq=False)
class CentredOutputs:
    """A task with the mean subtracted from its outputs: T(z) − (1/k) Σ_j T_j(z).

    The Jacobian becomes (I − 11ᵀ/k) J. Use it for classifiers: the largest output stays the same
    everywhere, and the geometry ignores directions that shift all logits equally, so no budget is
    spent there. Do not use it for regression, where a common shift is an error; with a single
    output nothing would remain.

    Parameters
    ----------
    model : anything :func:`~offaxis.geometry.as_task_model` accepts

    Examples
    --------
    >>> from offaxis.geometry import CentredOutputs
    >>> head = np.array([[1.0, 5.0], [-1.0, 5.0]])  # the second coordinate shifts both logits
    >>> task = CentredOutputs(head)
    >>> task.outputs(np.array([[1.0, 1.0]]))
    array([[ 1., -1.]])
    >>> task.gram(np.array([[1.0, 1.0]]))  # the second coordinate is ignored
    array([[2., 0.],
           [0., 0.]])
    """

    model: Any

    def __post_init__(self) -> None:
        """Replace the model by its adapter."""
        object.__setattr__(self, "model", as_task_model(self.model))

    @property
    def _task(self) -> TaskModel:
        task: TaskModel = self.model
        return task

    @property
    def input_dim(self) -> int | None:
        """Dimension m of the vectors, if the model knows it."""
        return self._task.input_dim

    @property
    def answers(self) -> tuple[str, ...] | None:
        """Names of the answers, if the model has them."""
        return answer_names(self._task)

    def as_layers(self) -> Layers | None:
        """Return the network of the model, whose answers are the same, if a release can hold it."""
        return layers_for_answers(self._task)

    @cached_property
    def _folded(self) -> TaskModel | None:
        """The same task as one model, if the model can centre its outputs itself."""
        task = self._task
        return task.centred() if isinstance(task, SelfCentring) else None

    def identity(self) -> ModelIdentity:
        """Return the identity of the wrapped model, marked as centred."""
        wrapped = self._task.identity()
        suffix = " (outputs centred)"
        return replace(
            wrapped,
            kind=f"centred-{wrapped.kind}",
            name=wrapped.name[: LONGEST_NAME - len(suffix)] + suffix,
        )

    def outputs(self, Z: Vectors) -> Vectors:
        """Return the outputs minus their mean, (n, k)."""
        outputs = self._task.outputs(Z)
        centred: Vectors = outputs - outputs.mean(axis=1, keepdims=True)
        return centred

    def jacobians(self, Z: Vectors) -> Vectors:
        """Return the Jacobians minus their mean over the outputs, (n, k, m)."""
        jacobians = self._task.jacobians(Z)
        centred: Vectors = jacobians - jacobians.mean(axis=1, keepdims=True)
        return centred

    def gram(self, Z: Vectors) -> Vectors:
        """Return Σ JᵀJ of the centred outputs."""
        return gram_of(self.jacobians(Z)) if self._folded is None else self._folded.gram(Z)

    def vjp(self, Z: Vectors, G: Vectors) -> Vectors:
        """Return J_iᵀ g_i of the centred outputs: the vjp of the model at g_i minus its mean."""
        return self._task.vjp(Z, G - G.mean(axis=1, keepdims=True))

    def numbers_per_vector(self, dim: int, outputs: int) -> int:
        """Return what the model holds per vector; at least k·m if it cannot centre itself."""
        if self._folded is not None:
            return self._folded.numbers_per_vector(dim, outputs)
        return max(dim * outputs, self._task.numbers_per_vector(dim, outputs))

    @property
    def accelerated(self) -> bool:
        """Whether the model is on an accelerator and can sum there."""
        return isinstance(self._folded, AcceleratedModel) and self._folded.accelerated

    def sums(self, rule: GramRule) -> GramAndMoments:
        """Return an accumulator on the model's device."""
        assert isinstance(self._folded, AcceleratedModel)
        return self._folded.sums(replace(rule, model=self._folded))


# ---- Several tasks as one

MOST_ANSWERS: Final = 1024
"""The most combinations of answers that one symbol encodes."""


@dataclass(frozen=True, eq=False)
class MultiTask:
    """Several tasks that read the same vector, as one: z ↦ (s_1 T_1(z), s_2 T_2(z), …).

    Create one with :meth:`of`. Every task is scaled by its public variance Tr(Ω̂_t C), so that a
    weight is an importance and not a unit: multiplying a task's outputs by ten changes nothing.
    With weights that sum to one,

        Ω̂ = Σ_t weight_t Ω̂_t / Tr(Ω̂_t C),     Tr(Ω̂ C) = 1,

    and the share of variance kept in the metric Ω̂ is the weighted mean of the shares that the
    tasks keep in their metrics.

    Attributes
    ----------
    tasks : mapping of TaskModel
        By name, in the order of the outputs.
    scales : mapping of float
        s_t = √(weight_t / Tr(Ω̂_t C)).

    Examples
    --------
    >>> from offaxis.geometry import PublicVectors, MultiTask, measure
    >>> public = np.random.default_rng(0).standard_normal((500, 3))
    >>> heads = {"first": np.array([[1.0, 0.0, 0.0]]), "second": np.array([[0.0, 100.0, 0.0]])}
    >>> both = MultiTask.of(heads, public, weights={"first": 3, "second": 1})
    >>> gram = measure(both, PublicVectors(public)).gram
    >>> (gram.diagonal() * public.var(axis=0)).round(6)  # shares, independent of units
    array([0.75, 0.25, 0.  ])
    """

    tasks: Mapping[str, TaskModel]
    scales: Mapping[str, float]

    @classmethod
    def of(
        cls,
        models: Mapping[str, Any],
        public: Any,
        weights: Mapping[str, float] | None = None,
        *,
        centred: bool = True,
    ) -> MultiTask:
        """Measure the tasks on public vectors and weight them.

        Parameters
        ----------
        models : mapping
            Public models by name, anything :func:`~offaxis.geometry.as_task_model` accepts.
        public : array (n, m), or callable returning an iterator of batches
        weights : mapping, optional
            Importance of every task; only ratios matter. Equal by default.
        centred : bool
            Whether tasks with several outputs are classifiers, whose outputs are centred
            (:class:`~offaxis.geometry.CentredOutputs`). Pass False for multi-output regression.
        """
        tasks = prepared(models, public, centred=centred)
        source = PublicVectors(public)
        return cls.weighed(
            tasks,
            {name: measure(task, source) for name, task in tasks.items()},
            checked_weights(weights, tasks),
        )

    @classmethod
    def weighed(
        cls,
        tasks: Mapping[str, TaskModel],
        geometries: Mapping[str, Geometry],
        weights: Mapping[str, float],
    ) -> MultiTask:
        """Weight tasks whose geometries were already measured on the same public vectors.

        Examples
        --------
        >>> from offaxis.geometry import Layers, PublicVectors, MultiTask, measure
        >>> public = np.random.default_rng(0).standard_normal((500, 3))
        >>> tasks = {name: Layers.linear(np.eye(3)[i : i + 1]) for i, name in enumerate("ab")}
        >>> measured = {name: measure(task, PublicVectors(public)) for name, task in tasks.items()}
        >>> both = MultiTask.weighed(tasks, measured, {"a": 0.5, "b": 0.5})
        >>> both.geometry(measured).outputs
        2
        """
        scales = {}
        for name, weight in weights.items():
            variance = own_variance(geometries[name])
            if not variance > 0:
                raise InvalidInput(
                    f"task {name!r} does not vary over the public vectors, so it cannot be "
                    f"weighted; leave it out, or use public vectors over which it varies"
                )
            scales[name] = math.sqrt(weight / variance)
        return cls(dict(tasks), scales)

    def geometry(self, geometries: Mapping[str, Geometry]) -> Geometry:
        """Combine geometries of all tasks, measured on the same public vectors."""
        first = next(iter(geometries.values()))
        gram: Vectors = np.zeros_like(first.gram)
        for name, part in geometries.items():
            gram += self.scales[name] ** 2 * part.gram
        outputs = sum(part.outputs for part in geometries.values())
        sketched = [part.probes for part in geometries.values() if part.probes is not None]
        probes = min(sketched, default=None)
        return replace(first, gram=gram, outputs=outputs, model=self.identity(), probes=probes)

    @property
    def input_dim(self) -> int | None:
        """Dimension m of the vectors, if one of the models knows it."""
        return next((t.input_dim for t in self.tasks.values() if t.input_dim is not None), None)

    def identity(self) -> ModelIdentity:
        """Return the names of the tasks, and a hash of names, scales and models."""
        digest = hashlib.sha256()
        for name, task in self.tasks.items():
            model = task.identity()
            parts = (name, self.scales[name].hex(), model.kind, model.sha256)
            digest.update(repr(parts).encode())
        name = " + ".join(self.tasks)
        return ModelIdentity("together", name[:LONGEST_NAME], digest.hexdigest())

    def outputs(self, Z: Vectors) -> Vectors:
        """Return the concatenated outputs, (n, k_1 + k_2 + …)."""
        parts = [self.scales[name] * task.outputs(Z) for name, task in self.tasks.items()]
        return np.concatenate(parts, axis=1)

    def jacobians(self, Z: Vectors) -> Vectors:
        """Return the stacked Jacobians, (n, k_1 + k_2 + …, m)."""
        parts = [self.scales[name] * task.jacobians(Z) for name, task in self.tasks.items()]
        return np.concatenate(parts, axis=1)

    def gram(self, Z: Vectors) -> Vectors:
        """Return Σ JᵀJ, summed over the tasks."""
        total: Vectors = np.zeros((Z.shape[1], Z.shape[1]))
        for name, task in self.tasks.items():
            total += self.scales[name] ** 2 * task.gram(Z)
        return total

    def vjp(self, Z: Vectors, G: Vectors) -> Vectors:
        """Return J_iᵀ g_i for every vector, summed over the tasks."""
        total: Vectors = np.zeros(Z.shape)
        start = 0
        for name, task in self.tasks.items():
            end = start + task.outputs(Z[:1]).shape[1]
            total += self.scales[name] * task.vjp(Z, G[:, start:end])
            start = end
        return total

    def numbers_per_vector(self, dim: int, outputs: int) -> int:
        """Return the most that one of the tasks holds per vector."""
        return max(task.numbers_per_vector(dim, outputs) for task in self.tasks.values())


def own_variance(geometry: Geometry) -> float:
    """Return Tr(Ω̂ C): the variance of the public vectors in the metric of the task."""
    return float(np.sum(geometry.gram * geometry.covariance))


def prepared(models: Mapping[str, Any], public: Any, *, centred: bool) -> dict[str, TaskModel]:
    """Return the adapters of models by name; with ``centred``, those of several outputs centred."""
    if not isinstance(models, Mapping) or not models:
        raise InvalidInput(f"several tasks must be a mapping of names to models, got {models}")
    vector = next(iter(PublicVectors(public).batches(1)))
    tasks = {}
    for name, model in models.items():
        if not isinstance(name, str) or not name:
            raise InvalidInput(f"a task needs a name, got {name!r}")
        task = as_task_model(model)
        centre = centred and task.outputs(vector).shape[1] > 1
        tasks[name] = CentredOutputs(task) if centre else task
    return tasks


def checked_weights(
    weights: Mapping[str, float] | None, tasks: Mapping[str, Any]
) -> dict[str, float]:
    """Return the weights in the order of the tasks, normalised to sum to one."""
    weights = dict.fromkeys(tasks, 1.0) if weights is None else weights
    if set(weights) != set(tasks):
        raise InvalidInput(
            f"weights must name every task: {', '.join(tasks)}, got {', '.join(map(str, weights))}"
        )
    values = {name: as_number(weights[name], f"the weight of {name!r}") for name in tasks}
    if any(value <= 0 for value in values.values()):
        raise InvalidInput(f"weights must be positive, got {values}; leave a task out instead")
    total = sum(values.values())
    return {name: value / total for name, value in values.items()}


def joint_answers(models: Mapping[str, TaskModel]) -> Layers | None:
    """Return one network whose largest output identifies the answers of all tasks at once.

    Its outputs are the sums T_1(z)_i + T_2(z)_j + … over all combinations (i, j, …), the last task
    varying fastest: a sum is largest where each term is. Returns None unless the tasks can be held
    as :class:`Layers` of equal depth and pointwise activation, with at most 1,024 combinations of
    answers.
    """
    nets = [layers for model in models.values() if (layers := layers_for_answers(model))]
    if len(models) < 2 or len(nets) < len(models):
        return None
    depth, activation = len(nets[0].weights), nets[0].activation
    if not set(nets[0].activations) <= set(POINTWISE):
        return None
    sizes = [len(net.biases[-1]) for net in nets]
    alike = all(
        len(net.weights) == depth and (depth == 1 or net.activation == activation) for net in nets
    )
    if not alike or min(sizes) < 2 or math.prod(sizes) > MOST_ANSWERS:
        return None
    combinations = np.indices(sizes).reshape(len(sizes), -1)
    weights: list[Vectors] = []
    biases: list[Vectors] = []
    for level in range(depth):
        parts = [net.weights[level] for net in nets]
        weights.append(np.concatenate(parts) if level == 0 else block_diag(*parts))
        biases.append(np.concatenate([net.biases[level] for net in nets]))
    starts = np.cumsum([0, *sizes[:-1]])
    rows = combinations + starts[:, None]
    weights[-1] = sum(weights[-1][row] for row in rows)
    biases[-1] = sum(biases[-1][row] for row in rows)
    name = f"all answers of {' + '.join(models)}"
    return Layers(weights, biases, activation, name[:LONGEST_NAME])
