"""ONNX models as tasks: run anywhere, read as layers where they are a plain chain."""

from __future__ import annotations

import io
import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn

from offaxis.errors import InvalidInput, UnsupportedModel
from offaxis.geometry import Classifier, Layers, answer_names, as_task_model, layers_for_answers
from offaxis.geometry.onnx_model import OnnxModel
from offaxis.geometry.torch_model import TorchModel

RNG = np.random.default_rng(0)
Z = RNG.standard_normal((200, 6)) * RNG.choice([0.1, 1.0, 5.0], (200, 1))


def exported(module: nn.Module, *, batch: int | None = None) -> onnx.ModelProto:
    """Return a module as torch exports it by tracing."""
    file: Any = io.BytesIO()
    free = {} if batch else {"z": {0: "n"}, "scores": {0: "n"}}
    torch.onnx.export(
        module.eval(),
        (torch.zeros(batch or 2, 6),),
        file,
        dynamo=False,
        opset_version=18,
        input_names=["z"],
        output_names=["scores"],
        dynamic_axes=free,
    )
    return onnx.load_from_string(file.getvalue())


def model(nodes: list[Any], outputs: list[Any], constants: dict[str, Any] | None = None) -> Any:
    """Return a model of nodes on an input z of six numbers."""
    tensors = [numpy_helper.from_array(np.asarray(v), k) for k, v in (constants or {}).items()]
    inputs = [helper.make_tensor_value_info("z", TensorProto.FLOAT, ["n", 6])]
    graph = helper.make_graph(nodes, "head", inputs, outputs, tensors)
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def scores(name: str = "scores", size: Any = 3) -> Any:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", size])


def norm(size: int) -> nn.LayerNorm:
    part = nn.LayerNorm(size)
    nn.init.normal_(part.weight)
    nn.init.normal_(part.bias)
    return part


CHAINS = {
    "6→8→3, gelu": lambda: nn.Sequential(
        nn.Linear(6, 8), nn.BatchNorm1d(8), nn.GELU(), nn.Dropout(), nn.Linear(8, 3)
    ),
    "6→8→8→14→4, normalise+relu+relu": lambda: nn.Sequential(
        *(nn.Flatten(), nn.Linear(6, 8), norm(8), nn.ReLU(), nn.Linear(8, 7), nn.LeakyReLU(0.2)),
        *(nn.Linear(7, 4), nn.Softmax(dim=1)),
    ),
    "6→5→5→5→2, elu+silu+tanh": lambda: nn.Sequential(
        *(nn.Linear(6, 5), nn.ELU(), nn.Linear(5, 5), nn.SiLU(), nn.Linear(5, 5), nn.Tanh()),
        *(nn.Linear(5, 2), nn.LogSoftmax(dim=1)),
    ),
    "6→8→2, relu": lambda: nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 1), nn.Sigmoid()),
}


@pytest.mark.parametrize("name", CHAINS)
@pytest.mark.filterwarnings("ignore")
def test_a_plain_chain_becomes_layers(name):
    torch.manual_seed(0)
    module = CHAINS[name]()
    task = as_task_model(exported(module))
    assert task.input_dim == 6
    reference = TorchModel(module)
    outputs = reference.outputs(Z)
    assert np.allclose(task.outputs(Z), outputs, atol=1e-4 * np.abs(outputs).max())
    layers = layers_for_answers(task)
    assert str(layers) == f"Layers({name})"
    assert layers is not None
    answers = outputs[:, 0] > 0.5 if outputs.shape[1] == 1 else outputs.argmax(axis=1)
    assert (layers.outputs(Z).argmax(axis=1) == answers).mean() >= 0.99
    J = reference.jacobians(Z[:20])
    assert np.allclose(task.jacobians(Z[:20]), J, atol=1e-4 * np.abs(J).max())
    G = np.ones(J.shape[:2])
    assert np.allclose(task.vjp(Z[:20], G), J.sum(axis=1), atol=1e-3 * np.abs(J).max())


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x):
        return self.head(x + torch.tanh(self.inner(x)))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("batch", [None, 1, 7])
@pytest.mark.parametrize("runtime", [True, False])
def test_any_other_graph_runs(monkeypatch, runtime, batch):
    if not runtime:  # as if ONNX Runtime were not installed
        monkeypatch.setitem(sys.modules, "onnxruntime", None)
    module = Residual()
    task = OnnxModel(exported(module, batch=batch))
    assert task.as_layers() is None
    reference = TorchModel(module)
    assert np.allclose(task.outputs(Z), reference.outputs(Z), atol=1e-4)
    J = reference.jacobians(Z[:10])
    assert np.allclose(task.jacobians(Z[:10]), J, atol=2e-2)
    assert np.allclose(task.gram(Z[:10]), np.einsum("nkm,nkl->ml", J, J), rtol=0.05, atol=0.05)


@pytest.mark.filterwarnings("ignore")
def test_paths_bytes_and_models_are_the_same_model(tmp_path):
    proto = exported(nn.Linear(6, 3))
    path = tmp_path / "head.onnx"
    onnx.save(proto, path)
    tasks = [as_task_model(source) for source in (path, str(path), proto)]
    tasks += [OnnxModel(path.read_bytes()), pickle.loads(pickle.dumps(tasks[0]))]
    assert len({task.identity() for task in tasks}) == 1
    assert tasks[0].identity().kind == "onnx"
    assert all(np.array_equal(task.outputs(Z), tasks[0].outputs(Z)) for task in tasks)
    assert as_task_model(exported(nn.Linear(6, 3))).identity() != tasks[0].identity()


def classifier(transform: str, labels: dict[str, Any], *, zipped: bool, flip: bool = False) -> Any:
    """Return a linear classifier as skl2onnx writes it, with labels and probabilities."""
    rng = np.random.default_rng(3)
    weight = rng.standard_normal((3, 6)).astype(np.float32)
    nodes = [
        helper.make_node(
            "LinearClassifier",
            ["z"],
            ["label", "raw"],
            domain="ai.onnx.ml",
            coefficients=weight.ravel().tolist(),
            intercepts=[0.5, 0.0, -0.5],
            post_transform=transform,
            multi_class=1,
            **{f"classlabels_{kind}": values for kind, values in labels.items()},
        ),
        helper.make_node("Neg" if flip else "Identity", ["raw"], ["probabilities"]),
    ]
    string = "strings" in labels
    outputs = [
        helper.make_tensor_value_info(
            "label", TensorProto.STRING if string else TensorProto.INT64, ["n"]
        )
    ]
    if zipped:
        keys = {f"classlabels_{'strings' if string else 'int64s'}": next(iter(labels.values()))}
        nodes.append(
            helper.make_node("ZipMap", ["probabilities"], ["maps"], domain="ai.onnx.ml", **keys)
        )
        key = TensorProto.STRING if string else TensorProto.INT64
        value = helper.make_tensor_type_proto(TensorProto.FLOAT, [])
        kind = helper.make_sequence_type_proto(helper.make_map_type_proto(key, value))
        outputs.append(helper.make_value_info("maps", kind))
    else:
        outputs.append(scores("probabilities"))
    return model(nodes, outputs)


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("transform", ["SOFTMAX", "LOGISTIC", "NONE"])
@pytest.mark.parametrize("labels", [{"strings": ["a", "b", "c"]}, {"ints": [4, 5, 6]}])
def test_the_probabilities_of_an_exported_classifier_are_used(zipped, transform, labels):
    task = OnnxModel(classifier(transform, labels, zipped=zipped))
    names = tuple(map(str, next(iter(labels.values()))))
    assert answer_names(task) == names
    assert task.outputs(Z).shape == (200, 3)
    layers = task.as_layers()
    assert layers is not None
    assert layers.answers == names
    weight = np.random.default_rng(3).standard_normal((3, 6)).astype(np.float32)
    expected = (Z @ weight.T.astype(float) + [0.5, 0.0, -0.5]).argmax(axis=1)
    assert (layers.outputs(Z).argmax(axis=1) == expected).all()
    # Far out, single precision rounds several probabilities to one.
    assert (task.outputs(Z).argmax(axis=1) == expected).mean() > 0.95
    assert Classifier(task, ("x", "y", "z")).answers == ("x", "y", "z")


def test_the_label_decides_where_the_scores_name_another_class():
    labels = {"strings": ["a", "b", "c"]}
    flipped = OnnxModel(classifier("NONE", labels, zipped=False, flip=True))
    right = OnnxModel(classifier("NONE", labels, zipped=False))
    assert (flipped.outputs(Z).argmax(axis=1) == right.outputs(Z).argmax(axis=1)).mean() > 0.99
    assert flipped.as_layers() is None
    with pytest.raises(UnsupportedModel, match="class-response"):
        flipped.gram(Z)


def test_a_model_that_returns_labels_alone_is_a_clear_error():
    label = helper.make_tensor_value_info("label", TensorProto.INT64, ["n"])
    node = helper.make_node("ArgMax", ["z"], ["label"], axis=1, keepdims=0)
    with pytest.raises(InvalidInput, match=r"returns no scores, only label.*export it with"):
        OnnxModel(model([node], [label]))


def test_wrong_inputs_outputs_and_files_are_clear_errors(tmp_path):
    two = [helper.make_node("Neg", ["z"], ["a"]), helper.make_node("Abs", ["z"], ["b"])]
    several = model(two, [scores("a", 6), scores("b", 6)])
    with pytest.raises(InvalidInput, match=r"a, b; choose one.*output='a'"):
        OnnxModel(several)
    assert np.allclose(OnnxModel(several, output="b").outputs(Z), np.abs(Z), atol=1e-6)
    with pytest.raises(InvalidInput, match="no output 'c'"):
        OnnxModel(several, output="c")
    with pytest.raises(InvalidInput, match="dimension 6, got 5"):
        OnnxModel(several, output="a").outputs(Z[:, :5])
    image = model([helper.make_node("Flatten", ["z"], ["scores"])], [scores()])
    image.graph.input[0].CopyFrom(
        helper.make_tensor_value_info("z", TensorProto.FLOAT, ["n", 1, 2, 3])
    )
    with pytest.raises(InvalidInput, match=r"vectors \(n, m\)"):
        OnnxModel(image)
    pair = model([helper.make_node("Add", ["z", "y"], ["scores"])], [scores()])
    pair.graph.input.append(helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 6]))
    with pytest.raises(InvalidInput, match="2 inputs: z, y"):
        OnnxModel(pair)
    (tmp_path / "junk.onnx").write_bytes(b"junk")
    for source, message in (
        (tmp_path / "junk.onnx", "not a readable ONNX model"),
        (b"junk", "not a readable ONNX model"),
        (b"", "empty"),
        (tmp_path / "nowhere.onnx", "there is no ONNX file"),
    ):
        with pytest.raises(InvalidInput, match=message):
            OnnxModel(source)
    assert isinstance(as_task_model(np.eye(2)), Layers)
    with pytest.raises(UnsupportedModel, match="no adapter"):
        as_task_model(Path("head.pickle"))


def test_a_graph_that_the_runtime_rejects_is_a_clear_error():
    unknown = model([helper.make_node("Transmogrify", ["z"], ["scores"])], [scores()])
    with pytest.raises(InvalidInput, match=r"ONNX Runtime cannot load|failed"):
        OnnxModel(unknown).outputs(Z)
