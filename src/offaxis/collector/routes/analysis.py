"""A round's reports as a Parquet file, written while it is sent."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from offaxis.collector.drift import Profile, drift_facts
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
from offaxis.collector.store import Store


class _Pipe(io.RawIOBase):
    """Keeps what is written until it is taken."""

    def __init__(self) -> None:
        super().__init__()
        self._parts: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        part = bytes(memoryview(data))  # type: ignore[arg-type]
        self._parts.append(part)
        return len(part)

    def take(self) -> bytes:
        taken = b"".join(self._parts)
        self._parts.clear()
        return taken


def parquet(store: Store, key: int, report_size: int) -> Iterator[bytes]:
    """Yield a Parquet file with the columns id, group and report, a row group at a time.

    The rows are in the order of ids, so the file does not tell who reported first.
    """
    schema = pa.schema(
        [
            pa.field("id", pa.binary(32), nullable=False),
            pa.field("group", pa.string()),
            pa.field("report", pa.binary(report_size), nullable=False),
        ]
    )
    pipe = _Pipe()
    # Ids and reports are nearly random: compressing them takes time and no bytes away.
    with pq.ParquetWriter(pa.PythonFile(pipe, mode="w"), schema, compression="none") as writer:
        for page in store.by_id(key):
            ids, labels, contents = zip(*page, strict=True)
            columns = [
                pa.array(map(bytes, ids), schema.field("id").type, size=len(ids)),
                pa.array(labels, pa.string()),
                pa.array(map(bytes, contents), schema.field("report").type, size=len(ids)),
            ]
            writer.write_table(pa.Table.from_arrays(columns, schema=schema))
            yield pipe.take()
    yield pipe.take()


# ----------------------------------------------------------------------------
# What analysts ask: means, drift, export. And what operators ask: health and metrics.

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
