"""A task whose answer is its largest output: a shift common to all outputs changes nothing."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

from offaxis.geometry.gram import AcceleratedModel, GramAndMoments, GramRule
from offaxis.geometry.models import (
    LONGEST_NAME,
    ModelIdentity,
    TaskModel,
    as_task_model,
    gram_of,
)
from offaxis.vectors import Vectors


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

    def pull(self, Z: Vectors, G: Vectors) -> Vectors:
        """Return J_iᵀ g_i of the centred outputs: what all outputs have in common pulls nothing."""
        return self._task.pull(Z, G - G.mean(axis=1, keepdims=True))

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
