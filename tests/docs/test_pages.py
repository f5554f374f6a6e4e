"""The pages are true: their Python runs and prints what they show; links lead somewhere."""

from __future__ import annotations

import contextlib
import importlib
import io
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import offaxis
from experiments.data import load_cifar10_features
from offaxis.geometry import Layers
from tests.docs.blocks import blocks, missing

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("docs/reference/*.md")])
WALKED = {"tutorial.md", "pipelines.md"}
"""Pages with a test of their own: test_tutorial.py, tests/integrations/test_pipelines_page.py."""


def _small_task() -> dict[str, object]:
    rng = np.random.default_rng(0)
    public = rng.normal(size=(600, 8)) + 0.5
    weights = [rng.normal(size=(9, 8)), rng.normal(size=(4, 9))]
    model = Layers(weights, [np.zeros(9), np.zeros(4)])
    release = offaxis.fit(model, public, epsilon=5)
    return {
        "np": np,
        "offaxis": offaxis,
        "model": model,
        "public": public,
        "z": public[0],
        "reports": release.privatize(public[:50]),
        "release": release,
    }


def _bundled() -> dict[str, object]:
    data = load_cifar10_features()
    return {
        "head": data.head,
        "public": data.public[:1000],
        "vectors": data.vectors[:100],
        "labels": data.labels[:100],
    }


def _kinds() -> dict[str, object]:
    import pandas
    import torch

    small = _small_task()
    vectors = np.asarray(small["public"])[:5]
    return {
        "numpy": np,
        "release": small["release"],
        "tensor": torch.from_numpy(vectors),
        "frame": pandas.DataFrame(vectors),
    }


SETTINGS: dict[str, Callable[[], dict[str, object]]] = {
    "ablations.md": _bundled,
    "arrays.md": _kinds,
    "decoders.md": _small_task,
    "high-dimension.md": _small_task,
    "optimal-reshaping.md": _small_task,
}
"""What a page takes for granted: names that its first block uses and does not make."""


def _runs(page: Path) -> bool:
    python = [block for block in blocks(page.read_text()) if block.kind == "python"]
    return page.name not in WALKED and any(not block.fragment for block in python)


# What other libraries announce to their own developers is not about the page.
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("page", [page for page in PAGES if _runs(page)], ids=lambda p: p.name)
def test_the_python_of_a_page_runs_and_prints_what_it_shows(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "__main__"} | SETTINGS.get(page.name, dict)()
    said: str | None = None
    for block in blocks(page.read_text()):
        if block.kind == "python":
            # Blank lines before the block, so that a traceback names the line of the page.
            code = compile("\n" * (block.line - 1) + block.text, str(page), "exec")
            out = io.StringIO()
            if not block.fragment:
                with contextlib.redirect_stdout(out):
                    exec(code, names)
            said = None if block.fragment else out.getvalue()
        elif block.kind == "text" and said is not None:
            assert missing(block.text, said) == [], f"line {block.line}: it printed\n{said}"
            said = None
        else:
            said = None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#\s]+)", page.read_text()):
        if not target.startswith("https://"):
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", sorted(ROOT.glob("docs/*.md")), ids=lambda page: page.name)
def test_code_fits_the_column_of_the_site(page):
    for block in blocks(page.read_text()):
        for at, line in enumerate(block.text.splitlines()):
            # What a screen of 1,400 pixels shows without a scroll bar.
            assert len(line) <= 102, f"line {block.line + at}"


def test_a_fragment_is_not_run_and_everything_else_is():
    page = "<!-- fragment -->\n```python\na\n```\n\n```python\nb\n```\n\n```text\nc\n```\n"
    assert [(b.kind, b.text, b.fragment) for b in blocks(page)] == [
        ("python", "a\n", True),
        ("python", "b\n", False),
        ("text", "c\n", False),
    ]


def test_the_readme_names_both_commands():
    readme = (ROOT / "README.md").read_text()
    makefile = (ROOT / "Makefile").read_text()
    for command in ("demo", "test"):
        assert f"make {command}" in readme
        assert re.search(rf"^{command}:", makefile, re.M)


def _resolves(name: str) -> bool:
    """Say whether a dotted name can be imported, as a module or as something in one."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:count]))
        except ImportError:
            continue
        for part in parts[count:]:
            if not hasattr(found, part):
                return False
            found = getattr(found, part)
        return True
    return False


NAMING = [page for page in PAGES if page.name != "CHANGELOG.md"]


@pytest.mark.parametrize("page", NAMING, ids=lambda page: page.name)
def test_files_and_names_of_the_package_that_a_page_names_are_there(page):
    text = page.read_text()
    for file in re.findall(r"`((?:[\w-]+/)+[\w-]*(?:\.py)?)`", text):
        if file.endswith(".py") or (ROOT / "src/offaxis" / file.split("/")[0]).is_dir():
            roots = (ROOT, ROOT / "src/offaxis", page.parent)
            assert any((root / file).exists() for root in roots), file
    for name in re.findall(r"`(offaxis(?:\.\w+)+)\b", text):
        # Flower lives in an environment of its own.
        assert "flower" in name or _resolves(name), name
