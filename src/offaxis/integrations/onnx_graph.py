"""Graphs of public maps in ONNX: layers, the encoders of releases, and learnt tables.

Each method of :class:`Graph` adds nodes that compute what ``encoding/`` and ``geometry/`` compute
in NumPy. The graph of an encoder is total: every input has a finite encoding.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from onnx import (
    GraphProto,
    ModelProto,
    NodeProto,
    TensorProto,
    ValueInfoProto,
    helper,
    numpy_helper,
)

from offaxis.encoding import AffineEncoder, ArgmaxEncoder, BoxEncoder, Encoder, ShiftEncoder
from offaxis.encoding.encoders import LARGEST_ENTRY, LARGEST_INPUT, NetworkMap
from offaxis.encoding.pairs import (
    NO_ANSWER,
    CellsEncoder,
    MomentsEncoder,
    PairEncoder,
    simplex,
)
from offaxis.errors import InvalidInput
from offaxis.vectors import LARGEST_SINGLE

OPSET: Final = 18
_IR: Final = 9

VECTORS: Final = "vectors"
ANSWERS: Final = "answers"
ENCODED: Final = "encoded"
SYMBOLS: Final = "symbols"

_MISSING_FROM: Final = NO_ANSWER / 10
"""Larger answers are missing; the range of a number ends far below."""

_LEAST_STEPS: Final = 1 << 10
"""Single precision must tell at least so many numbers of a range apart."""

_LARGEST_SINGLE_SUM: Final = 2.0**69
"""A row of a map with a larger sum could overflow single precision, on entries of 2**57."""


def model_of(graph: GraphProto) -> ModelProto:
    """Return a graph as a model, in a version that older runtimes also read."""
    opset = [helper.make_opsetid("", OPSET)]
    return helper.make_model(graph, opset_imports=opset, ir_version=_IR, producer_name="offaxis")


def encoder_graph(encoder: Encoder, dtype: np.dtype[Any]) -> GraphProto:
    """Return the graph of an encoder, from ``vectors`` (n, m) to ``encoded`` or ``symbols``.

    That of an encoder of pairs also takes ``answers`` (n, a).
    """
    graph = Graph(dtype)
    pairs = encoder if isinstance(encoder, PairEncoder) else None
    dim = encoder.input_dim if pairs is None else pairs.vector_dim
    inputs = [graph.value(VECTORS, dim)]
    x = graph.finite(VECTORS)
    if pairs is None:
        result, is_symbol = _encoded(graph, encoder, x)
    else:
        if pairs.answer_count:
            inputs.append(graph.value(ANSWERS, pairs.answer_count))
        result, is_symbol = _Pairs(graph, pairs).encoded(x)
    if is_symbol:
        graph.node("Identity", result, output=SYMBOLS)
        output = helper.make_tensor_value_info(SYMBOLS, TensorProto.INT64, ["n"])
    else:
        graph.node("Identity", result, output=ENCODED)
        output = graph.value(ENCODED, encoder.output_dim)
    return helper.make_graph(graph.nodes, "release", inputs, [output], graph.constants)


def _encoded(graph: Graph, encoder: Encoder, x: str) -> tuple[str, bool]:
    """Return encodings of finite rows, or symbols, and whether they are symbols."""
    if isinstance(encoder, NetworkMap):
        out = graph.network(x, encoder)
        return (graph.largest(out), True) if encoder.kind.endswith("argmax") else (out, False)
    if not isinstance(encoder, AffineEncoder | ShiftEncoder | ArgmaxEncoder):
        raise InvalidInput(f"there is no graph for the {encoder.kind} encoder of this release")
    shifted = graph.node("Sub", graph.tamed(x), graph.constant(encoder.centre))
    if isinstance(encoder, ShiftEncoder):
        return shifted, False
    mapped = graph.mapped(shifted, encoder.matrix)
    if isinstance(encoder, ArgmaxEncoder):
        return graph.largest(graph.node("Add", mapped, graph.constant(encoder.bias))), True
    if isinstance(encoder, BoxEncoder):
        below = graph.node("Min", mapped, graph.constant(encoder.limits))
        return graph.node("Max", below, graph.constant(-encoder.limits)), False
    return mapped, False


class _Pairs:
    """The part of a graph that joins features with answers, as ``encoding/pairs.py`` does.

    An answer that is NaN is missing, like 1e30.
    """

    def __init__(self, graph: Graph, encoder: PairEncoder) -> None:
        self._graph, self._encoder = graph, encoder

    def encoded(self, x: str) -> tuple[str, bool]:
        """Return the encodings of finite vectors with answers, and whether they are symbols."""
        features = self._graph.network(x, self._encoder)
        columns = self._columns()
        if isinstance(self._encoder, MomentsEncoder):
            return self._moments(features, columns), False
        if isinstance(self._encoder, CellsEncoder):
            return self._cells(self._encoder, features, columns), True
        return self._right(features, columns[0]), True

    def _columns(self) -> list[str]:
        """Return the columns of the answers, (n,) each."""
        graph, count = self._graph, self._encoder.answer_count
        if not count:
            return []
        none = graph.constant(NO_ANSWER, graph.dtype)
        answers = graph.node("Where", graph.node("IsNaN", ANSWERS), none, ANSWERS)
        places = [graph.constant(place, np.int64) for place in range(count)]
        return [graph.node("Gather", answers, place, axis=1) for place in places]

    def _class_of(self, column: str, classes: int) -> tuple[str, str]:
        """Return the class of each entry, and whether it is one."""
        graph = self._graph
        above = graph.node("Greater", column, graph.constant(-0.5))
        below = graph.node("Less", column, graph.constant(classes - 0.5))
        known = graph.node("And", above, below)
        inside = graph.node("Where", known, column, graph.constant(0.0))
        nearest = graph.node("Floor", graph.node("Add", inside, graph.constant(0.5)))
        return graph.node("Cast", nearest, to=TensorProto.INT64), known

    def _moments(self, features: str, columns: list[str]) -> str:
        graph, asked = self._graph, self._encoder.asked
        if not columns:
            return features
        codes = [self._code(column, row) for column, row in zip(columns, asked, strict=True)]
        joined = codes[0]
        if len(codes) > 1:
            joined = graph.node("Concat", *codes, axis=1)
            joined = graph.node("Mul", joined, graph.constant(len(codes) ** -0.5))
        down, across = (graph.constant([axis], np.int64) for axis in (2, 1))
        product = graph.node(
            "Mul", graph.node("Unsqueeze", joined, down), graph.node("Unsqueeze", features, across)
        )
        shape = graph.constant([0, self._encoder.output_dim], np.int64)  # 0 keeps the axis
        return graph.node("Reshape", product, shape)

    def _code(self, column: str, row: NDArray[Any]) -> str:
        """Return the code of an answer, (n, w); zero for a missing one."""
        graph, classes, (low, high) = self._graph, int(row[0]), row[1:3]
        zero, last = graph.constant(0.0), graph.constant([1], np.int64)
        if classes:
            own, known = self._class_of(column, classes)
            corners = graph.node("Gather", graph.constant(simplex(classes)), own, axis=0)
            return graph.node("Where", graph.node("Unsqueeze", known, last), corners, zero)
        self._check_range(low, high)
        offset = graph.node("Sub", column, graph.constant(low))
        share = graph.node("Div", offset, graph.constant(high - low))
        doubled = graph.node("Mul", share, graph.constant(2.0))
        scaled = graph.clipped(graph.node("Sub", doubled, graph.constant(1.0)), 1.0)
        most = graph.constant(_MISSING_FROM, graph.dtype)
        known = graph.node("Less", graph.node("Abs", column), most)
        return graph.node("Unsqueeze", graph.node("Where", known, scaled, zero), last)

    def _check_range(self, low: float, high: float) -> None:
        step = float(np.spacing(np.float32(max(abs(low), abs(high)))))
        if not self._graph.is_double and (high - low) < _LEAST_STEPS * step:
            raise InvalidInput(
                f"float32 does not resolve numbers from {low} to {high}; use dtype='float64'"
            )

    def _cells(self, encoder: CellsEncoder, features: str, columns: list[str]) -> str:
        graph = self._graph
        symbols = graph.largest(features)
        for column, row, values in zip(columns, encoder.asked, encoder.values, strict=False):
            own, known = self._class_of(column, int(row[0]))
            missing = graph.constant(values - 1 if row[3] else 0, np.int64)
            scaled = graph.node("Mul", symbols, graph.constant(values, np.int64))
            symbols = graph.node("Add", scaled, graph.node("Where", known, own, missing))
        return symbols

    def _right(self, features: str, column: str) -> str:
        graph, classes = self._graph, int(self._encoder.asked[0, 0])
        if classes:
            own, known = self._class_of(column, classes)
            right = graph.node("And", graph.node("Equal", graph.largest(features), own), known)
        else:
            low, high = (
                graph.node("Gather", features, graph.constant(place, np.int64), axis=1)
                for place in (0, 1)
            )
            right = graph.node(
                "And",
                graph.node("LessOrEqual", low, column),
                graph.node("LessOrEqual", column, high),
            )
        return graph.node("Cast", right, to=TensorProto.INT64)


class Graph:
    """Nodes and constants of a graph in one floating dtype; methods return the name of a value."""

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self.dtype = dtype
        self.kind = helper.np_dtype_to_tensor_dtype(dtype)
        self.nodes: list[NodeProto] = []
        self.constants: list[TensorProto] = []

    @property
    def is_double(self) -> bool:
        """Whether the graph computes in double precision."""
        return self.dtype.itemsize == 8

    def value(self, name: str, size: int) -> ValueInfoProto:
        """Return the description of an input or output (n, size)."""
        return helper.make_tensor_value_info(name, self.kind, ["n", size])

    def constant(self, value: Any, dtype: Any = None) -> str:
        """Add a constant; raise if its products could overflow single precision.

        Raises
        ------
        InvalidInput
        """
        array = np.asarray(value, dtype=dtype or np.float64)
        if dtype is None:
            if not self.is_double and np.abs(array).max(initial=0.0) > LARGEST_SINGLE:
                raise InvalidInput("this release is too large for float32; use dtype='float64'")
            array = array.astype(self.dtype)
        name = f"offaxis.constant.{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.array(array, order="C"), name))
        return name

    def node(self, kind: str, *inputs: str, output: str | None = None, **attributes: Any) -> str:
        """Add a node with one output."""
        name = output or f"offaxis.{len(self.nodes)}.{kind.lower()}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], name=name, **attributes))
        return name

    def clipped(self, x: str, most: float) -> str:
        """Return the value clipped to ± ``most``."""
        # Not Clip: ONNX Runtime fuses it with Relu, which fails in double precision.
        low, high = (self.constant(sign * most, self.dtype) for sign in (-1, 1))
        return self.node("Max", self.node("Min", x, high), low)

    def mapped(self, x: str, weight: NDArray[Any]) -> str:
        """Return W x for rows x, with W of shape (out, in); raise if it could overflow.

        Raises
        ------
        InvalidInput
        """
        if not self.is_double and np.abs(weight).sum(axis=1).max() > _LARGEST_SINGLE_SUM:
            raise InvalidInput("this map is too large for float32; use dtype='float64'")
        return self.node("MatMul", x, self.constant(weight.T))

    def affine(self, x: str, weight: NDArray[Any], bias: NDArray[Any]) -> str:
        """Return W x + b for rows x, with W of shape (out, in)."""
        return self.node("Add", self.mapped(x, weight), self.constant(bias))

    def activated(self, x: str, activation: str) -> str:
        """Apply the activation of this name in ``geometry.Layers``."""
        simple = {"relu": "Relu", "tanh": "Tanh", "logistic": "Sigmoid"}
        if activation == "identity":
            return x
        if activation in simple:
            return self.node(simple[activation], x)
        if activation == "silu":
            return self.node("Mul", x, self.node("Sigmoid", x))
        if activation == "elu":
            return self.node("Elu", x, alpha=1.0)
        if activation == "normalise":
            return self._normalised(x)
        if activation != "gelu":
            raise InvalidInput(f"there is no graph for the activation {activation!r}")
        # GELU, x Φ(x). ONNX Runtime has the error function in single precision only.
        scaled = self.node("Mul", x, self.constant(np.sqrt(0.5)))
        single = self.node("Cast", scaled, to=TensorProto.FLOAT)
        error = self.node("Cast", self.node("Erf", single), to=self.kind)
        half = self.node("Mul", x, self.constant(0.5))
        return self.node("Mul", half, self.node("Add", error, self.constant(1.0)))

    def _normalised(self, x: str) -> str:
        """Return x / √(mean(x²) + 1), divided by its peak first so that no square overflows."""
        axis, one = self.constant([1], np.int64), self.constant(1.0)
        peak = self.node("Max", self.node("ReduceMax", self.node("Abs", x), axis, keepdims=1), one)
        scaled = self.node("Div", x, peak)
        mean = self.node("ReduceMean", self.node("Mul", scaled, scaled), axis, keepdims=1)
        inverse = self.node("Div", one, peak)
        squares = self.node("Add", mean, self.node("Mul", inverse, inverse))
        return self.node("Div", scaled, self.node("Sqrt", squares))

    def layers(
        self,
        x: str,
        weights: Sequence[NDArray[Any]],
        biases: Sequence[NDArray[Any]],
        activation: str,
        most: float | None = None,
    ) -> str:
        """Return affine layers with activations between them, clipped to ± ``most`` if given."""
        names = activation.split("+")
        for depth, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
            x = x if most is None else self.clipped(x, most)
            x = self.affine(x, weight, bias)
            if depth < len(weights) - 1:
                x = self.activated(x, names[depth % len(names)])
        return x if most is None else self.clipped(x, most)

    def network(self, x: str, encoder: NetworkMap) -> str:
        """Return the outputs of the network of an encoder, which are always finite."""
        most = LARGEST_ENTRY if self.is_double else LARGEST_SINGLE
        return self.layers(x, encoder.weights, encoder.biases, encoder.activation, most)

    def largest(self, x: str) -> str:
        """Return the index of the largest entry of each row, the first one of a tie."""
        return self.node("ArgMax", x, axis=1, keepdims=0)

    def finite(self, x: str) -> str:
        """Replace NaN by zero and infinities by the largest number."""
        zero = self.constant(0.0)
        numbers = self.node("Where", self.node("IsNaN", x), zero, x)
        return self.clipped(numbers, float(np.finfo(self.dtype).max))

    def tamed(self, x: str) -> str:
        """Shrink rows that could overflow in a map; their direction is kept."""
        most = LARGEST_INPUT if self.is_double else LARGEST_SINGLE
        axis, largest = self.constant([1], np.int64), self.constant(most)
        peak = self.node("ReduceMax", self.node("Abs", x), axis, keepdims=1)
        unit = self.node("Div", x, self.node("Max", peak, self.constant(1.0)))
        shrunk = self.node("Mul", unit, largest)
        return self.node("Where", self.node("Greater", peak, largest), shrunk, x)
