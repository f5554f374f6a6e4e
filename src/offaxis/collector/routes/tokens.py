"""Making, listing and revoking tokens."""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.requests import Request
from starlette.responses import Response

from offaxis.collector.auth import Role, new_token
from offaxis.collector.limits import LARGEST_JSON
from offaxis.collector.problems import Problem
from offaxis.collector.routes.routing import (
    admitted,
    body_of,
    described,
    in_thread,
    json_answer,
    plain_router,
)

router = plain_router()
_JSON: Final[tuple[str, dict[str, Any]]] = ("application/json", {"type": "object"})


class _NewToken(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    name: Annotated[str, Field(min_length=1, max_length=100, pattern=r"^[!-~]([ -~]*[!-~])?$")]
    role: Role


@router.post(
    **described(
        "/v1/tokens",
        {201: _JSON},
        ("invalid-request", "too-large", "timeout"),
        ("application/json", _NewToken.model_json_schema()),
        roles="admin",
    )
)
async def create_token(request: Request) -> Response:
    """Make a token. It is shown this once."""
    collector, _ = admitted(request, "admin")
    try:
        wanted = _NewToken.model_validate_json(await body_of(request, LARGEST_JSON))
    except ValidationError:
        raise Problem("invalid-request", 'send {"name": …, "role": …}') from None
    token = new_token()

    def store() -> int:
        number = collector.store.add_token(token, wanted.name, wanted.role, collector.now())
        collector.catalogue.refresh()
        return number

    number = await in_thread(store)
    return json_answer({"id": number, "token": token, **wanted.model_dump()}, 201)


@router.get(**described("/v1/token", {200: _JSON}))
async def own_token(request: Request) -> Response:
    """Say whose token was sent, and its role."""
    _, token = admitted(request)
    return json_answer({"name": token.name, "role": token.role})


@router.get(**described("/v1/tokens", {200: _JSON}, roles="admin"))
async def tokens(request: Request) -> Response:
    """List names and roles of tokens."""
    collector, _ = admitted(request, "admin")
    found = await in_thread(collector.store.all_tokens)
    for one in found:
        for at in ("created_at", "revoked_at"):
            one[at] = one[at] and one[at].isoformat()
    return json_answer({"tokens": found})


@router.delete(
    **described("/v1/tokens/{number}", {204: ""}, ("not-found", "invalid-request"), roles="admin")
)
async def revoke_token(request: Request) -> Response:
    """Make a token invalid for good."""
    collector, _ = admitted(request, "admin")
    text = request.path_params["number"]
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise Problem("invalid-request", "a token's number is a whole number")

    def store() -> bool:
        found = collector.store.revoke_token(int(text), collector.now())
        collector.catalogue.refresh()
        return found

    if not await in_thread(store):
        raise Problem("not-found", "there is no such token")
    return Response(status_code=204)
