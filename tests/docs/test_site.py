"""The site builds strictly, its links resolve, it loads nothing external, it covers the API."""

from __future__ import annotations

import ast
import fcntl
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

import nbformat
import pytest

from tests.docs.site import PageParser, parse_page

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "docs/notebooks").glob("*.ipynb"))
PACKAGE = ROOT / "src/offaxis"


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID")
    shared = tmp_path_factory.getbasetemp().parent if run else tmp_path_factory.mktemp("site")
    folder = shared / f"site-{run or 0}"
    # Workers that share this file build the site once.
    with (shared / f"lock-{run or 0}").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            _build(folder)
    return folder


def _build(folder: Path) -> None:
    done = subprocess.run(
        [Path(sys.executable).with_name("mkdocs"), "build", "--strict", "--site-dir", folder],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1", "OPENBLAS_NUM_THREADS": "1"},
        timeout=600,
    )
    if done.returncode:
        shutil.rmtree(folder, ignore_errors=True)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def pages(site) -> dict[Path, PageParser]:
    parsed = {path: parse_page(path) for path in sorted(site.rglob("*.html"))}
    assert len(parsed) > 50
    return parsed


def test_every_internal_link_leads_to_a_page_and_an_anchor_in_it(site, pages):
    broken = []
    for path, page in pages.items():
        if path.name == "404.html":
            continue
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if target.is_dir():
                target = target / "index.html"
            anchor = unquote(parts.fragment)
            if not target.is_file() or (
                anchor and target in pages and anchor not in pages[target].ids | {"__skip"}
            ):
                broken.append(f"{path.relative_to(site)}: {link}")
    assert broken == []


def _heading_fault(page: PageParser) -> str | None:
    """Return what is wrong with the headings: a page has one title, and lists all sections."""
    titles = [anchor for tag, anchor in page.headings if tag == "h1"]
    sections = [anchor for tag, anchor in page.headings if tag == "h2"]
    # Each heading has a link to itself, and one more in the table of contents.
    absent = [anchor for anchor in sections if page.links.count(f"#{anchor}") < 2]
    if len(titles) == 1 and not absent:
        return None
    return f"titles {titles}, not in the table of contents {absent}"


def test_a_page_has_one_title_and_lists_every_section(site, pages):
    faults = {str(path.relative_to(site)): _heading_fault(page) for path, page in pages.items()}
    assert {path: fault for path, fault in faults.items() if fault} == {}


def test_external_links_are_well_formed_and_encrypted(pages):
    for page in pages.values():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                local = parts.hostname == "127.0.0.1"
                assert parts.scheme == ("http" if local else "https"), link
                assert local or re.fullmatch(r"([\w-]+\.)+[a-z]{2,}", parts.netloc), link


def _is_external(address: str) -> bool:
    parts = urlsplit(address.strip("'\" "))
    return bool(parts.netloc) or parts.scheme not in ("", "data")


def test_the_site_loads_nothing_external(site, pages):
    for path, page in pages.items():
        assert [load for load in page.loads if _is_external(load)] == [], path
        # The theme would load an external script to draw these.
        assert "mermaid" not in page.classes, path
    for sheet in site.rglob("*.css"):
        text = sheet.read_text(encoding="utf-8")
        loads = re.findall(r"url\(([^)]*)\)|@import\s+([^;]+)", text)
        assert not [load for pair in loads for load in pair if load and _is_external(load)], sheet


def test_an_external_resource_would_be_detected(tmp_path):
    path = tmp_path / "page.html"
    path.write_text(
        '<link rel="stylesheet" href="https://fonts.example/css"><script src="//cdn.example/x.js">'
        '</script><p style="background: url(https://pixel.example/1)">'
        '<a href="https://fine.example/">a link is no load</a><img src="data:image/png;base64,x">'
    )
    page = parse_page(path)
    assert sum(map(_is_external, page.loads)) == 3
    assert page.links == ["https://fine.example/"]


def _public_names() -> dict[str, list[str]]:
    """Return every module with an ``__all__``, and the names in it."""
    names = {}
    for file in PACKAGE.rglob("*.py"):
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
                parts = file.relative_to(PACKAGE.parent).with_suffix("").parts
                module = ".".join(part for part in parts if part != "__init__")
                names[module] = ast.literal_eval(node.value)
    return names


def test_every_public_name_is_on_a_reference_page(pages):
    ids = set().union(*(page.ids for path, page in pages.items() if "reference" in path.parts))
    public = _public_names()
    assert len(public) > 15
    absent = [module for module in public if module not in ids]
    absent += [
        f"{module}.{name}"
        for module, names in public.items()
        for name in names
        # A function with the name of its file has both names.
        if not {f"{module}.{name}", f"{module}.{name}.{name}"} & ids and name != "__version__"
    ]
    assert absent == []


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_are_stored_without_outputs_and_published_with_them(notebook, site):
    code = [c for c in nbformat.read(notebook, as_version=4).cells if c.cell_type == "code"]
    assert all(not cell.outputs and cell.execution_count is None for cell in code)
    page = parse_page(site / f"notebooks/{notebook.stem}.html")
    figures = [load for load in page.loads if load.endswith(".png")]
    assert figures
    assert all((site / "notebooks" / figure).stat().st_size > 5000 for figure in figures)
    assert "language-text" in page.classes


def test_drawings_are_inline(site):
    drawn = {"index": 1, "choosing-epsilon": 6, "design": 1, "theory": 1, "data": 2, "models": 1}
    for name, drawings in drawn.items():
        page = (site / f"{name}.html").read_text(encoding="utf-8")
        # Each has a minimum width at which its text is legible.
        assert page.count('<span class="drawing"><svg style="min-width: ') == drawings
        assert not re.search(r"<img[^>]*pictures/", page)
