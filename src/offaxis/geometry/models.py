"""The interface of public models: outputs, Jacobians and identity, and how to find an adapter."""

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
        """Check that the name fits its field in a release file."""
        if not isinstance(self.name, str) or not 1 <= len(self.name) <= LONGEST_NAME:
            raise InvalidInput(
                f"the model's name must have 1 to {LONGEST_NAME} characters, "
                f"got {str(self.name)[:60]!r}"
            )


@runtime_checkable
class TaskModel(Protocol):
    """A public task model T: R^m → R^k, applied row by row.

    Examples
    --------
    >>> from offaxis.geometry import Layers, TaskModel
    >>> isinstance(Layers.linear(np.eye(2)), TaskModel)
    True
    """

    @property
    def input_dim(self) -> int | None:
        """m, or None if the model does not know it before it is first called."""
        ...

    def identity(self) -> ModelIdentity:
        """Return the kind, the name and a hash of the model."""
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
        """Return how many numbers :meth:`gram` holds per vector; it sets the batch size."""
        ...


def gram_of(jacobians: NDArray[Any]) -> Vectors:
    """Return Σ_i J_iᵀ J_i for stacked Jacobians (n, k, m), in float64."""
    rows = jacobians.reshape(-1, jacobians.shape[-1]).astype(np.float64, copy=False)
    return rows.T @ rows


def as_task_model(model: Any) -> TaskModel:
    """Return the adapter for a model.

    Accepts a torch module, a fitted scikit-learn linear or MLP estimator, a weight matrix (k, m),
    :class:`~offaxis.geometry.Layers`, or any other :class:`TaskModel`.

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


# ---- Finite differences

_ROWS_AT_ONCE = 1 << 16


@dataclass(frozen=True)
class FiniteDifferences:
    """Adapter for a black-box function: Jacobians by central differences.

    Parameters
    ----------
    function : callable
        Maps a batch of vectors (n, m) to one row of outputs per vector, (n, k).
    step : float
        Difference step relative to the size of the batch's entries. The default balances
        truncation and rounding for float64 functions. Use about 1e-2 for float32 ones.
    name : str
        Name of the model in the release file.

    Examples
    --------
    >>> from offaxis.geometry import FiniteDifferences
    >>> task = FiniteDifferences(lambda Z: np.sin(Z).sum(axis=1), name="sum of sines")
    >>> task.jacobians(np.zeros((1, 2))).round(6)
    array([[[1., 1.]]])
    """

    function: Callable[[Vectors], Any]
    step: float = 6e-6
    name: str = "function"

    @property
    def input_dim(self) -> None:
        """None: unknown before the first call."""
        return

    def identity(self) -> ModelIdentity:
        """Hash the name, since a function has no weights to hash."""
        return ModelIdentity("function", self.name, hashlib.sha256(self.name.encode()).hexdigest())

    def outputs(self, Z: Vectors) -> Vectors:
        """Return the function's outputs, (n, k)."""
        values = as_array(self.function(Z), "model outputs")
        return values[:, None] if values.ndim == 1 else values

    def jacobians(self, Z: Vectors) -> Vectors:
        """Return central differences along every coordinate, (n, k, m)."""
        return np.concatenate([part for _, part in self._differences(Z)])

    def vjp(self, Z: Vectors, G: Vectors) -> Vectors:
        """Return J_iᵀ g_i for every vector, in blocks of Jacobians."""
        parts = [np.einsum("nk,nkm->nm", G[rows], part) for rows, part in self._differences(Z)]
        return np.concatenate(parts)

    def _differences(self, Z: Vectors) -> Iterator[tuple[slice, Vectors]]:
        """Yield slices of the batch with their Jacobians."""
        n, m = Z.shape
        step = self.step * max(float(np.abs(Z).max()), 1e-8)
        shifts = step * np.concatenate([np.eye(m), -np.eye(m)])
        rows = max(1, _ROWS_AT_ONCE // (2 * m))
        for start in range(0, n, rows):
            block = Z[start : start + rows]
            shifted = (block[:, None, :] + shifts).reshape(-1, m)
            values = self.outputs(shifted).reshape(len(block), 2, m, -1)
            change = (values[:, 0] - values[:, 1]).transpose(0, 2, 1)
            yield slice(start, start + rows), change / (2 * step)

    def gram(self, Z: Vectors) -> Vectors:
        """Return Σ JᵀJ over the batch."""
        return gram_of(self.jacobians(Z))

    def numbers_per_vector(self, dim: int, outputs: int) -> int:
        """Return k·m, the size of the Jacobian."""
        return outputs * dim
