from __future__ import annotations

import builtins
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from offaxis.cli.inputs import load_model
from offaxis.errors import InvalidInput, MissingExtra, UnsupportedModel
from offaxis.geometry import Layers
from tests.cli.conftest import CLASSES, DIM

SOURCE = f"""
import functools
import numpy as np
import torch
from offaxis.geometry import FiniteDifferences, Layers

matrix = np.ones(({CLASSES}, {DIM}))
network = torch.nn.Linear({DIM}, {CLASSES})
class Box:
    head = Layers.linear(2 * matrix)
def make(): return Layers.linear(3 * matrix)
def optional(scale=4): return Layers.linear(scale * matrix)
def needs(something): return something
def function(): return FiniteDifferences(lambda Z: 5 * Z)
nothing = None
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "their_models.py").write_text(SOURCE)
    (tmp_path / "broken.py").write_text("import not_installed_anywhere")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "their_models", raising=False)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "factor"), [("matrix", 1), ("Box.head", 2), ("make", 3), ("optional", 4)]
)
def test_import_paths_from_the_current_folder(home: Path, name: str, factor: float) -> None:
    searched = list(sys.path)
    model = load_model(f"their_models:{name}")
    np.testing.assert_allclose(model.outputs(np.ones((2, DIM))), factor * DIM)
    assert sys.path == searched


def test_a_torch_module_is_a_model_and_not_called(home: Path) -> None:
    assert load_model("their_models:network").identity().kind == "torch"
    assert load_model("their_models:function").identity().kind == "function"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("their_models:absent", "no attribute 'absent'"),
        ("their_models:needs", "takes arguments"),
        ("their_models:Box", "is a class"),
        ("not_a_module:x", "cannot import not_a_module"),
        ("broken:x", "not_installed_anywhere"),
        ("weights.pth", "unpickled"),
        ("model.joblib", "unpickled"),
        ("nothing recognisable", "must be an import path package.module:attribute"),
        ("missing.safetensors", "there is no file missing.safetensors"),
        ("missing.pt2", "there is no file missing.pt2"),
    ],
)
def test_what_cannot_be_loaded_says_the_fix(home: Path, source: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        load_model(source)


def test_an_attribute_that_is_no_model(home: Path) -> None:
    with pytest.raises(UnsupportedModel, match="NoneType"):
        load_model("their_models:nothing")


def test_weights_files(home: Path, small_head: Layers) -> None:
    small_head.save("head.safetensors")
    assert load_model("head.safetensors").identity() == small_head.identity()
    Path("bad.safetensors").write_bytes(b"not weights")
    with pytest.raises(InvalidInput, match="not a readable weights file"):
        load_model("bad.safetensors")


@pytest.fixture(scope="module")
def network() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(DIM, 4), torch.nn.ReLU(), torch.nn.Linear(4, CLASSES)
    ).eval()


def test_exported_programs_are_differentiated(home: Path, network: torch.nn.Module) -> None:
    from offaxis.geometry import as_task_model

    program = torch.export.export(
        network, (torch.randn(4, DIM),), dynamic_shapes=({0: torch.export.Dim("batch")},)
    )
    torch.export.save(program, "net.pt2")
    model = load_model("net.pt2")
    Z = np.random.default_rng(0).standard_normal((20, DIM))
    np.testing.assert_allclose(model.outputs(Z[:1]), as_task_model(network).outputs(Z[:1]), 1e-5)
    np.testing.assert_allclose(model.jacobians(Z), as_task_model(network).jacobians(Z), 1e-5, 1e-6)


def test_programs_exported_for_one_batch_size_are_refused(
    home: Path, network: torch.nn.Module
) -> None:
    torch.export.save(torch.export.export(network, (torch.randn(4, DIM),)), "fixed.pt2")
    with pytest.raises(InvalidInput, match=r"exactly 4 vectors; export it with dynamic_shapes"):
        load_model("fixed.pt2")


def test_damaged_exported_programs(home: Path) -> None:
    Path("bad.pt2").write_bytes(b"not a program")
    with pytest.raises(InvalidInput, match=r"not a readable torch\.export file"):
        load_model("bad.pt2")


def test_exported_programs_without_torch_say_what_to_install(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("net.pt2").touch()
    real = builtins.__import__

    def without(name: str, *rest: Any, **more: Any) -> Any:
        if name == "torch":
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtra, match=r"pip install '\.\[torch\]' in a checkout of offaxis"):
        load_model("net.pt2")
