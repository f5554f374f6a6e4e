"""Jacobians of a function nobody can differentiate, by central differences, when asked for."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from offaxis.geometry.models import ModelIdentity, gram_of
from offaxis.vectors import Vectors, as_array

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
    >>> task.pull(np.zeros((1, 2)), np.array([[2.0]])).round(6)
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

    def pull(self, Z: Vectors, G: Vectors) -> Vectors:
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
