"""docs/module-map.md matches the imports, and every import contract rejects a violation."""

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

USES_RANDOMNESS = {
    "sampling/entropy.py": "every report",
    "files.py": "names of temporary files",
    "engines/local.py": "names of temporary files",
    "engines/spark/data.py": "names of temporary files",
    "engines/spark/cluster.py": "names of jobs",
    "collector/access.py": "tokens",
    "client/device.py": "when to send",
}
"""Files that use system randomness, and their purpose. Only the first makes reports."""


def test_page_and_picture_match_the_imports() -> None:
    for path, content in module_map.generate().items():
        assert path.read_text() == content, f"{path.name} is out of date: run make map"


def _uses_randomness(file: Path) -> bool:
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


def test_only_reviewed_files_use_randomness() -> None:
    files = [file for file in SOURCE.rglob("*.py") if _uses_randomness(file)]
    assert {str(file.relative_to(SOURCE)) for file in files} == set(USES_RANDOMNESS)


def _run_linter(home: Path) -> subprocess.CompletedProcess[str]:
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
    for source in (SOURCE, ROOT / "experiments", ROOT / "benchmarks"):
        code_only = shutil.ignore_patterns("*.npz", "*.json", "*.safetensors", "*.release")
        shutil.copytree(source, home / source.name, ignore=code_only)
    return home


@pytest.mark.parametrize(
    ("file", "line", "broken"),
    [
        ("files.py", "", None),
        (
            "geometry/jacobian.py",
            "from offaxis.randomizers import Laplace",
            "only from layers below",
        ),
        ("theory/risk.py", "def f():\n    import offaxis.auditing", "only from layers below"),
        ("theory/risk.py", "import experiments.methods", "neither its experiments nor"),
        ("cli/fit.py", "def f():\n    import benchmarks.run", "neither its experiments nor"),
        ("client/terms.py", "import offaxis.fitting", "no fitting side"),
        ("collector/access.py", "import offaxis.mechanisms", "A collector imports nothing"),
        ("randomizers/base.py", "import offaxis.geometry.jacobian", "nothing that is fitted"),
        ("randomizers/laplace.py", "import secrets", "no other randomness"),
        ("randomizers/laplace.py", "import offaxis.simulation", "imports the seeded simulation"),
        ("release.py", "def f():\n    import offaxis.simulation", "imports the seeded simulation"),
        ("client/device.py", "import offaxis.simulation", "imports the seeded simulation"),
        ("engines/arrow.py", "import offaxis.engines.tallies", "imports the seeded simulation"),
        ("sampling/entropy.py", "from random import Random", "no other randomness"),
        ("release.py", "def f():\n    import torch", "no optional package"),
        ("auditing/auditor.py", "import offaxis", "the package's interface"),
        ("corridor.py", "", "every package has a layer"),
    ],
)
def test_every_contract_rejects_a_violation(
    copy: Path, file: str, line: str, broken: str | None
) -> None:
    path = copy / "offaxis" / file
    before = path.read_text() if path.exists() else None
    path.write_text(f"{before or ''}\n{line}\n")
    try:
        done = _run_linter(copy)
    finally:
        path.write_text(before) if before is not None else path.unlink()
    if broken is None:
        assert done.returncode == 0, done.stdout
    else:
        assert done.returncode == 1
        lines = done.stdout.splitlines()
        assert any(broken in text and "BROKEN" in text for text in lines) or (
            broken in done.stdout and "corridor" in done.stdout
        )
