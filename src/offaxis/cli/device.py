"""``offaxis device``: a device that answers rounds of a collector, within its limits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.text import Text

from offaxis.cli.answers import ANSWERS, describe_asked, locate_answers, read_answers
from offaxis.cli.inputs import check_output, locate, read_array
from offaxis.cli.ledger import balance_facts, format_time, parse_limit
from offaxis.cli.options import (
    ARRAY,
    AsJson,
    Group,
    UsageError,
    add,
    example,
    usage_errors,
)
from offaxis.cli.terminal import buffered_console, one_line, plain_table, pluralize, print_json
from offaxis.client import Device, Entry, Offer, Terms
from offaxis.client.device import LARGEST_RELEASE
from offaxis.client.terms import largest_report
from offaxis.client.transport import PATIENCE
from offaxis.encoding.questions import AnswersEncoder
from offaxis.errors import InvalidInput
from offaxis.formats.documents import public_key
from offaxis.privacy.guarantee import exact
from offaxis.privacy.wording import rounded
from offaxis.release import Release

device = typer.Typer(
    cls=Group,
    no_args_is_help=True,
    help="Answer a collector's rounds: each is paid for once and sent until accepted.",
)

State = Annotated[
    Path, typer.Argument(metavar="STATE", help="The device's file: its ledger and its answers.")
]
RoundName = Annotated[str, typer.Argument(metavar="ROUND", help="The name of a round.")]

_WAITING = ("queued", "withdrawing")


@example("offaxis device init my.device --collector https://c.example --limit 8 --publisher KEY")
def init(
    state: State,
    collector: Annotated[
        str, typer.Option(metavar="URL", help="Address of the collector, https://…")
    ],
    limit: Annotated[
        list[str],
        typer.Option(
            metavar="E",
            help="Limit on the ε of all reports together, read exactly; '1 per 30d' limits any 30 "
            "days. May be given several times: all limits hold.",
        ),
    ],
    publisher: Annotated[
        str | None,
        typer.Option(metavar="KEY", help="Answer only rounds signed with this public key."),
    ] = None,
    release: Annotated[
        str | None, typer.Option(metavar="HASH", help="Report only with this release.")
    ] = None,
    epsilon: Annotated[
        str | None,
        typer.Option(
            metavar="E",
            help="Limit on the ε of one report or sequence; by default the least limit in all.",
        ),
    ] = None,
    delta: Annotated[
        str, typer.Option(metavar="D", help="Limit on the δ of one report, and of each limit.")
    ] = "0",
    unit: Annotated[
        Literal["item", "user"], typer.Option(help="The least unit that a release must protect.")
    ] = "item",
    token_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="File with the token for the collector.")
    ] = None,
    ca_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Certificates to trust instead of the system's."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Set up a device. An existing device is not replaced.

    It needs the publisher's key or the hash of a release: the device trusts nothing else that it
    receives.
    """
    check_output(state)
    with usage_errors():
        delta_limit = exact(delta, "delta")
        limits = [parse_limit(text, delta_limit) for text in limit]
        epsilon_limit = largest_report(limits) if epsilon is None else exact(epsilon, "epsilon")
        if publisher is not None:
            public_key(publisher)
    terms = Terms(
        collector,
        str(epsilon_limit),
        str(delta_limit),
        unit,
        publisher,
        release,
        None if token_file is None else _read_token(token_file),
        None if ca_file is None else str(ca_file.resolve()),
    )
    Device.create(state, terms, *limits).close()
    if as_json:
        print_json({"state": str(state), "collector": collector, "limits": list(map(str, limits))})
        return
    typer.echo(f"created {state}, the device of one person, for {one_line(collector)}")
    for one in limits:
        typer.echo(f"limit: {one}")
    typer.echo(f"one report or sequence: up to {terms.most}, at least per {terms.unit}")


@example("offaxis device rounds my.device")
def rounds(state: State, as_json: AsJson = False) -> None:
    """Show the collector's rounds that this device trusts."""
    with _open_device(state) as opened:
        answered = {entry.round for entry in opened.status() if entry.answered}
        facts = [_round_facts(offer, offer.round.name in answered) for offer in opened.rounds()]
    if as_json:
        print_json({"rounds": facts})
        return
    if not facts:
        typer.echo("no round that this device trusts")
        return
    columns = ["round", "number", "state", "answered", "opens", "closes", "groups", "release"]
    _print_table(facts, columns)


@example(
    "offaxis device report my.device energy-7 --vector today.npy",
    "offaxis device report my.device habits-1 --vector today.npy --answers today.csv",
)
def report(
    state: State,
    round_: RoundName,
    vector: Annotated[
        str | None,
        typer.Option(metavar="FILE", help=f"One vector: {ARRAY}."),
    ] = None,
    answers: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help=f"In a round that asks for them: the private answers, {ANSWERS}.",
        ),
    ] = None,
    public_mean: Annotated[
        bool,
        typer.Option("--public-mean", help="Report the public mean, if there is no vector."),
    ] = False,
    group: Annotated[
        str | None,
        typer.Option(metavar="GROUP", help="One of the round's groups; it is not private."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Answer a round: verify it, pay, make the report and keep it for `offaxis device send`.

    A round is answered once: a second call pays nothing and does not read the files. Files without
    a usable vector and answers become a report of the public mean, so that silence reveals nothing.
    """
    if (vector is None and answers is None) != public_mean:
        raise UsageError("use either --vector FILE, --answers FILE or both, or --public-mean")
    files = [locate(vector)[0]] if vector else []
    files += [locate_answers(answers)] if answers else []
    for path in files:
        if not path.is_file():
            raise InvalidInput(f"file not found: {path}; nothing was paid or reported")
    with _open_device(state) as opened:
        read = None if public_mean else _private_source(opened, round_, vector, answers)
        entry = opened.report(round_, read, group)
        spent = opened.ledger.spent()[0]
    if as_json:
        print_json(_entry_facts(entry))
        return
    typer.echo(
        f"round {entry.round} is answered and {entry.state}; spent so far: "
        f"ε = {rounded(spent, up=True)}"
    )


@example("offaxis device send my.device")
def send(
    state: State,
    now: Annotated[
        bool,
        typer.Option(
            "--now", help="Send without a delay. An observer then sees when the report was made."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Send the reports that are due; call it regularly. The same bytes are sent until accepted."""
    with _open_device(state) as opened:
        sent = opened.send(at_once=now)
        waiting = sum(entry.state in _WAITING for entry in opened.status())
    if not as_json:
        typer.echo(f"tried {pluralize(len(sent), 'report')}, {waiting:,} waiting")
    _print_entries(sent, as_json)


@example("offaxis device withdraw my.device energy-7")
def withdraw(state: State, round_: RoundName, as_json: AsJson = False) -> None:
    """Withdraw a report; the next `send` informs the collector. The cost stays paid."""
    with _open_device(state) as opened:
        entry = opened.withdraw(round_)
    _print_entries([entry], as_json)


@example("offaxis device status my.device")
def status(state: State, as_json: AsJson = False) -> None:
    """Show the answered rounds, the state of their reports, and what each limit leaves."""
    with _open_device(state) as opened:
        entries, balances, terms = opened.status(), opened.ledger.balances(), opened.terms
    if as_json:
        print_json(
            {
                "state": str(state),
                "collector": terms.url,
                "answers": [_entry_facts(entry) for entry in entries],
                "limits": [balance_facts(balance) for balance in balances],
            }
        )
        return
    for balance in balances:
        typer.echo(f"limit {balance.limit}: ε = {rounded(balance.left, up=False)} left")
    _print_entries(entries, as_json)


for _command in (init, rounds, report, send, withdraw, status):
    add(device, _command)


# ---- Reading


def _open_device(state: Path) -> Device:
    if not state.is_file():
        raise InvalidInput(f"device not found: {state}; create one with: offaxis device init")
    return Device.open(state)


def _read_token(path: Path) -> str:
    """Read a token from a file, since other users can see the command line."""
    try:
        return path.read_text().strip()
    except (OSError, ValueError) as error:
        raise InvalidInput(f"cannot read a token from {path}: {error}") from None


def _private_source(
    opened: Device, round_: str, vector: str | None, answers: str | None
) -> Callable[[], Any]:
    """Return what reads the vector of a report, or the row of a vector and its answers.

    Raises
    ------
    UsageError
        If the round asks for answers and there are none, or the other way round. This depends on
        the command line alone, and nothing has been paid.
    """
    release = _release_of(opened, round_)
    asked = () if release is None else release.asked
    if asked and answers is None:
        listed = " and ".join(map(describe_asked, asked))
        raise UsageError(f"Missing option '--answers': round {round_} asks for {listed}")
    if release is not None and not asked and answers is not None:
        raise UsageError(f"round {round_} asks for no answer: leave out --answers")
    alone = release is not None and isinstance(release.encoder, AnswersEncoder)
    if release is not None and alone == (vector is not None):
        raise UsageError(
            f"round {round_} asks for answers alone: leave out --vector"
            if alone
            else f"round {round_} asks for a vector: pass --vector"
        )

    def read() -> Any:
        if vector is None:
            assert release is not None  # and with it --answers, checked above
            assert answers is not None
            return _only_row(release.pairs(None, read_answers(answers, release.asked)))
        row = _only_row(read_array(vector))
        if release is None or answers is None:
            return row
        return release.pairs(row, read_answers(answers, release.asked))

    return read


def _release_of(opened: Device, round_: str) -> Release | None:
    """Return the release of a round; None if it was answered, or :meth:`Device.report` rejects it.

    The device fetches and verifies the release again when it reports.
    """
    if any(entry.round == round_ and entry.answered for entry in opened.status()):
        return None
    hashes = [offer.round.release for offer in opened.rounds() if offer.round.name == round_]
    if not hashes:
        return None
    path = f"/v1/releases/{hashes[0]}"
    found = opened.terms.transport(PATIENCE).request("GET", path, largest=LARGEST_RELEASE)
    return opened.terms.accept(found.body, hashes[0]) if found.status == 200 else None


def _only_row(array: Any) -> Any:
    """Return the row of an array that has one; other arrays unchanged."""
    return array[0] if array.ndim == 2 and len(array) == 1 else array


# ---- Printing


def _round_facts(offer: Offer, answered: bool) -> dict[str, Any]:
    """Return a round for ``--json``."""
    round_ = offer.round
    return {
        "round": round_.name,
        "study": round_.study,
        "number": round_.number,
        "state": offer.state,
        "answered": answered,
        "opens": format_time(round_.opens.timestamp())[:16],
        "closes": format_time(round_.closes.timestamp())[:16],
        "groups": list(round_.groups),
        "release": round_.release,
    }


def _entry_facts(entry: Entry) -> dict[str, Any]:
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
        "next_try": format_time(entry.next_try) if entry.state in _WAITING else None,
        "problem": entry.problem,
    }


def _print_entries(entries: list[Entry], as_json: bool) -> None:
    facts = [_entry_facts(entry) for entry in entries]
    if as_json:
        print_json({"answers": facts})
    elif facts:
        _print_table(facts, ["round", "state", "attempts", "next_try", "problem"])


def _print_table(facts: list[dict[str, Any]], names: list[str]) -> None:
    table = plain_table()
    for name in names:
        table.add_column(name.replace("_", " "))
    for row in facts:
        table.add_row(*(Text(_format_cell(row[name])) for name in names))
    with buffered_console() as console:
        console.print(table)


def _format_cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return one_line(", ".join(value) if isinstance(value, list) else str(value or ""))
