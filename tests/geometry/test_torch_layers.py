"""Torch modules as layers: exact for chains of common operations, None for anything else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils import parametrizations

from offaxis.geometry import CentredOutputs, as_task_model, layers_for_answers
from offaxis.geometry.torch_model import TorchModel


def batch_norm(size: int) -> nn.BatchNorm1d:
    part = nn.BatchNorm1d(size)
    assert part.running_mean is not None
    assert part.running_var is not None
    part.running_mean.normal_()
    part.running_var.uniform_(0.5, 2)
    nn.init.normal_(part.weight)
    return part


def layer_norm(size: int) -> nn.LayerNorm:
    part = nn.LayerNorm(size)
    nn.init.normal_(part.weight)
    nn.init.normal_(part.bias)
    return part


class Ordinary(nn.Module):
    """Functions, methods, buffers and reshaping, as people write them."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(6, 8), nn.Linear(8, 3)
        self.register_buffer("mean", torch.randn(6))
        self.scale = nn.Parameter(torch.rand(6) + 0.5)
        self.norm = layer_norm(8)

    def forward(self, x):
        x = (x - self.mean) / self.scale
        x = functional.dropout(functional.gelu(self.first(x)), 0.5, self.training)
        x = torch.flatten(x.tanh(), 1)
        x = self.norm(x.view(x.size(0), -1)).sigmoid()
        return functional.log_softmax(2 * self.last(x), dim=1)


class Products(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.shift = nn.Parameter(torch.randn(6, 4)), nn.Parameter(torch.randn(4))
        self.last = nn.Parameter(torch.randn(3, 4))

    def forward(self, x):
        return torch.relu(x @ self.first + self.shift) @ self.last.T


class Loop(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ModuleList([nn.Linear(6, 6) for _ in range(4)])
        self.head = nn.Linear(6, 1)

    def forward(self, x):
        for part in self.parts:
            x = functional.silu(part(x))
        return torch.sigmoid(self.head(x)).squeeze(-1)


class OwnLinear(nn.Linear):
    """A subclass outside of torch."""


def deep(hidden: int) -> nn.Sequential:
    parts = [part for _ in range(hidden) for part in (nn.Linear(6, 6), nn.ReLU())]
    return nn.Sequential(*parts, nn.Linear(6, 3))


def exported() -> nn.Module:
    inner = nn.Sequential(nn.Linear(6, 8), batch_norm(8), nn.GELU(), nn.Linear(8, 3)).eval()
    free = ({0: torch.export.Dim("n")},)
    return torch.export.export(inner, (torch.zeros(4, 6),), dynamic_shapes=free).module()


CHAINS: dict[str, tuple[Callable[[], Any], str]] = {
    "affine parts are composed": (
        lambda: nn.Sequential(*(nn.Linear(6, 6) for _ in range(3)), batch_norm(6), nn.Linear(6, 3)),
        "6→3, relu",
    ),
    "a linear layer alone": (lambda: nn.Linear(6, 3), "6→3, relu"),
    "a subclass": (lambda: OwnLinear(6, 3), "6→3, relu"),
    "batch norm and dropout": (
        lambda: nn.Sequential(
            nn.Linear(6, 8), batch_norm(8), nn.GELU(), nn.Dropout(), nn.Linear(8, 3)
        ),
        "6→8→3, gelu",
    ),
    "nested": (
        lambda: nn.Sequential(
            nn.Flatten(),
            nn.Sequential(nn.Linear(6, 8), layer_norm(8), nn.ReLU()),
            nn.Identity(),
            nn.Sequential(nn.Linear(8, 7), nn.LeakyReLU(0.2), batch_norm(7), nn.Linear(7, 4)),
            nn.Softmax(dim=1),
        ),
        "6→8→8→14→4, normalise+relu+relu",
    ),
    "many activations": (
        lambda: nn.Sequential(
            *(nn.Linear(6, 6), nn.ELU(), nn.Linear(6, 6), nn.SiLU(), nn.Linear(6, 6)),
            *(nn.Tanh(), nn.Linear(6, 6), nn.Sigmoid(), nn.Linear(6, 2)),
        ),
        "6→6→6→6→6→2, elu+silu+tanh+logistic",
    ),
    "piecewise affine": (
        lambda: nn.Sequential(
            *(nn.Linear(6, 5), nn.PReLU(5), nn.Linear(5, 4), nn.ReLU6(), nn.Linear(4, 3)),
            nn.Hardtanh(),
        ),
        "6→10→8→6→3, relu",
    ),
    "a norm first": (lambda: nn.Sequential(layer_norm(6), nn.Linear(6, 3)), "6→6→3, normalise"),
    "an activation first": (lambda: nn.Sequential(nn.ReLU(), nn.Linear(6, 3)), "6→6→3, relu"),
    "an activation last": (lambda: nn.Sequential(nn.Linear(6, 3), nn.ReLU()), "6→3→3, relu"),
    "RMSNorm": (
        lambda: nn.Sequential(nn.Linear(6, 8), nn.RMSNorm(8, eps=1e-6), nn.Linear(8, 3)),
        "6→8→3, normalise",
    ),
    "an ordinary module": (Ordinary, "6→8→8→8→8→3, gelu+tanh+normalise+logistic"),
    "products": (Products, "6→4→3, relu"),
    "a loop": (Loop, "6→6→6→6→6→2, silu"),
    "one sigmoid": (
        lambda: nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 1), nn.Sigmoid()),
        "6→8→2, relu",
    ),
    "several sigmoids": (lambda: nn.Sequential(nn.Linear(6, 3), nn.Sigmoid()), "6→3, relu"),
    "weight norm": (
        lambda: nn.Sequential(
            parametrizations.weight_norm(nn.Linear(6, 8)), nn.ReLU(), nn.Linear(8, 3)
        ),
        "6→8→3, relu",
    ),
    "as deep as a release allows": (lambda: deep(7), "6→6→6→6→6→6→6→6→3, relu"),
    "exported": (exported, "6→8→3, gelu"),
    "compiled": (lambda: torch.compile(deep(1)), "6→6→3, relu"),
}


@pytest.mark.parametrize("name", CHAINS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.filterwarnings("ignore")
def test_a_chain_becomes_layers_with_the_same_answers(name, dtype):
    torch.manual_seed(0)
    make, expected = CHAINS[name]
    module = make() if name == "exported" else make().to(dtype).train()
    task = as_task_model(module)
    layers = layers_for_answers(task)
    assert layers is not None
    assert str(layers) == f"Layers({expected})"
    rng = np.random.default_rng(1)
    Z = rng.standard_normal((400, 6)) * rng.choice([0.1, 1.0, 5.0], (400, 1))
    outputs = task.outputs(Z)
    answers = outputs[:, 0] > 0.5 if outputs.shape[1] == 1 else outputs.argmax(axis=1)
    # A single-precision sum rounds differently near a tie.
    assert (layers.outputs(Z).argmax(axis=1) == answers).mean() >= 0.995
    assert name == "exported" or module.training, "the module is left as it was"
    assert str(CentredOutputs(task).as_layers()) == str(layers)


def test_layers_of_a_chain_are_exact():
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Linear(6, 8), layer_norm(8), nn.LeakyReLU(0.1), batch_norm(8), nn.Linear(8, 3)
    ).double()
    task = TorchModel(module)
    layers = task.as_layers()
    assert layers is not None
    Z = np.random.default_rng(0).standard_normal((100, 6)) * 3
    np.testing.assert_allclose(layers.outputs(Z), task.outputs(Z), rtol=1e-10, atol=1e-11)
    np.testing.assert_allclose(layers.jacobians(Z), task.jacobians(Z), rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_read_in_full(dtype):
    torch.manual_seed(0)
    module = deep(2).to(dtype)
    layers = TorchModel(module).as_layers()
    assert layers is not None
    first = module[0].weight
    assert isinstance(first, torch.Tensor)
    assert np.array_equal(layers.weights[0], first.detach().double().numpy())


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x):
        return self.head(x + functional.relu(self.inner(x)))


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = nn.MultiheadAttention(6, 2, batch_first=True), nn.Linear(6, 3)

    def forward(self, x):
        x = x[:, None]
        return self.head(self.inner(x, x, x)[0][:, 0])


class Branching(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(6, 3)

    def forward(self, x):
        return self.head(x) if x.sum() > 0 else -self.head(x)


class InPlace(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(6, 3)

    def forward(self, x):
        y = self.head(x)
        functional.relu(y, inplace=True)
        return y


def hooked() -> nn.Module:
    module = nn.Sequential(nn.Linear(6, 3))
    module[0].register_forward_hook(lambda part, inputs, output: output**2)
    return module


OTHERS: dict[str, Callable[[], Any]] = {
    "residual": Residual,
    "attention": Attention,
    "branching": Branching,
    "in place": InPlace,
    "a hook changes it": hooked,
    "too deep": lambda: deep(8),
    "approximate GELU": lambda: nn.Sequential(nn.Linear(6, 8), nn.GELU("tanh"), nn.Linear(8, 3)),
    "another ELU": lambda: nn.Sequential(nn.Linear(6, 8), nn.ELU(2.0), nn.Linear(8, 3)),
    "convolution": lambda: nn.Sequential(
        nn.Unflatten(1, (1, 6)), nn.Conv1d(1, 2, 3), nn.Flatten(), nn.Linear(8, 3)
    ),
    "statistics of the batch": lambda: nn.Sequential(
        nn.Linear(6, 8), nn.BatchNorm1d(8, track_running_stats=False), nn.Linear(8, 3)
    ),
    "softmax inside": lambda: nn.Sequential(nn.Linear(6, 8), nn.Softmax(1), nn.Linear(8, 3)),
    "softmax over the batch": lambda: nn.Sequential(nn.Linear(6, 8), nn.Softmax(0)),
    "no size": nn.ReLU,
    "nothing": nn.Sequential,
    "recurrent": lambda: nn.GRU(6, 3),
    "transformer": lambda: nn.TransformerEncoderLayer(6, 2, 8),
}


@pytest.mark.parametrize("name", OTHERS)
def test_any_other_module_is_none_and_raises_nothing(name):
    torch.manual_seed(0)
    assert TorchModel(OTHERS[name]()).as_layers() is None
