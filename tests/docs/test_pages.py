"""The pages are correct: their Python runs and prints the output they show; links resolve."""

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
from tests.docs.fitted import rejecting_fitted_rows

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("docs/reference/*.md")])
TESTED_ELSEWHERE = {"tutorial.md", "pipelines.md"}
"""Pages with separate tests: test_tutorial.py, tests/integrations/test_pipelines_page.py."""


def _small_task() -> dict[str, object]:
    rng = np.random.default_rng(0)
    public = rng.normal(size=(600, 8)) + 0.5
    weights = [rng.normal(size=(9, 8)), rng.normal(size=(4, 9))]
    model = Layers(weights, [np.zeros(9), np.zeros(4)])
    release = offaxis.fit(model, public, epsilon=5, mechanism="laplace")
    private = rng.normal(size=(50, 8)) + 0.5
    return {
        "np": np,
        "offaxis": offaxis,
        "model": model,
        "public": public,
        "private": private,
        "z": private[0],
        "reports": release.privatize(private),
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


def _array_types() -> dict[str, object]:
    import pandas
    import torch

    small = _small_task()
    vectors = np.asarray(small["private"])[:5]
    return {
        "numpy": np,
        "release": small["release"],
        "tensor": torch.from_numpy(vectors),
        "frame": pandas.DataFrame(vectors),
    }


NAMESPACES: dict[str, Callable[[], dict[str, object]]] = {
    "ablations.md": _bundled,
    "arrays.md": _array_types,
    "decoders.md": _small_task,
    "high-dimension.md": _small_task,
    "optimal-reshaping.md": _small_task,
}
"""Names that the first block of a page uses without defining them."""


def _runs(page: Path) -> bool:
    python = [block for block in blocks(page.read_text()) if block.kind == "python"]
    return page.name not in TESTED_ELSEWHERE and any(not block.fragment for block in python)


# Deprecation warnings of other libraries do not concern the page.
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("page", [page for page in PAGES if _runs(page)], ids=lambda p: p.name)
def test_the_python_of_a_page_runs_and_prints_the_shown_output(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "__main__"} | NAMESPACES.get(page.name, dict)()
    # What a reader copies must not privatize a vector that it was fitted to.
    with rejecting_fitted_rows():
        _run(page, names)


def _run(page: Path, names: dict[str, object]) -> None:
    printed: str | None = None
    for block in blocks(page.read_text()):
        if block.kind == "python":
            # Blank lines before the block make a traceback name the line of the page.
            code = compile("\n" * (block.line - 1) + block.text, str(page), "exec")
            out = io.StringIO()
            if not block.fragment:
                with contextlib.redirect_stdout(out):
                    exec(code, names)
            printed = None if block.fragment else out.getvalue()
        elif block.kind == "text" and printed is not None:
            assert missing(block.text, printed) == [], f"line {block.line}: it printed\n{printed}"
            printed = None
        else:
            printed = None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_resolve(page):
    for target in re.findall(r"\]\(([^)#\s]+)", page.read_text()):
        if not target.startswith("https://"):
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", sorted(ROOT.glob("docs/*.md")), ids=lambda page: page.name)
def test_code_fits_the_width_of_the_site(page):
    for block in blocks(page.read_text()):
        for index, line in enumerate(block.text.splitlines()):
            # The width that a screen of 1,400 pixels shows without a scroll bar.
            assert len(line) <= 102, f"line {block.line + index}"


def test_only_blocks_marked_as_fragments_are_fragments():
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
    """Return whether a dotted name is a module, or an attribute in one."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        try:
            target = importlib.import_module(".".join(parts[:count]))
        except ImportError:
            continue
        for part in parts[count:]:
            if not hasattr(target, part):
                return False
            target = getattr(target, part)
        return True
    return False


WITH_CURRENT_NAMES = [page for page in PAGES if page.name != "CHANGELOG.md"]


@pytest.mark.parametrize("page", WITH_CURRENT_NAMES, ids=lambda page: page.name)
def test_files_and_names_mentioned_on_a_page_exist(page):
    text = page.read_text()
    for file in re.findall(r"`((?:[\w-]+/)+[\w-]*(?:\.py)?)`", text):
        if file.endswith(".py") or (ROOT / "src/offaxis" / file.split("/")[0]).is_dir():
            roots = (ROOT, ROOT / "src/offaxis", page.parent)
            assert any((root / file).exists() for root in roots), file
    for name in re.findall(r"`(offaxis(?:\.\w+)+)\b", text):
        # Flower needs a separate environment.
        assert "flower" in name or _resolves(name), name
