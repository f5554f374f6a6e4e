"""A small network as a public map: trained, for encoders and decoders alike, or the task's own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from offaxis.arrays import LARGEST_SINGLE, A, has_device, namespace, special
from offaxis.encoding.encoder import LARGEST_ENTRY, frozen_map
from offaxis.errors import InvalidInput
from offaxis.geometry.layers import ACTIVATIONS
from offaxis.vectors import Vectors

DEEPEST: Final = 8
"""Layers a network may have."""


def _activated(X: Any, activation: str) -> Any:
    """Return the activation of an array of any kind; the task's own function in NumPy."""
    if not has_device(X):
        return ACTIVATIONS[activation][0](X)
    xp, functions = namespace(X), special(X)
    on_device: dict[str, Callable[[Any], Any]] = {
        "identity": lambda x: x,
        "relu": lambda x: xp.clip(x, min=0.0),
        "tanh": xp.tanh,
        "logistic": functions.expit,
        "gelu": lambda x: x * functions.ndtr(x),
    }
    return on_device[activation](X)


@dataclass(frozen=True, eq=False, repr=False)
class NetworkMap:
    """Affine layers with an activation between them, max(0, x) unless the kind names another.

    Total: every layer's values are kept within ±1e100, so that no sum overflows and every finite
    vector has a finite image.
    """

    weights: Sequence[Vectors]
    biases: Sequence[Vectors]

    kind: ClassVar[str] = "network"
    activation: ClassVar[str] = "relu"

    def __post_init__(self) -> None:
        """Check that the layers fit each other, and freeze the arrays."""
        if not 1 <= len(self.weights) <= DEEPEST or len(self.weights) != len(self.biases):
            raise InvalidInput(
                f"a network has 1 to {DEEPEST} layers of weights and biases, "
                f"got {len(self.weights)} and {len(self.biases)}"
            )
        layers = [frozen_map(w, b, axis=0) for w, b in zip(self.weights, self.biases, strict=True)]
        if any(w.shape[1] != previous.shape[0] for (previous, _), (w, _) in pairwise(layers)):
            shapes = ", ".join(str(w.shape) for w, _ in layers)
            raise InvalidInput(f"the layers of a network do not fit each other: {shapes}")
        object.__setattr__(self, "weights", tuple(w for w, _ in layers))
        object.__setattr__(self, "biases", tuple(b for _, b in layers))

    @property
    def input_dim(self) -> int:
        """Dimension of what goes in."""
        return int(self.weights[0].shape[1])

    @property
    def output_dim(self) -> int:
        """Dimension of what comes out."""
        return int(self.weights[-1].shape[0])

    def apply(self, X: A) -> A:
        """Map (n, in) to (n, out)."""
        xp, last = namespace(X), len(self.weights) - 1
        most = LARGEST_ENTRY if X.dtype.itemsize == 8 else LARGEST_SINGLE
        # No setting of NumPy's may make a tiny number or the tail of an activation fail.
        with np.errstate(under="ignore"):
            for depth, (w, b) in enumerate(zip(self.weights, self.biases, strict=True)):
                X = xp.clip(X, -most, most) @ w.T + b
                if depth < last:
                    X = _activated(X, self.activation)
        clipped: A = xp.clip(X, -most, most)
        return clipped


class NetworkEncoder(NetworkMap):
    """w = network(z), from R^m to R^r.

    Examples
    --------
    >>> from offaxis.encoding import NetworkEncoder
    >>> weights = [np.array([[1.0], [-1.0]]), np.array([[1.0, 1.0]])]
    >>> folded = NetworkEncoder(weights, [np.zeros(2), np.zeros(1)])
    >>> folded.encode(np.array([[-3.0], [2.0]]))  # |z|, by max(0, z) + max(0, −z)
    array([[3.],
           [2.]])
    """

    def encode(self, Z: Vectors) -> Vectors:
        """Map (n, m) to (n, r)."""
        return self.apply(Z)


class _AnswerEncoder(NetworkMap):
    """x = argmax_j network(z)_j, the first of equals: the answer of a classifier, one of k symbols.

    The activation is part of the kind, so that a release file says it in a word from a fixed list.
    """

    def encode(self, Z: Vectors) -> NDArray[Any]:
        """Map (n, m) to (n,) symbols."""
        scores = self.apply(Z)
        symbols: NDArray[Any] = namespace(scores).argmax(scores, axis=1)
        return symbols


class IdentityAnswer(_AnswerEncoder):
    """The answer of layers with nothing between them."""

    kind, activation = "network-identity-argmax", "identity"


class ReluAnswer(_AnswerEncoder):
    """The answer of a network with max(0, x) between its layers."""

    kind, activation = "network-relu-argmax", "relu"


class TanhAnswer(_AnswerEncoder):
    """The answer of a network with tanh x between its layers."""

    kind, activation = "network-tanh-argmax", "tanh"


class LogisticAnswer(_AnswerEncoder):
    """The answer of a network with 1 / (1 + e^{−x}) between its layers."""

    kind, activation = "network-logistic-argmax", "logistic"


class GeluAnswer(_AnswerEncoder):
    """The answer of a network with x Φ(x) between its layers."""

    kind, activation = "network-gelu-argmax", "gelu"


AnswerEncoder = IdentityAnswer | ReluAnswer | TanhAnswer | LogisticAnswer | GeluAnswer

ANSWERS: Final[dict[str, type[AnswerEncoder]]] = {
    cls.activation: cls
    for cls in (IdentityAnswer, ReluAnswer, TanhAnswer, LogisticAnswer, GeluAnswer)
}
"""Activation → encoder."""
