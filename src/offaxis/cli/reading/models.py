"""Public models by name: an import path, a torch.export file, or the package's own weights file."""

from __future__ import annotations

import importlib
import inspect
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from offaxis.cli.showing.progress import waiting
from offaxis.errors import InvalidInput, MissingExtra, installing

if TYPE_CHECKING:
    from offaxis.geometry import TaskModel

_IMPORT_PATH = re.compile(r"([^\W\d]\w*(?:\.[^\W\d]\w*)*):([^\W\d]\w*(?:\.[^\W\d]\w*)*)")
_PICKLES = (".pt", ".pth", ".pkl", ".pickle", ".joblib", ".bin", ".ckpt")


def load_model(source: str) -> TaskModel:
    """Load a public model.

    Parameters
    ----------
    source : str
        ``package.module:attribute``, where the attribute is a model or a function without
        arguments that returns one (its module is imported, the current folder is searched first);
        ``file.pt2``, written by torch.export.save; or ``file.safetensors``, written by Layers.save.
        The first two can run code: load only models you trust.
    """
    from offaxis.geometry import Layers, as_task_model

    with waiting("loading the model"):
        suffix = Path(source).suffix.lower()
        if suffix in (".safetensors", ".pt2"):
            if not Path(source).is_file():
                raise InvalidInput(f"there is no file {source}")
            model = Layers.load(source) if suffix == ".safetensors" else _exported(source)
        elif match := _IMPORT_PATH.fullmatch(source):
            model = _imported(match[1], match[2])
        elif suffix in _PICKLES:
            raise InvalidInput(
                f"{source} would have to be unpickled, which can run anything: save the model with "
                f"torch.export.save as .pt2 or its weights with Layers.save as .safetensors, "
                f"or name a function that loads it, as package.module:function"
            )
        else:
            raise InvalidInput(
                f"the model must be an import path package.module:attribute, a .pt2 file or a "
                f".safetensors file, got {source!r}"
            )
        return as_task_model(model)


def _imported(module_name: str, attribute: str) -> Any:
    # Installed commands do not look into the current folder, where the user's own code is.
    sys.path.insert(0, os.getcwd())  # noqa: PTH109
    try:
        found: Any = importlib.import_module(module_name)
    except Exception as error:
        # The user's own code runs here and may raise anything.
        raise InvalidInput(f"cannot import {module_name}: {_reason(error)}") from error
    finally:
        sys.path.pop(0)
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise InvalidInput(f"{module_name} has no attribute {attribute!r}")
        found = getattr(found, part)
    if inspect.isclass(found):
        raise InvalidInput(
            f"{module_name}:{attribute} is a class, and a new instance would not be trained; "
            f"name a trained model or a function that returns one"
        )
    return _returned(found, f"{module_name}:{attribute}") if inspect.isroutine(found) else found


def _returned(function: Any, name: str) -> Any:
    try:
        inspect.signature(function).bind()
    except (TypeError, ValueError):
        raise InvalidInput(
            f"{name} takes arguments; name a model or a function without arguments that returns "
            f"one. To use a function of a batch as the model, return "
            f"offaxis.geometry.FiniteDifferences(function)"
        ) from None
    try:
        return function()
    except Exception as error:
        raise InvalidInput(f"{name} failed: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__


def _exported(path: str) -> Any:
    try:
        import torch
    except ImportError:
        raise MissingExtra(
            f".pt2 files need torch: {installing('torch')}, "
            f"or save the weights with Layers.save as .safetensors"
        ) from None
    try:
        program = torch.export.load(path)
    except Exception as error:
        # torch has no error of its own for a damaged file; it raises whatever happens to break.
        reason = _reason(error)
        raise InvalidInput(f"{path} is not a readable torch.export file: {reason}") from None
    inputs = set(program.graph_signature.user_inputs)
    shapes = [node.meta["val"].shape for node in program.graph.nodes if node.name in inputs]
    if len(shapes) != 1 or len(shapes[0]) != 2:
        raise InvalidInput(f"{path} must take one batch (n, m), got {[list(s) for s in shapes]}")
    if isinstance(shapes[0][0], int):
        raise InvalidInput(
            f"{path} only takes batches of exactly {shapes[0][0]} vectors; export it with "
            f"dynamic_shapes=({{0: torch.export.Dim('batch')}},)"
        )
    return program.module()
