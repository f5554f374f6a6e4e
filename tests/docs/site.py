"""Parse a built page: its anchors, headings, links, and the resources a browser would load."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path

_LOADS = {
    "script": ("src",),
    "img": ("src", "srcset"),
    "iframe": ("src",),
    "source": ("src", "srcset"),
    "video": ("src", "poster"),
    "audio": ("src",),
    "embed": ("src",),
    "object": ("data",),
    "input": ("src",),
    "use": ("href", "xlink:href"),
    "image": ("href", "xlink:href"),
    "form": ("action",),
}
"""Attributes that make a browser load a resource, by element; a ``link`` depends on its rel."""

_NOT_LOADED = {"canonical", "next", "prev", "alternate", "license", "author"}
"""Relations of ``link`` elements that a browser does not load."""


@dataclass
class PageParser(HTMLParser):
    """The content of one page."""

    ids: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    loads: list[str] = field(default_factory=list)
    classes: set[str] = field(default_factory=set)
    headings: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attributes}
        self.ids |= {values[name] for name in ("id", "name") if values.get(name)}
        self.classes |= set(values.get("class", "").split())
        if tag in ("h1", "h2"):
            self.headings.append((tag, values.get("id", "")))
        self.loads += [values[name] for name in _LOADS.get(tag, ()) if name in values]
        self.loads += re.findall(r"url\(([^)]*)\)", values.get("style", ""))
        if tag == "link" and not set(values.get("rel", "").split()) & _NOT_LOADED:
            self.loads.append(values.get("href", ""))
        if tag == "a" and "href" in values:
            self.links.append(values["href"])


def parse_page(path: Path) -> PageParser:
    """Parse a page."""
    page = PageParser()
    page.feed(path.read_text(encoding="utf-8"))
    return page
