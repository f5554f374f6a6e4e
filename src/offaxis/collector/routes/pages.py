"""Pages for browsers: the dashboard and the client's modules, as they are in the wheel.

What may be served is listed when the collector starts; a path is looked up, never opened. Pages
need no token: they hold nothing that is not public, and call the API like everybody else.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from itertools import chain
from pathlib import Path
from typing import Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from offaxis.collector.problems import Problem
from offaxis.collector.routes.routing import plain_router

_MEDIA: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".bin": "application/octet-stream",
    ".safetensors": "application/octet-stream",
    ".release": "application/octet-stream",
}
"""What is served, by the ending of its name; nothing else is."""

HEADERS: Final = {
    # Nothing runs or is loaded that does not come from here; no page can be put into another.
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    # Asked for again each time, and sent again only if it is another.
    "cache-control": "no-cache",
}

router = plain_router()


@dataclass(frozen=True)
class Page:
    """A file of the wheel, ready to be sent."""

    content: bytes
    media: str
    etag: str

    def answer(self, request: Request) -> Response:
        """Send the file, or say that it has not changed."""
        headers = {**HEADERS, "etag": self.etag}
        known = request.headers.get("if-none-match", "").split(",")
        if self.etag in {one.strip().removeprefix("W/") for one in known}:
            return Response(None, 304, headers)
        return Response(self.content, 200, headers, self.media)


def _files(folder: Traversable, name: str = "") -> Iterator[tuple[str, Page]]:
    for one in folder.iterdir():
        if one.is_dir():
            yield from _files(one, f"{name}{one.name}/")
        elif (ending := "." + one.name.rpartition(".")[2]) in _MEDIA:
            content = one.read_bytes()
            etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
            yield name + one.name, Page(content, _MEDIA[ending], etag)


_OWN: Final = dict(_files(files("offaxis.collector") / "pages"))


def listed(extra: Mapping[str, Path]) -> dict[str, Page]:
    """Return all files that are served, by path: those of the wheel, and those of other folders."""
    others = (_files(folder, f"{name}/") for name, folder in extra.items())
    return _OWN | dict(chain.from_iterable(others))


def serve_index(routes: APIRouter, path: str, name: str | None = None) -> None:
    """Serve one file at a path, or the file that the path names."""

    async def page(request: Request) -> Response:
        found = request.app.state.pages.get(name or request.path_params["file"])
        if found is None:
            raise Problem("not-found", "there is no such page")
        answer: Response = found.answer(request)
        return answer

    routes.add_api_route(path, page, methods=["GET", "HEAD"], include_in_schema=False)


serve_index(router, "/dashboard", "dashboard/index.html")
serve_index(router, "/browser/{file:path}")
