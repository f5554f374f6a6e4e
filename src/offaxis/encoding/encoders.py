"""Encoders: public maps from R^m to the input of a randomizer, R^r or a symbol.

Contract: the guarantee does not depend on the encoder; the randomizer after it provides it. An
encoder must only be total: every finite vector, tiny or huge, has an encoding.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any, ClassVar, Final, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from offaxis.errors import InvalidInput
from offaxis.geometry.layers import ACTIVATIONS, DEEPEST, joined
from offaxis.vectors import LARGEST_SINGLE, A, Vectors, has_device, namespace, row_dots, special

LARGEST_ENTRY = 1e100
"""Largest entry of a public map, so that encoding a finite vector cannot overflow."""

LARGEST_INPUT = 2.0**500
"""Rows with larger entries are scaled down to it."""


class Encoder(Protocol):
    """A public map applied on the device before the randomizer, to each vector independently.

    No row of a batch may influence another: rows may belong to different people, and a person's
    guarantee covers that person's report only.

    Examples
    --------
    >>> import offaxis
    >>> from offaxis.encoding import Encoder
    >>> public = np.random.default_rng(0).standard_normal((500, 3))
    >>> encoder: Encoder = offaxis.fit(
    ...     np.ones((1, 3)), public, epsilon=2, mechanism="laplace"
    ... ).encoder
    >>> encoder.kind, encoder.encode(public).shape
    ('affine', (500, 3))
    """

    kind: ClassVar[str]

    @property
    def input_dim(self) -> int:
        """Dimension m of a private vector."""
        ...

    @property
    def output_dim(self) -> int:
        """Dimension r of an encoding, or the number of symbols."""
        ...

    def encode(self, Z: Vectors) -> NDArray[Any]:
        """Map finite vectors (n, m) to (n, r) numbers or (n,) symbols."""
        ...


# ---- Affine maps


@dataclass(frozen=True, eq=False, repr=False)
class AffineEncoder:
    """w = A (z − c), with A of shape (r, m).

    Examples
    --------
    >>> from offaxis.encoding import AffineEncoder
    >>> sums = AffineEncoder(np.array([[1.0, 1.0, 0.0]]), centre=np.array([1.0, 0.0, 0.0]))
    >>> sums.encode(np.array([[3.0, 4.0, 5.0]]))
    array([[6.]])
    """

    kind: ClassVar[str] = "affine"

    matrix: Vectors
    centre: Vectors

    def __post_init__(self) -> None:
        """Check shapes and sizes, and freeze the arrays."""
        matrix, centre = frozen_map(self.matrix, self.centre, axis=1)
        object.__setattr__(self, "matrix", matrix)
        object.__setattr__(self, "centre", centre)

    @property
    def input_dim(self) -> int:
        """Dimension m of a private vector."""
        return int(self.matrix.shape[1])

    @property
    def output_dim(self) -> int:
        """Dimension r of an encoding."""
        return int(self.matrix.shape[0])

    def encode(self, Z: Vectors) -> Vectors:
        """Map (n, m) to (n, r)."""
        return (tame(Z) - self.centre) @ self.matrix.T


@dataclass(frozen=True, eq=False, repr=False)
class ShiftEncoder:
    """w = z − c: no reshaping. With c = 0 the randomizer gets the vector itself.

    Examples
    --------
    >>> from offaxis.encoding import ShiftEncoder
    >>> ShiftEncoder(np.array([1.0, 2.0])).encode(np.array([[3.0, 4.0]]))
    array([[2., 2.]])
    """

    kind: ClassVar[str] = "shift"

    centre: Vectors

    def __post_init__(self) -> None:
        """Check the size and freeze the array."""
        object.__setattr__(self, "centre", frozen_shift(self.centre))

    @property
    def input_dim(self) -> int:
        """Dimension m of a private vector."""
        return int(self.centre.size)

    @property
    def output_dim(self) -> int:
        """Dimension of an encoding: the input dimension."""
        return int(self.centre.size)

    def encode(self, Z: Vectors) -> Vectors:
        """Return the shifted vectors."""
        return tame(Z) - self.centre


@dataclass(frozen=True, eq=False, repr=False)
class BoxEncoder(AffineEncoder):
    """w_i = clip((A (z − c))_i, ±h_i): each coordinate is clipped before the randomizer clips.

    The clipping serves utility: one large coordinate does not use up the ball for the others. The
    guarantee does not depend on it.

    Examples
    --------
    >>> from offaxis.encoding import BoxEncoder
    >>> box = BoxEncoder(np.eye(2), np.zeros(2), limits=np.array([1.0, 0.5]))
    >>> box.encode(np.array([[3.0, -3.0]]))
    array([[ 1. , -0.5]])
    """

    kind: ClassVar[str] = "box"

    limits: Vectors

    def __post_init__(self) -> None:
        """Check shapes and signs, and freeze the arrays."""
        super().__post_init__()
        limits = frozen_shift(self.limits)
        if limits.shape != (self.output_dim,) or not (limits > 0).all():
            raise InvalidInput(
                f"a box needs {self.output_dim} positive half widths, got shape {limits.shape}"
            )
        object.__setattr__(self, "limits", limits)

    def encode(self, Z: Vectors) -> Vectors:
        """Map (n, m) to (n, r)."""
        encoded = super().encode(Z)
        clipped: Vectors = namespace(encoded).clip(encoded, -self.limits, self.limits)
        return clipped


@dataclass(frozen=True, eq=False)
class Frame:
    """Public coordinates w = A (z − c), with the inverse z = B w + c.

    Attributes
    ----------
    centre : (m,) array
        c.
    forward, back : (r, m) and (m, r) arrays, or both None
        A and B, each the pseudo-inverse of the other. None for the coordinates of the vector.

    Examples
    --------
    >>> from offaxis.encoding import Frame
    >>> frame = Frame(np.zeros(2), forward=np.array([[0.5, 0.0]]), back=np.array([[2.0], [0.0]]))
    >>> frame.encoder.encode(np.array([[6.0, 1.0]]))
    array([[3.]])
    >>> doubled = frame.then(np.array([[2.0]]), np.array([[0.5]]), np.zeros(1))
    >>> doubled.encoder.encode(np.array([[6.0, 1.0]]))
    array([[6.]])
    """

    centre: Vectors
    forward: Vectors | None = None
    back: Vectors | None = None

    @property
    def dim(self) -> int:
        """Number r of coordinates."""
        return int(self.centre.size if self.forward is None else self.forward.shape[0])

    @property
    def encoder(self) -> AffineEncoder | ShiftEncoder:
        """The encoder to these coordinates."""
        if self.forward is None:
            return ShiftEncoder(self.centre)
        return AffineEncoder(self.forward, self.centre)

    def then(self, forward: Vectors, back: Vectors, shift: Vectors) -> Frame:
        """Return the coordinates x = F (w − s), where ``back`` is the pseudo-inverse of F."""
        return Frame(
            self.centre + self.lift(shift[:, None])[:, 0],
            forward if self.forward is None else forward @ self.forward,
            self.lift(back),
        )

    def lift(self, columns: Vectors) -> Vectors:
        """Return B times the columns: map differences of coordinates to differences of vectors."""
        return columns if self.back is None else self.back @ columns

    def mean_of(self, mean: Vectors) -> Vectors:
        """Return the mean of the coordinates of vectors with the given mean."""
        encoded: Vectors = self.encoder.encode(mean[None])[0]
        return encoded

    def covariance_of(self, covariance: Vectors) -> Vectors:
        """Return the covariance of the coordinates of vectors with the given covariance."""
        if self.forward is None:
            return covariance
        return self.forward @ covariance @ self.forward.T

    def gram_of(self, gram: Vectors) -> Vectors:
        """Return Bᵀ Ω B: the sensitivity of a task to the coordinates."""
        return gram if self.back is None else self.back.T @ gram @ self.back


# ---- Symbols


@dataclass(frozen=True, eq=False, repr=False)
class ArgmaxEncoder:
    """x = argmax_j (A (z − c) + b)_j: one of k symbols, the first one of a tie.

    Examples
    --------
    >>> from offaxis.encoding import ArgmaxEncoder, Frame
    >>> codewords = np.array([[0.0, 0.0], [4.0, 0.0], [0.0, 4.0]])
    >>> nearest = ArgmaxEncoder.nearest(Frame(np.zeros(2)), codewords)
    >>> nearest.encode(np.array([[3.0, 1.0], [0.1, 0.2]]))
    array([1, 0])
    """

    kind: ClassVar[str] = "argmax"

    matrix: Vectors
    centre: Vectors
    bias: Vectors

    def __post_init__(self) -> None:
        """Check shapes and sizes, and freeze the arrays."""
        matrix, centre = frozen_map(self.matrix, self.centre, axis=1)
        bias = frozen_shift(self.bias)
        if bias.shape != (matrix.shape[0],):
            raise InvalidInput(f"{matrix.shape[0]} scores and a bias {bias.shape} do not fit")
        object.__setattr__(self, "matrix", matrix)
        object.__setattr__(self, "centre", centre)
        object.__setattr__(self, "bias", bias)

    @classmethod
    def nearest(cls, frame: Frame, codewords: Vectors) -> ArgmaxEncoder:
        """Return the encoder to the nearest codeword in the coordinates of a frame.

        ‖w − w_j‖² is smallest where ⟨w, w_j⟩ − ‖w_j‖²/2 is largest.
        """
        matrix = codewords if frame.forward is None else codewords @ frame.forward
        return cls(matrix, frame.centre, -row_dots(codewords, codewords) / 2)

    @property
    def input_dim(self) -> int:
        """Dimension m of a private vector."""
        return int(self.matrix.shape[1])

    @property
    def output_dim(self) -> int:
        """Number k of symbols."""
        return int(self.matrix.shape[0])

    def encode(self, Z: Vectors) -> NDArray[Any]:
        """Map (n, m) to (n,) symbols."""
        scores = (tame(Z) - self.centre) @ self.matrix.T
        scores += self.bias
        symbols: NDArray[Any] = namespace(scores).argmax(scores, axis=1)
        return symbols


# ---- Networks


@dataclass(frozen=True, eq=False, repr=False)
class NetworkMap:
    """A small network as a public map; the activation is max(0, x) unless the kind names others.

    It is total: the values of every layer are clipped to ±1e100, so that no sum overflows and
    every finite vector has a finite image.
    """

    weights: Sequence[Vectors]
    biases: Sequence[Vectors]

    kind: ClassVar[str] = "network"
    activation: ClassVar[str] = "relu"

    def __post_init__(self) -> None:
        """Check that the layers fit together, and freeze the arrays."""
        if not 1 <= len(self.weights) <= DEEPEST or len(self.weights) != len(self.biases):
            raise InvalidInput(
                f"a network has 1 to {DEEPEST} layers of weights and biases, "
                f"got {len(self.weights)} and {len(self.biases)}"
            )
        layers = [frozen_map(w, b, axis=0) for w, b in zip(self.weights, self.biases, strict=True)]
        if any(w.shape[1] != previous.shape[0] for (previous, _), (w, _) in pairwise(layers)):
            shapes = ", ".join(str(w.shape) for w, _ in layers)
            raise InvalidInput(f"the layers of a network do not fit together: {shapes}")
        if joined(self.activation, len(layers) - 1) != self.activation:
            raise InvalidInput(f"the activations {self.activation} are not in canonical form")
        object.__setattr__(self, "weights", tuple(w for w, _ in layers))
        object.__setattr__(self, "biases", tuple(b for _, b in layers))

    @property
    def input_dim(self) -> int:
        """Dimension of an input."""
        return int(self.weights[0].shape[1])

    @property
    def output_dim(self) -> int:
        """Dimension of an output."""
        return int(self.weights[-1].shape[0])

    def apply(self, X: A) -> A:
        """Map (n, in) to (n, out)."""
        xp, last = namespace(X), len(self.weights) - 1
        names = self.activation.split("+")
        bound = LARGEST_ENTRY if X.dtype.itemsize == 8 else LARGEST_SINGLE
        # Underflow must not raise, whatever the caller's NumPy settings: encoders are total.
        with np.errstate(under="ignore"):
            for depth, (w, b) in enumerate(zip(self.weights, self.biases, strict=True)):
                X = xp.clip(X, -bound, bound) @ w.T + b
                if depth < last:
                    X = _activate(X, names[depth % len(names)])
        clipped: A = xp.clip(X, -bound, bound)
        return clipped


def _activate(X: Any, activation: str) -> Any:
    """Apply the activation to an array of any kind; in NumPy, with the function of the task."""
    if not has_device(X):
        return ACTIVATIONS[activation](X)
    xp, functions = namespace(X), special(X)
    on_device: dict[str, Callable[[Any], Any]] = {
        "identity": lambda x: x,
        "relu": lambda x: xp.clip(x, min=0.0),
        "tanh": xp.tanh,
        "logistic": functions.expit,
        "gelu": lambda x: x * functions.ndtr(x),
        "silu": lambda x: x * functions.expit(x),
        "elu": lambda x: xp.where(x > 0, x, xp.expm1(xp.clip(x, max=0.0))),
        "normalise": _normalise_on_device,
    }
    return on_device[activation](X)


def _normalise_on_device(X: Any) -> Any:
    """Return x / √(mean(x²) + 1) for every row, as ``geometry.layers.normalise`` does."""
    xp = namespace(X)
    peak = xp.clip(xp.max(xp.abs(X), axis=1, keepdims=True), min=1.0)
    scaled = X / peak
    return scaled / xp.sqrt(xp.mean(scaled * scaled, axis=1, keepdims=True) + (1 / peak) ** 2)


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


def network_form(base: type[Any], activation: str) -> type[Any]:
    """Return the subclass of a form of network encoders whose kind names the activations."""
    count = activation.count("+") + 1
    if count >= DEEPEST or joined(activation, count) != activation:
        raise InvalidInput(
            f"activations must be one name, or up to {DEEPEST - 1} different ones joined by '+', "
            f"got {activation!r:.100}"
        )
    members = {
        "__doc__": f"{base.__doc__}\n\n    With the activations {activation}.",
        "__module__": base.__module__,
        "kind": f"network-{activation}-{base.form}",
        "activation": activation,
    }
    return type(base.__name__, (base,), members)


class AnswerEncoder(NetworkMap):
    """x = argmax_j network(z)_j: the answer of a classifier, one of k symbols, the first of a tie.

    The activations are part of the kind, so that a release file names them by words of a fixed
    list: "network-gelu-argmax", or "network-relu+normalise-argmax" with one per hidden layer. Make
    the class of a list of activations with :func:`answer_encoder`.
    """

    form: ClassVar[str] = "argmax"

    def encode(self, Z: Vectors) -> NDArray[Any]:
        """Map (n, m) to (n,) symbols."""
        scores = self.apply(Z)
        symbols: NDArray[Any] = namespace(scores).argmax(scores, axis=1)
        return symbols

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by the activations: the class has no name in this module."""
        return _blank, (self.activation,), self.__dict__


@lru_cache(maxsize=256)
def answer_encoder(activation: str) -> type[AnswerEncoder]:
    """Return the class of encoders to the answers of networks with these activations.

    ``activation`` is that of :class:`~offaxis.geometry.Layers`, in canonical form: one name, or
    different ones, one per hidden layer, joined by "+".

    Raises
    ------
    InvalidInput
        If it has another form.

    Examples
    --------
    >>> from offaxis.encoding.encoders import answer_encoder
    >>> weights = [np.eye(2), np.array([[1.0, -1.0], [-1.0, 1.0]])]
    >>> encoder = answer_encoder("tanh")(weights, [np.zeros(2), np.zeros(2)])
    >>> encoder.kind, encoder.encode(np.array([[1.0, 3.0]]))
    ('network-tanh-argmax', array([1]))
    """
    return network_form(AnswerEncoder, activation)


def _blank(activation: str) -> AnswerEncoder:
    """Return an encoder without arrays, to be filled by pickle or copy."""
    return object.__new__(answer_encoder(activation))


ANSWERS: Final[Mapping[str, type[AnswerEncoder]]] = {
    activation: answer_encoder(activation) for activation in ACTIVATIONS
}
"""Activation → encoder, for networks with one activation."""


def form_of_kind(kind: str) -> tuple[str, str]:
    """Return activation and form of a kind such as "network-relu+tanh-argmax"; else two blanks."""
    first, _, rest = kind.partition("-")
    activation, _, form = rest.rpartition("-")
    try:
        known = first == "network" and joined(activation, activation.count("+") + 1) == activation
    except InvalidInput:
        known = False
    return (activation, form) if known and activation.count("+") + 1 < DEEPEST else ("", "")


def answer_encoder_of_kind(kind: str) -> type[AnswerEncoder] | None:
    """Return the class of a kind such as "network-relu+tanh-argmax"; None for any other word."""
    activation, form = form_of_kind(kind)
    return answer_encoder(activation) if form == AnswerEncoder.form else None


# ---- Checks and overflow


def frozen_map(matrix: Any, shift: Any, *, axis: Literal[0, 1]) -> tuple[Vectors, Vectors]:
    """Return read-only float64 copies of a matrix and of the shift along one of its axes.

    Raises
    ------
    InvalidInput
        If the shapes do not fit, or an entry is not finite or so large that it could overflow.
    """
    frozen, offset = _frozen(matrix), frozen_shift(shift)
    if frozen.ndim != 2 or 0 in frozen.shape or offset.shape != (frozen.shape[axis],):
        raise InvalidInput(f"a map {frozen.shape} and a shift {offset.shape} do not fit")
    return frozen, offset


def frozen_matrix(matrix: Any) -> Vectors:
    """Return a read-only float64 copy of a matrix; entries that could overflow are an error."""
    copy = _frozen(matrix)
    if copy.ndim != 2 or 0 in copy.shape:
        raise InvalidInput(f"a matrix must not be empty, got shape {copy.shape}")
    return copy


def frozen_shift(shift: Any) -> Vectors:
    """Return a read-only float64 copy of a vector; entries that could overflow are an error."""
    copy = _frozen(shift)
    if copy.ndim != 1 or copy.size == 0:
        raise InvalidInput(f"a shift must be a vector (m,), got shape {copy.shape}")
    return copy


def _frozen(array: Any) -> Vectors:
    copy = np.array(array, dtype=np.float64, order="C")
    # Needs no second copy of a large map. NaN fails the comparison.
    low, high = copy.min(initial=0.0), copy.max(initial=0.0)
    if not -LARGEST_ENTRY <= low <= high <= LARGEST_ENTRY:
        raise InvalidInput(f"a map must be finite with entries up to {LARGEST_ENTRY:g}")
    copy.setflags(write=False)
    return copy


def tame(Z: A) -> A:
    """Scale rows with entries above 2**500 down to that size.

    Such a row is outside every ball a release can have, so only its direction matters, and that is
    kept. All other rows stay exactly as they are.
    """
    xp = namespace(Z)
    if _is_tame(Z):
        return Z
    peak = xp.max(xp.abs(Z), axis=1, keepdims=True)
    shrunk: A = Z / xp.clip(peak, min=1.0) * LARGEST_INPUT
    tamed: A = xp.where(peak > LARGEST_INPUT, shrunk, Z)
    return tamed


def _is_tame(Z: Any) -> bool:
    if not has_device(Z):
        return bool(max(Z.max(), -Z.min()) <= LARGEST_INPUT)
    # No single-precision number is that large. On a device one pass costs less than two.
    return Z.dtype.itemsize < 8 or float(namespace(Z).linalg.vector_norm(Z)) <= LARGEST_INPUT
