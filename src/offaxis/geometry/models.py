"""One view of every public model: outputs, Jacobians, and who it is."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from offaxis.errors import InvalidInput, UnsupportedModel
from offaxis.vectors import Vectors, as_array

LONGEST_NAME = 200


@dataclass(frozen=True)
class ModelIdentity:
    """Which public model a release was fitted to."""

    kind: str
    name: str
    sha256: str

    def __post_init__(self) -> None:
        """Keep the name to what a release file holds."""
        if not isinstance(self.name, str) or not 1 <= len(self.name) <= LONGEST_NAME:
            raise InvalidInput(
                f"the model's name must have 1 to {LONGEST_NAME} characters, "
                f"got {str(self.name)[:60]!r}"
            )


@runtime_checkable
class TaskModel(Protocol):
    """A public task model T: R^m → R^k, seen row by row.

    Examples
    --------
    >>> from offaxis.geometry import Layers, TaskModel
    >>> task = Layers.linear(np.eye(2), bias=np.ones(2))
    >>> isinstance(task, TaskModel)
    True
    >>> task.centred().outputs(np.zeros((1, 2)))
    array([[0., 0.]])
    """

    @property
    def input_dim(self) -> int | None:
        """m, or None when the model accepts any dimension until it is first called."""
        ...

    def identity(self) -> ModelIdentity:
        """Say who the model is."""
        ...

    def outputs(self, Z: Vectors) -> Vectors:
        """Return the logits or predictions, (n, k)."""
        ...

    def jacobians(self, Z: Vectors) -> Vectors:
        """Return the Jacobian of the outputs at every vector, (n, k, m)."""
        ...

    def gram(self, Z: Vectors) -> Vectors:
        """Return Σ_i J_iᵀ J_i over the batch, (m, m), float64."""
        ...

    def vjp(self, Z: Vectors, G: Vectors) -> Vectors:
        """Return J_iᵀ g_i for every vector and its row of ``G`` (n, k), as (n, m)."""
        ...

    def numbers_per_vector(self, dim: int, outputs: int) -> int:
        """Return how many numbers :meth:`gram` holds a vector; batches are cut accordingly."""
        ...


def gram_of(jacobians: NDArray[Any]) -> Vectors:
    """Return Σ_i J_iᵀ J_i for stacked Jacobians (n, k, m), in float64."""
    rows = jacobians.reshape(-1, jacobians.shape[-1]).astype(np.float64, copy=False)
    return rows.T @ rows


def as_task_model(model: Any) -> TaskModel:
    """Find the adapter for a model.

    Accepts a torch module, a fitted scikit-learn linear or MLP estimator, a weight matrix (k, m),
    :class:`~offaxis.geometry.Layers`, or anything that already is a :class:`TaskModel`.

    Examples
    --------
    >>> from offaxis.geometry import as_task_model
    >>> as_task_model(np.array([[1.0, 2.0]]))  # a weight matrix (k, m)
    Layers(2→1, relu)
    >>> from sklearn.linear_model import LinearRegression
    >>> fitted = LinearRegression().fit(np.eye(3), [1.0, 2.0, 3.0])
    >>> as_task_model(fitted).identity().name
    'LinearRegression'
    """
    from offaxis.geometry.layers import Layers

    if isinstance(model, TaskModel):
        return model
    if isinstance(model, np.ndarray):
        return Layers.linear(model)
    if "torch" in sys.modules:
        import torch

        if isinstance(model, torch.nn.Module):
            from offaxis.geometry.torch_model import TorchModel

            return TorchModel(model)
    if "sklearn" in sys.modules:
        import sklearn.base

        if isinstance(model, sklearn.base.BaseEstimator):
            from offaxis.geometry.layers import layers_of

            return layers_of(model)
    raise UnsupportedModel(
        f"no adapter for a model of type {type(model).__name__}: pass a torch module, a fitted "
        f"scikit-learn linear or MLP estimator, a weight matrix (k, m), or wrap a function of a "
        f"batch: a JAX one as offaxis.geometry.jax_model.JaxModel(function, params, dim=m), any "
        f"other as offaxis.geometry.FiniteDifferences(function)"
    )


# ----------------------------------------------------------------------------
# Jacobians of a function nobody can differentiate, by central differences, when asked for.

_ROWS_AT_ONCE = 1 << 16


@dataclass(frozen=True)
class FiniteDifferences:
    """Wrap a function of a batch (n, m) → (n, k) whose Jacobian is to be measured.

    Parameters
    ----------
    function : callable
        Maps a batch of vectors to one row of outputs a vector.
    step : float
        Difference step relative to the size of the batch's entries; the default balances
        truncation and rounding for float64 functions. Use about 1e-2 for float32 ones.
    name : str
        How the release file calls the model.

    Examples
    --------
    >>> from offaxis.geometry import FiniteDifferences
    >>> task = FiniteDifferences(lambda Z: np.sin(Z).sum(axis=1), name="sum of sines")
    >>> task.outputs(np.zeros((1, 2)))
    array([[0.]])
    >>> task.jacobians(np.zeros((1, 2))).round(6)
    array([[[1., 1.]]])
    >>> task.vjp(np.zeros((1, 2)), np.array([[2.0]])).round(6)
    array([[2., 2.]])
    >>> task.identity().name, task.input_dim, task.numbers_per_vector(2, 1)
    ('sum of sines', None, 2)
    """

    function: Callable[[Vectors], Any]
    step: float = 6e-6
    name: str = "function"

    @property
    def input_dim(self) -> None:
        """Unknown until called."""
        return

    def identity(self) -> ModelIdentity:
        """A function has no weights to hash; its name stands for it."""
        return ModelIdentity("function", self.name, hashlib.sha256(self.name.encode()).hexdigest())

    def outputs(self, Z: Vectors) -> Vectors:
        """Return the function's outputs, (n, k)."""
        values = as_array(self.function(Z), "model outputs")
        return values[:, None] if values.ndim == 1 else values

    def jacobians(self, Z: Vectors) -> Vectors:
        """Return central differences along every coordinate, (n, k, m)."""
        return np.concatenate([part for _, part in self._differences(Z)])

    def vjp(self, Z: Vectors, G: Vectors) -> Vectors:
        """Return J_iᵀ g_i for every vector, a few Jacobians at a time."""
        parts = [np.einsum("nk,nkm->nm", G[rows], part) for rows, part in self._differences(Z)]
        return np.concatenate(parts)

    def _differences(self, Z: Vectors) -> Iterator[tuple[slice, Vectors]]:
        """Yield which vectors, and their Jacobians."""
        n, m = Z.shape
        step = self.step * max(float(np.abs(Z).max()), 1e-8)
        shifts = step * np.concatenate([np.eye(m), -np.eye(m)])
        rows = max(1, _ROWS_AT_ONCE // (2 * m))
        for start in range(0, n, rows):
            block = Z[start : start + rows]
            moved = (block[:, None, :] + shifts).reshape(-1, m)
            values = self.outputs(moved).reshape(len(block), 2, m, -1)
            change = (values[:, 0] - values[:, 1]).transpose(0, 2, 1)
            yield slice(start, start + rows), change / (2 * step)

    def gram(self, Z: Vectors) -> Vectors:
        """Return Σ JᵀJ over the batch."""
        return gram_of(self.jacobians(Z))

    def numbers_per_vector(self, dim: int, outputs: int) -> int:
        """Return k·m, the whole Jacobian."""
        return outputs * dim
