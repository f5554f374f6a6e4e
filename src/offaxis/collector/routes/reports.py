"""Uploading and withdrawing reports: the paths that must be fast."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from offaxis.collector.access import MOST_REPORTS, authenticate
from offaxis.collector.problems import Problem, unavailable
from offaxis.collector.routes.routing import (
    admitted,
    body_of,
    described,
    hexadecimal,
    in_thread,
    json_answer,
    of,
    plain_router,
)
from offaxis.collector.service import Collector
from offaxis.collector.store import StoredRound
from offaxis.collector.uploads import Outcome, Unavailable, Upload
from offaxis.errors import InvalidReport
from offaxis.release import Release

BATCH: Final = "application/vnd.offaxis.reports"
_ID: Final = 32
_MANY: Final = 100
"""Reports from which on they are read beside the writer; few are read faster by it, together."""

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
_REFUSALS: Final = (
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
    **described(
        "/v1/rounds/{name}/reports/{id}",
        {200: ("application/json", _OUTCOME), 201: ("application/json", _OUTCOME)},
        _REFUSALS,
        "application/octet-stream",
        _GROUP,
        "device",
    )
)
async def upload(request: Request) -> Response:
    """Upload one report under its id; the same again changes nothing."""
    collector, one, release = await _wanted(request, 1)
    id_ = hexadecimal(request, "id")
    content = await body_of(request, release.report_size)
    (outcome,) = await _outcomes(request, collector, one, release, [id_], [content])
    if outcome == "conflict":
        raise Problem("conflict", "another report has this id, and stays")
    return _ACCEPTED if outcome == "accepted" else _REPEATED


@router.post(
    **described(
        "/v1/rounds/{name}/reports",
        {200: ("application/json", _COUNTS)},
        _REFUSALS,
        BATCH,
        _GROUP,
        "device",
    )
)
async def upload_batch(request: Request) -> Response:
    """Upload up to 10,000 reports of one group: ids and reports in turn. All or none are read."""
    collector, one, release = await _wanted(request, 0)
    size = _ID + release.report_size
    body = await body_of(request, MOST_REPORTS * size)
    if not body or len(body) % size:
        raise Problem(
            "invalid-report",
            f"a batch repeats an id of {_ID} bytes and a report of {release.report_size} bytes",
        )
    token = authenticate(request, collector.catalogue.tokens, "device")
    collector.device_buckets.take(token.id, len(body) // size)
    starts = range(0, len(body), size)
    ids = [body[at : at + _ID] for at in starts]
    contents = [body[at + _ID : at + size] for at in starts]
    outcomes = await _outcomes(request, collector, one, release, ids, contents)
    counts = Counter(outcomes)
    conflicts = [at for at, outcome in enumerate(outcomes) if outcome == "conflict"]
    return json_answer(
        {
            "accepted": counts["accepted"],
            "repeated": counts["repeated"],
            "conflicts": conflicts,
        }
    )


async def _wanted(request: Request, count: int) -> tuple[Collector, StoredRound, Release]:
    """Return the round that a device may send to, with its release."""
    collector = of(request)
    token = authenticate(request, collector.catalogue.tokens, "device")
    one = collector.catalogue.round(request.path_params["name"])
    if count:
        collector.device_buckets.take(token.id, count)
    now = collector.now()
    if now < one.document.opens and one.state(now) == "waiting":
        wait = int((one.document.opens - now).total_seconds()) + 1
        raise Problem("not-open", "the round opens later", {"retry-after": str(min(wait, 86_400))})
    hash_ = one.document.release
    release = collector.catalogue.ready(hash_)
    if release is None:
        release = await in_thread(collector.catalogue.release, hash_)
    return collector, one, release


async def _outcomes(
    request: Request,
    collector: Collector,
    one: StoredRound,
    release: Release,
    ids: list[bytes],
    contents: list[bytes],
) -> list[Outcome]:
    label = request.headers.get("offaxis-group")
    if (label is None) != (not one.document.groups) or (
        label is not None and label not in one.document.groups
    ):
        raise Problem("invalid-report", "Offaxis-Group must be one of the round's groups, if any")
    # Looked at again, now that all of the body has come: this decides.
    one = collector.catalogue.round(one.document.name)
    if one.state(collector.now()) == "closed":
        outcomes = await in_thread(_late, collector, one, ids, contents)
    else:
        many = len(ids) > _MANY
        try:
            if many:
                await in_thread(release.observe, contents)
            upload = Upload(one.key, release, ids, contents, label, checked=many)
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
        raise Problem("closed", "the round takes no more reports")
    return outcomes


def _late(
    collector: Collector, one: StoredRound, ids: list[bytes], contents: list[bytes]
) -> list[Outcome]:
    """Say of reports that come after closing which of them are stored already."""
    if one.deleted_at is not None:
        return ["closed"] * len(ids)
    outcomes: list[Outcome] = []
    stored = collector.store.stored(one.key, ids)
    for (taken, known), content in zip(stored, contents, strict=True):
        outcomes.append("closed" if not taken else "repeated" if known == content else "conflict")
    return outcomes


@router.delete(
    **described(
        "/v1/rounds/{name}/reports/{id}",
        {204: ""},
        ("not-found", "invalid-request"),
        roles="device",
    )
)
async def withdraw(request: Request) -> Response:
    """Forget a report; who knows its id may. The id stays taken, known before or not."""
    collector, _ = admitted(request, "device")
    one = collector.catalogue.round(request.path_params["name"])
    id_ = hexadecimal(request, "id")
    # After closing nothing is accepted any more, so an unknown id need not be taken.
    still = one.state(collector.now()) != "closed"
    await in_thread(partial(collector.store.withdraw, one.key, id_, take=still))
    return Response(status_code=204)


@router.delete(
    **described(
        "/v1/rounds/{name}/reports",
        {200: ("application/json", {"type": "object"})},
        ("not-found", "conflict"),
        roles="admin",
    )
)
async def purge(request: Request) -> Response:
    """Delete all reports of a closed round. Its means stay."""
    collector, _ = admitted(request, "admin")
    one = collector.catalogue.round(request.path_params["name"])
    if one.state(collector.now()) != "closed":
        raise Problem("conflict", "close the round first")
    deleted = await in_thread(collector.retention.delete, one, collector.now())
    await in_thread(collector.catalogue.refresh)
    return json_answer({"deleted": deleted})
