"""Activation cells of a ReLU network: the convex regions on which it is affine."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from offaxis.geometry import Layers
from offaxis.vectors import Vectors


def activation_cell(model: Layers, Z: Vectors) -> NDArray[np.bool_]:
    """Say which hidden units are on, (n, units): vectors with the same answer share a cell.

    A model without ReLU has no units to tell cells apart, and a single cell.
    """
    if model.activation != "relu":
        return np.zeros((len(Z), 0), dtype=bool)
    units = [np.zeros((len(Z), 0), dtype=bool)]
    hidden = Z
    for weight, bias in zip(model.weights[:-1], model.biases[:-1], strict=True):
        before = hidden @ weight.T + bias
        units.append(before > 0)
        hidden = np.maximum(before, 0.0)
    return np.concatenate(units, axis=1)


def lipschitz(weights: Sequence[Vectors]) -> float:
    """Return K with ‖T(x) − T(y)‖ ≤ K ‖x − y‖ for all x and y, for a network of these layers.

    The product of the layers' spectral norms: it holds everywhere because neither ReLU nor the
    identity stretches, and it is seldom attained. 1 for no layers.
    """
    return math.prod(float(np.linalg.norm(weight, 2)) for weight in weights)
