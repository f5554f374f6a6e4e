"""``offaxis keys``: the publisher's key. It stays with the publisher, never at the collector."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from offaxis.cli.command import Group
from offaxis.cli.examples import add, example
from offaxis.cli.options import AsJson
from offaxis.cli.showing.terminal import print_json

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

keys: Final = typer.Typer(
    cls=Group, no_args_is_help=True, help="Make a publisher's key, show its public half."
)


@example("offaxis keys new publisher.key")
def new(
    out: Annotated[Path, typer.Argument(metavar="FILE", help="A file for the private key.")],
    as_json: AsJson = False,
) -> None:
    """Make a key and print its public half, which devices pin. One that is there stays."""
    from offaxis.cli.files import check_output
    from offaxis.errors import InvalidInput
    from offaxis.formats.signing import new_key, save_key

    check_output(out)
    if out.exists():
        raise InvalidInput(f"{out} is there already; a key that is lost cannot be made again")
    key = new_key()
    save_key(key, out)
    _tell(key, out, as_json=as_json)


@example("offaxis keys show publisher.key")
def show(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="The private key.")],
    as_json: AsJson = False,
) -> None:
    """Print the public half of a key."""
    from offaxis.formats.signing import load_key

    _tell(load_key(path), path, as_json=as_json)


def _tell(key: Ed25519PrivateKey, path: Path, *, as_json: bool) -> None:
    public = key.public_key().public_bytes_raw().hex()
    if as_json:
        print_json({"key": str(path), "public_key": public})
    else:
        typer.echo(f"public key: {public}")


add(keys, new)
add(keys, show)
