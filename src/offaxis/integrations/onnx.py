"""ONNX: the public encoder of a release as a graph for devices, and models learnt from reports.

**The graph is not private.** It holds the public, deterministic encoder, with a network in front if
one is given. The client clips its output and draws exact noise from the operating system's
randomness (:func:`privatize_encoded`). A graph could only draw floating-point noise, which leaks.

The graph computes the same maps as ``encoding/`` does in NumPy and is total: every input has a
finite encoding. NaN counts as zero and an infinity as the largest number. A row that could overflow
is shrunk and keeps its direction, as in ``tame``.
"""

from __future__ import annotations

import io
import json
import warnings
from collections.abc import Sequence
from typing import Any, Final, Literal

import numpy as np

from offaxis.encoding.pairs import Asked, Classes, PairEncoder
from offaxis.errors import InvalidInput, MissingExtra, installing
from offaxis.formats.reports import frame
from offaxis.geometry import Layers
from offaxis.randomizers.base import FiniteSet
from offaxis.release import Release
from offaxis.sampling.entropy import Entropy
from offaxis.vectors import SINGLE_RADII, to_numpy
from offaxis.version import __version__

try:
    import onnx
except ImportError as error:
    raise MissingExtra(f"offaxis.integrations.onnx needs onnx: {installing('onnx')}") from error

from onnx import ModelProto, TensorProto, compose, helper

from offaxis.integrations.learnt import PublicModel
from offaxis.integrations.onnx_graph import OPSET, VECTORS, Graph, encoder_graph, model_of

__all__ = ["model_to_onnx", "privatize_encoded", "to_onnx"]

Precision = Literal["float32", "float64"]

NOT_PRIVATE: Final = (
    "This graph is the public encoder only and protects nobody. What it returns must pass "
    "the release's randomizer before it leaves the device."
)

_NETWORK_OUTPUT: Final = "offaxis.network"
_OUTPUTS: Final = "outputs"
_ANSWER: Final = "answer"


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
    That of a release of pairs also takes ``answers`` (n, a), one column per answer: the index of a
    class, or a number; NaN or 1e30 for no answer. ``offaxis.asked`` in ``metadata_props`` is a JSON
    list of what is asked.

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
    kind = _checked_dtype(dtype)
    _check_radius(release, kind)
    model = model_of(encoder_graph(release.encoder, kind))
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
    release.require_single_reports(
        "make reports with offaxis.client.Reporter or Device, which keep these answers"
    )
    array = to_numpy(encoded, "encoded vectors")
    single = array.ndim == (0 if isinstance(release.randomizer.domain, FiniteSet) else 1)
    batch = array[None] if single else array
    payloads = release.randomizer.report(batch, Entropy())
    reports = frame(payloads, release.randomizer.wire_id, release.hash)
    return reports[0] if single else reports


def model_to_onnx(model: Any, *, dtype: Precision = "float32") -> ModelProto:
    """Return a public model, such as one learnt from reports, as an ONNX model.

    It maps ``vectors`` (n, m) to ``outputs`` (n, k): scores of the classes, or a number. A
    classifier also returns ``answer`` (n,), the index of the largest output. The names of the
    classes are in ``metadata_props``, as a JSON list under ``offaxis.answers``. A model of cells is
    exact for any number of cells.

    The model is public and needs no protection. What it returns for a private vector is private.

    Parameters
    ----------
    model : ReportClassifier, ReportRegressor or Layers
        As :func:`offaxis.learn` returns it.
    dtype : {"float32", "float64"}
        Type of inputs and outputs. GELU is always computed in float32.

    Returns
    -------
    onnx.ModelProto
        A checked model; ``onnx.save(model, path)`` writes it.

    Examples
    --------
    >>> import json, onnxruntime
    >>> import offaxis
    >>> from offaxis.integrations.onnx import model_to_onnx
    >>> from offaxis.learning import fit_pairs, principal
    >>> people = np.random.default_rng(0).standard_normal((3000, 4))
    >>> release = fit_pairs(principal(people[:500]), ["no", "yes"], epsilon=2)
    >>> reports = release.privatize(people[500:], answers=1 * (people[500:, 0] > 0))
    >>> model = model_to_onnx(offaxis.learn(release, reports))
    >>> session = onnxruntime.InferenceSession(model.SerializeToString())
    >>> outputs, answer = session.run(None, {"vectors": people[:5].astype(np.float32)})
    >>> outputs.shape, bool((answer == outputs.argmax(axis=1)).all())
    ((5, 2), True)
    >>> json.loads({p.key: p.value for p in model.metadata_props}["offaxis.answers"])
    ['no', 'yes']
    """
    kind, parts = _checked_dtype(dtype), PublicModel.of(model)
    graph, network, k = Graph(kind), parts.network, parts.output_dim
    found = graph.layers(VECTORS, network.weights, network.biases, network.activation)
    if parts.table is not None:
        found = graph.node("Gather", graph.constant(parts.table), graph.largest(found), axis=0)
    graph.node("Identity", found, output=_OUTPUTS)
    outputs = [graph.value(_OUTPUTS, k)]
    if k > 1:
        graph.node("Identity", graph.largest(found), output=_ANSWER)
        outputs.append(helper.make_tensor_value_info(_ANSWER, TensorProto.INT64, ["n"]))
    inputs = [graph.value(VECTORS, network.input_dim)]
    exported = model_of(helper.make_graph(graph.nodes, "model", inputs, outputs, graph.constants))
    facts = {f"offaxis.{name}": value for name, value in parts.facts.items()}
    if parts.answers is not None:
        facts["offaxis.answers"] = json.dumps(parts.answers, ensure_ascii=False)
    helper.set_model_props(exported, facts | {"offaxis.version": __version__})
    onnx.checker.check_model(exported, full_check=True)
    return exported


def _checked_dtype(dtype: Precision) -> np.dtype[Any]:
    kind = np.dtype(dtype)
    if kind not in (np.float32, np.float64):
        raise InvalidInput(f"dtype must be 'float32' or 'float64', got {dtype!r}")
    return kind


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
    if release.asked:
        facts["offaxis.asked"] = json.dumps(list(map(_question, release.asked)), ensure_ascii=False)
    helper.set_model_props(model, facts)
    model.doc_string = NOT_PRIVATE


def _question(asked: Asked) -> dict[str, Any]:
    """Return what is asked in one column of ``answers``."""
    what: dict[str, Any] = {"name": asked.name, "optional": asked.optional}
    if isinstance(asked, Classes):
        return what | {"classes": asked.names}
    return what | {"low": asked.low, "high": asked.high}


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
        model_of(nodes), "network.", rename_inputs=False, rename_outputs=False, rename_edges=True
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
            opset_version=OPSET,
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
    parts = release.encoder
    dim = parts.vector_dim if isinstance(parts, PairEncoder) else parts.input_dim
    if width != dim:
        raise InvalidInput(
            f"the release expects vectors of dimension {dim}, the network returns {width}"
        )
    encoder.ir_version = network.ir_version
    return compose.merge_models(network, encoder, io_map=[(network.graph.output[0].name, VECTORS)])
