"""Static files for browsers: the dashboard and the JavaScript client, as in the wheel.

The files to serve are read when the collector starts; a request's path is looked up among them and
never opened. Pages need no token: they contain only public content and use the API like any client.
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
"""Media types by file extension; files with other extensions are not served."""

HEADERS: Final = {
    # Everything that runs or is loaded comes from this origin; pages cannot be framed.
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    # Browsers revalidate every time; unchanged files are not sent again.
    "cache-control": "no-cache",
}

router = plain_router()


@dataclass(frozen=True)
class Page:
    """A file in memory, ready to be sent."""

    content: bytes
    media: str
    etag: str

    def response(self, request: Request) -> Response:
        """Return the file, or 304 if the browser has this version."""
        headers = {**HEADERS, "etag": self.etag}
        etags = request.headers.get("if-none-match", "").split(",")
        if self.etag in {etag.strip().removeprefix("W/") for etag in etags}:
            return Response(None, 304, headers)
        return Response(self.content, 200, headers, self.media)


def _files(folder: Traversable, name: str = "") -> Iterator[tuple[str, Page]]:
    for file in folder.iterdir():
        if file.is_dir():
            yield from _files(file, f"{name}{file.name}/")
        elif (extension := "." + file.name.rpartition(".")[2]) in _MEDIA:
            content = file.read_bytes()
            etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
            yield name + file.name, Page(content, _MEDIA[extension], etag)


_PACKAGED: Final = dict(_files(files("offaxis.collector") / "pages"))


def served_files(extra: Mapping[str, Path]) -> dict[str, Page]:
    """Return all files to serve, by path: those of the wheel, and those of extra folders."""
    others = (_files(folder, f"{name}/") for name, folder in extra.items())
    return _PACKAGED | dict(chain.from_iterable(others))


def serve_index(routes: APIRouter, path: str, name: str | None = None) -> None:
    """Serve one file at a path, or the file that the path names."""

    async def page(request: Request) -> Response:
        file: Page | None = request.app.state.pages.get(name or request.path_params["file"])
        if file is None:
            raise Problem("not-found", "no such page")
        return file.response(request)

    routes.add_api_route(path, page, methods=["GET", "HEAD"], include_in_schema=False)


serve_index(router, "/dashboard", "dashboard/index.html")
serve_index(router, "/browser/{file:path}")
