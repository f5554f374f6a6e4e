from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

from offaxis.errors import MissingExtra


@pytest.mark.parametrize("name", ["sklearn", "torch"])
def test_a_face_without_its_library_names_the_extra(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    face = f"offaxis.faces.{name}"
    importlib.import_module(face)
    monkeypatch.delitem(sys.modules, face)
    monkeypatch.setitem(sys.modules, "torch" if name == "torch" else "sklearn.frozen", None)
    with pytest.raises(MissingExtra, match=rf"pip install 'offaxis\[{name}\]'"):
        importlib.import_module(face)


def test_the_package_itself_imports_neither_library() -> None:
    code = "import sys, offaxis, offaxis.faces; print({'torch', 'sklearn'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
