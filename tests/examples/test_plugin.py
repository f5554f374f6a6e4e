"""The example package: installed and tested in an environment of its own, and as the page shows."""

from __future__ import annotations

import ast
import os
import subprocess
from pathlib import Path

import pytest

from examples.environments import ROOT, prepare
from tests.docs.blocks import blocks

PLUGIN = ROOT / "examples/plugin"
CODE = PLUGIN / "src/offaxis_one_bit/__init__.py"
MOST_LINES = 30


@pytest.fixture(scope="module")
def python() -> Path:
    """The interpreter of an environment with offaxis and the package, and nothing else of ours."""
    requirements = ("pytest>=8", "scikit-learn>=1.6")
    return prepare(ROOT / ".venv-plugin", requirements, (ROOT, PLUGIN))


def classes(text: str) -> dict[str, str]:
    """Return the source of every class without its docstring and comments, by name."""
    found = {}
    for node in ast.parse(text).body:
        if isinstance(node, ast.ClassDef):
            body = node.body
            if isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
                node.body = body[1:]
            node.decorator_list = []
            found[node.name] = ast.unparse(node)
    return found


def test_its_own_tests_pass_in_its_own_environment(python: Path, tmp_path: Path) -> None:
    """Among them: the pytest plugin accepts the mechanism and rejects its broken sister."""
    own = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "COV", "PYTHON"))}
    run = subprocess.run(
        [python, "-m", "pytest", "-p", "no:cacheprovider", f"--rootdir={PLUGIN}", PLUGIN],
        cwd=tmp_path,
        env=own,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "4 passed" in run.stdout


def test_the_command_line_finds_it(python: Path, tmp_path: Path) -> None:
    script = (
        "import numpy as np; np.save('public.npy', np.random.default_rng(0).normal(size=(200, 4)))"
    )
    subprocess.run([python, "-c", script], cwd=tmp_path, check=True)
    fit = "fit --public public.npy --mechanism one-bit.sampled --reshaping none --epsilon 2"
    for arguments, shown in (
        (f"{fit} --out my.release", "one-bit.sampled"),
        ("inspect my.release", "one-bit.sampled (not part of offaxis)"),
    ):
        command = [python.parent / "offaxis", *arguments.split()]
        run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert run.returncode == 0, run.stderr
        assert shown in run.stdout


def test_it_takes_few_lines_and_the_page_shows_them() -> None:
    text = CODE.read_text()
    own = classes(text)
    assert len(own["OneBit"].splitlines()) <= MOST_LINES
    page = (ROOT / "docs/your-mechanism.md").read_text()
    shown = [classes(block.text) for block in blocks(page) if "OneBit(" in block.text]
    assert own in shown
