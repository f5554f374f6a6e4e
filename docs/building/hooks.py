"""What the site does beyond MkDocs: root pages, notebooks that run, drawings in its colours."""

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
"""Pages that stand at the root of the repository, where a forge looks for them."""

_ROLE = r":(?:func|class|mod|meth|attr|data|exc|obj):"
"""How docstrings point at other code."""

_LINK = re.compile(r"\[([^\]\[]*)\]\(([^)\s]+)\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what is made for the site: pages of the root, and notebooks as they run."""
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
    """Turn a link of a page at the root into one of a page among the docs."""
    target = link[2]
    if target.startswith(("https://", "#")):
        return link[0]
    if target.startswith("docs/"):
        return f"[{link[1]}]({target.removeprefix('docs/')})"
    return f"[{link[1]}](../{target})"


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead links where the site has what they mean; what it has not is named without a link."""
    depth = page.file.src_uri.count("/")
    outside = "../" * (depth + 1)

    def lead(link: re.Match[str]) -> str:
        text, target = link[1], link[2]
        if target.startswith(outside):
            page_here = AT_ROOT.get(target.removeprefix(outside))
            return f"[{text}]({'../' * depth}{page_here})" if page_here else text
        if target.endswith(".ipynb") and not text.startswith("Download"):
            return f"[{text}]({target.removesuffix('.ipynb')}.md)"
        return link[0]

    return _outside_code(markdown, lambda part: _LINK.sub(lead, part))


def _outside_code(markdown: str, change: Callable[[str], str]) -> str:
    """Apply a change to everything but fenced blocks."""
    parts = re.split(r"(^```.*?^```$)", markdown, flags=re.M | re.S)
    return "".join(part if part.startswith("```") else change(part) for part in parts)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Put our own drawings into the page, where its colours reach them; turn roles into links."""

    def inline(image: re.Match[str]) -> str:
        source = Path(config.docs_dir) / "pictures" / image[1]
        drawing = source.read_text(encoding="utf-8")
        width = re.search(r'<svg [^>]*width="(\d+)"', drawing)
        # Smaller than this its words cannot be read; a narrow screen scrolls.
        least = f' style="min-width: {0.75 * int(width[1]):.0f}px"' if width else ""
        shown = image[0]  # as it is, where it has colours of its own
        if "--ink" in drawing:
            drawing = re.sub(r"<style>.*?</style>|<rect class=\"card\"[^>]*/>", "", drawing)
            shown = drawing[drawing.index("<svg") :]
        return f'<span class="drawing">{shown.replace(" ", f"{least} ", 1)}</span>'

    html = re.sub(r'<img [^>]*src="(?:\.\./)*pictures/([\w-]+\.svg)"[^>]*>', inline, html)
    html = re.sub(rf"{_ROLE}<code>~?([\w.]+)</code>", _reference, html)
    return typeset(re.sub(rf"{_ROLE}`~?(?:\w+\.)*(\w+)`", r"\1", html))


def _reference(role: re.Match[str]) -> str:
    """Turn what Sphinx calls a role into a link to the reference, where it is there."""
    name = role[1].rpartition(".")[2]
    return f'<autoref identifier="{role[1]}" optional><code>{name}</code></autoref>'
