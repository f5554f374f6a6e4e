"""A strict HTML parser: every element must be closed, in order."""

from __future__ import annotations

from html.parser import HTMLParser

VOID = {"meta", "br", "hr", "img", "input", "link", "col"}
LOADERS = {"src", "srcset", "data", "poster", "action", "background", "cite", "manifest"}
"""Attributes that make a page load something."""


class StrictPage(HTMLParser):
    """The tags, attributes and ids of a page, and the cells of rows with a ``data-mechanism``."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.attributes: list[tuple[str, str, str | None]] = []
        self.cells: dict[tuple[str, str | None], list[str]] = {}
        self._row: tuple[str, str | None] | None = None
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]
        attributes = dict(attrs)
        self.ids += [str(attributes["id"])] if "id" in attributes else []
        if tag not in VOID:
            self.open.append(tag)
        if tag == "tr":
            name = attributes.get("data-mechanism")
            self._row = (name, attributes.get("data-reshaping")) if name else None
        if tag == "td" and self._row:
            self.cells.setdefault(self._row, []).append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._row and "td" in self.open:
            self.cells[self._row][-1] += data
