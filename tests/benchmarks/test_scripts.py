"""Every script of benchmarks/ documents its command, and the README lists it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"
SUITE = ("__init__", "__main__", "run", "harness")
"""The modules of ``python -m benchmarks`` itself."""
SCRIPTS = sorted(set(FOLDER.glob("*.py")) - {FOLDER / f"{name}.py" for name in SUITE})


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_a_script_is_listed_and_documents_its_command(script: Path) -> None:
    assert f"`{script.stem}`" in (FOLDER / "README.md").read_text(encoding="utf-8")
    text = script.read_text(encoding="utf-8")
    if '"__main__"' in text:
        assert f"python -m benchmarks.{script.stem}" in (ast.get_docstring(ast.parse(text)) or "")
