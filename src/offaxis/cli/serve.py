"""``offaxis serve`` and ``offaxis keys``: run a collector, and keep the publisher's key."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from offaxis.cli.inputs import check_output
from offaxis.cli.options import AsJson, Group, add, example, usage_errors
from offaxis.cli.terminal import (
    print_json,
)
from offaxis.errors import InvalidInput, MissingExtra, installing
from offaxis.formats.documents import load_key, new_key, public_key, save_key

# ---- ``offaxis keys``: the publisher's key, which stays with the publisher


@example("offaxis keys new publisher.key")
def new(
    out: Annotated[Path, typer.Argument(metavar="FILE", help="The file for the private key.")],
    as_json: AsJson = False,
) -> None:
    """Create a key and print its public half, which devices pin. An existing key is kept."""
    check_output(out)
    if out.exists():
        raise InvalidInput(f"{out} already exists; a lost key cannot be recovered")
    key = new_key()
    save_key(key, out)
    _print_public_key(key, out, as_json=as_json)


@example("offaxis keys show publisher.key")
def show(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="The private key.")],
    as_json: AsJson = False,
) -> None:
    """Print the public half of a key."""
    _print_public_key(load_key(path), path, as_json=as_json)


def _print_public_key(key: Ed25519PrivateKey, path: Path, *, as_json: bool) -> None:
    public = key.public_key().public_bytes_raw().hex()
    if as_json:
        print_json({"key": str(path), "public_key": public})
    else:
        typer.echo(f"public key: {public}")


keys: Final = typer.Typer(
    cls=Group,
    no_args_is_help=True,
    help="Create a publisher's signing key, or show its public half.",
)
add(keys, new)
add(keys, show)


# ---- ``offaxis serve``


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
        Path | None, typer.Option(metavar="FILE", help="TLS certificate chain, PEM.")
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Key of the certificate, PEM.")
    ] = None,
    publisher: Annotated[
        str | None,
        typer.Option(
            metavar="KEY",
            help="Accept only releases and rounds signed with this public key.",
        ),
    ] = None,
    device_rate: Annotated[
        float, typer.Option(min=1, help="Reports per second accepted from one device token.")
    ] = 100_000,
    reader_rate: Annotated[
        float, typer.Option(min=1, help="Requests per second accepted from any other token.")
    ] = 50,
) -> None:
    """Run a collector: publish releases, open rounds, accept uploads, compute means.

    The first start prints an admin token, once. Logs go to standard error as JSON lines.
    """
    try:
        from offaxis.collector.app import serve as run
        from offaxis.collector.service import Settings
    except ModuleNotFoundError as error:
        raise MissingExtra(f"a collector needs {error.name}: {installing('collector')}") from None

    if publisher is not None:
        with usage_errors():
            public_key(publisher)
    if tls_cert is None and host not in ("127.0.0.1", "::1", "localhost"):
        typer.echo(
            "warning: without TLS, tokens are sent unencrypted; use --tls-cert and --tls-key, or "
            "a TLS proxy in front of the collector",
            err=True,
        )
    settings = Settings(
        database=database, publisher=publisher, device_rate=device_rate, reader_rate=reader_rate
    )
    run(settings, host, port, tls_cert, tls_key, _show_token)


def _show_token(token: str) -> None:
    typer.echo(f"admin token (shown once): {token}")
