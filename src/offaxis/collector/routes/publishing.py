"""Releases and rounds."""

from __future__ import annotations

import base64
import json
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.requests import Request
from starlette.responses import Response

from offaxis.collector.access import LARGEST_JSON, Role, new_token
from offaxis.collector.means import MOST_NUMBERS, numbers
from offaxis.collector.problems import Problem
from offaxis.collector.routes.routing import (
    admitted,
    body_of,
    described,
    hexadecimal,
    in_thread,
    json_answer,
    plain_router,
    signature_of,
)
from offaxis.collector.service import Collector, state_facts
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
    **described(
        "/v1/releases/{hash}",
        {200: _JSON, 201: _JSON},
        ("invalid-release", "invalid-request", *_BODY),
        _FILE,
        _SIGNATURE,
        "admin",
    )
)
async def publish(request: Request) -> Response:
    """Publish a release file under its hash. It cannot be changed or taken back."""
    collector, _ = admitted(request, "admin")
    hash_ = hexadecimal(request, "hash").hex()
    signature = signature_of(request, "invalid-release")
    content = await body_of(request, collector.settings.largest_release)

    def store() -> bool:
        from_bytes(content, expect=hash_)
        if collector.settings.publisher is not None:
            verify_release(public_key(collector.settings.publisher), hash_, signature)
        return collector.store.publish(hash_, content, signature, collector.now())

    try:
        new = await in_thread(store)
    except (InvalidRelease, InvalidDocument) as error:
        raise Problem("invalid-release", str(error)) from None
    except Differs as error:
        raise Problem("conflict", str(error)) from None
    return json_answer({"hash": hash_}, 201 if new else 200)


@router.get(**described("/v1/releases", {200: _JSON}))
async def releases(request: Request) -> Response:
    """List the releases."""
    collector, _ = admitted(request)
    found = await in_thread(collector.store.releases)
    listed = [
        {
            "hash": one["hash"],
            "signature": base64.b64encode(one["signature"]).decode(),
            "published_at": one["at"].isoformat(),
        }
        for one in found
    ]
    return json_answer({"releases": listed})


@router.get(**described("/v1/releases/{hash}", {200: _FILE}, ("not-found", "invalid-request")))
async def fetch(request: Request) -> Response:
    """Fetch a release file, its signature in the header Offaxis-Signature."""
    collector, _ = admitted(request)
    hash_ = hexadecimal(request, "hash").hex()
    found = await in_thread(collector.store.release_file, hash_)
    if found is None:
        raise Problem("not-found", "there is no such release")
    content, signature = found
    headers = {
        "offaxis-signature": base64.b64encode(signature).decode(),
        "cache-control": "private, max-age=31536000, immutable",
        "x-content-type-options": "nosniff",
    }
    return Response(content, 200, headers, _FILE)


@router.put(
    **described(
        "/v1/rounds/{name}",
        {200: _JSON, 201: _JSON},
        ("invalid-round", *_BODY),
        _JSON,
        _SIGNATURE,
        "admin",
    )
)
async def open_round(request: Request) -> Response:
    """Announce a round: signed JSON in its one form. It cannot be changed, only closed."""
    collector, _ = admitted(request, "admin")
    signature = signature_of(request, "invalid-round")
    body = await body_of(request, LARGEST_ROUND)

    def store() -> bool:
        document = Round.from_bytes(body)
        if document.name != request.path_params["name"]:
            raise Problem("invalid-round", "the round has another name than the path")
        if collector.settings.publisher is not None:
            verify_round(public_key(collector.settings.publisher), document, signature)
        try:
            release = collector.catalogue.release(document.release)
        except Problem:
            raise Problem("invalid-round", "publish the round's release first") from None
        if numbers(release, len(document.groups)) > MOST_NUMBERS:
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
    one = collector.catalogue.round(request.path_params["name"])
    return json_answer(_round_facts(collector, one), 201 if new else 200)


def _round_facts(collector: Collector, one: StoredRound) -> dict[str, Any]:
    return {
        "document": json.loads(one.document.to_bytes()),
        "signature": base64.b64encode(one.signature).decode(),
        **state_facts(one, collector.now()),
    }


@router.get(**described("/v1/rounds", {200: _JSON}))
async def rounds(request: Request) -> Response:
    """List the rounds."""
    collector, _ = admitted(request)
    found = collector.catalogue.rounds.values()
    return json_answer({"rounds": [_round_facts(collector, one) for one in found]})


@router.get(**described("/v1/rounds/{name}", {200: _JSON}, ("not-found",)))
async def round_(request: Request) -> Response:
    """Return a round with its signature and state; analysts and admins see the count."""
    collector, token = admitted(request)
    one = collector.catalogue.round(request.path_params["name"])
    facts = _round_facts(collector, one)
    if token.role != "device":
        facts["reports"] = await in_thread(collector.store.count, one.key)
    return json_answer(facts)


@router.post(**described("/v1/rounds/{name}/close", {200: _JSON}, ("not-found",), roles="admin"))
async def close(request: Request) -> Response:
    """Close a round now, for good. What had come before is still counted."""
    collector, _ = admitted(request, "admin")
    one = collector.catalogue.round(request.path_params["name"])

    def store() -> None:
        collector.store.close_round(one.key, collector.now())
        collector.catalogue.refresh()

    await in_thread(store)
    return json_answer(_round_facts(collector, collector.catalogue.round(one.document.name)))


# ----------------------------------------------------------------------------
# Making, listing and revoking tokens.


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
