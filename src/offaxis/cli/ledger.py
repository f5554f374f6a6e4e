"""Ledgers by name, and what their limits look like on a command line."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.table import Table
from rich.text import Text

from offaxis.card import guarantee_facts
from offaxis.cli.inputs import check_output, load_release
from offaxis.cli.options import (
    AsJson,
    Expect,
    Group,
    Misused,
    ReleaseFile,
    add,
    example,
    reading_options,
)
from offaxis.cli.terminal import bare_table, counted, fields, one_line, print_json, screen
from offaxis.errors import InvalidInput, MissingExtra, installing
from offaxis.privacy.composition import (
    MOST_COMPOSED,
    Cost,
    Limit,
    basic,
    composed_epsilon,
    shuffled_epsilon,
)
from offaxis.privacy.guarantee import Guarantee, decimal, exact, exact_delta, exact_epsilon
from offaxis.privacy.ledger import Balance, Ledger, Spent
from offaxis.privacy.wording import rounded, written_budget

_UNITS: Final = {"s": 1, "min": 60, "h": 3600, "d": 86_400, "w": 604_800}
_STRETCH: Final = re.compile(r"(\d+(?:\.\d+)?) ?(s|min|h|d|w)", re.ASCII)


def open_ledger(path: Path) -> Ledger:
    """Open a ledger that is there; a mistyped name must not begin a fresh budget."""
    if not path.is_file():
        raise InvalidInput(f"there is no ledger {path}; make one with: offaxis ledger create")
    return Ledger(path)


def seconds(text: str) -> float:
    """Read a stretch of time such as 30d, 12h, 45min, 90s or 2w."""
    match = _STRETCH.fullmatch(text.strip())
    if match is None or not float(match[1]) > 0:
        raise InvalidInput(f"a stretch of time is written 30d, 12h, 45min, 90s or 2w, got {text!r}")
    return float(match[1]) * _UNITS[match[2]]


def read_limits(texts: list[str], delta: Fraction) -> list[Limit]:
    """Read limits such as ``8`` and ``1 per 30d``."""
    return [_limit(text, delta) for text in texts]


def _limit(text: str, delta: Fraction) -> Limit:
    epsilon, per, stretch = text.partition(" per ")
    return Limit(exact_epsilon(epsilon), delta, seconds(stretch) if per else None)


# ----------------------------------------------------------------------------
# A ledger as plain facts: what was spent, by which count, and what each limit leaves.
#
# Numbers are rounded against the person: what was spent up, what is left down.

CHOSEN_BEFOREHAND: Final = "if no release is chosen by looking at earlier reports"


def by_loss(costs: Sequence[Cost], delta: Fraction) -> tuple[str | None, str | None]:
    """Return ε by loss distributions, or why there is none."""
    try:
        found = composed_epsilon(costs, delta)
    except MissingExtra:
        return None, f"needs dp-accounting: {installing('accounting')}"
    if found is None:
        # Too many, or their own δ add up to more than is asked for.
        many = sum(cost.reports for cost in costs) > MOST_COMPOSED
        reason = f"more than {MOST_COMPOSED:,} reports" if many else "their own δ is larger"
        return None, f"no figure: {reason}"
    return rounded(found, up=True), None


def loss_words(loss: str | None, why: str | None, delta: Fraction) -> str:
    """Say what :func:`by_loss` found, on which assumption."""
    if loss is None:
        return str(why)
    return f"ε = {loss}, δ = {rounded(delta, up=True)}, {CHOSEN_BEFOREHAND}"


def moment(when: float) -> str:
    """Write a time to the second, in UTC."""
    return datetime.fromtimestamp(when, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def balance_facts(balance: Balance) -> dict[str, Any]:
    """Return a balance for ``--json``; exact numbers as text."""
    limit, loss = balance.limit, balance.composed
    return {
        "epsilon": decimal(limit.epsilon),
        "delta": decimal(limit.delta),
        "seconds": limit.seconds,
        "spent_epsilon": decimal(balance.epsilon),
        "spent_delta": decimal(balance.delta),
        "spent_epsilon_by_loss_distribution": None if loss is None else rounded(loss, up=True),
        "left_epsilon": rounded(balance.left, up=False),
    }


# ----------------------------------------------------------------------------
# ``offaxis ledger forecast``: what reports of a release would cost, before any is made.

DELTA: Final = "1e-6"
Delta = Annotated[
    str, typer.Option(metavar="D", help="The δ at which totals by loss distributions are counted.")
]


@example("offaxis ledger forecast my.release --reports 365 --shuffled")
def forecast(
    release: ReleaseFile,
    reports: Annotated[int, typer.Option(min=1, metavar="N", help="How many reports.")],
    shuffled: Annotated[
        bool,
        typer.Option(
            "--shuffled",
            help="Add the central ε of N reports of different people behind an honest shuffler.",
        ),
    ] = False,
    delta: Delta = DELTA,
    expect: Expect = None,
    as_json: AsJson = False,
) -> None:
    """Say what N reports of a release would cost. Nothing is spent."""
    with reading_options():
        wanted = exact_delta(delta)
    loaded = load_release(release, expect)
    costs = [Cost(loaded.guarantee.epsilon, loaded.guarantee.delta, reports)]
    total = basic(costs)
    loss, why = by_loss(costs, wanted)
    central, no_central = _central(loaded.guarantee, reports, wanted) if shuffled else (None, None)
    if as_json:
        facts: dict[str, Any] = {
            "release": loaded.hash,
            "reports": reports,
            "guarantee": guarantee_facts(loaded),
            "one_person": {"epsilon": decimal(total[0]), "delta": decimal(total[1])},
            "by_loss_distribution": {"delta": delta, "epsilon": loss, "why_not": why},
        }
        if shuffled:
            facts["shuffled"] = {"delta": delta, "central_epsilon": central, "why_not": no_central}
        print_json(facts)
        return
    with screen() as console:
        number = counted(reports, "report")
        console.print(f"{number} of {loaded.guarantee}, per {loaded.guarantee.unit}\n")
        console.print("all about one person: the local guarantee, whoever sees them")
        rows = [("added up", written_budget(*total) + ("" if total[1] else ", pure"))]
        rows.append(("by loss distributions", loss_words(loss, why, wanted)))
        console.print(fields(rows))
        if shuffled:
            console.print("\none each of so many people")
            each = f"{loaded.guarantee}, to anybody who may see whose report it is"
            words = no_central or (
                f"ε = {central}, δ = {decimal(wanted)}, only against who sees nothing but all "
                f"reports in an order that an honest shuffler made random"
            )
            console.print(fields([("local", each), ("central, shuffled", words)]))


def _central(guarantee: Guarantee, reports: int, delta: Fraction) -> tuple[str | None, str | None]:
    """Return the central ε of shuffled reports, or why none is known."""
    if not guarantee.pure:
        return None, "no figure: it is known for pure releases only"
    found = shuffled_epsilon(guarantee.epsilon, reports, delta)
    if found is None:
        return None, "no figure: too few reports for this ε; only the local guarantee counts"
    return rounded(Fraction(found), up=True), None


# ----------------------------------------------------------------------------
# A person's ledger: made with its limits, and what was spent under them.

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
    with reading_options():
        wanted = exact_delta(delta)
    with open_ledger(path) as opened:
        paid, under = opened.by_release(), opened.balances()
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
                "limits": [balance_facts(one) for one in under],
                "releases": [_spent_facts(one) for one in paid],
            }
        )
        return
    _print_ledger(path, paid, under, total, loss_words(loss, why, wanted))


def _print_ledger(
    path: Path,
    paid: list[Spent],
    under: list[Balance],
    total: tuple[Fraction, Fraction],
    loss: str,
) -> None:

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


def _limit_table(under: list[Balance]) -> Table:
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
    return {
        "release": one.release,
        "epsilon": decimal(one.cost.epsilon),
        "delta": decimal(one.cost.delta),
        "reports": one.cost.reports,
        "first_paid": moment(one.first),
        "last_paid": moment(one.last),
    }


# ----------------------------------------------------------------------------
# ``offaxis ledger``: a person's budget, what was spent of it, and what reports would cost.

ledger: Final = typer.Typer(
    cls=Group,
    no_args_is_help=True,
    help="Keep count of what a person's reports have spent, and look ahead.",
)
for _command in (create, show, forecast):
    add(ledger, _command)
