"""Fully connected networks in NumPy, and scikit-learn estimators read as such networks.

The Jacobian of affine layers with a pointwise activation is a product of the weights and the
activations' slopes, so it needs no automatic differentiation.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, ndtr, softmax

from offaxis.errors import InvalidInput, UnsupportedModel
from offaxis.geometry.models import ModelIdentity, gram_of
from offaxis.vectors import Vectors, as_array, check_finite

_Pointwise = Callable[[Vectors], Vectors]


def _normal_density(x: Vectors) -> Vectors:
    density: Vectors = np.exp(-x * x / 2) / np.sqrt(2 * np.pi)
    return density


ACTIVATIONS: Final[dict[str, tuple[_Pointwise, _Pointwise]]] = {
    "identity": (lambda x: x, np.ones_like),
    "relu": (lambda x: np.maximum(x, 0.0), lambda x: (x > 0).astype(np.float64)),
    "tanh": (np.tanh, lambda x: 1 - np.tanh(x) ** 2),
    "logistic": (expit, lambda x: expit(x) * expit(-x)),
    "gelu": (lambda x: x * ndtr(x), lambda x: ndtr(x) + x * _normal_density(x)),
}
"""Name → (function, slope). GELU is the exact one, x Φ(x)."""


@dataclass(frozen=True, eq=False, repr=False)
class Layers:
    """A fully connected network given by its weights.

    Parameters
    ----------
    weights : sequence of (out, in) arrays
    biases : sequence of (out,) arrays
    activation : {"relu", "gelu", "tanh", "logistic", "identity"}
        Applied after every layer but the last: the outputs are logits or predictions.
    name : str
        Name of the model in the release file.

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

    def __post_init__(self) -> None:
        """Check that the layers fit together."""
        if self.activation not in ACTIVATIONS:
            raise InvalidInput(
                f"activation must be one of {', '.join(ACTIVATIONS)}, got {self.activation!r}"
            )
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

    def _forward(self, Z: Vectors) -> tuple[Vectors, list[Vectors]]:
        """Return the outputs and the slopes of all activations."""
        function, slope = ACTIVATIONS[self.activation]
        slopes = []
        hidden = Z
        for w, b in zip(self.weights[:-1], self.biases[:-1], strict=True):
            before = hidden @ w.T + b
            slopes.append(slope(before))
            hidden = function(before)
        return hidden @ self.weights[-1].T + self.biases[-1], slopes

    def outputs(self, Z: Vectors) -> Vectors:
        """Return the logits or predictions, (n, k)."""
        return self._forward(Z)[0]

    def _jacobians_at_first_layer(self, Z: Vectors) -> Vectors:
        """Return the Jacobians with respect to the first layer's output, (n, k, h)."""
        _, slopes = self._forward(Z)
        if not slopes:
            k = self.biases[0].size
            return np.broadcast_to(np.eye(k), (len(Z), k, k))
        jacobian = self.weights[-1][None] * slopes[-1][:, None, :]
        for w, s in zip(self.weights[-2:0:-1], slopes[-2::-1], strict=True):
            jacobian = (jacobian @ w) * s[:, None, :]
        return jacobian

    def silent_units(self, Z: NDArray[Any]) -> NDArray[np.bool_]:
        """Return a mask of the first-layer ReLU units that no vector activates."""
        if self.activation != "relu" or len(self.weights) == 1:
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
        if len(self.weights) == 2:
            # Σ D_i (WᵀW) D_i is WᵀW times the slopes' products, entry by entry: no Jacobians.
            _, (slopes,) = self._forward(Z)
            inner = gram_of(self.weights[1]) * gram_of(slopes)
        else:
            inner = gram_of(self._jacobians_at_first_layer(Z))
        first = self.weights[0]
        return first.T @ inner @ first

    def vjp(self, Z: Vectors, G: Vectors) -> Vectors:
        """Return J_iᵀ g_i for every vector by backpropagation."""
        _, slopes = self._forward(Z)
        gradient: Vectors = G @ self.weights[-1]
        for w, s in zip(self.weights[-2::-1], slopes[::-1], strict=True):
            gradient = (gradient * s) @ w
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
        return hidden if len(self.weights) == 2 else max(dim, outputs * hidden)

    def save(self, path: str | Path) -> None:
        """Write the weights to a safetensors file that :meth:`load` and the CLI read."""
        from safetensors.numpy import save_file

        tensors = {f"weight.{i}": np.ascontiguousarray(w) for i, w in enumerate(self.weights)}
        tensors |= {f"bias.{i}": np.ascontiguousarray(b) for i, b in enumerate(self.biases)}
        metadata = {"format": "offaxis-layers", "activation": self.activation, "name": self.name}
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
        )


# ---- scikit-learn estimators


def layers_of(estimator: Any) -> Layers:
    """Return the network of a fitted linear or MLP estimator.

    Its outputs are the estimator's decision values or predictions, before any softmax or logistic
    function. Only documented fitted attributes are read.
    """
    from sklearn.exceptions import NotFittedError
    from sklearn.utils.validation import check_is_fitted

    name = type(estimator).__name__
    try:
        check_is_fitted(estimator)
    except NotFittedError:
        raise InvalidInput(f"the {name} is not fitted; fit it on public data first") from None
    layers = _read_weights(estimator, name)
    if layers is not None and _agrees(layers, estimator):
        return layers
    raise UnsupportedModel(
        f"no adapter for the scikit-learn estimator {name}: linear models and MLPs are read "
        f"directly; for others wrap a function of a batch, before any softmax, as "
        f"offaxis.geometry.FiniteDifferences(estimator.decision_function)"
    )


def _read_weights(estimator: Any, name: str) -> Layers | None:
    if hasattr(estimator, "coefs_") and hasattr(estimator, "intercepts_"):
        return Layers(
            [np.asarray(w).T for w in estimator.coefs_],
            estimator.intercepts_,
            activation=estimator.activation,
            name=name,
        )
    if hasattr(estimator, "coef_") and hasattr(estimator, "intercept_"):
        weight = np.atleast_2d(np.asarray(estimator.coef_, dtype=np.float64))
        bias = np.broadcast_to(np.ravel(estimator.intercept_), weight.shape[:1])
        return Layers([weight], [bias], name=name)
    return None


def _agrees(layers: Layers, estimator: Any) -> bool:
    """Compare with the estimator's predictions: in some, ``coef_`` means something else."""
    Z = np.random.default_rng(0).standard_normal((20, layers.input_dim))
    outputs = layers.outputs(Z)
    with warnings.catch_warnings():
        # An estimator fitted to a data frame warns that these rows have no column names.
        warnings.simplefilter("ignore", UserWarning)
        if hasattr(estimator, "decision_function"):
            expected = estimator.decision_function(Z)
        elif hasattr(estimator, "predict_proba"):
            squash = {"softmax": partial(softmax, axis=1), "logistic": expit}
            outputs = squash[estimator.out_activation_](outputs)
            expected = estimator.predict_proba(Z)[:, -outputs.shape[1] :]
        else:
            expected = estimator.predict(Z)
    expected = np.asarray(expected)
    return expected.size == outputs.size and np.allclose(
        expected.reshape(outputs.shape), outputs, rtol=1e-4, atol=1e-4 * np.abs(outputs).max()
    )
