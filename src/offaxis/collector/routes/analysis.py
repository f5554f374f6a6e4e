"""Endpoints for analysts (means, export) and for operators (health and metrics)."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from offaxis.collector.means import has_estimates, means_facts, without_estimates
from offaxis.collector.problems import Problem, unavailable
from offaxis.collector.routes.routing import (
    authorize,
    collector_of,
    in_thread,
    json_response,
    plain_router,
    route_options,
)
from offaxis.collector.store import Store

router = plain_router()
_JSON: Final[tuple[str, dict[str, Any]]] = ("application/json", {"type": "object"})
_PARQUET: Final = "application/vnd.apache.parquet"
_PROMETHEUS: Final = "text/plain; version=0.0.4; charset=utf-8"


@router.get(
    **route_options(
        "/v1/rounds/{name}/means", {200: _JSON}, ("not-found", "no-means"), roles="analyst"
    )
)
async def means(request: Request) -> Response:
    """Return means and shares of symbols with standard errors, of all people and per group."""
    collector, _ = authorize(request, "analyst")
    stored = collector.catalogue.round(request.path_params["name"])

    def compute() -> dict[str, Any]:
        release = collector.catalogue.release(stored.document.release)
        if not has_estimates(release):
            raise Problem("no-means", without_estimates(release))
        totals = collector.follower.follow(stored.key, release)
        return means_facts(stored.document.name, release, totals)

    return json_response(await in_thread(compute))


@router.get(
    **route_options("/v1/rounds/{name}/export", {200: _PARQUET}, ("not-found",), roles="analyst")
)
async def export(request: Request) -> Response:
    """Return the reports as a Parquet file: id, group, report."""
    collector, _ = authorize(request, "analyst")
    stored = collector.catalogue.round(request.path_params["name"])
    release = await in_thread(collector.catalogue.release, stored.document.release)
    pages = parquet(collector.store, stored.key, release.report_size)
    # The first page is read before the response begins, so that a failure can still be reported.
    first = await in_thread(next, pages)

    def parts() -> Any:
        yield first
        yield from pages

    return StreamingResponse(parts(), 200, {"cache-control": "no-store"}, _PARQUET)


class _Pipe(io.RawIOBase):
    """Buffers what is written until it is taken."""

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
    """Yield a Parquet file with the columns id, group and report, one row group at a time.

    The rows are in the order of ids, so the file does not reveal who reported first.
    """
    schema = pa.schema(
        [
            pa.field("id", pa.binary(32), nullable=False),
            pa.field("group", pa.string()),
            pa.field("report", pa.binary(report_size), nullable=False),
        ]
    )
    pipe = _Pipe()
    # Ids and reports are nearly random: compression would take time and save nothing.
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


@router.get(**route_options("/healthz", {200: _JSON}, roles="none"))
async def healthz(request: Request) -> Response:
    """Return that the process is alive."""
    return json_response({"status": "alive"})


@router.get(**route_options("/readyz", {200: _JSON}, roles="none"))
async def readyz(request: Request) -> Response:
    """Return whether the database responds, is migrated and stores reports."""
    if not await in_thread(collector_of(request).check):
        raise unavailable("the database does not respond, is not migrated, or cannot be written")
    return json_response({"status": "ready"})


@router.get(**route_options("/metrics", {200: "text/plain"}, roles="analyst or admin"))
async def metrics(request: Request) -> Response:
    """Return Prometheus metrics of this process."""
    collector, _ = authorize(request, "analyst", "admin")
    return Response(collector.metrics.text(), 200, {}, _PROMETHEUS)
