"""A task whose answer is its largest output: a shift common to all outputs changes nothing."""

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
from offaxis.geometry.layers import Layers
from offaxis.geometry.models import LONGEST_NAME, ModelIdentity, TaskModel, as_task_model, gram_of
from offaxis.geometry.public import PublicVectors
from offaxis.vectors import Vectors, as_number


@runtime_checkable
class SelfCentring(Protocol):
    """A model that can return itself with centred outputs, cheaper than from outside."""

    def centred(self) -> TaskModel:
        """Return the model whose outputs are these less their mean."""
        ...


@dataclass(frozen=True, eq=False)
class CentredOutputs:
    """The outputs less their mean: T(z) − (1/k) Σ_j T_j(z), and J ← (I − 11ᵀ/k) J.

    For classifiers: it has the same largest output as the model everywhere, and its geometry does
    not look at what moves all logits alike, so no budget is spent there. Not for regression, where
    a common shift is an error like any other; with a single output nothing would be left.

    Parameters
    ----------
    model : anything :func:`~offaxis.geometry.as_task_model` takes

    Examples
    --------
    >>> from offaxis.geometry import CentredOutputs
    >>> head = np.array([[1.0, 5.0], [-1.0, 5.0]])  # the second coordinate moves both logits alike
    >>> task = CentredOutputs(head)
    >>> task.outputs(np.array([[1.0, 1.0]]))
    array([[ 1., -1.]])
    >>> task.gram(np.array([[1.0, 1.0]]))  # nothing is looked at along it
    array([[2., 0.],
           [0., 0.]])
    >>> task.accelerated  # True of a torch module on a GPU, where task.sums() then adds up
    False
    """

    model: Any

    def __post_init__(self) -> None:
        """Find the model's adapter."""
        object.__setattr__(self, "model", as_task_model(self.model))

    @property
    def _task(self) -> TaskModel:
        task: TaskModel = self.model
        return task

    @property
    def input_dim(self) -> int | None:
        """Dimension m of the vectors, where the model knows it."""
        return self._task.input_dim

    @cached_property
    def _folded(self) -> TaskModel | None:
        """The same task as one model, where the model knows how to centre its outputs."""
        task = self._task
        return task.centred() if isinstance(task, SelfCentring) else None

    def identity(self) -> ModelIdentity:
        """Name the model behind, its hash, and what was done to its outputs."""
        behind = self._task.identity()
        words = " (outputs centred)"
        return replace(
            behind,
            kind=f"centred-{behind.kind}",
            name=behind.name[: LONGEST_NAME - len(words)] + words,
        )

    def outputs(self, Z: Vectors) -> Vectors:
        """Return the outputs less their mean, (n, k)."""
        outputs = self._task.outputs(Z)
        centred: Vectors = outputs - outputs.mean(axis=1, keepdims=True)
        return centred

    def jacobians(self, Z: Vectors) -> Vectors:
        """Return the Jacobians less their mean over the outputs, (n, k, m)."""
        jacobians = self._task.jacobians(Z)
        centred: Vectors = jacobians - jacobians.mean(axis=1, keepdims=True)
        return centred

    def gram(self, Z: Vectors) -> Vectors:
        """Return Σ JᵀJ of the centred outputs."""
        return gram_of(self.jacobians(Z)) if self._folded is None else self._folded.gram(Z)

    def vjp(self, Z: Vectors, G: Vectors) -> Vectors:
        """Return J_iᵀ g_i of the centred outputs: what all outputs have in common pulls nothing."""
        return self._task.vjp(Z, G - G.mean(axis=1, keepdims=True))

    def numbers_per_vector(self, dim: int, outputs: int) -> int:
        """Return what the model holds a vector; k·m, a Jacobian, if it cannot centre itself."""
        if self._folded is not None:
            return self._folded.numbers_per_vector(dim, outputs)
        return max(dim * outputs, self._task.numbers_per_vector(dim, outputs))

    @property
    def accelerated(self) -> bool:
        """Whether the model lives on an accelerator and can sum there."""
        return isinstance(self._folded, AcceleratedModel) and self._folded.accelerated

    def sums(self, rule: GramRule) -> GramAndMoments:
        """Return an accumulator beside the model."""
        assert isinstance(self._folded, AcceleratedModel)
        return self._folded.sums(replace(rule, model=self._folded))


# ----------------------------------------------------------------------------
# Several public tasks that read the same vector, as one: outputs side by side, in common units.
#
# Every task is measured in its own public variance, Tr(Ω̂_t C), so that a weight is an importance
# and not a unit: multiplying a task's outputs by ten changes nothing. With weights that sum to one
#
#     Ω̂ = Σ_t weight_t Ω̂_t / Tr(Ω̂_t C),     Tr(Ω̂ C) = 1,
#
# and the share of the variance that is kept in the metric Ω̂ is the weighted mean of the shares
# that the tasks keep in theirs.

MOST_ANSWERS: Final = 1024
"""Combinations of answers that are told by one symbol, at most."""


@dataclass(frozen=True, eq=False)
class MultiTask:
    """Tasks T_1, T_2 … as the one task z ↦ (s_1 T_1(z), s_2 T_2(z), …); make one with :meth:`of`.

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
    >>> (gram.diagonal() * public.var(axis=0)).round(6)  # shares, whatever the units
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
        """Measure the tasks on public vectors and weigh them.

        Parameters
        ----------
        models : mapping
            Public models by name, anything :func:`~offaxis.geometry.as_task_model` takes.
        public : array (n, m), or callable returning an iterator of batches
        weights : mapping, optional
            Importance of every task; only ratios count, and all are alike by default.
        centred : bool
            Whether a task of several outputs answers with the largest of them, and so is centred
            (:class:`~offaxis.geometry.CentredOutputs`); False for tasks of several numbers.
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
        """Weigh tasks whose geometry was measured before, each on the same public vectors.

        Examples
        --------
        >>> from offaxis.geometry import Layers, PublicVectors, MultiTask, measure
        >>> public = np.random.default_rng(0).standard_normal((500, 3))
        >>> tasks = {name: Layers.linear(np.eye(3)[i : i + 1]) for i, name in enumerate("ab")}
        >>> known = {name: measure(task, PublicVectors(public)) for name, task in tasks.items()}
        >>> both = MultiTask.weighed(tasks, known, {"a": 0.5, "b": 0.5})
        >>> both.geometry(known).outputs, both.input_dim
        (2, 3)
        """
        scales = {}
        for name, weight in weights.items():
            variance = own_variance(geometries[name])
            if not variance > 0:
                raise InvalidInput(
                    f"task {name!r} does not vary over the public vectors, so nothing can be "
                    f"weighed against it; leave it out, or use public vectors it answers otherwise"
                )
            scales[name] = math.sqrt(weight / variance)
        return cls(dict(tasks), scales)

    def geometry(self, geometries: Mapping[str, Geometry]) -> Geometry:
        """Put together what was measured of every task on the same public vectors."""
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
        """Dimension m of the vectors, where one of the models knows it."""
        return next((t.input_dim for t in self.tasks.values() if t.input_dim is not None), None)

    def identity(self) -> ModelIdentity:
        """Name the tasks; the hash covers their names, their scales and the models."""
        digest = hashlib.sha256()
        for name, task in self.tasks.items():
            behind = task.identity()
            parts = (name, self.scales[name].hex(), behind.kind, behind.sha256)
            digest.update(repr(parts).encode())
        name = " + ".join(self.tasks)
        return ModelIdentity("together", name[:LONGEST_NAME], digest.hexdigest())

    def outputs(self, Z: Vectors) -> Vectors:
        """Return all outputs side by side, (n, k_1 + k_2 + …)."""
        parts = [self.scales[name] * task.outputs(Z) for name, task in self.tasks.items()]
        return np.concatenate(parts, axis=1)

    def jacobians(self, Z: Vectors) -> Vectors:
        """Return the Jacobians one below the other, (n, k_1 + k_2 + …, m)."""
        parts = [self.scales[name] * task.jacobians(Z) for name, task in self.tasks.items()]
        return np.concatenate(parts, axis=1)

    def gram(self, Z: Vectors) -> Vectors:
        """Return Σ JᵀJ, task by task."""
        total: Vectors = np.zeros((Z.shape[1], Z.shape[1]))
        for name, task in self.tasks.items():
            total += self.scales[name] ** 2 * task.gram(Z)
        return total

    def vjp(self, Z: Vectors, G: Vectors) -> Vectors:
        """Return J_iᵀ g_i for every vector, task by task."""
        total: Vectors = np.zeros(Z.shape)
        start = 0
        for name, task in self.tasks.items():
            end = start + task.outputs(Z[:1]).shape[1]
            total += self.scales[name] * task.vjp(Z, G[:, start:end])
            start = end
        return total

    def numbers_per_vector(self, dim: int, outputs: int) -> int:
        """Return what the largest of the tasks holds a vector."""
        return max(task.numbers_per_vector(dim, outputs) for task in self.tasks.values())


def own_variance(geometry: Geometry) -> float:
    """Return Tr(Ω̂ C): the variance of public vectors in the task's own metric."""
    return float(np.sum(geometry.gram * geometry.covariance))


def prepared(models: Mapping[str, Any], public: Any, *, centred: bool) -> dict[str, TaskModel]:
    """Return the adapters of models by name, centred where several outputs are one answer."""
    if not isinstance(models, Mapping) or not models:
        raise InvalidInput(f"several tasks are given as a mapping of names to models, got {models}")
    few, found = next(iter(PublicVectors(public).batches(1))), {}
    for name, model in models.items():
        if not isinstance(name, str) or not name:
            raise InvalidInput(f"a task needs a name, got {name!r}")
        task = as_task_model(model)
        several = centred and task.outputs(few).shape[1] > 1
        found[name] = CentredOutputs(task) if several else task
    return found


def checked_weights(
    weights: Mapping[str, float] | None, tasks: Mapping[str, Any]
) -> dict[str, float]:
    """Return the weight of every task, in their order, with the sum one."""
    given = dict.fromkeys(tasks, 1.0) if weights is None else weights
    if set(given) != set(tasks):
        raise InvalidInput(
            f"weights must name every task: {', '.join(tasks)}, got {', '.join(map(str, given))}"
        )
    values = {name: as_number(given[name], f"the weight of {name!r}") for name in tasks}
    if any(value <= 0 for value in values.values()):
        raise InvalidInput(f"weights must be positive, got {values}; leave a task out instead")
    total = sum(values.values())
    return {name: value / total for name, value in values.items()}


def joint_answers(models: Mapping[str, TaskModel]) -> Layers | None:
    """Return one network whose largest output names the answers of all tasks at once.

    Its outputs are the sums T_1(z)_i + T_2(z)_j + … over all combinations (i, j, …), the last task
    running fastest: the sum is largest where each term is. None unless the tasks are layers of
    equal depth and activation with at most 1,024 combinations of answers between them.
    """
    layers = list(models.values())
    if len(layers) < 2 or not all(isinstance(part, Layers) for part in layers):
        return None
    nets = [part for part in layers if isinstance(part, Layers)]
    depth, activation = len(nets[0].weights), nets[0].activation
    sizes = [len(net.biases[-1]) for net in nets]
    alike = all(
        len(net.weights) == depth and (depth == 1 or net.activation == activation) for net in nets
    )
    if not alike or min(sizes) < 2 or math.prod(sizes) > MOST_ANSWERS:
        return None
    chosen = np.indices(sizes).reshape(len(sizes), -1)
    weights: list[Vectors] = []
    biases: list[Vectors] = []
    for level in range(depth):
        parts = [net.weights[level] for net in nets]
        joined = np.concatenate(parts) if level == 0 else block_diag(*parts)
        weights.append(joined)
        biases.append(np.concatenate([net.biases[level] for net in nets]))
    starts = np.cumsum([0, *sizes[:-1]])
    rows = chosen + starts[:, None]
    weights[-1] = sum(weights[-1][row] for row in rows)
    biases[-1] = sum(biases[-1][row] for row in rows)
    name = f"all answers of {' + '.join(models)}"
    return Layers(weights, biases, activation, name[:LONGEST_NAME])
