"""Every public name has an example of how a user would call it, and the example runs.

The public names are those in the ``__all__`` of a module. Modules are parsed, and imported only
when their test runs, so that collecting these tests does not import torch, JAX or Spark. An example
imports what it uses; only numpy is predefined as ``np``, as in its documentation.
"""

from __future__ import annotations

import ast
import doctest
import re
import warnings
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import offaxis

SOURCE = Path(offaxis.__file__).parent
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
NOT_INSTALLED = ("flwr", "atheris", "opendp")
"""Packages that are not in the test environment; modules that import them are skipped."""

Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
Callable = (ast.FunctionDef, ast.AsyncFunctionDef)


@cache
def path_of(module: str) -> Path:
    path = SOURCE.joinpath(*module.split(".")[1:])
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


@cache
def tree_of(module: str) -> ast.Module:
    return ast.parse(path_of(module).read_text(encoding="utf-8"))


@cache
def exports(module: str) -> tuple[str, ...]:
    for node in tree_of(module).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return tuple(ast.literal_eval(node.value))
    return ()


def public_modules() -> Iterator[str]:
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE.parent).with_suffix("").parts
        module = ".".join(part for part in parts if part != "__init__")
        if exports(module):
            yield module


def definition_site(module: str, name: str) -> tuple[str, str]:
    """Return the module that defines an exported name, and the name there."""
    for node in ast.walk(tree_of(module)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("offaxis"):
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    return definition_site(str(node.module), alias.name)
    return module, name


def definition(module: str, name: str) -> Documented | None:
    """Return the class or function with this name; None for constants and aliases."""
    latest = None
    for node in ast.walk(tree_of(module)):
        if isinstance(node, (ast.ClassDef, *Callable)) and node.name == name:
            # The last definition: overloads come before the function that they describe.
            latest = node
    return latest


PUBLIC = {
    (module, name): node
    for module, name in sorted(
        {definition_site(m, name) for m in public_modules() for name in exports(m)}
    )
    if (node := definition(module, name)) is not None
}


def methods(node: Documented) -> list[Documented]:
    if not isinstance(node, ast.ClassDef):
        return []
    return [n for n in node.body if isinstance(n, Callable) and not n.name.startswith("_")]


def examples(module: str, node: Documented) -> doctest.DocTest:
    name = getattr(node, "name", module)
    line = node.body[0].lineno - 1
    text = ast.get_docstring(node) or ""
    return doctest.DocTestParser().get_doctest(
        text, {"np": np, "__name__": "__main__"}, name, str(path_of(module)), line
    )


def source(test: doctest.DocTest) -> str:
    return "".join(example.source for example in test.examples)


def check(test: doctest.DocTest) -> None:
    assert not any(doctest.SKIP in e.options for e in test.examples), f"{test.name} skips a line"
    output: list[str] = []
    runner = doctest.DocTestRunner(optionflags=OPTIONS, verbose=False)
    if runner.run(test, out=output.append).failed:
        pytest.fail("".join(output), pytrace=False)


def import_or_skip(module: str) -> ModuleType:
    try:
        return import_module(module)
    except ImportError as error:
        missing = getattr(error.__cause__ or error, "name", None)
        if missing in NOT_INSTALLED:
            pytest.skip(f"needs {missing}")
        raise


def label(module: str, name: str) -> str:
    """Return the name with its package, such as ``geometry.measure``."""
    package = module if path_of(module).name == "__init__.py" else module.rpartition(".")[0]
    return f"{package.removeprefix('offaxis.')}.{name}"


def server_of(module: str) -> str:
    """Return the fixture of a slow server that the examples of a module need."""
    return "spark" if module.startswith("offaxis.engines.spark") else ""


@pytest.mark.parametrize(
    ("module", "name", "server"),
    [pytest.param(*key, server_of(key[0]), id=label(*key)) for key in PUBLIC],
)
def test_every_public_name_has_an_example_that_runs(
    module, name, server, tmp_path, monkeypatch, request
):
    import_or_skip(module)
    if server:
        request.getfixturevalue(server)
        # Warnings of pyspark 3.5 do not concern the example.
        warnings.simplefilter("ignore")
    node = PUBLIC[module, name]
    text = source(examples(module, node))
    assert text, f"{module}.{name} has no example: add one under Examples"
    if isinstance(node, Callable):
        assert re.search(rf"\b{name}\b", text), f"the example of {module}.{name} does not call it"
    monkeypatch.chdir(tmp_path)
    for documented in (node, *methods(node)):
        check(examples(module, documented))


@pytest.mark.parametrize("module", list(public_modules()))
def test_a_public_module_has_all_its_names_and_its_examples_run(module, tmp_path, monkeypatch):
    loaded = import_or_skip(module)
    assert all(hasattr(loaded, name) for name in exports(module))
    monkeypatch.chdir(tmp_path)
    check(examples(module, tree_of(module)))
