"""Endpoints to upload, withdraw and delete reports; uploads are the ones that must be fast."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from offaxis.collector.access import MOST_REPORTS, authenticate
from offaxis.collector.problems import Problem, unavailable
from offaxis.collector.routes.routing import (
    authorize,
    body_of,
    collector_of,
    hex_parameter,
    in_thread,
    json_response,
    plain_router,
    route_options,
)
from offaxis.collector.service import Collector
from offaxis.collector.store import StoredRound
from offaxis.collector.uploads import Outcome, Unavailable, Upload
from offaxis.errors import InvalidReport
from offaxis.release import Release

BATCH: Final = "application/vnd.offaxis.reports"
_ID: Final = 32
_MANY: Final = 100
"""Batches above this size are validated outside the writer, which reads small ones together."""

router = plain_router()
_GROUP: Final = (("Offaxis-Group", False, {"type": "string", "maxLength": 100}),)
_OUTCOME: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["outcome"],
    "properties": {"outcome": {"type": "string", "enum": ["accepted", "repeated"]}},
}
_COUNTS: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["accepted", "repeated", "conflicts"],
    "properties": {
        "accepted": {"type": "integer"},
        "repeated": {"type": "integer"},
        "conflicts": {"type": "array", "items": {"type": "integer"}},
    },
}
_PROBLEMS: Final = (
    *("not-found", "conflict", "not-open", "closed", "too-large"),
    *("timeout", "invalid-report", "invalid-request"),
)
_ACCEPTED: Final = Response(
    b'{"outcome": "accepted"}', 201, {"cache-control": "no-store"}, "application/json"
)
_REPEATED: Final = Response(
    b'{"outcome": "repeated"}', 200, {"cache-control": "no-store"}, "application/json"
)


@router.put(
    **route_options(
        "/v1/rounds/{name}/reports/{id}",
        {200: ("application/json", _OUTCOME), 201: ("application/json", _OUTCOME)},
        _PROBLEMS,
        "application/octet-stream",
        _GROUP,
        "device",
    )
)
async def upload(request: Request) -> Response:
    """Upload one report under its id; repeating it changes nothing."""
    collector, stored, release = await _open_round(request, 1)
    id_ = hex_parameter(request, "id")
    content = await body_of(request, release.report_size)
    (outcome,) = await _outcomes(request, collector, stored, release, [id_], [content])
    if outcome == "conflict":
        raise Problem("conflict", "another report is stored under this id")
    return _ACCEPTED if outcome == "accepted" else _REPEATED


@router.post(
    **route_options(
        "/v1/rounds/{name}/reports",
        {200: ("application/json", _COUNTS)},
        _PROBLEMS,
        BATCH,
        _GROUP,
        "device",
    )
)
async def upload_batch(request: Request) -> Response:
    """Upload up to 10,000 reports of one group, as alternating ids and reports, all or none."""
    collector, stored, release = await _open_round(request, 0)
    size = _ID + release.report_size
    body = await body_of(request, MOST_REPORTS * size)
    if not body or len(body) % size:
        raise Problem(
            "invalid-report",
            f"a batch must repeat an id of {_ID} bytes and a report of {release.report_size} bytes",
        )
    token = authenticate(request, collector.catalogue.tokens, "device")
    collector.device_buckets.take(token.id, len(body) // size)
    starts = range(0, len(body), size)
    ids = [body[start : start + _ID] for start in starts]
    contents = [body[start + _ID : start + size] for start in starts]
    outcomes = await _outcomes(request, collector, stored, release, ids, contents)
    counts = Counter(outcomes)
    conflicts = [i for i, outcome in enumerate(outcomes) if outcome == "conflict"]
    return json_response(
        {
            "accepted": counts["accepted"],
            "repeated": counts["repeated"],
            "conflicts": conflicts,
        }
    )


async def _open_round(request: Request, count: int) -> tuple[Collector, StoredRound, Release]:
    """Authenticate a device, charge its rate, and return the round, unless it opens later."""
    collector = collector_of(request)
    token = authenticate(request, collector.catalogue.tokens, "device")
    stored = collector.catalogue.round(request.path_params["name"])
    if count:
        collector.device_buckets.take(token.id, count)
    now = collector.now()
    if now < stored.document.opens and stored.state(now) == "waiting":
        wait = int((stored.document.opens - now).total_seconds()) + 1
        raise Problem("not-open", "the round opens later", {"retry-after": str(min(wait, 86_400))})
    hash_ = stored.document.release
    release = collector.catalogue.cached_release(hash_)
    if release is None:
        release = await in_thread(collector.catalogue.release, hash_)
    return collector, stored, release


async def _outcomes(
    request: Request,
    collector: Collector,
    stored: StoredRound,
    release: Release,
    ids: list[bytes],
    contents: list[bytes],
) -> list[Outcome]:
    """Store reports and return their outcomes, or raise a problem if the round is closed."""
    label = request.headers.get("offaxis-group")
    if (label is None) != (not stored.document.groups) or (
        label is not None and label not in stored.document.groups
    ):
        raise Problem("invalid-report", "Offaxis-Group must be one of the round's groups, if any")
    # The state after the whole body has arrived decides.
    stored = collector.catalogue.round(stored.document.name)
    if stored.state(collector.now()) == "closed":
        outcomes = await in_thread(_late_outcomes, collector, stored, ids, contents)
    else:
        many = len(ids) > _MANY
        try:
            if many:
                await in_thread(release.observe, contents)
            upload = Upload(stored.key, release, ids, contents, label, checked=many)
            outcomes = await collector.writer.put(upload)
        except InvalidReport as error:
            raise Problem("invalid-report", str(error)) from None
        except Unavailable as error:
            collector.metrics.failures.inc()
            raise unavailable(str(error)) from None
    if len(outcomes) == 1:
        collector.metrics.reports.labels(outcomes[0]).inc()
    else:
        for outcome, count in Counter(outcomes).items():
            collector.metrics.reports.labels(outcome).inc(count)
    if "closed" in outcomes:
        raise Problem("closed", "the round accepts no more reports")
    return outcomes


def _late_outcomes(
    collector: Collector, stored: StoredRound, ids: list[bytes], contents: list[bytes]
) -> list[Outcome]:
    """Return which reports that arrive after closing are already stored."""
    if stored.deleted_at is not None:
        return ["closed"] * len(ids)
    outcomes: list[Outcome] = []
    rows = collector.store.stored(stored.key, ids)
    for (taken, kept), content in zip(rows, contents, strict=True):
        outcomes.append("closed" if not taken else "repeated" if kept == content else "conflict")
    return outcomes


@router.delete(
    **route_options(
        "/v1/rounds/{name}/reports/{id}",
        {204: ""},
        ("not-found", "invalid-request"),
        roles="device",
    )
)
async def withdraw(request: Request) -> Response:
    """Delete a report; knowing its id is enough. The id stays taken, even if it was unknown."""
    collector, _ = authorize(request, "device")
    stored = collector.catalogue.round(request.path_params["name"])
    id_ = hex_parameter(request, "id")
    # A closed round accepts nothing, so an unknown id need not be taken.
    open_ = stored.state(collector.now()) != "closed"
    await in_thread(partial(collector.store.withdraw, stored.key, id_, take=open_))
    return Response(status_code=204)


@router.delete(
    **route_options(
        "/v1/rounds/{name}/reports",
        {200: ("application/json", {"type": "object"})},
        ("not-found", "conflict"),
        roles="admin",
    )
)
async def purge(request: Request) -> Response:
    """Delete all reports of a closed round. Its means stay."""
    collector, _ = authorize(request, "admin")
    stored = collector.catalogue.round(request.path_params["name"])
    if stored.state(collector.now()) != "closed":
        raise Problem("conflict", "close the round first")
    deleted = await in_thread(collector.retention.delete, stored, collector.now())
    await in_thread(collector.catalogue.refresh)
    return json_response({"deleted": deleted})
