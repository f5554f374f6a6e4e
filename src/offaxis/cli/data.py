"""``offaxis data``: which data sets there are, and getting them."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Final

import typer

from offaxis.cli.command import Group
from offaxis.cli.examples import add, example
from offaxis.cli.options import AsJson
from offaxis.cli.showing.terminal import bare_table, plain, print_json, screen

data: Final = typer.Typer(
    cls=Group,
    help="List and get the data sets of the studies.",
    no_args_is_help=True,
    add_completion=False,
)

Cache = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        help="Where data are kept, instead of OFFAXIS_CACHE or the usual cache folder.",
    ),
]


def _size(count: int) -> str:
    return f"{count / 1e6:,.0f} MB" if count else ""


@example("offaxis data list")
def list_(cache: Cache = None, as_json: AsJson = False) -> None:
    """Show all data sets, and which of them are here."""
    from offaxis.data import shelf
    from offaxis.data.cache import cache_folder

    entries = shelf(cache)
    folder = cache_folder(cache)
    if as_json:
        print_json({"cache": str(folder), "sets": [asdict(entry) for entry in entries]})
        return
    from rich.text import Text

    table = bare_table()
    for title in ("name", "what", "state", "size"):
        table.add_column(
            title,
            no_wrap=title in ("name", "size"),
            justify="right" if title == "size" else "left",
        )
    for entry in entries:
        state = Text(entry.state, style="green" if entry.ready else "")
        table.add_row(Text(entry.name, style="bold"), entry.about, state, _size(entry.bytes))
    with screen() as console:
        console.print(table)
        console.print(f"\ncache: {plain(str(folder))}", soft_wrap=True)


@example("offaxis data get digits", "offaxis data get cifar10 --from cifar-10-binary.tar.gz")
def get(
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="mnist, cifar10, cifar10-c, lhsm or digits."),
    ],
    own: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="PATH",
            help="Use an own copy: the official files or archive, a torchvision folder, or for "
            "lhsm Kaggle's daily tables.",
        ),
    ] = None,
    cache: Cache = None,
    as_json: AsJson = False,
) -> None:
    """Have a data set ready: fetched, checked and cached. Fetches nothing that is already here."""
    from offaxis import data as library
    from offaxis.cli.showing.progress import moving
    from offaxis.cli.usage import Misused
    from offaxis.errors import unknown_name

    if name not in library.NAMES:
        raise Misused(unknown_name("data set", name, library.NAMES))
    with moving(f"getting {name}") as move:
        got = library.get(name, own=own, cache=cache, progress=move)
    if as_json:
        print_json(
            {
                "name": got.name,
                "path": None if got.path is None else str(got.path),
                "already": got.already,
            }
        )
        return
    where = "part of an installed package" if got.path is None else str(got.path)
    typer.echo(plain(f"{got.name} {'was already here' if got.already else 'is ready'}: {where}"))


add(data, list_, "list")
add(data, get)
