"""The encoder of a release as nodes of an ONNX graph.

The same maps as ``encoding/`` has in NumPy, with what makes them total: every input has a finite
encoding, whatever it holds. Entries that are NaN count as zero, and infinities as the largest
number; a row that could overflow is shrunk, keeping its direction, as ``tame`` does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from offaxis.arrays import LARGEST_SINGLE
from offaxis.encoding import AffineEncoder, ArgmaxEncoder, BoxEncoder, Encoder, ShiftEncoder
from offaxis.encoding.encoder import LARGEST_ENTRY, LARGEST_INPUT
from offaxis.encoding.network import NetworkMap
from offaxis.errors import InvalidInput

OPSET: Final = 18
_IR: Final = 9
VECTORS: Final = "vectors"
ENCODED: Final = "encoded"
SYMBOLS: Final = "symbols"

_LARGEST_SINGLE_SUM: Final = 2.0**69
"""A row of a map that adds up to more could overflow single precision, on entries of 2**57."""


class Graph:
    """Nodes and constants of a graph, in one floating dtype; every call returns a value's name."""

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self.dtype = dtype
        self.kind = helper.np_dtype_to_tensor_dtype(dtype)
        self.nodes: list[NodeProto] = []
        self.constants: list[TensorProto] = []

    @property
    def is_double(self) -> bool:
        """Whether the graph computes in double precision."""
        return self.dtype.itemsize == 8

    def constant(self, value: Any, dtype: Any = None) -> str:
        """Add a constant; one that single precision cannot hold with room for products is refused.

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
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def node(self, kind: str, *inputs: str, output: str | None = None, **attributes: Any) -> str:
        """Add a node with one output."""
        name = output or f"offaxis.{len(self.nodes)}.{kind.lower()}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], name=name, **attributes))
        return name

    def clipped(self, x: str, most: float) -> str:
        """Return the value within ± ``most``."""
        # ONNX Runtime fuses Clip with Relu, and fails to in double precision.
        low, high = (self.constant(sign * most, self.dtype) for sign in (-1, 1))
        return self.node("Max", self.node("Min", x, high), low)

    def mapped(self, x: str, weight: NDArray[Any]) -> str:
        """Return W x for rows x, with W of shape (out, in); refuse what could overflow.

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
        """Return an activation by the name it has in ``geometry.Layers``."""
        simple = {"relu": "Relu", "tanh": "Tanh", "logistic": "Sigmoid"}
        if activation == "identity":
            return x
        if activation in simple:
            return self.node(simple[activation], x)
        # x Φ(x). ONNX Runtime has the error function in single precision only.
        scaled = self.node("Mul", x, self.constant(np.sqrt(0.5)))
        single = self.node("Cast", scaled, to=TensorProto.FLOAT)
        error = self.node("Cast", self.node("Erf", single), to=self.kind)
        half = self.node("Mul", x, self.constant(0.5))
        return self.node("Mul", half, self.node("Add", error, self.constant(1.0)))

    def layers(
        self,
        x: str,
        weights: Sequence[NDArray[Any]],
        biases: Sequence[NDArray[Any]],
        activation: str,
        most: float | None = None,
    ) -> str:
        """Return affine layers with an activation between them, each within ± ``most`` if given."""
        for depth, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
            x = x if most is None else self.clipped(x, most)
            x = self.affine(x, weight, bias)
            if depth < len(weights) - 1:
                x = self.activated(x, activation)
        return x if most is None else self.clipped(x, most)

    def finite(self, x: str) -> str:
        """Return NaN as zero and infinities as the largest number."""
        zero = self.constant(0.0)
        numbers = self.node("Where", self.node("IsNaN", x), zero, x)
        return self.clipped(numbers, float(np.finfo(self.dtype).max))

    def tamed(self, x: str) -> str:
        """Return rows of which none can overflow in a map: the direction of longer ones is kept."""
        most = LARGEST_INPUT if self.is_double else LARGEST_SINGLE
        axis, largest = self.constant([1], np.int64), self.constant(most)
        peak = self.node("ReduceMax", self.node("Abs", x), axis, keepdims=1)
        unit = self.node("Div", x, self.node("Max", peak, self.constant(1.0)))
        shrunk = self.node("Mul", unit, largest)
        return self.node("Where", self.node("Greater", peak, largest), shrunk, x)


def model_of(graph: GraphProto) -> ModelProto:
    """Return a graph as a model of a version that older runtimes read, too."""
    opset = [helper.make_opsetid("", OPSET)]
    return helper.make_model(graph, opset_imports=opset, ir_version=_IR, producer_name="offaxis")


def encoder_graph(encoder: Encoder, dtype: np.dtype[Any]) -> GraphProto:
    """Return the graph of an encoder, from ``vectors`` (n, m) to ``encoded`` or ``symbols``."""
    graph = Graph(dtype)
    encoded, is_symbol = _encoded(graph, encoder, graph.finite(VECTORS))
    if is_symbol:
        graph.node("ArgMax", encoded, output=SYMBOLS, axis=1, keepdims=0)
        out = helper.make_tensor_value_info(SYMBOLS, TensorProto.INT64, ["n"])
    else:
        graph.node("Identity", encoded, output=ENCODED)
        out = helper.make_tensor_value_info(ENCODED, graph.kind, ["n", encoder.output_dim])
    into = helper.make_tensor_value_info(VECTORS, graph.kind, ["n", encoder.input_dim])
    return helper.make_graph(graph.nodes, "release", [into], [out], graph.constants)


def _encoded(graph: Graph, encoder: Encoder, x: str) -> tuple[str, bool]:
    """Return the encoding of finite rows, or scores, and whether the largest score is meant."""
    if isinstance(encoder, NetworkMap):
        most = LARGEST_ENTRY if graph.is_double else LARGEST_SINGLE
        out = graph.layers(x, encoder.weights, encoder.biases, encoder.activation, most)
        return out, encoder.kind.endswith("argmax")
    if not isinstance(encoder, AffineEncoder | ShiftEncoder | ArgmaxEncoder):
        raise InvalidInput(f"there is no graph for the {encoder.kind} encoder of this release")
    moved = graph.node("Sub", graph.tamed(x), graph.constant(encoder.centre))
    if isinstance(encoder, ShiftEncoder):
        return moved, False
    mapped = graph.mapped(moved, encoder.matrix)
    if isinstance(encoder, ArgmaxEncoder):
        return graph.node("Add", mapped, graph.constant(encoder.bias)), True
    if isinstance(encoder, BoxEncoder):
        below = graph.node("Min", mapped, graph.constant(encoder.limits))
        return graph.node("Max", below, graph.constant(-encoder.limits)), False
    return mapped, False
