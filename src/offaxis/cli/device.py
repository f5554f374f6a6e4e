"""A device's rounds and answers as plain facts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.text import Text

from offaxis.cli.inputs import check_output, locate, read_array
from offaxis.cli.ledger import balance_facts, moment, read_limits
from offaxis.cli.options import ARRAY, AsJson, Group, Misused, add, example, reading_options
from offaxis.cli.terminal import bare_table, counted, one_line, print_json, screen
from offaxis.client import Device, Entry, Offer, Terms
from offaxis.errors import InvalidInput
from offaxis.formats.documents import public_key
from offaxis.privacy.guarantee import exact
from offaxis.privacy.wording import rounded

_WAITING = ("queued", "withdrawing")


def round_facts(offer: Offer, answered: bool) -> dict[str, Any]:
    """Return a round for ``--json``."""
    round_ = offer.round
    return {
        "round": round_.name,
        "study": round_.study,
        "number": round_.number,
        "state": offer.state,
        "answered": answered,
        "opens": moment(round_.opens.timestamp())[:16],
        "closes": moment(round_.closes.timestamp())[:16],
        "groups": list(round_.groups),
        "release": round_.release,
    }


def entry_facts(entry: Entry) -> dict[str, Any]:
    """Return an answer for ``--json``, without the report itself."""
    return {
        "round": entry.round,
        "study": entry.study,
        "number": entry.number,
        "release": entry.release,
        "group": entry.group,
        "id": entry.id.hex(),
        "state": entry.state,
        "attempts": entry.attempts,
        "next_try": moment(entry.next_try) if entry.state in _WAITING else None,
        "problem": entry.problem,
    }


# ----------------------------------------------------------------------------
# ``offaxis device``: a device that answers rounds of a collector, within its own limits.

device = typer.Typer(
    cls=Group,
    no_args_is_help=True,
    help="Answer rounds of a collector: each once, paid for, and sent until it is taken.",
)

State = Annotated[
    Path, typer.Argument(metavar="STATE", help="The device's file: its ledger and its answers.")
]
RoundName = Annotated[str, typer.Argument(metavar="ROUND", help="The name of a round.")]


@example("offaxis device init my.device --collector https://c.example --limit 8 --publisher KEY")
def init(
    state: State,
    collector: Annotated[str, typer.Option(metavar="URL", help="Its address, https://…")],
    limit: Annotated[
        list[str],
        typer.Option(
            metavar="E",
            help="Most ε of all reports together, read exactly; '1 per 30d' for any 30 days. May "
            "be given several times: each must hold.",
        ),
    ],
    publisher: Annotated[
        str | None, typer.Option(metavar="KEY", help="Answer rounds that this public key signed.")
    ] = None,
    release: Annotated[
        str | None, typer.Option(metavar="HASH", help="Report this release and no other.")
    ] = None,
    epsilon: Annotated[
        str | None,
        typer.Option(metavar="E", help="Most ε of one report; by default the smallest limit."),
    ] = None,
    delta: Annotated[
        str, typer.Option(metavar="D", help="Most δ of one report, and of each limit.")
    ] = "0",
    unit: Annotated[
        Literal["item", "user"], typer.Option(help="What a report must stand for.")
    ] = "item",
    token_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Holds the token of the collector.")
    ] = None,
    ca_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Certificates to trust, not the system's.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Set up a device. One that is there is not replaced.

    It needs the publisher's key or a release's hash: nothing else that comes is believed.
    """
    check_output(state)
    with reading_options():
        share = exact(delta, "delta")
        limits = read_limits(limit, share)
        most = min(one.epsilon for one in limits) if epsilon is None else exact(epsilon, "epsilon")
        if publisher is not None:
            public_key(publisher)
    terms = Terms(
        collector,
        str(most),
        str(share),
        unit,
        publisher,
        release,
        None if token_file is None else _token(token_file),
        None if ca_file is None else str(ca_file.resolve()),
    )
    Device.create(state, terms, *limits).close()
    if as_json:
        print_json({"state": str(state), "collector": collector, "limits": list(map(str, limits))})
        return
    typer.echo(f"made {state}, the device of one person, for {one_line(collector)}")
    for one in limits:
        typer.echo(f"limit: {one}")
    typer.echo(f"one report: up to {terms.most}, per {terms.unit}")


@example("offaxis device rounds my.device")
def rounds(state: State, as_json: AsJson = False) -> None:
    """Show the rounds that the collector offers and this device believes."""

    with _opened(state) as opened:
        answered = {entry.round for entry in opened.status() if entry.report}
        facts = [round_facts(offer, offer.round.name in answered) for offer in opened.rounds()]
    if as_json:
        print_json({"rounds": facts})
        return
    if not facts:
        typer.echo("no round that this device believes")
        return
    _table(facts, ["round", "number", "state", "answered", "opens", "closes", "groups", "release"])


@example("offaxis device report my.device energy-7 --vector today.npy")
def report(
    state: State,
    round_: RoundName,
    vector: Annotated[
        str | None,
        typer.Option(metavar="FILE", help=f"One vector: {ARRAY}."),
    ] = None,
    public_mean: Annotated[
        bool,
        typer.Option("--public-mean", help="There is no vector: report the public mean instead."),
    ] = False,
    group: Annotated[
        str | None, typer.Option(metavar="GROUP", help="One of the round's; not private.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Answer a round: verify it, pay, make the report and keep it for `offaxis device send`.

    A round is answered once; asked again, nothing is paid and the vector is not read. A file that
    holds no usable vector becomes a report of the public mean, so that silence tells nothing.
    """
    if (vector is None) != public_mean:
        raise Misused("give either --vector FILE or --public-mean")
    if vector is not None and not locate(vector)[0].is_file():
        raise InvalidInput(f"there is no file {locate(vector)[0]}; nothing was paid or reported")
    with _opened(state) as opened:
        entry = opened.report(round_, (lambda: _one(read_array(vector))) if vector else None, group)
        spent = opened.ledger.spent()[0]
    if as_json:
        print_json(entry_facts(entry))
        return
    typer.echo(
        f"round {entry.round} is answered and {entry.state}; spent so far: "
        f"ε = {rounded(spent, up=True)}"
    )


@example("offaxis device send my.device")
def send(
    state: State,
    now: Annotated[
        bool, typer.Option("--now", help="Wait for nothing: who watches sees when it was made.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Send what is due; run it now and then. The same bytes go until they are taken."""
    with _opened(state) as opened:
        tried = opened.send(at_once=now)
        waiting = sum(one.state in ("queued", "withdrawing") for one in opened.status())
    if not as_json:
        typer.echo(f"tried {counted(len(tried), 'report')}, {waiting:,} waiting")
    _show(tried, as_json)


@example("offaxis device withdraw my.device energy-7")
def withdraw(state: State, round_: RoundName, as_json: AsJson = False) -> None:
    """Ask for a report back; the next `send` tells the collector. What was paid stays paid."""
    with _opened(state) as opened:
        entry = opened.withdraw(round_)
    _show([entry], as_json)


@example("offaxis device status my.device")
def status(state: State, as_json: AsJson = False) -> None:
    """Show what was answered, what became of it, and what every limit leaves."""
    with _opened(state) as opened:
        entries, under, terms = opened.status(), opened.ledger.balances(), opened.terms
    if as_json:
        print_json(
            {
                "state": str(state),
                "collector": terms.url,
                "answers": [entry_facts(entry) for entry in entries],
                "limits": [balance_facts(one) for one in under],
            }
        )
        return
    for one in under:
        typer.echo(f"limit {one.limit}: ε = {rounded(one.left, up=False)} left")
    _show(entries, as_json)


def _opened(state: Path) -> Device:
    if not state.is_file():
        raise InvalidInput(f"there is no device {state}; make one with: offaxis device init")
    return Device.open(state)


def _token(path: Path) -> str:
    """Read a token from a file, not from the command line, which others can see."""
    try:
        return path.read_text().strip()
    except (OSError, ValueError) as error:
        raise InvalidInput(f"cannot read a token from {path}: {error}") from None


def _one(array: Any) -> Any:
    """Return the only row of a file that holds one."""
    return array[0] if array.ndim == 2 and len(array) == 1 else array


def _show(entries: list[Entry], as_json: bool) -> None:

    facts = [entry_facts(entry) for entry in entries]
    if as_json:
        print_json({"answers": facts})
    elif facts:
        _table(facts, ["round", "state", "attempts", "next_try", "problem"])


def _table(facts: list[dict[str, Any]], names: list[str]) -> None:
    table = bare_table()
    for name in names:
        table.add_column(name.replace("_", " "))
    for one in facts:
        table.add_row(*(Text(_cell(one[name])) for name in names))
    with screen() as console:
        console.print(table)


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return one_line(", ".join(value) if isinstance(value, list) else str(value or ""))


for _command in (init, rounds, report, send, withdraw, status):
    add(device, _command)
