"""A release's public encoder, with a network in front if there is one, as an ONNX model.

**The graph is not private.** It holds what is public and deterministic. The client behind it clips
and draws exact noise from the operating system's randomness; a graph could draw floating-point
noise only, which leaks.
"""

from __future__ import annotations

import io
import warnings
from typing import Any, Final, Literal

import numpy as np
import onnx
from onnx import ModelProto, compose, helper

from offaxis.arrays import to_numpy
from offaxis.errors import InvalidInput
from offaxis.faces.onnx.graph import OPSET, VECTORS, Graph, encoder_graph
from offaxis.formats.reports import frame
from offaxis.geometry import Layers
from offaxis.randomizers.domain import FiniteSet
from offaxis.release import Release
from offaxis.sampling.entropy import Entropy
from offaxis.version import __version__

Precision = Literal["float32", "float64"]

_IR: Final = 9
_NETWORK_OUTPUT: Final = "offaxis.network"
_SINGLE_RADII: Final = (2.0**-40, 2.0**40)
NOT_PRIVATE: Final = (
    "This graph is the public encoder only and protects nobody. What it returns must pass "
    "the release's randomizer before it leaves the device."
)


def to_onnx(
    release: Release,
    network: Any = None,
    *,
    example: Any = None,
    dtype: Precision = "float32",
) -> ModelProto:
    """Return the public encoder of a release as an ONNX model; **no noise is in it**.

    From ``vectors`` (n, m) to ``encoded`` (n, r), or to ``symbols`` (n,) for a codebook. Every
    input has a finite encoding: NaN counts as zero, an infinity as the largest number, and rows
    that could overflow (beyond 2^56 in float32, 2^500 in float64) are shrunk. The hash and the
    guarantee of the release are in ``metadata_props``.

    Parameters
    ----------
    release : Release
    network : torch.nn.Module or Layers, optional
        A public network in front, whose outputs (n, m) are the vectors. The graph then takes what
        the network takes.
    example : tensor or tuple of tensors
        An input of the torch network, with its batch axis first.
    dtype : {"float32", "float64"}
        Of the encoder, and of the input where no torch network stands in front. GELU is computed
        in float32 either way, as far as ONNX Runtime has it.

    Returns
    -------
    onnx.ModelProto
        Checked; ``onnx.save(model, path)`` writes it.

    Raises
    ------
    InvalidInput
        If the network does not give vectors of the release's dimension, torch cannot export it, or
        the release needs float64.

    Examples
    --------
    >>> import onnxruntime
    >>> from offaxis import fit
    >>> from offaxis.faces.onnx import privatize_encoded, to_onnx
    >>> public = np.random.default_rng(0).normal(size=(99, 3))
    >>> release = fit(np.eye(3)[:1], public, epsilon=4)
    >>> model = to_onnx(release)
    >>> session = onnxruntime.InferenceSession(model.SerializeToString())
    >>> (encoded,) = session.run(None, {"vectors": public[:2].astype(np.float32)})
    >>> bool(np.allclose(encoded, release.encoder.encode(public[:2]), atol=1e-5))
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
    model = _model(encoder_graph(release.encoder, kind))
    if isinstance(network, Layers):
        model = _behind(_from_layers(network, kind), model, release, network.biases[-1].size)
    elif network is not None:
        before, width = _from_torch(network, example, kind)
        model = _behind(before, model, release, width)
    elif example is not None:
        raise InvalidInput("example is an input of a torch network; leave it out without one")
    _describe(model, release)
    onnx.checker.check_model(model, full_check=True)
    return model


def privatize_encoded(release: Release, encoded: Any) -> bytes | list[bytes]:
    """Turn what an exported graph returned into reports, as :meth:`Release.privatize` would.

    The randomizer clips and draws exact noise from the operating system's randomness, so that the
    guarantee holds whatever the graph did. **Every call spends the budget again.**

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
        If it is not an encoding of this release. Nothing is released then.

    Examples
    --------
    >>> from offaxis import fit
    >>> from offaxis.faces.onnx import privatize_encoded
    >>> release = fit(np.eye(3)[:1], np.random.default_rng(0).normal(size=(99, 3)), epsilon=4)
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
    low, high = _SINGLE_RADII
    if kind.itemsize == 4 and not low <= radius <= high:
        raise InvalidInput(f"float32 is too narrow for radius={radius!r}; use dtype='float64'")


def _model(graph: onnx.GraphProto) -> ModelProto:
    opset = [helper.make_opsetid("", OPSET)]
    return helper.make_model(graph, opset_imports=opset, ir_version=_IR, producer_name="offaxis")


def _from_layers(network: Layers, kind: np.dtype[Any]) -> ModelProto:
    graph = Graph(kind)
    out = graph.layers("input", network.weights, network.biases, network.activation)
    graph.node("Identity", out, output=_NETWORK_OUTPUT)
    into = helper.make_tensor_value_info("input", graph.kind, ["n", network.input_dim])
    last = helper.make_tensor_value_info(
        _NETWORK_OUTPUT, graph.kind, ["n", network.biases[-1].size]
    )
    made = helper.make_graph(graph.nodes, "network", [into], [last], graph.constants)
    return _prefixed(_model(made))


def _from_torch(network: Any, example: Any, kind: np.dtype[Any]) -> tuple[ModelProto, int]:
    """Export a torch network by tracing; return it and the width of what it gives."""
    import torch

    if not isinstance(network, torch.nn.Module) or example is None:
        raise InvalidInput(
            "a network must be a torch module, given with an example of its input, or Layers; "
            f"got {type(network).__name__} and example={type(example).__name__}"
        )
    inputs = example if isinstance(example, tuple) else (example,)
    names = ["input"] if len(inputs) == 1 else [f"input_{i}" for i in range(len(inputs))]
    training = [(part, part.training) for part in network.modules()]
    network.eval()
    file: Any = io.BytesIO()
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the tracing exporter needs onnx alone, and is old
            given = network(*inputs)
            if not isinstance(given, torch.Tensor) or given.ndim != 2:
                raise InvalidInput("the network must return vectors (n, m), one row an input")
            torch.onnx.export(
                network,
                inputs,
                file,
                dynamo=False,
                opset_version=OPSET,
                input_names=names,
                output_names=[_NETWORK_OUTPUT],
                dynamic_axes={name: {0: "n"} for name in (*names, _NETWORK_OUTPUT)},
            )
    except InvalidInput:
        raise
    except Exception as error:
        # The network is the user's own code, and the exporter has many errors.
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise InvalidInput(f"torch cannot export this network: {reason}") from error
    finally:
        for part, flag in training:
            part.training = flag
    model = _cast(onnx.load_from_string(file.getvalue()), kind)
    return model, int(given.shape[1])


def _cast(model: ModelProto, kind: np.dtype[Any]) -> ModelProto:
    """Let the network's output be of the dtype that the release's graph takes."""
    out = model.graph.output[0]
    wanted = helper.np_dtype_to_tensor_dtype(kind)
    if out.type.tensor_type.elem_type != wanted:
        name = f"{_NETWORK_OUTPUT}.cast"
        model.graph.node.append(helper.make_node("Cast", [out.name], [name], to=wanted))
        out.name = name
        out.type.tensor_type.elem_type = wanted
    return model


def _prefixed(model: ModelProto) -> ModelProto:
    """Give what is inside other names than the release's graph has; callers see the same."""
    return compose.add_prefix(
        model, "network.", rename_inputs=False, rename_outputs=False, rename_edges=True
    )


def _behind(before: ModelProto, model: ModelProto, release: Release, width: int) -> ModelProto:
    if width != release.input_dim:
        raise InvalidInput(
            f"the release takes vectors of dimension {release.input_dim}, the network gives {width}"
        )
    model.ir_version = before.ir_version
    return compose.merge_models(before, model, io_map=[(before.graph.output[0].name, VECTORS)])


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
