"""Adapter for ONNX models as public tasks.

A plain chain of layers is read as :class:`~offaxis.geometry.Layers`, which a release can hold. Any
other graph runs in ONNX Runtime if that is installed, else in the reference implementation of the
package onnx.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from offaxis.errors import InvalidInput, MissingExtra, installing
from offaxis.geometry.chains import Chain, NotAChain, log_soft, segments, soft
from offaxis.geometry.layers import Layers
from offaxis.geometry.models import (
    LONGEST_NAME,
    FiniteDifferences,
    ModelIdentity,
    check_differentiable,
    failure,
)
from offaxis.vectors import Vectors

try:
    import onnx
except ImportError as error:
    raise MissingExtra(f"a model in ONNX needs onnx: {installing('onnx')}") from error

from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

__all__ = ["OnnxModel"]

_Run = Callable[[str, NDArray[Any]], NDArray[Any]]
"""From the name of an output and the rows of a batch to the output."""

_FLOATS: Final = {TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16}


class OnnxModel:
    """A public task given as an ONNX model with one input, (n, m) → (n, k), row by row.

    The outputs are its two-dimensional output of floating-point numbers. A classifier exported from
    scikit-learn returns labels as well. If its largest score is not the label, as in binary SVMs,
    the outputs are 1 for the label and 0 for the others. Its probabilities may be in a ZipMap.

    Parameters
    ----------
    source : path, bytes or onnx.ModelProto
    output : str, optional
        Name of the output to use, if several could be meant.

    Examples
    --------
    >>> from onnx import helper, numpy_helper, TensorProto
    >>> from offaxis.geometry.onnx_model import OnnxModel
    >>> weight = numpy_helper.from_array(np.eye(3, 2, dtype=np.float32), "weight")
    >>> graph = helper.make_graph(
    ...     [helper.make_node("MatMul", ["z", "weight"], ["logits"])],
    ...     "head",
    ...     [helper.make_tensor_value_info("z", TensorProto.FLOAT, ["n", 3])],
    ...     [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["n", 2])],
    ...     [weight],
    ... )
    >>> opset = [helper.make_opsetid("", 18)]
    >>> task = OnnxModel(helper.make_model(graph, opset_imports=opset, ir_version=9))
    >>> task.as_layers()
    Layers(3→2, relu)
    >>> task.outputs(np.array([[1.0, 2.0, 3.0]]))
    array([[1., 2.]])
    """

    def __init__(
        self, source: str | Path | bytes | ModelProto, *, output: str | None = None
    ) -> None:
        self._model = _read(source)
        content = self._model.SerializeToString(deterministic=True)
        self._sha256 = hashlib.sha256(content).hexdigest()
        _replace_zip_maps(self._model)
        self._labels = _answers(self._model)
        self._output = _choose_output(self._model, output)
        self._input = _only_input(self._model)
        self._batch, self._dim = _input_shape(self._input)
        self._session: _Run | None = None
        self._source: str | None = None
        self._derivative: Layers | FiniteDifferences | None = None
        self._name = (self._model.graph.name or "onnx")[:LONGEST_NAME]

    def __getstate__(self) -> dict[str, Any]:
        """Return the model without its session."""
        state = {**self.__dict__, "_session": None, "_derivative": None}
        return {**state, "_model": self._model.SerializeToString(), "_input": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Read the model again."""
        self.__dict__.update(state)
        self._model = onnx.load_from_string(state["_model"])
        self._input = _only_input(self._model)

    @property
    def input_dim(self) -> int | None:
        """Dimension m of the vectors, if the model states it."""
        return self._dim

    @property
    def answers(self) -> tuple[str, ...] | None:
        """Names of the classes, if the model lists one per output."""
        if self._labels is not None and self._dim is not None:
            outputs = self.outputs(np.zeros((1, self._dim))).shape[1]
            self._labels = self._labels if len(self._labels) == outputs else None
        return self._labels

    def identity(self) -> ModelIdentity:
        """Hash the serialized model."""
        return ModelIdentity("onnx", self._name, self._sha256)

    def outputs(self, Z: Vectors) -> Vectors:
        """Return the model's outputs, (n, k)."""
        if self._dim is not None and Z.shape[1] != self._dim:
            raise InvalidInput(
                f"the ONNX model takes vectors of dimension {self._dim}, got {Z.shape[1]}"
            )
        return FiniteDifferences(self._run, name=self._name).outputs(Z)

    def _run(self, Z: Vectors) -> NDArray[Any]:
        if self._session is None:
            self._session = _session(self._model, self._input.name)
        if self._source is None:
            self._source = self._choose_source(Z.shape[1])
        return self._fetch(self._source, Z) if self._source == self._output else self._one_hot(Z)

    def _one_hot(self, Z: Vectors) -> Vectors:
        """Return 1 for the label that the model returns and 0 for the others."""
        labels = np.asarray(self._fetch(str(self._source), Z)).reshape(-1).astype(str)
        same: Vectors = (labels[:, None] == np.array(self._labels)[None, :]).astype(np.float64)
        return same

    def _choose_source(self, dim: int) -> str:
        """Return the output to use: the labels, if the largest score is another one."""
        label = _label_output(self._model)
        if label is None or self._labels is None:
            return self._output
        rng = np.random.default_rng(0)
        Z = 10.0 ** rng.uniform(-1, 3, (200, 1)) * rng.standard_normal((200, dim))
        scores = self._fetch(self._output, Z)
        if scores.shape != (len(Z), len(self._labels)):
            return self._output
        labels = self._fetch(label, Z).reshape(-1).astype(str)
        of_label = scores[labels[:, None] == np.array(self._labels)[None, :]]
        # Probabilities of one are a tie far out, where single precision cannot tell them apart.
        agrees = of_label.shape == (len(Z),) and (of_label == scores.max(axis=1)).mean() > 0.98
        return self._output if agrees else label

    def _fetch(self, output: str, Z: Vectors) -> NDArray[Any]:
        """Return one output of the graph for a batch."""
        assert self._session is not None
        run = partial(self._session, output)
        kind = helper.tensor_dtype_to_np_dtype(self._input.type.tensor_type.elem_type)
        rows = Z.astype(kind)
        if self._batch is None:
            return run(rows)
        # A model exported for a fixed batch size: whole batches, the last one filled up.
        missing = -len(rows) % self._batch
        filled = np.concatenate([rows, np.repeat(rows[-1:], missing, axis=0)])
        parts = [run(part) for part in np.split(filled, len(filled) // self._batch)]
        return np.concatenate(parts)[: len(rows)]

    # -- Derivatives

    def _differentiable(self, Z: Vectors) -> Layers | FiniteDifferences:
        """Return the model as layers if these compute its outputs, else by differences."""
        if self._derivative is None:
            chain, layers = _read_layers(self)
            if chain is None or layers is None:
                function = FiniteDifferences(self._run, name=self._name)
                check_differentiable(function, Z)
                self._derivative = function
            elif chain.squash is None:
                self._derivative = layers
            else:
                squash, logits = chain.squash, layers.outputs
                self._derivative = FiniteDifferences(lambda rows: squash(logits(rows)))
        return self._derivative

    def jacobians(self, Z: Vectors) -> Vectors:
        """Return the Jacobian of the outputs at every vector, (n, k, m)."""
        return self._differentiable(Z).jacobians(Z)

    def gram(self, Z: Vectors) -> Vectors:
        """Return Σ JᵀJ over the batch."""
        return self._differentiable(Z).gram(Z)

    def vjp(self, Z: Vectors, G: Vectors) -> Vectors:
        """Return J_iᵀ g_i for every vector."""
        return self._differentiable(Z).vjp(Z, G)

    def numbers_per_vector(self, dim: int, outputs: int) -> int:
        """Return k·m, the size of the Jacobian."""
        return outputs * dim

    def as_layers(self) -> Layers | None:
        """Return the model as layers with the same answers, if it is a plain chain of layers."""
        chain, layers = _read_layers(self)
        if chain is None or layers is None:
            return None
        layers = chain.with_answers(layers)
        names = self._labels
        fits = names is not None and len(names) == len(layers.biases[-1])
        return replace(layers, answers=names) if fits else layers


# ---- Files, inputs and outputs


def _read(source: Any) -> ModelProto:
    if isinstance(source, ModelProto):
        model = ModelProto()
        model.CopyFrom(source)
    else:
        shown = "these bytes" if isinstance(source, bytes) else str(source)
        try:
            is_path = isinstance(source, str | Path)
            model = onnx.load(str(source)) if is_path else onnx.load_from_string(source)
        except FileNotFoundError:
            raise InvalidInput(f"there is no ONNX file {shown}") from None
        except Exception as error:  # the parser raises many kinds
            raise InvalidInput(f"{shown} is not a readable ONNX model: {failure(error)}") from error
    if not model.graph.node:
        raise InvalidInput("the ONNX model is empty: its graph has no operations")
    return model


def _replace_zip_maps(model: ModelProto) -> None:
    """Return tensors of probabilities where skl2onnx returns a list of dictionaries."""
    graph = model.graph
    for node in [node for node in graph.node if node.op_type == "ZipMap"]:
        for index, output in enumerate(graph.output):
            if output.name == node.output[0]:
                tensor = helper.make_tensor_value_info(
                    node.input[0], TensorProto.FLOAT, [None, None]
                )
                graph.output[index].CopyFrom(tensor)
                metadata = {prop.key: prop.value for prop in model.metadata_props}
                names = _labels(node)
                if names:
                    helper.set_model_props(model, metadata | {_LABELS: "\n".join(names)})
        graph.node.remove(node)


_LABELS: Final = "offaxis.labels"


def _labels(node: NodeProto) -> tuple[str, ...]:
    """Return the labels of a classifier or ZipMap node, as text."""
    for attribute in node.attribute:
        if attribute.name.startswith("classlabels") or attribute.name == "class_labels":
            value = helper.get_attribute_value(attribute)
            return tuple(v.decode() if isinstance(v, bytes) else str(v) for v in value)
    return ()


def _extracted_labels(model: ModelProto) -> tuple[str, ...]:
    """Return the labels that the last node of a classifier looks up by index."""
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type == "ArrayFeatureExtractor" and node.input[0] in constants:
            values = numpy_helper.to_array(constants[node.input[0]]).reshape(-1)
            return tuple(v.decode() if isinstance(v, bytes) else str(v) for v in values)
    return ()


def _answers(model: ModelProto) -> tuple[str, ...] | None:
    """Return the names of the classes, if a node of the graph lists them."""
    for prop in model.metadata_props:
        if prop.key == _LABELS:
            labels: tuple[str, ...] = tuple(prop.value.split("\n"))
            break
    else:
        labels = next((names for node in model.graph.node if (names := _labels(node))), ())
        labels = labels or _extracted_labels(model)
    names = tuple(name[:LONGEST_NAME] or "(empty)" for name in labels)
    return names if len(names) >= 2 and len(set(names)) == len(names) else None


def _tensor(value: ValueInfoProto) -> tuple[int, int | None] | None:
    """Return the element type and number of axes of a tensor; None for another kind of value."""
    if value.type.WhichOneof("value") != "tensor_type":
        return None
    kind = value.type.tensor_type
    axes = len(kind.shape.dim) if kind.HasField("shape") else None
    return kind.elem_type, axes


def _choose_output(model: ModelProto, wanted: str | None) -> str:
    """Return the name of the output that holds scores."""
    names = [str(output.name) for output in model.graph.output]
    if wanted is not None:
        if wanted not in names:
            raise InvalidInput(
                f"the ONNX model has no output {wanted!r}; its outputs are {', '.join(names)}"
            )
        return wanted
    scores = []
    for output in model.graph.output:
        tensor = _tensor(output)
        if tensor is not None and tensor[0] in _FLOATS and tensor[1] in (1, 2, None):
            scores.append((tensor[1] == 1, str(output.name)))
    if not scores:
        raise InvalidInput(
            f"the ONNX model returns no scores, only {', '.join(names)}: export it with its logits "
            f"or probabilities as an output of shape (n, k), next to the labels or instead of them"
        )
    best = [name for is_flat, name in scores if is_flat == min(scores)[0]]
    if len(best) > 1:
        raise InvalidInput(
            f"the ONNX model has several outputs of scores, {', '.join(best)}; choose one: "
            f"offaxis.geometry.onnx_model.OnnxModel(path, output={best[0]!r})"
        )
    return best[0]


def _label_output(model: ModelProto) -> str | None:
    """Return the name of the output that holds labels, if there is exactly one."""
    names = []
    for output in model.graph.output:
        tensor = _tensor(output)
        if tensor is not None and tensor[0] in (TensorProto.INT64, TensorProto.STRING):
            names.append(str(output.name))
    return names[0] if len(names) == 1 else None


def _only_input(model: ModelProto) -> ValueInfoProto:
    constants = {constant.name for constant in model.graph.initializer}
    inputs: list[ValueInfoProto] = [v for v in model.graph.input if v.name not in constants]
    if len(inputs) != 1:
        names = ", ".join(value.name for value in inputs)
        raise InvalidInput(
            f"a public model takes one batch of vectors (n, m), but the ONNX model has "
            f"{len(inputs)} inputs: {names}"
        )
    tensor = _tensor(inputs[0])
    if tensor is None or tensor[0] not in _FLOATS or tensor[1] not in (2, None):
        raise InvalidInput(
            f"a public model takes floating-point vectors (n, m); the input {inputs[0].name!r} of "
            f"the ONNX model has another type or number of axes"
        )
    return inputs[0]


def _input_shape(value: ValueInfoProto) -> tuple[int | None, int | None]:
    """Return the fixed batch size and the dimension of the vectors, where stated."""
    axes = list(value.type.tensor_type.shape.dim)
    sizes = [axis.dim_value if axis.dim_value > 0 else None for axis in axes]
    return (sizes[0], sizes[1]) if len(sizes) == 2 else (None, None)


def _session(model: ModelProto, name: str) -> _Run:
    """Return a function from the name of an output and the rows of a batch to the output.

    It runs the model in ONNX Runtime if that is installed, else in the reference implementation.
    """
    try:
        import onnxruntime
    except ImportError:
        from onnx.reference import ReferenceEvaluator

        evaluator: Any = ReferenceEvaluator(model)
        return lambda output, rows: np.asarray(evaluator.run([output], {name: rows})[0])
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    try:
        session = onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
    except Exception as error:  # the runtime raises its own kinds
        raise InvalidInput(f"ONNX Runtime cannot load the model: {failure(error)}") from error
    return lambda output, rows: np.asarray(session.run([output], {name: rows})[0])


# ---- Chains of layers


def _read_layers(task: OnnxModel) -> tuple[Chain | None, Layers | None]:
    """Return the model as a chain and its layers, compared with the model on random vectors."""
    try:
        chain = _chain_of(task._model, task._input.name, task._output)
        layers = chain.layers(task._name)
        if layers is None or not _agrees(chain, layers, task):
            return None, None
    except Exception:  # whatever an unusual graph raises, it is then not known as layers
        return None, None
    return chain, layers


def _agrees(chain: Chain, layers: Layers, task: OnnxModel) -> bool:
    rng = np.random.default_rng(0)
    for size in (0.1, 1.0, 10.0):
        Z = size * rng.standard_normal((32, layers.input_dim))
        expected, actual = task.outputs(Z), layers.outputs(Z)
        actual = actual if chain.squash is None else chain.squash(actual)
        if expected.shape != actual.shape:
            return False
        if not np.abs(expected - actual).max() <= 2e-5 * np.abs(expected).max():
            return False
    return True


def _chain_of(model: ModelProto, start: str, output: str) -> Chain:
    """Return the operations from the input to the output, or raise."""
    constants: dict[str, NDArray[Any]] = {
        tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer
    }
    variable, nodes = {start}, []
    for node in _needed(model, output):
        if node.op_type == "Constant":
            (value,) = node.attribute
            constants[node.output[0]] = _constant(value)
        elif variable.intersection(node.input):
            variable.update(node.output)
            nodes.append(node)
        else:
            _fold(node, constants)
    chain = Chain()
    for name, segment in segments(nodes, start, output):
        if len(segment) == 1:
            _read_node(segment[0], name, constants, chain)
        else:
            _read_segment(segment, constants, chain)
    return chain


def _needed(model: ModelProto, output: str) -> list[NodeProto]:
    """Return the nodes that an output depends on, in their order."""
    names, nodes = {output}, []
    for node in reversed(model.graph.node):
        if names.intersection(node.output):
            names.update(node.input)
            nodes.append(node)
    return nodes[::-1]


def _fold(node: NodeProto, constants: dict[str, NDArray[Any]]) -> None:
    """Compute a node that does not depend on the input, such as a weight normalisation."""
    from onnx.reference import ReferenceEvaluator

    inputs = {name: constants[name] for name in node.input if name}
    results = ReferenceEvaluator(node).run(None, inputs)
    constants.update(zip(node.output, map(np.asarray, results), strict=False))


def _read_segment(
    segment: list[NodeProto], constants: dict[str, NDArray[Any]], chain: Chain
) -> None:
    """Add an activation that is written as several nodes; the later comparison checks the guess."""
    kinds = {node.op_type for node in segment}
    if kinds == {"Sub", "Concat"}:
        chain.ends_with_pair()
    elif kinds == {"Sigmoid", "Mul"}:
        chain.activated("silu")
    elif "Erf" in kinds and kinds <= {"Erf", "Add", "Mul", "Div", "Cast"}:
        # x (1 + erf(x/√2)), with the factor 1/2 here or in a node of its own.
        chain.activated("gelu")
        factors = [constants[name] for node in segment for name in node.input if name in constants]
        if not any(factor.size == 1 and float(factor.reshape(())) == 0.5 for factor in factors):
            chain.scaled(2.0)
    elif not kinds <= _SHAPES:
        raise NotAChain(f"the operations {', '.join(sorted(kinds))}")


def _constant(value: Any) -> NDArray[Any]:
    content = helper.get_attribute_value(value)
    return numpy_helper.to_array(content) if value.name == "value" else np.asarray(content)


_SIMPLE: Final = {"Relu": "relu", "Tanh": "tanh", "Sigmoid": "logistic", "Swish": "silu"}

_UNCHANGED: Final = {"Identity", "Dropout", "Flatten", "Reshape", "Cast", "Squeeze"}


_SHAPES: Final = {
    *("Shape", "Gather", "Unsqueeze", "Concat", "Reshape", "Cast", "Slice", "Flatten", "Squeeze"),
}


def _read_node(
    node: NodeProto, variable: str, constants: dict[str, NDArray[Any]], chain: Chain
) -> None:
    """Add a node, one of whose inputs is the variable one, to the chain."""
    kind, inputs = node.op_type, list(node.input)
    attributes = {part.name: helper.get_attribute_value(part) for part in node.attribute}
    place = inputs.index(variable)
    others = [constants[name] for name in inputs if name and name != variable]
    if inputs.count(variable) > 1:
        raise NotAChain(f"{kind} of a value and itself")
    if kind in _SIMPLE and attributes.get("alpha", 1.0) == 1.0:
        chain.activated(_SIMPLE[kind])
    elif kind == "Gemm" and place == 0 and not attributes.get("transA", 0):
        weight = others[0] if attributes.get("transB", 0) else others[0].T
        bias = others[1] * attributes.get("beta", 1.0) if len(others) > 1 else None
        rows = len(weight)
        bias = None if bias is None else np.broadcast_to(np.ravel(bias), rows)
        chain.affine(attributes.get("alpha", 1.0) * weight, bias)
    elif kind == "MatMul" and place == 0:
        chain.affine(np.atleast_2d(others[0].T))
    elif kind == "Add":
        chain.scaled(1.0, others[0])
    elif kind == "Sub":
        chain.scaled(1.0, -others[0]) if place == 0 else chain.scaled(-1.0, others[0])
    elif kind == "Mul":
        chain.scaled(others[0])
    elif kind == "Div" and place == 0:
        chain.scaled(1.0 / others[0].astype(np.float64))
    elif kind == "Neg":
        chain.scaled(-1.0)
    elif kind == "Gelu" and attributes.get("approximate", b"none") == b"none":
        chain.activated("gelu")
    elif kind == "Elu" and attributes.get("alpha", 1.0) == 1.0:
        chain.activated("elu")
    elif kind == "LeakyRelu":
        chain.leaky(attributes.get("alpha", 0.01))
    elif kind == "PRelu":
        chain.leaky(others[0])
    elif kind == "Clip" and len(others) == 2:
        chain.clipped(float(others[0]), float(others[1]))
    elif kind in ("BatchNormalization", "LayerNormalization"):
        _read_normalisation(kind, others, attributes, chain)
    elif kind in ("Softmax", "LogSoftmax") and attributes.get("axis", -1) in (1, -1):
        chain.ends_with(soft if kind == "Softmax" else log_soft)
    elif node.domain == "ai.onnx.ml":
        _read_learned(kind, attributes, chain)
    elif kind not in _UNCHANGED:
        raise NotAChain(f"the operation {kind}")


def _read_learned(kind: str, attributes: dict[str, Any], chain: Chain) -> None:
    """Add an operation of ai.onnx.ml, as skl2onnx writes linear models."""
    if kind == "Scaler":
        scale = np.asarray(attributes["scale"])
        chain.scaled(scale, -scale * np.asarray(attributes["offset"]))
    elif kind in ("LinearClassifier", "LinearRegressor"):
        bias = np.asarray(attributes["intercepts"])
        chain.affine(np.asarray(attributes["coefficients"]).reshape(len(bias), -1), bias)
        squash = attributes.get("post_transform", b"NONE")
        if squash == b"SOFTMAX":
            chain.ends_with(soft)
        elif squash == b"LOGISTIC":
            chain.ends_with(lambda values: np.asarray(expit(values)))
        elif squash != b"NONE":
            raise NotAChain(f"the transform {squash!r}")
    elif kind == "Normalizer" and attributes.get("norm") == b"L1" and chain.squash is not None:
        inner = chain.squash
        chain.squash = lambda values: inner(values) / inner(values).sum(axis=1, keepdims=True)
    else:
        raise NotAChain(f"the operation {kind}")


def _read_normalisation(
    kind: str, others: list[Any], attributes: dict[str, Any], chain: Chain
) -> None:
    epsilon = float(attributes.get("epsilon", 1e-5))
    parts = [np.asarray(part, dtype=np.float64) for part in others]
    if kind == "BatchNormalization":
        if attributes.get("training_mode", 0):
            raise NotAChain("statistics of the batch")
        weight, bias, mean, variance = parts
        scale = weight / np.sqrt(variance + epsilon)
        chain.scaled(scale, bias - scale * mean)
        return
    if attributes.get("axis", -1) not in (1, -1):
        raise NotAChain("a normalisation over several axes")
    chain.normalised(parts[0].size, epsilon)
    chain.scaled(parts[0], parts[1] if len(parts) > 1 else 0.0)
