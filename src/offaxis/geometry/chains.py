"""Networks of other libraries as chains of operations, which become layers.

The adapters for torch, ONNX and JAX read the operations of a model and add them to a
:class:`Chain`. What they read is compared with the model on random vectors afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
from scipy.special import expit, log_softmax, softmax

from offaxis.geometry.layers import DEEPEST, Layers, joined
from offaxis.vectors import Vectors


class NotAChain(Exception):
    """A model is not a chain of operations that layers can express. Never reaches the user."""


class Chain:
    """A network under construction, from the operations of another library in their order.

    Consecutive affine operations are composed into one layer. A softmax at the end changes no
    answer and is not part of the layers; nor is a sigmoid, whose logits are the outputs.
    """

    def __init__(self) -> None:
        self._dim: int | None = None
        self._steps: list[Callable[[_Open], None]] = []
        self.squash: Callable[[Vectors], Vectors] | None = None
        """What the model does to the outputs of the layers, if anything."""
        self._last_logistic = self._is_pair = False

    def _add(self, step: Callable[[_Open], None], dim: int | None = None) -> None:
        if self.squash is not None:
            raise NotAChain("a softmax before the end")
        self._last_logistic = False
        # Before the first step with a size, all steps act on each coordinate alone.
        self._dim = dim if self._dim is None else self._dim
        self._steps.append(step)

    def affine(self, weight: Any, bias: Any = None) -> None:
        """Add x ↦ W x + b, with W of shape (out, in)."""
        w = np.asarray(weight, dtype=np.float64)
        b = np.zeros(len(w)) if bias is None else np.asarray(bias, dtype=np.float64).reshape(-1)
        if w.ndim != 2 or b.shape != (len(w),):
            raise NotAChain(f"weights {w.shape} and bias {b.shape}")
        self._add(lambda net: net.affine(w, b), w.shape[1])

    def scaled(self, scale: Any = 1.0, shift: Any = 0.0) -> None:
        """Add x ↦ s x + t, with numbers or one number per coordinate."""
        s, t = _coordinates(scale), _coordinates(shift)
        self._add(lambda net: net.scaled(s, t), max(s.size, t.size) if s.ndim or t.ndim else None)

    def activated(self, name: str) -> None:
        """Add an activation of :data:`ACTIVATIONS`."""
        if name != "identity":
            self._add(lambda net: net.close(name))
            self._last_logistic = name == "logistic"

    def relus(self, *terms: tuple[Any, Any, Any], constant: float = 0.0) -> None:
        """Add x ↦ constant + Σ c · max(0, s x + t), for terms (s, t, c): a piecewise affine one."""
        known = [tuple(map(_coordinates, term)) for term in terms]
        sizes = [part.size for term in known for part in term if part.ndim]
        self._add(lambda net: net.relus(known, constant), max(sizes, default=None))

    def leaky(self, slope: Any) -> None:
        """Add x ↦ max(0, x) + slope · min(0, x), exactly, as two units per unit."""
        self.relus((1.0, 0.0, 1.0), (-1.0, 0.0, -np.asarray(slope, dtype=np.float64)))

    def clipped(self, low: float, high: float) -> None:
        """Add x ↦ min(max(x, low), high), exactly, as two units per unit."""
        self.relus((1.0, -low, 1.0), (1.0, -high, -1.0), constant=low)

    def normalised(self, size: int, epsilon: float, *, centred: bool = True) -> None:
        """Add x ↦ x / √(mean(x²) + ε), of x minus its mean if centred."""
        if not epsilon > 0:
            raise NotAChain(f"a normalisation with ε={epsilon}")
        self._add(lambda net: net.normalised(float(epsilon), centred), size)

    def ends_with(self, squash: Callable[[Vectors], Vectors]) -> None:
        """State that the model ends with a function of the outputs that keeps their order."""
        self._add(lambda net: None)
        self.squash = squash

    def ends_with_pair(self) -> None:
        """State that the model ends with (1 − p, p), of the sigmoid p it ended with so far."""
        if not self._last_logistic:
            raise NotAChain("a difference and its complement")
        self._steps.pop()
        self.squash = lambda t: np.concatenate([expit(-t), expit(t)], axis=1)
        self._last_logistic, self._is_pair = False, True

    def layers(self, name: str) -> Layers | None:
        """Return the network up to its final softmax or sigmoid, or None if it has no size."""
        if self._dim is None:
            return None
        steps = self._steps
        if self._last_logistic:
            steps, self.squash = steps[:-1], expit
        net = _Open(self._dim)
        for step in steps:
            step(net)
        if len(net.activations) >= DEEPEST:
            return None
        weights = [*net.weights, net.weight_or_identity()]
        activation = joined(net.activations, len(net.activations))
        return Layers(weights, [*net.biases, net.bias], activation, name)

    def with_answers(self, layers: Layers) -> Layers:
        """Return the layers, with two outputs if the model ends with a sigmoid of one logit."""
        is_binary = (self.squash is expit or self._is_pair) and len(layers.biases[-1]) == 1
        return layers.with_two_outputs() if is_binary else layers


class _Open:
    """The closed layers of a chain, and the affine map since the last activation."""

    def __init__(self, dim: int) -> None:
        self.weights: list[Vectors] = []
        self.biases: list[Vectors] = []
        self.activations: list[str] = []
        self.weight: Vectors | None = None  # None for the identity
        self.bias: Vectors = np.zeros(dim)

    def weight_or_identity(self) -> Vectors:
        return np.eye(len(self.bias)) if self.weight is None else self.weight

    def affine(self, w: Vectors, b: Vectors) -> None:
        if w.shape[1] != len(self.bias):
            raise NotAChain(f"weights {w.shape} after {len(self.bias)} units")
        self.weight = w if self.weight is None else w @ self.weight
        self.bias = w @ self.bias + b

    def scaled(self, s: Vectors, t: Vectors) -> None:
        size = len(self.bias)
        scale, shift = np.broadcast_to(s, size), np.broadcast_to(t, size)
        self.weight = scale[:, None] * self.weight_or_identity()
        self.bias = scale * self.bias + shift

    def close(self, activation: str) -> None:
        self.weights.append(self.weight_or_identity())
        self.biases.append(self.bias)
        self.activations.append(activation)
        self.weight, self.bias = None, np.zeros(len(self.bias))

    def relus(self, terms: list[tuple[Vectors, ...]], constant: float) -> None:
        size, weight, bias = len(self.bias), self.weight_or_identity(), self.bias
        full = [[np.broadcast_to(part, size) for part in term] for term in terms]
        self.weight = np.concatenate([s[:, None] * weight for s, _, _ in full])
        self.bias = np.concatenate([s * bias + t for s, t, _ in full])
        self.close("relu")
        self.affine(np.hstack([np.diag(c) for _, _, c in full]), np.full(size, constant))

    def normalised(self, epsilon: float, centred: bool) -> None:
        weight, bias = self.weight_or_identity(), self.bias
        if centred:
            weight, bias = weight - weight.mean(axis=0), bias - bias.mean()
        self.weight, self.bias = weight / np.sqrt(epsilon), bias / np.sqrt(epsilon)
        self.close("normalise")


def _coordinates(value: Any) -> Vectors:
    """Return a number, or one number per coordinate, as an array of dimension 0 or 1."""
    array = np.asarray(value, dtype=np.float64)
    if array.size == 1:
        return array.reshape(())
    if array.ndim and array.shape[-1] == array.size:
        return array.reshape(-1)
    raise NotAChain(f"an operand of shape {array.shape}")


def soft(values: Vectors) -> Vectors:
    """Return the softmax of every row."""
    result: Vectors = softmax(values, axis=1)
    return result


def log_soft(values: Vectors) -> Vectors:
    """Return the log-softmax of every row."""
    result: Vectors = log_softmax(values, axis=1)
    return result


# ---- Graphs


Node = TypeVar("Node", bound=Any)
"""An operation of a graph: ``input`` and ``output`` name the values it reads and writes."""


def segments(nodes: Sequence[Node], start: Any, end: Any) -> Iterator[tuple[Any, list[Node]]]:
    """Yield groups of nodes between values that all later ones depend on, with the first value.

    Most groups are single nodes; a library may write an activation as several.
    """
    last_use = {name: index for index, node in enumerate(nodes) for name in node.input}
    last_use[end] = len(nodes)
    known, segment = {start}, []
    for index, node in enumerate(nodes):
        segment.append(node)
        known.update(node.output)
        alive = {name for name in known if last_use.get(name, -1) > index}
        if len(alive) == 1 and alive <= set(node.output):
            yield start, segment
            (start,) = known = alive
            segment = []
            if start == end:
                return
    raise NotAChain("an output that is not the last value")
