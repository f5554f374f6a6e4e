"""The collector as an ASGI application."""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

import uvicorn
from fastapi import FastAPI
from sqlalchemy.exc import SQLAlchemyError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from threadpoolctl import threadpool_limits

from offaxis.collector import monitoring as logs
from offaxis.collector.problems import Problem, unavailable
from offaxis.collector.routes import analysis, facts, pages, publishing, reports
from offaxis.collector.service import Collector, Settings
from offaxis.errors import InvalidInput
from offaxis.version import __version__

_METHODS: Final = frozenset(("GET", "HEAD", "PUT", "POST", "DELETE", "OPTIONS", "PATCH"))


def create_app(settings: Settings) -> FastAPI:
    """Open the database, bring it up to date, and return the application.

    What waits is committed when the application shuts down.
    """
    collector = Collector(settings)
    app = FastAPI(
        title="offaxis collector",
        version=__version__,
        description="Collects reports under local differential privacy.",
        docs_url=None,
        redoc_url=None,
        lifespan=_lifespan,
        openapi_tags=[],
        redirect_slashes=False,
        # Traces would hold paths, and paths hold ids.
        telemetry={"tracing": False, "metrics": False, "logs": False},
    )
    app.state.collector = collector
    app.state.pages = pages.listed(settings.extra_pages)
    for routes in (reports, publishing, analysis, facts, pages):
        # Not included, which would wrap them, but taken over as they are.
        app.router.routes.extend(routes.router.routes)
    for name in settings.extra_pages:
        pages.serve_index(app.router, f"/{name}", f"{name}/index.html")
    app.add_exception_handler(Problem, _problem)
    app.add_exception_handler(HTTPException, _http_problem)
    app.add_exception_handler(SQLAlchemyError, _database_problem)
    app.add_middleware(Watch, collector=collector)
    _describe_tokens(app)
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    collector: Collector = app.state.collector
    house = asyncio.create_task(collector.keep_house())
    yield
    house.cancel()
    with suppress(asyncio.CancelledError):
        await house
    await asyncio.to_thread(collector.close)


def _describe_tokens(app: FastAPI) -> None:
    """Add to OpenAPI how tokens are sent."""
    described = app.openapi()
    described.setdefault("components", {})["securitySchemes"] = {
        "token": {"type": "http", "scheme": "bearer"}
    }


async def _problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, Problem)
    return error.response()


async def _http_problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    kind = {404: "not-found", 405: "method-not-allowed"}.get(error.status_code, "invalid-request")
    return Problem(
        kind, "there is nothing to be asked like this", dict(error.headers or {})
    ).response()


async def _database_problem(request: Request, error: Exception) -> Response:
    request.app.state.collector.metrics.failures.inc()
    logs.event("database failed", logging.WARNING, **logs.error_facts(error))
    return unavailable().response()


class Watch:
    """Counts and logs every request, and lets no error out."""

    def __init__(self, app: ASGIApp, collector: Collector) -> None:
        self._app = app
        self._metrics = collector.metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status = time.perf_counter(), 0

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, watched)
        except ClientDisconnect:
            status = 499
        except Exception as error:
            logs.event("failed", logging.ERROR, **logs.error_facts(error))
            if not status:
                answer = Problem("internal", "this was logged; try again later").response()
                await answer(scope, receive, watched)
        finally:
            seconds = time.perf_counter() - began
            route = _template(scope)
            # Made-up methods would fill the memory with counters, and the log with anything.
            method = scope["method"] if scope["method"] in _METHODS else "other"
            self._metrics.answered(method, route, status, seconds)
            logs.event(
                "request",
                method=method,
                route=route,
                status=status,
                ms=round(seconds * 1000, 2),
                token=scope.get("offaxis.token"),
            )


def _template(scope: dict[str, Any] | Scope) -> str:
    """Return the route's template, never the path."""
    return getattr(scope.get("route"), "path", "other")


# ----------------------------------------------------------------------------
# Running a collector: one process, one event loop, one thread that writes.

_STOP: Final = 30
"""Seconds that requests in flight get when the process is asked to stop."""


def serve(
    settings: Settings,
    host: str,
    port: int,
    certificate: Path | None = None,
    key: Path | None = None,
    first_token: Callable[[str], None] = lambda token: None,
) -> None:
    """Serve until asked to stop; then answer what is in flight and commit what waits.

    Parameters
    ----------
    settings : Settings
    host, port
        Where to listen.
    certificate, key : Path, optional
        For TLS.
    first_token : callable
        Gets the admin's token, once, if the database has no tokens yet.
    """
    if (certificate is None) != (key is None):
        raise InvalidInput("TLS needs both a certificate and its key")
    if certificate is not None and key is not None:
        _check_tls(certificate, key)
    logs.configure()
    try:
        app = create_app(settings)
    except SQLAlchemyError as error:
        # Not the URL, which may hold a password.
        why = str(getattr(error, "orig", None) or error).strip().splitlines()[0]
        raise InvalidInput(f"cannot open the database: {why}") from None
    token = app.state.collector.first_token()
    if token is not None:
        first_token(token)
    config = uvicorn.Config(
        app,
        host,
        port,
        loop="uvloop",
        http="httptools",
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ssl_certfile=certificate,
        ssl_keyfile=key,
        timeout_graceful_shutdown=_STOP,
        timeout_keep_alive=60,
    )
    # Decoding shares the cores with the uploads; it need not take all of them.
    with threadpool_limits(1):
        uvicorn.Server(config).run()


def _check_tls(certificate: Path, key: Path) -> None:
    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise InvalidInput(f"cannot use {certificate} with {key}: {error}") from None
