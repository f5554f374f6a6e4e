"""Fully connected networks in NumPy.

The Jacobian of affine layers with activations between them is a product of the weights and the
activations' derivatives, so it needs no automatic differentiation.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, ndtr

from offaxis.errors import InvalidInput
from offaxis.geometry.models import ModelIdentity, check_answers, gram_of
from offaxis.vectors import Vectors, as_array, check_finite

_Function = Callable[[Vectors], Vectors]

DEEPEST: Final = 8
"""The most layers of a network that a release can hold."""


def _normal_density(x: Vectors) -> Vectors:
    density: Vectors = np.exp(-x * x / 2) / np.sqrt(2 * np.pi)
    return density


POINTWISE: Final[dict[str, tuple[_Function, _Function]]] = {
    "identity": (lambda x: x, np.ones_like),
    "relu": (lambda x: np.maximum(x, 0.0), lambda x: (x > 0).astype(np.float64)),
    "tanh": (np.tanh, lambda x: 1 - np.tanh(x) ** 2),
    "logistic": (expit, lambda x: expit(x) * expit(-x)),
    "gelu": (lambda x: x * ndtr(x), lambda x: ndtr(x) + x * _normal_density(x)),
    "silu": (lambda x: x * expit(x), lambda x: expit(x) * (1 + x * expit(-x))),
    "elu": (
        lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0.0))),
        lambda x: np.exp(np.minimum(x, 0.0)),
    ),
}
"""Name → (function, slope). GELU is the exact one, x Φ(x); ELU has α = 1."""


def normalise(x: Vectors) -> Vectors:
    """Return x / √(mean(x²) + 1) for every row: the core of a LayerNorm.

    Divided by the largest entry first, so that no square overflows.
    """
    peak = np.maximum(np.abs(x).max(axis=-1, keepdims=True), 1.0)
    scaled = x / peak
    normalised: Vectors = scaled / np.sqrt(
        (scaled * scaled).mean(axis=-1, keepdims=True) + peak**-2
    )
    return normalised


ACTIVATIONS: Final[dict[str, _Function]] = {
    **{name: function for name, (function, _) in POINTWISE.items()},
    "normalise": normalise,
}
"""Name → function of rows."""


@dataclass(frozen=True)
class _Slopes:
    """The derivative of an activation at every vector: diag(slope), or that of ``normalise``.

    With y = x / r, r = √(mean(x²) + 1), over h units the latter is (1 − y yᵀ/h) / r, symmetric.
    """

    slope: Vectors
    unit: Vectors | None = None

    @classmethod
    def at(cls, activation: str, before: Vectors) -> _Slopes:
        if activation in POINTWISE:
            return cls(POINTWISE[activation][1](before))
        root = np.sqrt((before * before).mean(axis=1, keepdims=True) + 1)
        return cls(np.broadcast_to(1 / root, before.shape), before / root)

    def pull(self, rows: Vectors) -> Vectors:
        """Return the derivative of every vector applied to its rows, (n, h) or (n, k, h)."""
        slope, unit = self.slope, self.unit
        if rows.ndim == 3:
            slope, unit = slope[:, None], None if unit is None else unit[:, None]
        if unit is not None:
            rows = rows - (rows * unit).mean(axis=-1, keepdims=True) * unit
        return rows * slope


def joined(activation: str | Sequence[str], hidden: int) -> str:
    """Return the activations of the hidden layers in canonical form: one name if all are equal.

    Raises
    ------
    InvalidInput
        If a name is unknown, or there is neither one name nor one per hidden layer.
    """
    names = activation.split("+") if isinstance(activation, str) else list(activation)
    for name in names:
        if name not in ACTIVATIONS:
            raise InvalidInput(
                f"activation must be one of {', '.join(ACTIVATIONS)}, or one of these per hidden "
                f"layer joined by '+', got {activation!r}"
            )
    if len(names) != hidden and not (isinstance(activation, str) and len(names) == 1):
        raise InvalidInput(
            f"a network with {hidden} hidden layers needs one activation, or one per hidden "
            f"layer, got {activation!r}"
        )
    # Without hidden layers the activation does nothing; the default keeps one identity.
    return names[0] if len(set(names)) == 1 else "+".join(names) or "relu"


@dataclass(frozen=True, eq=False, repr=False)
class Layers:
    """A fully connected network given by its weights.

    Parameters
    ----------
    weights : sequence of (out, in) arrays
    biases : sequence of (out,) arrays
    activation : str or sequence of str
        Applied after every layer but the last: the outputs are logits or predictions. One of
        "relu", "gelu", "tanh", "logistic", "silu", "elu", "identity" and "normalise", which is
        x / √(mean(x²) + 1) over the units of the layer; or one of these per hidden layer, as a
        sequence or joined: "relu+normalise+tanh".
    name : str
        Name of the model in the release file.
    answers : sequence of str, optional
        Names of a classifier's answers, one per output. Not part of the identity.

    Examples
    --------
    >>> from offaxis.geometry import Layers
    >>> rng = np.random.default_rng(0)
    >>> weights = [rng.standard_normal((4, 3)), rng.standard_normal((2, 4))]
    >>> head = Layers(weights, [np.zeros(4), np.zeros(2)])
    >>> head
    Layers(3→4→2, relu)
    >>> head.jacobians(rng.standard_normal((5, 3))).shape
    (5, 2, 3)
    >>> head.save("head.safetensors")  # a file that the command line reads
    >>> Layers.load("head.safetensors").identity() == head.identity()
    True
    """

    weights: Sequence[Vectors]
    biases: Sequence[Vectors]
    activation: str = "relu"
    name: str = "layers"
    answers: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        """Check that the layers fit together."""
        weights = tuple(as_array(w, "weights") for w in self.weights)
        biases = tuple(as_array(b, "biases") for b in self.biases)
        if not weights or len(weights) != len(biases):
            raise InvalidInput(f"got {len(weights)} weight matrices and {len(biases)} biases")
        for index, (w, b) in enumerate(zip(weights, biases, strict=True)):
            check_finite(w, f"weights[{index}]")
            check_finite(b, f"biases[{index}]")
            inputs = weights[index - 1].shape[0] if index else w.shape[-1]
            if w.ndim != 2 or b.shape != (w.shape[0],) or w.shape[1] != inputs:
                raise InvalidInput(f"layer {index} has weights {w.shape} and bias {b.shape}")
        object.__setattr__(self, "weights", weights)
        object.__setattr__(self, "biases", biases)
        object.__setattr__(self, "activation", joined(self.activation, len(weights) - 1))
        if self.answers is not None:
            object.__setattr__(self, "answers", check_answers(self.answers, len(biases[-1])))

    @property
    def activations(self) -> tuple[str, ...]:
        """The activation of every hidden layer."""
        names, hidden = tuple(self.activation.split("+")), len(self.weights) - 1
        return names if len(names) > 1 else names * hidden

    def __repr__(self) -> str:
        """Return for example ``Layers(64→10→32→10, relu)``."""
        sizes = [self.input_dim, *(len(b) for b in self.biases)]
        return f"Layers({'→'.join(map(str, sizes))}, {self.activation})"

    @classmethod
    def linear(cls, weight: NDArray[Any], bias: NDArray[Any] | None = None) -> Layers:
        """Return the linear task z ↦ weight z + bias, weight of shape (k, m)."""
        matrix = np.atleast_2d(as_array(weight, "weight"))
        return cls([matrix], [np.zeros(matrix.shape[0]) if bias is None else bias], name="linear")

    @property
    def input_dim(self) -> int:
        """Dimension m of the vectors."""
        return int(self.weights[0].shape[1])

    def identity(self) -> ModelIdentity:
        """Hash activation, shapes and float64 weights."""
        digest = hashlib.sha256(self.activation.encode())
        for array in (*self.weights, *self.biases):
            digest.update(repr(array.shape).encode())
            digest.update(np.ascontiguousarray(array, dtype="<f8").tobytes())
        return ModelIdentity("layers", self.name, digest.hexdigest())

    def outputs(self, Z: Vectors) -> Vectors:
        """Return the logits or predictions, (n, k)."""
        hidden = Z
        layers = zip(self.weights, self.biases, self.activations, strict=False)
        for w, b, activation in layers:
            hidden = ACTIVATIONS[activation](hidden @ w.T + b)
        return hidden @ self.weights[-1].T + self.biases[-1]

    def _slopes(self, Z: Vectors) -> list[_Slopes]:
        """Return the derivatives of all activations."""
        slopes = []
        hidden = Z
        layers = zip(self.weights, self.biases, self.activations, strict=False)
        for w, b, activation in layers:
            before = hidden @ w.T + b
            slopes.append(_Slopes.at(activation, before))
            hidden = ACTIVATIONS[activation](before)
        return slopes

    def _jacobians_at_first_layer(self, Z: Vectors) -> Vectors:
        """Return the Jacobians with respect to the first layer's output, (n, k, h)."""
        slopes = self._slopes(Z)
        if not slopes:
            k = self.biases[0].size
            return np.broadcast_to(np.eye(k), (len(Z), k, k))
        jacobian = slopes[-1].pull(self.weights[-1][None])
        for w, s in zip(self.weights[-2:0:-1], slopes[-2::-1], strict=True):
            jacobian = s.pull(jacobian @ w)
        return jacobian

    def silent_units(self, Z: NDArray[Any]) -> NDArray[np.bool_]:
        """Return a mask of the first-layer ReLU units that no vector activates."""
        if self.activations[:1] != ("relu",):
            return np.zeros(len(self.biases[0]), dtype=bool)
        before = np.asarray(Z, dtype=np.float64) @ self.weights[0].T + self.biases[0]
        silent: NDArray[np.bool_] = before.max(axis=0) <= 0
        return silent

    def without_silent_units(self, public: NDArray[Any]) -> Layers:
        """Return the network without the first-layer units that no public vector activates.

        The outputs are the same on every public vector. Such a unit has slope zero there, so the
        Jacobian misses its input direction, and reshaping puts the most noise exactly there. The
        noise then activates the unit and ruins the output.

        Examples
        --------
        >>> from offaxis.geometry import Layers
        >>> head = Layers([np.eye(2), np.ones((1, 2))], [np.array([0.0, -100.0]), np.zeros(1)])
        >>> public = np.random.default_rng(0).standard_normal((500, 2))
        >>> head.silent_units(public)  # no vector is near 100
        array([False,  True])
        >>> head.without_silent_units(public).name
        'layers without 1 silent units'
        """
        silent = self.silent_units(public)
        if not silent.any():
            return self
        return replace(
            self,
            weights=[np.where(silent[:, None], 0.0, self.weights[0]), *self.weights[1:]],
            biases=[np.where(silent, 0.0, self.biases[0]), *self.biases[1:]],
            name=f"{self.name} without {int(silent.sum())} silent units",
        )

    def jacobians(self, Z: Vectors) -> Vectors:
        """Return the Jacobian of the outputs at every vector, (n, k, m)."""
        result: Vectors = self._jacobians_at_first_layer(Z) @ self.weights[0]
        return result

    def gram(self, Z: Vectors) -> Vectors:
        """Return Σ JᵀJ; the first layer is constant, so it is applied once, to the sum."""
        if len(self.weights) == 1:
            return len(Z) * gram_of(self.weights[0])
        if self._is_shallow:
            # Σ D_i (WᵀW) D_i is WᵀW times the slopes' products, entry by entry: no Jacobians.
            (slopes,) = self._slopes(Z)
            inner = gram_of(self.weights[1]) * gram_of(slopes.slope)
        else:
            inner = gram_of(self._jacobians_at_first_layer(Z))
        first = self.weights[0]
        return first.T @ inner @ first

    def vjp(self, Z: Vectors, G: Vectors) -> Vectors:
        """Return J_iᵀ g_i for every vector by backpropagation."""
        gradient: Vectors = G @ self.weights[-1]
        for w, s in zip(self.weights[-2::-1], self._slopes(Z)[::-1], strict=True):
            gradient = s.pull(gradient) @ w
        return gradient

    def centred(self) -> Layers:
        """Return the same network with the mean subtracted from its outputs."""
        weight, bias = self.weights[-1], self.biases[-1]
        return replace(
            self,
            weights=[*self.weights[:-1], weight - weight.mean(axis=0)],
            biases=[*self.biases[:-1], bias - bias.mean()],
        )

    def numbers_per_vector(self, dim: int, outputs: int) -> int:
        """Return k·h, the Jacobian at the first layer; h, its slopes, if one layer follows."""
        hidden = len(self.biases[0])
        if len(self.weights) == 1:
            return dim
        return hidden if self._is_shallow else max(dim, outputs * hidden)

    @property
    def _is_shallow(self) -> bool:
        """Whether there is one hidden layer, with a pointwise activation."""
        return len(self.weights) == 2 and self.activation in POINTWISE

    def as_layers(self) -> Layers | None:
        """Return this network, or None if it has more layers than a release can hold."""
        return self if len(self.weights) <= DEEPEST else None

    def with_two_outputs(self, answers: Sequence[str] | None = None) -> Layers:
        """Return the network of a binary classifier with one logit t: the outputs (−t/2, t/2)."""
        halves = np.array([[-0.5], [0.5]])
        return replace(
            self,
            weights=[*self.weights[:-1], halves * self.weights[-1]],
            biases=[*self.biases[:-1], halves[:, 0] * self.biases[-1]],
            answers=None if answers is None else tuple(answers),
        )

    def save(self, path: str | Path) -> None:
        """Write the weights to a safetensors file that :meth:`load` and the CLI read."""
        from safetensors.numpy import save_file

        tensors = {f"weight.{i}": np.ascontiguousarray(w) for i, w in enumerate(self.weights)}
        tensors |= {f"bias.{i}": np.ascontiguousarray(b) for i, b in enumerate(self.biases)}
        metadata = {"format": "offaxis-layers", "activation": self.activation, "name": self.name}
        if self.answers is not None:
            metadata["answers"] = json.dumps(self.answers)
        save_file(tensors, str(path), metadata=metadata)

    @classmethod
    def load(cls, path: str | Path) -> Layers:
        """Read a file written by :meth:`save`."""
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(str(path), framework="numpy") as file:
                metadata = file.metadata() or {}
                tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        except (SafetensorError, OSError) as error:
            raise InvalidInput(f"{path} is not a readable weights file: {error}") from error
        depth = len(tensors) // 2
        names = {f"{part}.{i}" for part in ("weight", "bias") for i in range(depth)}
        if metadata.get("format") != "offaxis-layers" or set(tensors) != names:
            raise InvalidInput(f"{path} is not a weights file written by Layers.save")
        return cls(
            [tensors[f"weight.{i}"] for i in range(depth)],
            [tensors[f"bias.{i}"] for i in range(depth)],
            activation=metadata.get("activation", ""),
            name=metadata.get("name", Path(path).stem),
            answers=_read_answers(metadata.get("answers"), path),
        )


def _read_answers(text: str | None, path: str | Path) -> Any:
    """Return the names of answers in the metadata of a weights file, to be checked by Layers."""
    try:
        return None if text is None else json.loads(text)
    except ValueError:
        raise InvalidInput(f"{path} has unreadable names of answers: {text!r:.60}") from None
