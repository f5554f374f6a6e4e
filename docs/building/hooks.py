"""MkDocs hooks: pages from the repository root, executed notebooks, inline drawings, formulas."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from formulas import typeset
from mkdocs.structure.files import File
from notebooks import as_markdown

if TYPE_CHECKING:
    from collections.abc import Callable

    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
AT_ROOT = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
}
"""Pages at the root of the repository, where GitHub and similar sites expect them."""

_ROLE = r":(?:func|class|mod|meth|attr|data|exc|obj):"
"""A Sphinx role, which docstrings use for cross-references."""

_LINK = re.compile(r"\[([^\]\[]*)\]\(([^)\s]+)\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages: those of the repository root, and the executed notebooks."""
    for name, page in AT_ROOT.items():
        if (ROOT / name).exists():
            text = (ROOT / name).read_text(encoding="utf-8")
            files.append(File.generated(config, page, content=_LINK.sub(_from_root, text)))
    for file in list(files):
        if file.src_uri.endswith(".ipynb"):
            text, pictures = as_markdown(Path(file.abs_src_path))
            files.append(
                File.generated(config, file.src_uri.replace(".ipynb", ".md"), content=text)
            )
            folder = Path(file.src_uri).parent
            for name, content in pictures.items():
                files.append(File.generated(config, f"{folder}/{name}", content=content))
    return files


def _from_root(link: re.Match[str]) -> str:
    """Rewrite a link of a root page for its place in the docs."""
    target = link[2]
    if target.startswith(("https://", "#")):
        return link[0]
    if target.startswith("docs/"):
        return f"[{link[1]}]({target.removeprefix('docs/')})"
    return f"[{link[1]}](../{target})"


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links at the site's pages; replace links to files outside the site by their text."""
    depth = page.file.src_uri.count("/")
    outside = "../" * (depth + 1)

    def resolve(link: re.Match[str]) -> str:
        text, target = link[1], link[2]
        if target.startswith(outside):
            site_page = AT_ROOT.get(target.removeprefix(outside))
            return f"[{text}]({'../' * depth}{site_page})" if site_page else text
        if target.endswith(".ipynb") and not text.startswith("Download"):
            return f"[{text}]({target.removesuffix('.ipynb')}.md)"
        return link[0]

    return _outside_code(markdown, lambda part: _LINK.sub(resolve, part))


def _outside_code(markdown: str, change: Callable[[str], str]) -> str:
    """Apply a change to everything except fenced blocks."""
    parts = re.split(r"(^```.*?^```$)", markdown, flags=re.M | re.S)
    return "".join(part if part.startswith("```") else change(part) for part in parts)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Inline our drawings, so that they use the page's colours; turn roles into links."""

    def inline(image: re.Match[str]) -> str:
        source = Path(config.docs_dir) / "pictures" / image[1]
        drawing = source.read_text(encoding="utf-8")
        width = re.search(r'<svg [^>]*width="(\d+)"', drawing)
        # Below this width the labels are illegible; a narrow screen scrolls.
        min_width = f' style="min-width: {0.75 * int(width[1]):.0f}px"' if width else ""
        shown = image[0]  # unchanged if it has its own colours
        if "--ink" in drawing:
            drawing = re.sub(r"<style>.*?</style>|<rect class=\"card\"[^>]*/>", "", drawing)
            shown = drawing[drawing.index("<svg") :]
        return f'<span class="drawing">{shown.replace(" ", f"{min_width} ", 1)}</span>'

    html = re.sub(r'<img [^>]*src="(?:\.\./)*pictures/([\w-]+\.svg)"[^>]*>', inline, html)
    html = re.sub(rf"{_ROLE}<code>~?([\w.]+)</code>", _reference, html)
    return typeset(re.sub(rf"{_ROLE}`~?(?:\w+\.)*(\w+)`", r"\1", html))


def _reference(role: re.Match[str]) -> str:
    """Turn a Sphinx role into a link to the reference, if the target exists."""
    name = role[1].rpartition(".")[2]
    return f'<autoref identifier="{role[1]}" optional><code>{name}</code></autoref>'
