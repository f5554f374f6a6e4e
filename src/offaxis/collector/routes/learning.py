"""Endpoints for what the reports of a round teach: the accuracy to expect, and the model."""

from __future__ import annotations

from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from offaxis.collector.learning import learning_facts, learnt_model, reason_against
from offaxis.collector.means import Totals, learns
from offaxis.collector.problems import Problem
from offaxis.collector.routes.routing import (
    authorize,
    in_thread,
    json_response,
    plain_router,
    route_options,
)
from offaxis.collector.service import Collector
from offaxis.collector.store import StoredRound
from offaxis.encoding.pairs import PairEncoder
from offaxis.errors import InvalidInput
from offaxis.privacy.guarantee import decimal
from offaxis.release import Release

router = plain_router()
_JSON: Final[tuple[str, dict[str, Any]]] = ("application/json", {"type": "object"})
_MODEL: Final = "application/octet-stream"
_ANSWER: Final = {"name": "answer", "in": "query", "schema": {"type": "string", "maxLength": 200}}


@router.get(
    **route_options(
        "/v1/rounds/{name}/learning", {200: _JSON}, ("not-found", "no-model"), roles="analyst"
    )
)
async def learning(request: Request) -> Response:
    """Return what the reports teach: those of the round, and with the study's earlier rounds."""
    collector, _ = authorize(request, "analyst")
    stored = collector.catalogue.round(request.path_params["name"])

    def compute() -> dict[str, Any]:
        release = _release(collector, stored)
        own = _followed(collector, stored, release)
        earlier = _earlier(collector, stored) if learns(release) else []
        alone = learning_facts(release, [own])
        together = alone
        if earlier:
            parts = [_followed(collector, other, release) for other in earlier]
            together = learning_facts(release, [*parts, own])
        names = [other.document.name for other in (*earlier, stored)]
        assert isinstance(release.encoder, PairEncoder)
        return {
            "round": stored.document.name,
            "study": stored.document.study,
            "number": stored.document.number,
            "release": release.hash,
            "epsilon": decimal(release.guarantee.epsilon),
            "form": release.encoder.form,
            "alone": alone,
            "together": {"rounds": names, **together},
        }

    return json_response(await in_thread(compute))


_options = route_options(
    "/v1/rounds/{name}/model",
    {200: _MODEL},
    ("not-found", "no-model", "invalid-request"),
    roles="analyst",
)
_options["openapi_extra"]["parameters"].append(_ANSWER)


@router.get(**_options)
async def model(request: Request) -> Response:
    """Return the model learnt from the round's reports, a weights file."""
    collector, _ = authorize(request, "analyst")
    stored = collector.catalogue.round(request.path_params["name"])
    answer = request.query_params.get("answer")

    def compute() -> bytes:
        release = _release(collector, stored)
        if not learns(release):
            raise Problem("no-model", "this round checks a model that is public already")
        totals = _followed(collector, stored, release)
        if not totals.observed.count:
            raise Problem("no-model", "there are no reports to learn from yet")
        try:
            return learnt_model(release, [totals], answer)
        except InvalidInput as error:
            raise Problem("invalid-request", str(error)) from None

    content = await in_thread(compute)
    headers = {
        "content-disposition": f'attachment; filename="{stored.document.name}.safetensors"',
        "cache-control": "no-store",
        "x-content-type-options": "nosniff",
    }
    return Response(content, 200, headers, _MODEL)


def _release(collector: Collector, stored: StoredRound) -> Release:
    """Return a round's release, or raise a problem if nothing can be learnt from its reports."""
    release = collector.catalogue.release(stored.document.release)
    reason = reason_against(release)
    if reason is not None:
        raise Problem("no-model", reason)
    return release


def _followed(collector: Collector, stored: StoredRound, release: Release) -> Totals:
    """Return the totals of a round, which include the sums to learn from."""
    totals = collector.follower.follow(stored.key, release)
    if totals.observed.count != totals.summed and learns(release):
        raise Problem("no-model", "an earlier version counted these reports, without sums")
    return totals


def _earlier(collector: Collector, stored: StoredRound) -> list[StoredRound]:
    """Return the earlier rounds of the study with the same release, in order."""
    own = stored.document
    rounds = [
        other
        for other in collector.catalogue.rounds.values()
        if (other.document.study, other.document.release) == (own.study, own.release)
        and other.document.number < own.number
    ]
    return sorted(rounds, key=lambda other: other.document.number)
