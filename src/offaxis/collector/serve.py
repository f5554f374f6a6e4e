"""Running a collector: one process, one event loop, one thread that writes."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Final

import uvicorn
from sqlalchemy.exc import SQLAlchemyError
from threadpoolctl import threadpool_limits

from offaxis.collector import logs
from offaxis.collector.app import create_app
from offaxis.collector.settings import Settings
from offaxis.errors import InvalidInput

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
