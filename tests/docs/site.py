"""What is in a built page: its places, headings, links, and what a browser would load for it."""

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
"""Attributes that make a browser ask for something, by element; a ``link`` counts by its rel."""

_QUIET = {"canonical", "next", "prev", "alternate", "license", "author"}
"""Links of a head that are read but not followed."""


@dataclass
class Looked(HTMLParser):
    """One page, read."""

    ids: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    loads: list[str] = field(default_factory=list)
    classes: set[str] = field(default_factory=set)
    headings: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attributes}
        self.ids |= {found[name] for name in ("id", "name") if found.get(name)}
        self.classes |= set(found.get("class", "").split())
        if tag in ("h1", "h2"):
            self.headings.append((tag, found.get("id", "")))
        self.loads += [found[name] for name in _LOADS.get(tag, ()) if name in found]
        self.loads += re.findall(r"url\(([^)]*)\)", found.get("style", ""))
        if tag == "link" and not set(found.get("rel", "").split()) & _QUIET:
            self.loads.append(found.get("href", ""))
        if tag == "a" and "href" in found:
            self.links.append(found["href"])


def looked_at(page: Path) -> Looked:
    """Return what is in a page."""
    found = Looked()
    found.feed(page.read_text(encoding="utf-8"))
    return found
