"""The site is built strictly, its links lead somewhere, it asks nobody else, it names the API."""

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

from tests.docs.site import Looked, looked_at

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "docs/notebooks").glob("*.ipynb"))
PACKAGE = ROOT / "src/offaxis"


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID")
    shared = tmp_path_factory.getbasetemp().parent if run else tmp_path_factory.mktemp("alone")
    folder = shared / f"site-{run or 0}"
    # Workers that share out this file build it once, whoever comes first.
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
def pages(site) -> dict[Path, Looked]:
    found = {page: looked_at(page) for page in sorted(site.rglob("*.html"))}
    assert len(found) > 50
    return found


def test_every_link_of_the_site_leads_to_a_page_and_a_place_in_it(site, pages):
    wrong = []
    for page, found in pages.items():
        if page.name == "404.html":
            continue
        for link in found.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            if target.is_dir():
                target = target / "index.html"
            place = unquote(parts.fragment)
            if not target.is_file() or (
                place and target in pages and place not in pages[target].ids | {"__skip"}
            ):
                wrong.append(f"{page.relative_to(site)}: {link}")
    assert wrong == []


def _badly_headed(found: Looked) -> str | None:
    """Say what is wrong with the headings of a page: one title, all sections in its contents."""
    titles = [place for tag, place in found.headings if tag == "h1"]
    sections = [place for tag, place in found.headings if tag == "h2"]
    # Each heading has a link to itself, and one more in the contents.
    absent = [place for place in sections if found.links.count(f"#{place}") < 2]
    if len(titles) == 1 and not absent:
        return None
    return f"titles {titles}, not in the contents {absent}"


def test_a_page_has_one_title_and_every_section_in_its_contents(site, pages):
    wrong = {str(page.relative_to(site)): _badly_headed(found) for page, found in pages.items()}
    assert {page: why for page, why in wrong.items() if why} == {}


def test_links_to_others_are_well_formed_and_encrypted(pages):
    for found in pages.values():
        for link in found.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                local = parts.hostname == "127.0.0.1"
                assert parts.scheme == ("http" if local else "https"), link
                assert local or re.fullmatch(r"([\w-]+\.)+[a-z]{2,}", parts.netloc), link


def _elsewhere(address: str) -> bool:
    parts = urlsplit(address.strip("'\" "))
    return bool(parts.netloc) or parts.scheme not in ("", "data")


def test_a_reader_of_the_site_asks_nobody_else(site, pages):
    for page, found in pages.items():
        assert [load for load in found.loads if _elsewhere(load)] == [], page
        # The theme would fetch a script from elsewhere to draw these.
        assert "mermaid" not in found.classes, page
    for sheet in site.rglob("*.css"):
        text = sheet.read_text(encoding="utf-8")
        asked = re.findall(r"url\(([^)]*)\)|@import\s+([^;]+)", text)
        assert not [one for pair in asked for one in pair if one and _elsewhere(one)], sheet


def test_a_page_that_asks_somebody_else_would_be_found(tmp_path):
    page = tmp_path / "page.html"
    page.write_text(
        '<link rel="stylesheet" href="https://fonts.example/css"><script src="//cdn.example/x.js">'
        '</script><p style="background: url(https://pixel.example/1)">'
        '<a href="https://fine.example/">a link is no load</a><img src="data:image/png;base64,x">'
    )
    found = looked_at(page)
    assert sum(map(_elsewhere, found.loads)) == 3
    assert found.links == ["https://fine.example/"]


def _public() -> dict[str, list[str]]:
    """Return every module with an ``__all__``, and the names in it."""
    found = {}
    for file in PACKAGE.rglob("*.py"):
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
                parts = file.relative_to(PACKAGE.parent).with_suffix("").parts
                module = ".".join(part for part in parts if part != "__init__")
                found[module] = ast.literal_eval(node.value)
    return found


def test_everything_public_is_on_a_reference_page(pages):
    ids = set().union(*(found.ids for page, found in pages.items() if "reference" in page.parts))
    named = _public()
    assert len(named) > 15
    absent = [module for module in named if module not in ids]
    absent += [
        f"{module}.{name}"
        for module, names in named.items()
        for name in names
        # A function named as its file is found under both names.
        if not {f"{module}.{name}", f"{module}.{name}.{name}"} & ids and name != "__version__"
    ]
    assert absent == []


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_are_kept_without_outputs_and_shown_with_them(notebook, site):
    code = [c for c in nbformat.read(notebook, as_version=4).cells if c.cell_type == "code"]
    assert all(not cell.outputs and cell.execution_count is None for cell in code)
    page = looked_at(site / f"notebooks/{notebook.stem}.html")
    drawn = [load for load in page.loads if load.endswith(".png")]
    assert drawn
    assert all((site / "notebooks" / one).stat().st_size > 5000 for one in drawn)
    assert "language-text" in page.classes


def test_drawings_are_part_of_their_page(site):
    for name, drawings in {"index": 1, "choosing-epsilon": 6}.items():
        page = (site / f"{name}.html").read_text(encoding="utf-8")
        # Each keeps a width at which its words can be read.
        assert page.count('<span class="drawing"><svg style="min-width: ') == drawings
        assert not re.search(r"<img[^>]*pictures/", page)
