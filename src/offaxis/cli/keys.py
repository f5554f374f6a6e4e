"""``offaxis keys``: the publisher's key. It stays with the publisher, never at the collector."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

keys: Final = typer.Typer(
    no_args_is_help=True, help="Make a publisher's key, show its public half."
)


@keys.command()
def new(
    out: Annotated[Path, typer.Argument(metavar="FILE", help="A file for the private key.")],
) -> None:
    """Make a key and print its public half, which devices pin. One that is there stays."""
    from offaxis.cli.files import check_output
    from offaxis.errors import InvalidInput
    from offaxis.formats.documents import new_key, save_key

    check_output(out)
    if out.exists():
        raise InvalidInput(f"{out} is there already; a key that is lost cannot be made again")
    key = new_key()
    save_key(key, out)
    typer.echo(f"public key: {key.public_key().public_bytes_raw().hex()}")


@keys.command()
def show(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="The private key.")],
) -> None:
    """Print the public half of a key."""
    from offaxis.formats.documents import load_key

    typer.echo(f"public key: {load_key(path).public_key().public_bytes_raw().hex()}")
