"""Every public name has an example of how a user would call it, and the example runs.

Public is what a module lists in its ``__all__``. Modules are read, not imported, until their test
runs, so that collecting these tests costs no import of torch, JAX or Spark. An example imports what
it uses; only numpy stands ready as ``np``, as in numpy's own documentation.
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
"""What the test environment does without: modules that import one of these are skipped."""

Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
Callable = (ast.FunctionDef, ast.AsyncFunctionDef)


@cache
def path_of(module: str) -> Path:
    place = SOURCE.joinpath(*module.split(".")[1:])
    return place / "__init__.py" if place.is_dir() else place.with_suffix(".py")


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


def home(module: str, name: str) -> tuple[str, str]:
    """Return where a name that a module exports is defined."""
    for node in ast.walk(tree_of(module)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("offaxis"):
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    return home(str(node.module), alias.name)
    return module, name


def definition(module: str, name: str) -> Documented | None:
    """Return the class or function of that name; constants and aliases have none."""
    found = None
    for node in ast.walk(tree_of(module)):
        if isinstance(node, (ast.ClassDef, *Callable)) and node.name == name:
            # The last one: overloads stand before the function that they describe.
            found = node
    return found


PUBLIC = {
    (where, name): node
    for where, name in sorted({home(m, name) for m in public_modules() for name in exports(m)})
    if (node := definition(where, name)) is not None
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
    said: list[str] = []
    runner = doctest.DocTestRunner(optionflags=OPTIONS, verbose=False)
    if runner.run(test, out=said.append).failed:
        pytest.fail("".join(said), pytrace=False)


def imported(module: str) -> ModuleType:
    try:
        return import_module(module)
    except ImportError as error:
        missing = getattr(error.__cause__ or error, "name", None)
        if missing in NOT_INSTALLED:
            pytest.skip(f"needs {missing}")
        raise


def label(module: str, name: str) -> str:
    """Return the name behind its package, such as ``geometry.measure``."""
    package = module if path_of(module).name == "__init__.py" else module.rpartition(".")[0]
    return f"{package.removeprefix('offaxis.')}.{name}"


def needs(module: str) -> str:
    """Return the fixture that examples of a module share, for what takes long to start."""
    return "spark" if module.startswith("offaxis.engines.spark") else ""


@pytest.mark.parametrize(
    ("where", "name", "shared"),
    [pytest.param(*key, needs(key[0]), id=label(*key)) for key in PUBLIC],
)
def test_every_public_name_has_an_example_that_runs(
    where, name, shared, tmp_path, monkeypatch, request
):
    imported(where)
    if shared:
        request.getfixturevalue(shared)
        # What pyspark 3.5 leaves behind is no word about the example.
        warnings.simplefilter("ignore")
    node = PUBLIC[where, name]
    own = examples(where, node)
    text = source(own)
    assert text, f"{where}.{name} has no example: add one under Examples"
    if isinstance(node, Callable):
        assert re.search(rf"\b{name}\b", text), f"the example of {where}.{name} does not call it"
    monkeypatch.chdir(tmp_path)
    for one in (node, *methods(node)):
        check(examples(where, one))


@pytest.mark.parametrize("module", list(public_modules()))
def test_a_public_module_has_all_its_names_and_its_examples_run(module, tmp_path, monkeypatch):
    found = imported(module)
    assert all(hasattr(found, name) for name in exports(module))
    monkeypatch.chdir(tmp_path)
    check(examples(module, tree_of(module)))
