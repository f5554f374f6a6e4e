"""What people want to know of a release: its privacy card, its curve and its audit."""

from __future__ import annotations

from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from offaxis.card import card_facts
from offaxis.collector.facts import KINDS, LARGEST_FACTS, Kind, read_facts
from offaxis.collector.problems import Problem
from offaxis.collector.routing import (
    admitted,
    body_of,
    described,
    hexadecimal,
    in_thread,
    json_answer,
    plain_router,
)
from offaxis.errors import InvalidInput

router = plain_router()
_JSON: Final[tuple[str, dict[str, Any]]] = ("application/json", {"type": "object"})


@router.get(**described("/v1/releases/{hash}/card", {200: _JSON}, ("not-found", "invalid-request")))
async def card(request: Request) -> Response:
    """Return the privacy card, computed from the parameters, and which facts are attached."""
    collector, _ = admitted(request)
    hash_ = hexadecimal(request, "hash").hex()

    def found() -> dict[str, Any]:
        facts = card_facts(collector.catalogue.release(hash_))
        return facts | {"facts": collector.store.kinds_attached(hash_, KINDS)}

    return json_answer(await in_thread(found))


@router.put(
    **described(
        "/v1/releases/{hash}/facts/{kind}",
        {204: ""},
        ("not-found", "invalid-release", "invalid-request", "too-large", "timeout"),
        _JSON,
        roles="admin",
    )
)
async def attach_facts(request: Request) -> Response:
    """Attach a curve or an audit, in place of an older one."""
    collector, _ = admitted(request, "admin")
    hash_, kind = hexadecimal(request, "hash").hex(), _kind(request)
    body = await body_of(request, LARGEST_FACTS)

    def store() -> None:
        release = collector.catalogue.release(hash_)
        collector.store.attach(hash_, kind, read_facts(kind, body, release))

    try:
        await in_thread(store)
    except InvalidInput as error:
        raise Problem("invalid-release", str(error)) from None
    return Response(status_code=204)


@router.get(
    **described("/v1/releases/{hash}/facts/{kind}", {200: _JSON}, ("not-found", "invalid-request"))
)
async def facts(request: Request) -> Response:
    """Return the curve or the audit as it was attached."""
    collector, _ = admitted(request)
    hash_, kind = hexadecimal(request, "hash").hex(), _kind(request)
    found = await in_thread(collector.store.attached, hash_, kind)
    if found is None:
        raise Problem("not-found", f"no {kind} is attached to this release")
    return Response(found, 200, {"cache-control": "no-store"}, "application/json")


def _kind(request: Request) -> Kind:
    for kind in KINDS:
        if request.path_params["kind"] == kind:
            return kind
    raise Problem("not-found", f"facts are {' or '.join(KINDS)}")
