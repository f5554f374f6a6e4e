"""``offaxis collector token``: make, list and revoke tokens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Final, Literal

import typer

from offaxis.cli.collector.asking import URL, CaFile, Secret, Url, ask, facts
from offaxis.cli.command import Group
from offaxis.cli.examples import add, example
from offaxis.cli.files import check_output
from offaxis.cli.options import AsJson
from offaxis.cli.showing.terminal import one_line, plain, print_json
from offaxis.files import replacing

token: Final = typer.Typer(cls=Group, no_args_is_help=True, help="Make, list and revoke tokens.")


@example("offaxis collector token create anna --role analyst --out anna.token")
def create_token(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Whose it is; logs name it.")],
    role: Annotated[
        Literal["device", "analyst", "admin"],
        typer.Option(help="Sends reports; reads means; or publishes, too."),
    ],
    secret: Secret,
    url: Url = URL,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write it to a file of your own instead of showing it."),
    ] = None,
    ca_file: CaFile = None,
    as_json: AsJson = False,
) -> None:
    """Make a token; it is shown this once, or written to a file that only you can read."""
    if out is not None:
        check_output(out)
    body = json.dumps({"name": name, "role": role}).encode()
    headers = {"Content-Type": "application/json"}
    made = facts(ask((url, secret, ca_file), "POST", "/v1/tokens", body, headers))
    if out is not None:
        with replacing(out) as file:
            Path(file.name).chmod(0o600)
            file.write(made.pop("token").encode() + b"\n")
    if as_json:
        print_json(made)
    elif out is not None:
        typer.echo(f"token {made['id']} is in {out}")
    else:
        typer.echo(plain(f"token {made['id']} (shown once): {made['token']}"))


@example("offaxis collector token list")
def list_tokens(
    secret: Secret, url: Url = URL, ca_file: CaFile = None, as_json: AsJson = False
) -> None:
    """List tokens by number, name and role."""
    found = facts(ask((url, secret, ca_file), "GET", "/v1/tokens"))
    if as_json:
        print_json(found)
        return
    for one in found["tokens"]:
        state = "revoked" if one["revoked_at"] else "valid"
        typer.echo(plain(f"{one['id']}  {one['role']}  {state}  {one_line(str(one['name']))}"))


@example("offaxis collector token revoke 2")
def revoke_token(
    number: Annotated[int, typer.Argument(metavar="NUMBER", help="As listed.")],
    secret: Secret,
    url: Url = URL,
    ca_file: CaFile = None,
) -> None:
    """Make a token invalid, for good."""
    ask((url, secret, ca_file), "DELETE", f"/v1/tokens/{number}")
    typer.echo(f"token {number} is revoked")


add(token, create_token, "create")
add(token, list_tokens, "list")
add(token, revoke_token, "revoke")
