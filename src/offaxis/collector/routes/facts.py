"""What people want to know of a release: its privacy card, its curve and its audit."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from offaxis.card import card_facts
from offaxis.collector.drift import Profile
from offaxis.collector.facts import KINDS, LARGEST_FACTS, Kind, read_facts
from offaxis.collector.limits import LARGEST_PROFILE
from offaxis.collector.problems import Problem
from offaxis.collector.routes.routing import (
    admitted,
    body_of,
    described,
    hexadecimal,
    in_thread,
    json_answer,
    plain_router,
)
from offaxis.collector.service import Collector
from offaxis.collector.store import Attached
from offaxis.errors import InvalidInput
from offaxis.release import Release

router = plain_router()
_JSON: Final[tuple[str, dict[str, Any]]] = ("application/json", {"type": "object"})
_PROBLEMS: Final = ("not-found", "invalid-release", "invalid-request", "too-large", "timeout")


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
        "/v1/releases/{hash}/profile",
        {204: ""},
        _PROBLEMS,
        _JSON,
        roles="admin",
    )
)
async def attach_profile(request: Request) -> Response:
    """Attach what reports of public vectors look like, for warnings of drift."""
    collector, _ = admitted(request, "admin")

    def read(body: bytes, release: Release) -> str:
        return Profile.from_json(body.decode("utf-8", "replace"), release).to_json()

    return await _attach(request, collector, "profile", LARGEST_PROFILE, read)


@router.put(
    **described(
        "/v1/releases/{hash}/facts/{kind}",
        {204: ""},
        _PROBLEMS,
        _JSON,
        roles="admin",
    )
)
async def attach_facts(request: Request) -> Response:
    """Attach a curve or an audit, in place of an older one."""
    collector, _ = admitted(request, "admin")
    kind = _kind(request)
    return await _attach(request, collector, kind, LARGEST_FACTS, partial(read_facts, kind))


async def _attach(
    request: Request,
    collector: Collector,
    kind: Attached,
    most: int,
    read: Callable[[bytes, Release], str],
) -> Response:
    """Attach what ``read`` makes of the body and the release, in place of an older one."""
    hash_ = hexadecimal(request, "hash").hex()
    body = await body_of(request, most)

    def store() -> None:
        text = read(body, collector.catalogue.release(hash_))
        collector.store.attach(hash_, kind, text)

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
