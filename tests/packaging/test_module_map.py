"""Rooms import as docs/module-map.md shows, and the contracts catch what they are there for."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tools import module_map
from tools.module_map import ROOT

SOURCE = ROOT / "src/offaxis"

TOUCHES_RANDOMNESS = {
    "sampling/entropy.py": "every report",
    "files.py": "names of drafts",
    "engines/local/files.py": "names of drafts",
    "engines/spark/files.py": "names of drafts",
    "engines/spark/watch.py": "names of jobs",
    "collector/auth.py": "tokens",
    "client/device.py": "when to send",
    "client/sending.py": "when to send",
    "browser/demo_site.py": "whose turn it is in a simulated crowd",
    "reporting/demo/run.py": "a seed of the demo's simulation",
}
"""Who asks the operating system for randomness, and what for. Only the first makes reports."""


def test_page_and_picture_are_drawn_from_the_imports_as_they_are() -> None:
    for path, content in module_map.drawn().items():
        assert path.read_text() == content, f"{path.name} is old: make map"


def _asks(file: Path) -> bool:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or "", *(alias.name for alias in node.names)]
        elif isinstance(node, ast.Attribute):
            names = [node.attr]
        else:
            continue
        if {"secrets", "random", "uuid", "urandom", "getrandom", "SystemRandom"} & set(
            names
        ) and not (isinstance(node, ast.Attribute) and node.attr in ("random", "secrets", "uuid")):
            return True
    return False


def test_only_reviewed_files_ask_for_randomness() -> None:
    found = {str(file.relative_to(SOURCE)) for file in SOURCE.rglob("*.py") if _asks(file)}
    assert found == set(TOUCHES_RANDOMNESS)


def _linted(home: Path) -> subprocess.CompletedProcess[str]:
    command = [Path(sys.executable).parent / "lint-imports", "--no-cache", "--config"]
    return subprocess.run(
        [*command, ROOT / "pyproject.toml"],
        cwd=home,
        env={"PYTHONPATH": str(home), "PATH": ""},
        capture_output=True,
        text=True,
    )


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("copy")
    shutil.copytree(SOURCE, home / "offaxis", ignore=shutil.ignore_patterns("*.npz", "*.json"))
    return home


@pytest.mark.parametrize(
    ("file", "line", "broken"),
    [
        ("files.py", "", None),
        ("geometry/gram.py", "from offaxis.randomizers import Laplace", "only from rooms below"),
        ("theory/risk.py", "def f():\n    import offaxis.audit", "only from rooms below"),
        ("client/terms.py", "import offaxis.fitting", "no fitting side"),
        ("collector/auth.py", "import offaxis.recipes", "neither fits nor draws"),
        ("randomizers/base.py", "import offaxis.geometry.gram", "nothing of what is fitted"),
        ("randomizers/laplace.py", "import secrets", "entropy.py alone"),
        ("sampling/entropy.py", "from random import Random", "entropy.py alone"),
        ("release.py", "def f():\n    import torch", "no optional package"),
        ("audit/plan.py", "import offaxis", "the package's face"),
        ("corridor.py", "", "every room has its place"),
    ],
)
def test_the_contracts_catch_what_they_are_there_for(
    copy: Path, file: str, line: str, broken: str | None
) -> None:
    path = copy / "offaxis" / file
    before = path.read_text() if path.exists() else None
    path.write_text(f"{before or ''}\n{line}\n")
    try:
        done = _linted(copy)
    finally:
        path.write_text(before) if before is not None else path.unlink()
    if broken is None:
        assert done.returncode == 0, done.stdout
    else:
        assert done.returncode == 1
        assert any(broken in said and "BROKEN" in said for said in done.stdout.splitlines()) or (
            broken in done.stdout and "corridor" in done.stdout
        )
