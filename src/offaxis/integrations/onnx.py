"""ONNX: the public encoder of a release as a graph for devices, and from there to a report.

**The graph is not private.** It holds the public, deterministic encoder, with a network in front if
one is given. The client clips its output and draws exact noise from the operating system's
randomness (:func:`privatize_encoded`). A graph could only draw floating-point noise, which leaks.

The graph computes the same maps as ``encoding/`` does in NumPy and is total: every input has a
finite encoding. NaN counts as zero and an infinity as the largest number. A row that could overflow
is shrunk and keeps its direction, as in ``tame``.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Sequence
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from offaxis.encoding import AffineEncoder, ArgmaxEncoder, BoxEncoder, Encoder, ShiftEncoder
from offaxis.encoding.encoders import LARGEST_ENTRY, LARGEST_INPUT, NetworkMap
from offaxis.errors import InvalidInput, MissingExtra, installing
from offaxis.formats.reports import frame
from offaxis.geometry import Layers
from offaxis.randomizers.base import FiniteSet
from offaxis.release import Release
from offaxis.sampling.entropy import Entropy
from offaxis.vectors import LARGEST_SINGLE, SINGLE_RADII, to_numpy
from offaxis.version import __version__

try:
    import onnx
except ImportError as error:
    raise MissingExtra(f"offaxis.integrations.onnx needs onnx: {installing('onnx')}") from error

from onnx import GraphProto, ModelProto, NodeProto, TensorProto, compose, helper, numpy_helper

__all__ = ["privatize_encoded", "to_onnx"]

Precision = Literal["float32", "float64"]

NOT_PRIVATE: Final = (
    "This graph is the public encoder only and protects nobody. What it returns must pass "
    "the release's randomizer before it leaves the device."
)

_OPSET: Final = 18
_IR: Final = 9
_VECTORS: Final = "vectors"
_ENCODED: Final = "encoded"
_SYMBOLS: Final = "symbols"
_NETWORK_OUTPUT: Final = "offaxis.network"

_LARGEST_SINGLE_SUM: Final = 2.0**69
"""A row of a map with a larger sum could overflow single precision, on entries of 2**57."""


def to_onnx(
    release: Release,
    network: Any = None,
    *,
    example: Any = None,
    names: Sequence[str] | None = None,
    free_axes: Sequence[int] = (0,),
    dtype: Precision = "float32",
) -> ModelProto:
    """Return the public encoder of a release as an ONNX model; **it contains no noise**.

    The model maps ``vectors`` (n, m) to ``encoded`` (n, r), or to ``symbols`` (n,) for a codebook.
    Every input has a finite encoding: NaN counts as zero, an infinity as the largest number, and
    rows that could overflow (beyond 2^56 in float32, 2^500 in float64) are shrunk. The hash and
    the guarantee of the release are in ``metadata_props``.

    Parameters
    ----------
    release : Release
    network : torch.nn.Module or Layers, optional
        A public network in front, whose outputs (n, m) are the vectors. The graph then has the
        inputs of the network.
    example : tensor or tuple of tensors
        An input of the torch network, with the batch axis first.
    names : sequence of str, optional
        Names of the torch network's inputs in the graph: by default ``input``, or ``input_0`` and
        so on.
    free_axes : sequence of int
        Axes of the torch network's inputs that may have any length, whatever the example has:
        (0, 1) for batches of token sequences.
    dtype : {"float32", "float64"}
        Type of the encoder, and of the input if there is no torch network in front. GELU is always
        computed in float32, because ONNX Runtime has the error function only in that type.

    Returns
    -------
    onnx.ModelProto
        A checked model; ``onnx.save(model, path)`` writes it.

    Raises
    ------
    InvalidInput
        If the network does not return vectors of the release's dimension, torch cannot export it,
        or the release needs float64.

    Examples
    --------
    >>> import onnxruntime
    >>> from offaxis import fit
    >>> from offaxis.integrations.onnx import privatize_encoded, to_onnx
    >>> public = np.random.default_rng(0).normal(size=(99, 3))
    >>> release = fit(np.eye(3)[:1], public, epsilon=4, mechanism="laplace")
    >>> model = to_onnx(release)
    >>> session = onnxruntime.InferenceSession(model.SerializeToString())
    >>> mine = np.array([[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]])
    >>> (encoded,) = session.run(None, {"vectors": mine.astype(np.float32)})
    >>> bool(np.allclose(encoded, release.encoder.encode(mine), atol=1e-5))
    True
    >>> reports = privatize_encoded(release, encoded)          # on the device: exact noise
    >>> release.decode(reports).shape
    (2, 3)
    >>> {p.key: p.value for p in model.metadata_props}["offaxis.guarantee"]
    'ε = 4, pure'
    """
    kind = np.dtype(dtype)
    if kind not in (np.float32, np.float64):
        raise InvalidInput(f"dtype must be 'float32' or 'float64', got {dtype!r}")
    _check_radius(release, kind)
    model = _model(_encoder_graph(release.encoder, kind))
    if isinstance(network, Layers):
        model = _joined(_from_layers(network, kind), model, release, network.biases[-1].size)
    elif network is not None:
        before, width = _from_torch(network, example, names, free_axes, kind)
        model = _joined(before, model, release, width)
    elif example is not None:
        raise InvalidInput("example is used only with a torch network; leave it out")
    _describe(model, release)
    onnx.checker.check_model(model, full_check=True)
    return model


def privatize_encoded(release: Release, encoded: Any) -> bytes | list[bytes]:
    """Turn the output of an exported graph into reports, like :meth:`Release.privatize`.

    The randomizer clips and draws exact noise from the operating system's randomness, so the
    guarantee holds whatever the graph returned. **Every call spends the budget again.**

    Parameters
    ----------
    encoded : array (r,) or (n, r), or symbols () or (n,)
        Finite numbers, or the integers of a codebook.

    Returns
    -------
    bytes, or list of bytes for a batch

    Raises
    ------
    InvalidInput
        If ``encoded`` is not an encoding of this release. Nothing is released then.

    Examples
    --------
    >>> from offaxis import fit
    >>> from offaxis.integrations.onnx import privatize_encoded
    >>> public = np.random.default_rng(0).normal(size=(99, 3))
    >>> release = fit(np.eye(3)[:1], public, epsilon=4, mechanism="laplace")
    >>> encoded = np.zeros(3, dtype=np.float32)                # from a session, see to_onnx
    >>> len(privatize_encoded(release, encoded)) == release.report_size
    True
    """
    array = to_numpy(encoded, "encoded vectors")
    single = array.ndim == (0 if isinstance(release.randomizer.domain, FiniteSet) else 1)
    batch = array[None] if single else array
    payloads = release.randomizer.report(batch, Entropy())
    reports = frame(payloads, release.randomizer.wire_id, release.hash)
    return reports[0] if single else reports


def _check_radius(release: Release, kind: np.dtype[Any]) -> None:
    radius = getattr(release.randomizer, "radius", 1.0)
    low, high = SINGLE_RADII
    if kind.itemsize == 4 and not low <= radius <= high:
        raise InvalidInput(f"float32 is too narrow for radius={radius!r}; use dtype='float64'")


def _describe(model: ModelProto, release: Release) -> None:
    facts = {
        "offaxis.release": release.hash,
        "offaxis.guarantee": str(release.guarantee),
        "offaxis.unit": release.unit,
        "offaxis.randomizer": release.randomizer.kind,
        "offaxis.not_private": NOT_PRIVATE,
        "offaxis.version": __version__,
    }
    helper.set_model_props(model, facts)
    model.doc_string = NOT_PRIVATE


# ---- The network in front of the encoder


def _from_layers(network: Layers, kind: np.dtype[Any]) -> ModelProto:
    """Return layers as a model."""
    graph = Graph(kind)
    out = graph.layers("input", network.weights, network.biases, network.activation)
    graph.node("Identity", out, output=_NETWORK_OUTPUT)
    inputs = helper.make_tensor_value_info("input", graph.kind, ["n", network.input_dim])
    output = helper.make_tensor_value_info(
        _NETWORK_OUTPUT, graph.kind, ["n", network.biases[-1].size]
    )
    nodes = helper.make_graph(graph.nodes, "network", [inputs], [output], graph.constants)
    # Prefixes keep the inner names apart from those of the encoder; inputs and outputs stay.
    return compose.add_prefix(
        _model(nodes), "network.", rename_inputs=False, rename_outputs=False, rename_edges=True
    )


def _from_torch(
    network: Any,
    example: Any,
    names: Sequence[str] | None,
    free_axes: Sequence[int],
    kind: np.dtype[Any],
) -> tuple[ModelProto, int]:
    """Export a torch network by tracing; return the model and the dimension of its outputs."""
    import torch

    from offaxis.geometry.torch_model import evaluating

    if not isinstance(network, torch.nn.Module) or example is None:
        raise InvalidInput(
            "network must be a torch module, with an example of its input, or Layers; "
            f"got {type(network).__name__} and example={type(example).__name__}"
        )
    inputs = example if isinstance(example, tuple) else (example,)
    default = ["input"] if len(inputs) == 1 else [f"input_{i}" for i in range(len(inputs))]
    input_names = default if names is None else list(names)
    if len(input_names) != len(inputs):
        raise InvalidInput(f"the example has {len(inputs)} inputs, got {len(input_names)} names")
    free = {axis: f"axis_{axis}" if axis else "n" for axis in free_axes}
    axes = dict.fromkeys(input_names, free) | {_NETWORK_OUTPUT: {0: "n"}}
    try:
        with evaluating(network):
            outputs = network(*inputs)
            if not isinstance(outputs, torch.Tensor) or outputs.ndim != 2:
                raise InvalidInput("the network must return vectors (n, m), one row per input")
            traced = _traced(network, inputs, input_names, axes)
    except InvalidInput:
        raise
    except Exception as error:
        # The network is the user's code, and the exporter raises many kinds of errors.
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise InvalidInput(f"torch cannot export this network: {reason}") from error
    return _cast(traced, kind), int(outputs.shape[1])


def _traced(
    network: Any, inputs: tuple[Any, ...], names: list[str], axes: dict[str, dict[int, str]]
) -> ModelProto:
    import torch

    file: Any = io.BytesIO()
    with warnings.catch_warnings():
        # The tracing exporter warns that it is deprecated; it is the one that needs only onnx.
        warnings.simplefilter("ignore")
        torch.onnx.export(
            network,
            inputs,
            file,
            dynamo=False,
            opset_version=_OPSET,
            input_names=names,
            output_names=[_NETWORK_OUTPUT],
            dynamic_axes=axes,
        )
    return onnx.load_from_string(file.getvalue())


def _cast(model: ModelProto, kind: np.dtype[Any]) -> ModelProto:
    """Cast the network's output to the dtype of the encoder."""
    output = model.graph.output[0]
    element = helper.np_dtype_to_tensor_dtype(kind)
    if output.type.tensor_type.elem_type != element:
        name = f"{_NETWORK_OUTPUT}.cast"
        model.graph.node.append(helper.make_node("Cast", [output.name], [name], to=element))
        output.name = name
        output.type.tensor_type.elem_type = element
    return model


def _joined(network: ModelProto, encoder: ModelProto, release: Release, width: int) -> ModelProto:
    """Return the encoder applied to the outputs of a network, of dimension ``width``."""
    if width != release.input_dim:
        raise InvalidInput(
            f"the release expects vectors of dimension {release.input_dim}, the network returns "
            f"{width}"
        )
    encoder.ir_version = network.ir_version
    return compose.merge_models(network, encoder, io_map=[(network.graph.output[0].name, _VECTORS)])


# ---- The encoder as a graph


def _model(graph: GraphProto) -> ModelProto:
    """Return a graph as a model, in a version that older runtimes also read."""
    opset = [helper.make_opsetid("", _OPSET)]
    return helper.make_model(graph, opset_imports=opset, ir_version=_IR, producer_name="offaxis")


def _encoder_graph(encoder: Encoder, dtype: np.dtype[Any]) -> GraphProto:
    """Return the graph of an encoder, from ``vectors`` (n, m) to ``encoded`` or ``symbols``."""
    graph = Graph(dtype)
    encoded, is_symbol = _encoded(graph, encoder, graph.finite(_VECTORS))
    if is_symbol:
        graph.node("ArgMax", encoded, output=_SYMBOLS, axis=1, keepdims=0)
        output = helper.make_tensor_value_info(_SYMBOLS, TensorProto.INT64, ["n"])
    else:
        graph.node("Identity", encoded, output=_ENCODED)
        output = helper.make_tensor_value_info(_ENCODED, graph.kind, ["n", encoder.output_dim])
    inputs = helper.make_tensor_value_info(_VECTORS, graph.kind, ["n", encoder.input_dim])
    return helper.make_graph(graph.nodes, "release", [inputs], [output], graph.constants)


def _encoded(graph: Graph, encoder: Encoder, x: str) -> tuple[str, bool]:
    """Return encodings of finite rows, or scores, and whether the symbol is the largest score."""
    if isinstance(encoder, NetworkMap):
        most = LARGEST_ENTRY if graph.is_double else LARGEST_SINGLE
        out = graph.layers(x, encoder.weights, encoder.biases, encoder.activation, most)
        return out, encoder.kind.endswith("argmax")
    if not isinstance(encoder, AffineEncoder | ShiftEncoder | ArgmaxEncoder):
        raise InvalidInput(f"there is no graph for the {encoder.kind} encoder of this release")
    shifted = graph.node("Sub", graph.tamed(x), graph.constant(encoder.centre))
    if isinstance(encoder, ShiftEncoder):
        return shifted, False
    mapped = graph.mapped(shifted, encoder.matrix)
    if isinstance(encoder, ArgmaxEncoder):
        return graph.node("Add", mapped, graph.constant(encoder.bias)), True
    if isinstance(encoder, BoxEncoder):
        below = graph.node("Min", mapped, graph.constant(encoder.limits))
        return graph.node("Max", below, graph.constant(-encoder.limits)), False
    return mapped, False


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
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
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
