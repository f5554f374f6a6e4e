"""What the commands of a collector share: its address, a token, and asking."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

if TYPE_CHECKING:
    from offaxis.client.transport import Answer

_LARGEST: Final = 1 << 34
_SLOW: Final = 60.0
"""Times the usual patience, for what may be large."""

Url = Annotated[
    str,
    typer.Option(
        "--collector", metavar="URL", envvar="OFFAXIS_COLLECTOR", help="Address of the collector."
    ),
]
Secret = Annotated[
    str,
    typer.Option(
        "--token",
        metavar="TOKEN",
        envvar="OFFAXIS_TOKEN",
        help="A token of the collector: an admin's, or an analyst's to read.",
    ),
]
CaFile = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Certificates to trust, not the system's.")
]
RoundName = Annotated[str, typer.Argument(metavar="ROUND", help="The round's name.")]
URL: Final = "http://127.0.0.1:8470"


def ask(
    where: tuple[str, str, Path | None],
    method: str,
    path: str,
    body: bytes | None = None,
    headers: dict[str, str] | None = None,
) -> Answer:
    """Ask the collector; anything but success is an error that says what it said."""
    from offaxis.client.transport import Transport
    from offaxis.errors import InvalidInput, Unreachable

    url, secret, ca_file = where
    transport = Transport(url, token=secret, ca_file=ca_file)
    try:
        answer = transport.ask(
            method, path, body=body, headers=headers, largest=_LARGEST, patience=_SLOW
        )
    except Unreachable as error:
        raise Unreachable(f"{error}; is it at {url}? Set --collector or start it") from None
    if not 200 <= answer.status < 300:
        raise InvalidInput(f"the collector refused: {answer.words}")
    return answer


def facts(answer: Answer) -> dict[str, Any]:
    """Return the JSON of an answer."""
    found: dict[str, Any] = json.loads(answer.body)
    return found


def quoted(name: str) -> str:
    """Return a name as a part of a path."""
    from urllib.parse import quote

    return quote(name, safe="")
