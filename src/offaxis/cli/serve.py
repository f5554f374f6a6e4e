"""``offaxis serve``: run a collector."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from offaxis.cli.examples import example
from offaxis.cli.usage import reading_options


@example("offaxis serve --database sqlite:///collector.db")
def serve(
    database: Annotated[
        str,
        typer.Option(
            metavar="URL", help="sqlite:///FILE, or postgresql://… for several processes."
        ),
    ] = "sqlite:///collector.db",
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to listen on.")] = 8470,
    tls_cert: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Certificate chain, PEM.")
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(metavar="FILE", help="Its key, PEM.")] = None,
    publisher: Annotated[
        str | None,
        typer.Option(
            metavar="KEY", help="Public key: refuse releases and rounds it has not signed."
        ),
    ] = None,
    device_rate: Annotated[
        float, typer.Option(min=1, help="Reports a second that one device's token may send.")
    ] = 100_000,
    reader_rate: Annotated[
        float, typer.Option(min=1, help="Requests a second of any other token.")
    ] = 50,
) -> None:
    """Collect reports: publish releases, open rounds, take uploads, answer with means.

    The first start prints an admin's token, once. Logs go to standard error as JSON lines.
    """
    from offaxis.errors import MissingExtra, installing
    from offaxis.formats.signing import public_key

    try:
        from offaxis.collector.serve import serve as run
        from offaxis.collector.settings import Settings
    except ModuleNotFoundError as error:
        raise MissingExtra(f"a collector needs {error.name}: {installing('collector')}") from None

    if publisher is not None:
        with reading_options():
            public_key(publisher)
    if tls_cert is None and host not in ("127.0.0.1", "::1", "localhost"):
        typer.echo(
            "warning: without TLS tokens travel in the clear; give --tls-cert and --tls-key, or "
            "put a proxy that ends TLS before it",
            err=True,
        )
    settings = Settings(
        database=database, publisher=publisher, device_rate=device_rate, reader_rate=reader_rate
    )
    run(settings, host, port, tls_cert, tls_key, _show_token)


def _show_token(token: str) -> None:
    typer.echo(f"admin token (shown once): {token}")
