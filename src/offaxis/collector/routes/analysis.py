"""What analysts ask: means, drift, export. And what operators ask: health and metrics."""

from __future__ import annotations

from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from offaxis.collector.drift import Profile, drift_facts
from offaxis.collector.export import parquet
from offaxis.collector.means import can_tell, means_facts
from offaxis.collector.problems import Problem, unavailable
from offaxis.collector.routes.routing import (
    admitted,
    described,
    in_thread,
    json_answer,
    of,
    plain_router,
)

router = plain_router()
_JSON: Final[tuple[str, dict[str, Any]]] = ("application/json", {"type": "object"})
_PARQUET: Final = "application/vnd.apache.parquet"
_PROMETHEUS: Final = "text/plain; version=0.0.4; charset=utf-8"


@router.get(
    **described("/v1/rounds/{name}/means", {200: _JSON}, ("not-found", "no-means"), roles="analyst")
)
async def means(request: Request) -> Response:
    """Return means and shares of symbols with standard errors, of everybody and by group."""
    collector, _ = admitted(request, "analyst")
    one = collector.catalogue.round(request.path_params["name"])

    def found() -> dict[str, Any]:
        release = collector.catalogue.release(one.document.release)
        if not can_tell(release):
            raise Problem("no-means", "fit a release for means, or export the reports")
        totals = collector.follower.follow(one.key, release)
        return means_facts(one.document.name, release, totals)

    return json_answer(await in_thread(found))


@router.get(**described("/v1/rounds/{name}/drift", {200: _JSON}, ("not-found",), roles="analyst"))
async def drift(request: Request) -> Response:
    """Say whether the reports fit the public vectors of the release's profile."""
    collector, _ = admitted(request, "analyst")
    one = collector.catalogue.round(request.path_params["name"])

    def found() -> dict[str, Any]:
        release = collector.catalogue.release(one.document.release)
        text = collector.store.attached(release.hash, "profile")
        profile = None if text is None else Profile.from_json(text, release)
        totals = collector.follower.follow(one.key, release)
        return {"round": one.document.name, **drift_facts(release, profile, totals.observed)}

    facts = await in_thread(found)
    collector.metrics.drift.labels(one.document.name).set(facts["warning"])
    return json_answer(facts)


@router.get(
    **described("/v1/rounds/{name}/export", {200: _PARQUET}, ("not-found",), roles="analyst")
)
async def export(request: Request) -> Response:
    """Return the reports as a Parquet file: id, group, report."""
    collector, _ = admitted(request, "analyst")
    one = collector.catalogue.round(request.path_params["name"])
    release = await in_thread(collector.catalogue.release, one.document.release)
    pages = parquet(collector.store, one.key, release.report_size)
    # The first page is read before the answer begins, so that a failure can still be told.
    first = await in_thread(next, pages)

    def parts() -> Any:
        yield first
        yield from pages

    return StreamingResponse(parts(), 200, {"cache-control": "no-store"}, _PARQUET)


@router.get(**described("/healthz", {200: _JSON}, roles="none"))
async def healthz(request: Request) -> Response:
    """Say that the process is alive."""
    return json_answer({"status": "alive"})


@router.get(**described("/readyz", {200: _JSON}, roles="none"))
async def readyz(request: Request) -> Response:
    """Say whether the database answers, is up to date and takes reports."""
    if not await in_thread(of(request).check):
        raise unavailable("the database does not answer, is not up to date, or takes no writes")
    return json_answer({"status": "ready"})


@router.get(**described("/metrics", {200: "text/plain"}, roles="analyst or admin"))
async def metrics(request: Request) -> Response:
    """Return Prometheus metrics of this process."""
    collector, _ = admitted(request, "analyst", "admin")
    return Response(collector.metrics.text(), 200, {}, _PROMETHEUS)
