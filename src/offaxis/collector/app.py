"""The collector as an ASGI application, and the server that runs it.

One process has one event loop and one thread that writes.
"""

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

from offaxis.collector import monitoring
from offaxis.collector.problems import Problem, unavailable
from offaxis.collector.routes import (
    analysis,
    facts,
    learning,
    pages,
    population,
    publishing,
    reports,
)
from offaxis.collector.service import Collector, Settings
from offaxis.errors import InvalidInput
from offaxis.version import __version__

_METHODS: Final = frozenset(("GET", "HEAD", "PUT", "POST", "DELETE", "OPTIONS", "PATCH"))


def create_app(settings: Settings) -> FastAPI:
    """Open the database, migrate it, and return the application.

    Pending reports are committed when the application shuts down.
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
        # Traces would contain paths, and paths contain report ids.
        telemetry={"tracing": False, "metrics": False, "logs": False},
    )
    app.state.collector = collector
    app.state.pages = pages.served_files(settings.extra_pages)
    for routes in (reports, publishing, analysis, learning, population, facts, pages):
        # include_router would wrap the endpoints; plain routes are added as they are.
        app.router.routes.extend(routes.router.routes)
    for name in settings.extra_pages:
        pages.serve_index(app.router, f"/{name}", f"{name}/index.html")
    app.add_exception_handler(Problem, _problem)
    app.add_exception_handler(HTTPException, _http_problem)
    app.add_exception_handler(SQLAlchemyError, _database_problem)
    app.add_middleware(RequestLog, collector=collector)
    _add_security_scheme(app)
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    collector: Collector = app.state.collector
    maintenance = asyncio.create_task(collector.run_maintenance())
    yield
    maintenance.cancel()
    with suppress(asyncio.CancelledError):
        await maintenance
    await asyncio.to_thread(collector.close)


def _add_security_scheme(app: FastAPI) -> None:
    """Declare bearer tokens in the OpenAPI document."""
    document = app.openapi()
    document.setdefault("components", {})["securitySchemes"] = {
        "token": {"type": "http", "scheme": "bearer"}
    }


async def _problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, Problem)
    return error.response()


async def _http_problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    kind = {404: "not-found", 405: "method-not-allowed"}.get(error.status_code, "invalid-request")
    return Problem(kind, "no such endpoint", dict(error.headers or {})).response()


async def _database_problem(request: Request, error: Exception) -> Response:
    request.app.state.collector.metrics.failures.inc()
    monitoring.event("database failed", logging.WARNING, **monitoring.error_facts(error))
    return unavailable().response()


class RequestLog:
    """Middleware that counts and logs every request and turns every exception into a problem."""

    def __init__(self, app: ASGIApp, collector: Collector) -> None:
        self._app = app
        self._metrics = collector.metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status = time.perf_counter(), 0

        async def send_and_note_status(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, send_and_note_status)
        except ClientDisconnect:
            status = 499
        except Exception as error:
            monitoring.event("failed", logging.ERROR, **monitoring.error_facts(error))
            if not status:
                problem = Problem("internal", "the error was logged; try again later").response()
                await problem(scope, receive, send_and_note_status)
        finally:
            seconds = time.perf_counter() - began
            route = _template(scope)
            # Invented methods would create unlimited counters and put arbitrary text in the log.
            method = scope["method"] if scope["method"] in _METHODS else "other"
            self._metrics.request_done(method, route, status, seconds)
            monitoring.event(
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


# ---- Server

_GRACE: Final = 30
"""Seconds that requests in flight get when the process receives a signal to stop."""


def serve(
    settings: Settings,
    host: str,
    port: int,
    certificate: Path | None = None,
    key: Path | None = None,
    first_token: Callable[[str], None] = lambda token: None,
) -> None:
    """Serve until a signal to stop, then finish the requests in flight and commit pending reports.

    Parameters
    ----------
    settings : Settings
    host, port
        Address to listen on.
    certificate, key : Path, optional
        Files for TLS.
    first_token : callable
        Receives a new admin token if the database has no tokens yet.
    """
    if (certificate is None) != (key is None):
        raise InvalidInput("TLS needs both a certificate and its key")
    if certificate is not None and key is not None:
        _check_tls(certificate, key)
    monitoring.configure()
    try:
        app = create_app(settings)
    except SQLAlchemyError as error:
        # The message must not contain the URL, which may contain a password.
        reason = str(getattr(error, "orig", None) or error).strip().splitlines()[0]
        raise InvalidInput(f"cannot open the database: {reason}") from None
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
        timeout_graceful_shutdown=_GRACE,
        timeout_keep_alive=60,
    )
    # Decoding shares the cores with uploads, so it must not use all of them.
    with threadpool_limits(1):
        uvicorn.Server(config).run()


def _check_tls(certificate: Path, key: Path) -> None:
    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise InvalidInput(f"cannot use {certificate} with {key}: {error}") from None
