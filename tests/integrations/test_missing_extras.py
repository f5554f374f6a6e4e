"""An integration without its library names the extra to install."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

from offaxis.errors import MissingExtra

LIBRARIES = {
    "sklearn": "sklearn.frozen",
    "torch": "torch",
    "transformers": "torch",
    "onnx": "onnx",
    "pandas": "pandas",
    "arrow": "pyarrow",
}


@pytest.mark.parametrize("name", LIBRARIES)
def test_an_integration_without_its_library_names_the_extra(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = f"offaxis.integrations.{name}"
    importlib.import_module(module)
    for loaded in list(sys.modules):
        if loaded == module or loaded.startswith(f"{module}."):
            monkeypatch.delitem(sys.modules, loaded)
    monkeypatch.setitem(sys.modules, LIBRARIES[name], None)
    with pytest.raises(MissingExtra, match=rf"pip install '\.\[{name}\]'"):
        importlib.import_module(module)


def test_logging_without_mlflow_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    from offaxis.integrations.mlflow import log_release

    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(MissingExtra, match=r"pip install '\.\[mlflow\]'"):
        log_release(None)


def test_the_package_imports_no_optional_library() -> None:
    code = (
        "import sys, offaxis, offaxis.integrations; "
        "print({'torch', 'sklearn', 'pandas', 'pyarrow', 'onnx', 'mlflow'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
