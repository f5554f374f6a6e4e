"""Helpers for endpoints: plain requests and responses, with a hand-written OpenAPI description.

FastAPI's dependency injection would read and copy every body; reports are validated once, by the
release.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
from collections.abc import Awaitable, Callable
from typing import Any, Final

from fastapi import APIRouter
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from offaxis.collector.access import Role, Token, authenticate, read_body
from offaxis.collector.problems import STATUS, Problem
from offaxis.collector.service import Collector

Endpoint = Callable[[Request], Awaitable[Response]]

_PARAMETERS: Final[dict[str, dict[str, Any]]] = {
    "name": {"type": "string", "pattern": "^[a-z0-9][a-z0-9-]{0,62}$"},
    "hash": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
    "id": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
    "number": {"type": "integer", "minimum": 1, "maximum": 2**31 - 1},
    "kind": {"type": "string", "enum": ["curve", "audit"]},
    "question": {"type": "string", "pattern": "^[a-z0-9][a-z0-9-]{0,62}$"},
}


class Plain(APIRoute):
    """A route that passes the request to its endpoint without dependency injection."""

    def __init__(self, path: str, endpoint: Endpoint, **more: Any) -> None:
        super().__init__(path, endpoint, **more)

        async def respond(scope: Scope, receive: Receive, send: Send) -> None:
            response = await endpoint(Request(scope, receive))
            await response(scope, receive, send)

        self.app = respond


def plain_router() -> APIRouter:
    """Return a router of plain routes."""
    return APIRouter(route_class=Plain)


def route_options(
    path: str,
    success: dict[int, str | tuple[str, dict[str, Any]]],
    problems: tuple[str, ...] = (),
    body: str | tuple[str, dict[str, Any]] | None = None,
    headers: tuple[tuple[str, bool, dict[str, Any]], ...] = (),
    roles: str = "any",
) -> dict[str, Any]:
    """Return the arguments of a route, with its description for OpenAPI.

    Parameters
    ----------
    path : str
        The template; its parameters are described in ``_PARAMETERS``.
    success : dict
        Media type, with a schema if it is JSON, by status code.
    problems : tuple of str
        Problem types, besides those that every route may return.
    body, headers
        The request: a media type, with a schema if it is JSON; and tuples of the header's name,
        whether it is required, and its schema.
    roles : str
        Roles that may send the request.
    """
    names = [part[1:-1] for part in path.split("/") if part.startswith("{")]
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": _PARAMETERS[name]}
        for name in names
    ] + [
        {"name": name, "in": "header", "required": required, "schema": schema}
        for name, required, schema in headers
    ]
    extra: dict[str, Any] = {"parameters": parameters} if parameters else {}
    if body is not None:
        extra["requestBody"] = {"required": True, "content": _content(body)}
    common: tuple[str, ...] = ("unavailable", "internal")
    if roles != "none":
        extra["security"] = [{"token": []}]
        common = ("unknown-token", "forbidden", "too-many", *common)
    by_status: dict[int, list[str]] = {}
    for kind in (*problems, *common):
        by_status.setdefault(STATUS[kind], []).append(kind)
    responses: dict[int | str, dict[str, Any]] = {
        status: {"description": "", **({"content": _content(content)} if content else {})}
        for status, content in success.items()
    }
    for status, kinds in by_status.items():
        responses[status] = {
            "description": ", ".join(kinds),
            "content": {"application/problem+json": {"schema": _PROBLEM}},
        }
    return {
        "path": path,
        "responses": responses,
        "openapi_extra": extra,
        "description": f"Role: {roles}.",
        "response_class": Response,
        "status_code": min(success),
    }


_PROBLEM: Final = {
    "type": "object",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string", "enum": sorted(STATUS)},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
    },
}


def _content(body: str | tuple[str, dict[str, Any]]) -> dict[str, Any]:
    binary: dict[str, Any] = {"type": "string", "format": "binary"}
    media, schema = (body, binary) if isinstance(body, str) else body
    return {media: {"schema": schema}}


def collector_of(request: Request) -> Collector:
    """Return the collector that serves the request."""
    collector: Collector = request.app.state.collector
    return collector


def authorize(request: Request, *roles: Role) -> tuple[Collector, Token]:
    """Return the collector and the request's token, if its role and its rate allow the request."""
    collector = collector_of(request)
    token = authenticate(request, collector.catalogue.tokens, *roles)
    device = token.role == "device"
    (collector.device_buckets if device else collector.reader_buckets).take(token.id)
    return collector, token


async def body_of(request: Request, most: int) -> bytes:
    """Read the request's body, of at most ``most`` bytes."""
    return await read_body(request, most, collector_of(request).settings.body_seconds)


def signature_of(request: Request, kind: str) -> bytes:
    """Return the signature in the request's header, or raise a problem of type ``kind``."""
    try:
        signature = base64.b64decode(request.headers.get("offaxis-signature", ""), validate=True)
    except binascii.Error:
        signature = b""
    if len(signature) != 64:
        raise Problem(kind, "the header Offaxis-Signature must be 64 bytes in base64")
    return signature


def hex_parameter(request: Request, name: str) -> bytes:
    """Return a path parameter of 32 bytes in lower-case hexadecimal digits."""
    text: str = request.path_params[name]
    try:
        value = bytes.fromhex(text)
    except ValueError:
        value = b""
    if len(value) != 32 or value.hex() != text:
        raise Problem("invalid-request", f"{name} must be 64 lower-case hexadecimal digits")
    return value


def json_response(facts: dict[str, Any], status: int = 200) -> Response:
    """Return a JSON response."""
    text = json.dumps(facts, allow_nan=False)
    return Response(text, status, {"cache-control": "no-store"}, "application/json")


in_thread = asyncio.to_thread
