"""A person's ledger: made with its limits, and what was spent under them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from offaxis.cli.examples import example
from offaxis.cli.ledger.forecast import DELTA, Delta
from offaxis.cli.options import AsJson
from offaxis.cli.showing.terminal import bare_table, counted, fields, one_line, print_json, screen
from offaxis.cli.usage import Misused, reading_options

if TYPE_CHECKING:
    from fractions import Fraction

    from rich.table import Table

    from offaxis.cli.showing.ledger import Standing
    from offaxis.privacy.ledger import Spent

LedgerFile = Annotated[
    Path, typer.Argument(metavar="LEDGER", help="The ledger of one person, on their device.")
]


@example("offaxis ledger create my.ledger --epsilon 1 --per 1d --in-all 50")
def create(
    path: LedgerFile,
    epsilon: Annotated[str, typer.Option(metavar="E", help="The limit, read exactly.")],
    delta: Annotated[
        str,
        typer.Option(
            metavar="D",
            help="Of the limit. With a small one, many small budgets count less than their sum "
            "(needs the extra accounting).",
        ),
    ] = "0",
    per: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Limit any stretch of so long: 30d, 12h, 45min, 90s."),
    ] = None,
    in_all: Annotated[
        str | None,
        typer.Option(metavar="E", help="With --per: a second limit, on everything ever spent."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make a ledger that stores its limits. One that is there is not replaced."""
    from offaxis.cli.files import check_output
    from offaxis.cli.reading.ledgers import seconds
    from offaxis.privacy.composition import Limit
    from offaxis.privacy.guarantee import decimal, exact, exact_epsilon
    from offaxis.privacy.ledger import Ledger

    check_output(path)
    if in_all is not None and per is None:
        raise Misused("--in-all goes with --per; without it --epsilon is the limit in all")
    with reading_options():
        share = exact(delta, "delta")
        limits = [Limit(exact_epsilon(epsilon), share, None if per is None else seconds(per))]
        if in_all is not None:
            limits.append(Limit(exact_epsilon(in_all), share))
    Ledger.create(path, *limits).close()
    if as_json:
        stored = [
            {"epsilon": decimal(a.epsilon), "delta": decimal(a.delta), "seconds": a.seconds}
            for a in limits
        ]
        print_json({"ledger": str(path), "limits": stored})
        return
    typer.echo(f"made {path}, the ledger of one person")
    for limit in limits:
        typer.echo(f"limit: {limit}")
    if per is not None and in_all is None:
        typer.echo("note: a limit for a stretch of time bounds no total; add one with --in-all")


@example("offaxis ledger show my.ledger")
def show(path: LedgerFile, delta: Delta = DELTA, as_json: AsJson = False) -> None:
    """Show what was spent, on which releases, and what every limit leaves."""
    from offaxis.cli.reading.ledgers import open_ledger
    from offaxis.cli.showing.ledger import by_loss, loss_words, standing_facts, standings
    from offaxis.privacy.composition import basic
    from offaxis.privacy.guarantee import decimal, exact_delta

    with reading_options():
        wanted = exact_delta(delta)
    with open_ledger(path) as opened:
        paid, under = opened.by_release(), standings(opened)
    costs = [one.cost for one in paid]
    total = basic(costs)
    loss, why = by_loss(costs, wanted)
    if as_json:
        print_json(
            {
                "ledger": str(path),
                "reports": sum(cost.reports for cost in costs),
                "spent": {"epsilon": decimal(total[0]), "delta": decimal(total[1])},
                "by_loss_distribution": {"delta": delta, "epsilon": loss, "why_not": why},
                "limits": [standing_facts(one) for one in under],
                "releases": [_spent_facts(one) for one in paid],
            }
        )
        return
    _print_ledger(path, paid, under, total, loss_words(loss, why, wanted))


def _print_ledger(
    path: Path,
    paid: list[Spent],
    under: list[Standing],
    total: tuple[Fraction, Fraction],
    loss: str,
) -> None:
    from offaxis.cli.showing.ledger import written_budget

    with screen() as console:
        number = counted(sum(one.cost.reports for one in paid), "report")
        console.print(f"{one_line(str(path))}: {number} paid for\n", soft_wrap=True)
        if under:
            console.print(_limit_table(under))
        else:
            console.print("no limit is stored: the program that uses this ledger sets its own")
        if not paid:
            return
        console.print()
        console.print(_release_table(paid))
        console.print()
        console.print(
            fields(
                [("all, added up", written_budget(*total)), ("all, by loss distributions", loss)]
            )
        )


def _limit_table(under: list[Standing]) -> Table:
    from rich.text import Text

    from offaxis.cli.showing.ledger import rounded, written_budget

    with_loss = any(one.limit.delta for one in under)
    names = ["limit", "", "spent, added up", *(["by losses"] if with_loss else []), "left"]
    table = _table(names)
    for one in under:
        cells = [
            written_budget(one.limit.epsilon, one.limit.delta),
            one.limit.stretch,
            written_budget(one.epsilon, one.delta),
        ]
        if with_loss:
            cells.append("–" if one.composed is None else f"ε = {rounded(one.composed, up=True)}")
        left = Text(f"ε = {rounded(one.left, up=False)}", style="bold" if one.left else "bold red")
        table.add_row(*cells, left)
    return table


def _release_table(paid: list[Spent]) -> Table:
    from offaxis.cli.showing.ledger import moment, written_budget
    from offaxis.privacy.composition import basic

    table = _table(["release", "reports", "each", "added up", "last paid (UTC)"])
    for one in paid:
        table.add_row(
            f"{one_line(one.release)[:8]}…",
            f"{one.cost.reports:,}",
            written_budget(one.cost.epsilon, one.cost.delta),
            written_budget(*basic([one.cost])),
            moment(one.last)[:16],
        )
    return table


def _table(names: list[str]) -> Table:

    table = bare_table()
    for name in names:
        table.add_column(name, justify="right" if name == "reports" else "left")
    return table


def _spent_facts(one: Spent) -> dict[str, Any]:
    from offaxis.cli.showing.ledger import moment
    from offaxis.privacy.guarantee import decimal

    return {
        "release": one.release,
        "epsilon": decimal(one.cost.epsilon),
        "delta": decimal(one.cost.delta),
        "reports": one.cost.reports,
        "first_paid": moment(one.first),
        "last_paid": moment(one.last),
    }
