"""A public network in front of a release's graph: plain layers, or a torch module by tracing."""

from __future__ import annotations

import io
import warnings
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import onnx
from onnx import ModelProto, compose, helper

from offaxis.errors import InvalidInput
from offaxis.faces.onnx.graph import OPSET, VECTORS, Graph, model_of
from offaxis.geometry import Layers
from offaxis.release import Release

_OUTPUT: Final = "offaxis.network"


def from_layers(network: Layers, kind: np.dtype[Any]) -> ModelProto:
    """Return plain layers as a model."""
    graph = Graph(kind)
    out = graph.layers("input", network.weights, network.biases, network.activation)
    graph.node("Identity", out, output=_OUTPUT)
    into = helper.make_tensor_value_info("input", graph.kind, ["n", network.input_dim])
    last = helper.make_tensor_value_info(_OUTPUT, graph.kind, ["n", network.biases[-1].size])
    made = helper.make_graph(graph.nodes, "network", [into], [last], graph.constants)
    return _prefixed(model_of(made))


def from_torch(
    network: Any,
    example: Any,
    names: Sequence[str] | None,
    free_axes: Sequence[int],
    kind: np.dtype[Any],
) -> tuple[ModelProto, int]:
    """Export a torch network by tracing; return it and the width of what it gives."""
    import torch

    from offaxis.geometry.torch_model import evaluating

    if not isinstance(network, torch.nn.Module) or example is None:
        raise InvalidInput(
            "a network must be a torch module, given with an example of its input, or Layers; "
            f"got {type(network).__name__} and example={type(example).__name__}"
        )
    inputs = example if isinstance(example, tuple) else (example,)
    usual = ["input"] if len(inputs) == 1 else [f"input_{i}" for i in range(len(inputs))]
    called = usual if names is None else list(names)
    if len(called) != len(inputs):
        raise InvalidInput(f"the example has {len(inputs)} inputs, got {len(called)} names")
    free = {axis: f"axis_{axis}" if axis else "n" for axis in free_axes}
    axes = dict.fromkeys(called, free) | {_OUTPUT: {0: "n"}}
    try:
        with evaluating(network):
            given = network(*inputs)
            if not isinstance(given, torch.Tensor) or given.ndim != 2:
                raise InvalidInput("the network must return vectors (n, m), one row an input")
            traced = _traced(network, inputs, called, axes)
    except InvalidInput:
        raise
    except Exception as error:
        # The network is the user's own code, and the exporter has many errors.
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise InvalidInput(f"torch cannot export this network: {reason}") from error
    return _cast(traced, kind), int(given.shape[1])


def _traced(
    network: Any, inputs: tuple[Any, ...], names: list[str], axes: dict[str, dict[int, str]]
) -> ModelProto:
    import torch

    file: Any = io.BytesIO()
    with warnings.catch_warnings():
        # The exporter by tracing says that it is old; it is the one that needs onnx alone.
        warnings.simplefilter("ignore")
        torch.onnx.export(
            network,
            inputs,
            file,
            dynamo=False,
            opset_version=OPSET,
            input_names=names,
            output_names=[_OUTPUT],
            dynamic_axes=axes,
        )
    return onnx.load_from_string(file.getvalue())


def _cast(model: ModelProto, kind: np.dtype[Any]) -> ModelProto:
    """Let the network's output be of the dtype that the release's graph takes."""
    out = model.graph.output[0]
    wanted = helper.np_dtype_to_tensor_dtype(kind)
    if out.type.tensor_type.elem_type != wanted:
        name = f"{_OUTPUT}.cast"
        model.graph.node.append(helper.make_node("Cast", [out.name], [name], to=wanted))
        out.name = name
        out.type.tensor_type.elem_type = wanted
    return model


def _prefixed(model: ModelProto) -> ModelProto:
    """Give what is inside other names than the release's graph has; callers see the same."""
    return compose.add_prefix(
        model, "network.", rename_inputs=False, rename_outputs=False, rename_edges=True
    )


def behind(before: ModelProto, model: ModelProto, release: Release, width: int) -> ModelProto:
    """Return the release's graph behind a network that gives vectors of some width."""
    if width != release.input_dim:
        raise InvalidInput(
            f"the release takes vectors of dimension {release.input_dim}, the network gives {width}"
        )
    model.ir_version = before.ir_version
    return compose.merge_models(before, model, io_map=[(before.graph.output[0].name, VECTORS)])
