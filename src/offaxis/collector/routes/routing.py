"""How routes are written: plain requests in, plain answers out, described for OpenAPI by hand.

The framework's injection would read and copy every body; reports are checked once, by the release.
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
}


class Plain(APIRoute):
    """A route whose endpoint gets the request as it is, and nothing around it."""

    def __init__(self, path: str, endpoint: Endpoint, **more: Any) -> None:
        super().__init__(path, endpoint, **more)

        async def answer(scope: Scope, receive: Receive, send: Send) -> None:
            response = await endpoint(Request(scope, receive))
            await response(scope, receive, send)

        self.app = answer


def plain_router() -> APIRouter:
    """Return a router of plain routes."""
    return APIRouter(route_class=Plain)


def described(
    path: str,
    answers: dict[int, str | tuple[str, dict[str, Any]]],
    problems: tuple[str, ...] = (),
    body: str | tuple[str, dict[str, Any]] | None = None,
    headers: tuple[tuple[str, bool, dict[str, Any]], ...] = (),
    roles: str = "any",
) -> dict[str, Any]:
    """Return the arguments of a route: what OpenAPI says of it.

    Parameters
    ----------
    path : str
        The template, whose parameters are described by their names.
    answers : dict
        Media type, and a schema where it is JSON, by status code.
    problems : tuple of str
        Kinds of problems, besides those that every route may answer.
    body, headers
        What is sent: a media type, with a schema if JSON; names, whether required, and schemas.
    roles : str
        Who may ask.
    """
    where = [part[1:-1] for part in path.split("/") if part.startswith("{")]
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": _PARAMETERS[name]}
        for name in where
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
    kinds: dict[int, list[str]] = {}
    for kind in (*problems, *common):
        kinds.setdefault(STATUS[kind], []).append(kind)
    responses: dict[int | str, dict[str, Any]] = {
        status: {"description": "", **({"content": _content(answer)} if answer else {})}
        for status, answer in answers.items()
    }
    for status, names in kinds.items():
        responses[status] = {
            "description": ", ".join(names),
            "content": {"application/problem+json": {"schema": _PROBLEM}},
        }
    return {
        "path": path,
        "responses": responses,
        "openapi_extra": extra,
        "description": f"Role: {roles}.",
        "response_class": Response,
        "status_code": min(answers),
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
    octets: dict[str, Any] = {"type": "string", "format": "binary"}
    media, schema = (body, octets) if isinstance(body, str) else body
    return {media: {"schema": schema}}


def of(request: Request) -> Collector:
    """Return the collector that answers."""
    collector: Collector = request.app.state.collector
    return collector


def admitted(request: Request, *roles: Role) -> tuple[Collector, Token]:
    """Return the collector and the request's token, if its role and its rate allow it."""
    collector = of(request)
    token = authenticate(request, collector.catalogue.tokens, *roles)
    device = token.role == "device"
    (collector.device_buckets if device else collector.reader_buckets).take(token.id)
    return collector, token


async def body_of(request: Request, most: int) -> bytes:
    """Read the request's body, as far as it may be long."""
    return await read_body(request, most, of(request).settings.body_seconds)


def signature_of(request: Request, kind: str) -> bytes:
    """Return the signature in the request's header."""
    try:
        found = base64.b64decode(request.headers.get("offaxis-signature", ""), validate=True)
    except binascii.Error:
        found = b""
    if len(found) != 64:
        raise Problem(kind, "the header Offaxis-Signature holds 64 bytes in base64")
    return found


def hexadecimal(request: Request, name: str) -> bytes:
    """Return a path's parameter of 32 bytes in small hexadecimal digits."""
    text: str = request.path_params[name]
    try:
        found = bytes.fromhex(text)
    except ValueError:
        found = b""
    if len(found) != 32 or found.hex() != text:
        raise Problem("invalid-request", f"{name} has 64 hexadecimal digits, in small letters")
    return found


def json_answer(facts: dict[str, Any], status: int = 200) -> Response:
    """Answer with JSON."""
    text = json.dumps(facts, allow_nan=False)
    return Response(text, status, {"cache-control": "no-store"}, "application/json")


in_thread = asyncio.to_thread
