"""Endpoints to publish and fetch releases and rounds, and to manage tokens."""

from __future__ import annotations

import base64
import json
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.requests import Request
from starlette.responses import Response

from offaxis.collector.access import LARGEST_JSON, Role, new_token
from offaxis.collector.means import MOST_NUMBERS, moments_size
from offaxis.collector.problems import Problem
from offaxis.collector.routes.routing import (
    authorize,
    body_of,
    hex_parameter,
    in_thread,
    json_response,
    plain_router,
    route_options,
    signature_of,
)
from offaxis.collector.service import Collector
from offaxis.collector.store import Differs, StoredRound
from offaxis.errors import InvalidDocument, InvalidRelease
from offaxis.formats.documents import LARGEST_ROUND, Round, public_key, verify_release, verify_round
from offaxis.formats.release_file import from_bytes

router = plain_router()
_SIGNATURE: Final = (
    ("Offaxis-Signature", True, {"type": "string", "pattern": "^[A-Za-z0-9+/]{86}==$"}),
)
_JSON: Final[tuple[str, dict[str, Any]]] = ("application/json", {"type": "object"})
_FILE: Final = "application/octet-stream"
_BODY: Final = ("conflict", "too-large", "timeout")


@router.put(
    **route_options(
        "/v1/releases/{hash}",
        {200: _JSON, 201: _JSON},
        ("invalid-release", "invalid-request", *_BODY),
        _FILE,
        _SIGNATURE,
        "admin",
    )
)
async def publish(request: Request) -> Response:
    """Publish a release file under its hash. It cannot be changed or withdrawn."""
    collector, _ = authorize(request, "admin")
    hash_ = hex_parameter(request, "hash").hex()
    signature = signature_of(request, "invalid-release")
    content = await body_of(request, collector.settings.largest_release)

    def store() -> bool:
        from_bytes(content, expect=hash_, with_plugins=False)
        if collector.settings.publisher is not None:
            verify_release(public_key(collector.settings.publisher), hash_, signature)
        return collector.store.publish(hash_, content, signature, collector.now())

    try:
        new = await in_thread(store)
    except (InvalidRelease, InvalidDocument) as error:
        raise Problem("invalid-release", str(error)) from None
    except Differs as error:
        raise Problem("conflict", str(error)) from None
    return json_response({"hash": hash_}, 201 if new else 200)


@router.get(**route_options("/v1/releases", {200: _JSON}))
async def releases(request: Request) -> Response:
    """List the releases."""
    collector, _ = authorize(request)
    stored = await in_thread(collector.store.releases)
    facts = [
        {
            "hash": release["hash"],
            "signature": base64.b64encode(release["signature"]).decode(),
            "published_at": release["at"].isoformat(),
        }
        for release in stored
    ]
    return json_response({"releases": facts})


@router.get(**route_options("/v1/releases/{hash}", {200: _FILE}, ("not-found", "invalid-request")))
async def fetch(request: Request) -> Response:
    """Return a release file, with its signature in the header Offaxis-Signature."""
    collector, _ = authorize(request)
    hash_ = hex_parameter(request, "hash").hex()
    stored = await in_thread(collector.store.release_file, hash_)
    if stored is None:
        raise Problem("not-found", "no such release")
    content, signature = stored
    headers = {
        "offaxis-signature": base64.b64encode(signature).decode(),
        "cache-control": "private, max-age=31536000, immutable",
        "x-content-type-options": "nosniff",
    }
    return Response(content, 200, headers, _FILE)


@router.put(
    **route_options(
        "/v1/rounds/{name}",
        {200: _JSON, 201: _JSON},
        ("invalid-round", *_BODY),
        _JSON,
        _SIGNATURE,
        "admin",
    )
)
async def open_round(request: Request) -> Response:
    """Announce a round: signed canonical JSON. It cannot be changed, only closed."""
    collector, _ = authorize(request, "admin")
    signature = signature_of(request, "invalid-round")
    body = await body_of(request, LARGEST_ROUND)

    def store() -> bool:
        document = Round.from_bytes(body)
        if document.name != request.path_params["name"]:
            raise Problem("invalid-round", "the round's name must be the one in the path")
        if collector.settings.publisher is not None:
            verify_round(public_key(collector.settings.publisher), document, signature)
        try:
            release = collector.catalogue.release(document.release)
        except Problem:
            raise Problem("invalid-round", "publish the round's release first") from None
        if moments_size(release, len(document.groups)) > MOST_NUMBERS:
            raise Problem("invalid-round", "too many groups for means of this dimension")
        new = collector.store.add_round(document, signature)
        collector.catalogue.refresh()
        return new

    try:
        new = await in_thread(store)
    except InvalidDocument as error:
        raise Problem("invalid-round", str(error)) from None
    except Differs as error:
        raise Problem("conflict", str(error)) from None
    stored = collector.catalogue.round(request.path_params["name"])
    return json_response(_round_facts(collector, stored), 201 if new else 200)


def _round_facts(collector: Collector, stored: StoredRound) -> dict[str, Any]:
    closed_at = stored.closed_at
    return {
        "document": json.loads(stored.document.to_bytes()),
        "signature": base64.b64encode(stored.signature).decode(),
        "state": stored.state(collector.now()),
        "closed_at": None if closed_at is None else closed_at.strftime("%Y-%m-%dT%H:%M:%SZ"),
    }


@router.get(**route_options("/v1/rounds", {200: _JSON}))
async def rounds(request: Request) -> Response:
    """List the rounds."""
    collector, _ = authorize(request)
    rounds = collector.catalogue.rounds.values()
    return json_response({"rounds": [_round_facts(collector, stored) for stored in rounds]})


@router.get(**route_options("/v1/rounds/{name}", {200: _JSON}, ("not-found",)))
async def round_(request: Request) -> Response:
    """Return a round with its signature and state, for analysts and admins also the count."""
    collector, token = authorize(request)
    stored = collector.catalogue.round(request.path_params["name"])
    facts = _round_facts(collector, stored)
    if token.role != "device":
        facts["reports"] = await in_thread(collector.store.count, stored.key)
    return json_response(facts)


@router.post(
    **route_options("/v1/rounds/{name}/close", {200: _JSON}, ("not-found",), roles="admin")
)
async def close(request: Request) -> Response:
    """Close a round now, permanently. Reports received before still count."""
    collector, _ = authorize(request, "admin")
    stored = collector.catalogue.round(request.path_params["name"])

    def store() -> None:
        collector.store.close_round(stored.key, collector.now())
        collector.catalogue.refresh()

    await in_thread(store)
    return json_response(_round_facts(collector, collector.catalogue.round(stored.document.name)))


# ---- Tokens


class _NewToken(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    name: Annotated[str, Field(min_length=1, max_length=100, pattern=r"^[!-~]([ -~]*[!-~])?$")]
    role: Role


@router.post(
    **route_options(
        "/v1/tokens",
        {201: _JSON},
        ("invalid-request", "too-large", "timeout"),
        ("application/json", _NewToken.model_json_schema()),
        roles="admin",
    )
)
async def create_token(request: Request) -> Response:
    """Create a token. It is shown only in this response."""
    collector, _ = authorize(request, "admin")
    try:
        new = _NewToken.model_validate_json(await body_of(request, LARGEST_JSON))
    except ValidationError:
        raise Problem("invalid-request", 'send {"name": …, "role": …}') from None
    token = new_token()

    def store() -> int:
        number = collector.store.add_token(token, new.name, new.role, collector.now())
        collector.catalogue.refresh()
        return number

    number = await in_thread(store)
    return json_response({"id": number, "token": token, **new.model_dump()}, 201)


@router.get(**route_options("/v1/token", {200: _JSON}))
async def own_token(request: Request) -> Response:
    """Return the name and the role of the token that was sent."""
    _, token = authorize(request)
    return json_response({"name": token.name, "role": token.role})


@router.get(**route_options("/v1/tokens", {200: _JSON}, roles="admin"))
async def tokens(request: Request) -> Response:
    """List names and roles of tokens."""
    collector, _ = authorize(request, "admin")
    tokens = await in_thread(collector.store.all_tokens)
    for token in tokens:
        for time in ("created_at", "revoked_at"):
            token[time] = token[time] and token[time].isoformat()
    return json_response({"tokens": tokens})


@router.delete(
    **route_options(
        "/v1/tokens/{number}", {204: ""}, ("not-found", "invalid-request"), roles="admin"
    )
)
async def revoke_token(request: Request) -> Response:
    """Revoke a token permanently."""
    collector, _ = authorize(request, "admin")
    text = request.path_params["number"]
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise Problem("invalid-request", "a token's number must be an integer")

    def store() -> bool:
        exists = collector.store.revoke_token(int(text), collector.now())
        collector.catalogue.refresh()
        return exists

    if not await in_thread(store):
        raise Problem("not-found", "no such token")
    return Response(status_code=204)
