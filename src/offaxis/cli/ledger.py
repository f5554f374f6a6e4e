"""``offaxis ledger``: a person's budget, what was spent of it, and what more reports would cost.

Numbers are rounded against the person: spent amounts up, remaining amounts down.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.table import Table
from rich.text import Text

from offaxis.card import guarantee_facts
from offaxis.cli.inputs import check_output
from offaxis.cli.options import (
    AsJson,
    Expect,
    Group,
    ReleaseFile,
    UsageError,
    add,
    example,
    usage_errors,
)
from offaxis.cli.terminal import (
    buffered_console,
    field_table,
    one_line,
    plain_table,
    pluralize,
    print_json,
)
from offaxis.errors import InvalidInput, MissingExtra, installing
from offaxis.privacy.composition import (
    MOST_COMPOSED,
    Cost,
    Limit,
    basic,
    composed_epsilon,
)
from offaxis.privacy.guarantee import decimal, exact, exact_delta, exact_epsilon
from offaxis.privacy.ledger import Balance, Ledger, Spent
from offaxis.privacy.shuffling import Shuffled, shuffled_epsilon
from offaxis.privacy.wording import rounded, written_budget
from offaxis.randomizers.memoised import Memoised
from offaxis.release import Release

DELTA: Final = "1e-6"
Delta = Annotated[
    str,
    typer.Option(metavar="D", help="The δ for totals computed from privacy loss distributions."),
]
LedgerFile = Annotated[
    Path, typer.Argument(metavar="LEDGER", help="The ledger of one person, on their device.")
]


# ---- ``offaxis ledger create``


@example("offaxis ledger create my.ledger --epsilon 1 --per 1d --in-all 50")
def create(
    path: LedgerFile,
    epsilon: Annotated[str, typer.Option(metavar="E", help="The limit on ε, read exactly.")],
    delta: Annotated[
        str,
        typer.Option(
            metavar="D",
            help="The limit on δ: the δ of all reports add up to it.",
        ),
    ] = "0",
    slack: Annotated[
        str,
        typer.Option(
            metavar="D",
            help="The part of δ that pays for counting many small budgets by their squares, "
            "whichever releases a publisher chooses.",
        ),
    ] = "0",
    per: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="Apply the limit to any period this long: 30d, 12h, 45min, 90s."
        ),
    ] = None,
    in_all: Annotated[
        str | None,
        typer.Option(metavar="E", help="With --per: a second limit, on the total ever spent."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Create a ledger with its limits. An existing ledger is not replaced."""
    check_output(path)
    if in_all is not None and per is None:
        raise UsageError("--in-all requires --per; without --per, --epsilon limits the total")
    with usage_errors():
        limit_delta = exact(delta, "delta")
        period = None if per is None else parse_period(per)
        limits = [Limit(exact_epsilon(epsilon), limit_delta, period, exact(slack, "slack"))]
        if in_all is not None:
            limits.append(replace(limits[0], epsilon=exact_epsilon(in_all), seconds=None))
    Ledger.create(path, *limits).close()
    if as_json:
        stored = [
            {
                "epsilon": decimal(limit.epsilon),
                "delta": decimal(limit.delta),
                "slack": decimal(limit.slack),
                "seconds": limit.seconds,
            }
            for limit in limits
        ]
        print_json({"ledger": str(path), "limits": stored})
        return
    typer.echo(f"created {path}, the ledger of one person")
    for limit in limits:
        typer.echo(f"limit: {limit}")
    if per is not None and in_all is None:
        typer.echo("note: a limit per period does not limit the total; add a total with --in-all")


_UNITS: Final = {"s": 1, "min": 60, "h": 3600, "d": 86_400, "w": 604_800}
_PERIOD: Final = re.compile(r"(\d+(?:\.\d+)?) ?(s|min|h|d|w)", re.ASCII)


def parse_period(text: str) -> float:
    """Read a period such as 30d, 12h, 45min, 90s or 2w, in seconds."""
    match = _PERIOD.fullmatch(text.strip())
    if match is None or not float(match[1]) > 0:
        raise InvalidInput(f"a period is written 30d, 12h, 45min, 90s or 2w, got {text!r}")
    return float(match[1]) * _UNITS[match[2]]


def parse_limit(text: str, delta: Fraction) -> Limit:
    """Read a limit such as ``8`` or ``1 per 30d``."""
    epsilon, per, period = text.partition(" per ")
    return Limit(exact_epsilon(epsilon), delta, parse_period(period) if per else None)


# ---- ``offaxis ledger show``


@example("offaxis ledger show my.ledger")
def show(path: LedgerFile, delta: Delta = DELTA, as_json: AsJson = False) -> None:
    """Show what was spent, on which releases, and what each limit leaves."""
    with usage_errors():
        target_delta = exact_delta(delta)
    with open_ledger(path) as opened:
        payments, balances = opened.by_release(), opened.balances()
    costs = [payment.cost for payment in payments]
    total = basic(costs)
    loss, reason = _loss_epsilon(costs, target_delta)
    if as_json:
        print_json(
            {
                "ledger": str(path),
                "reports": sum(cost.reports for cost in costs),
                "spent": {"epsilon": decimal(total[0]), "delta": decimal(total[1])},
                "by_loss_distribution": {"delta": delta, "epsilon": loss, "why_not": reason},
                "limits": [balance_facts(balance) for balance in balances],
                "releases": [_payment_facts(payment) for payment in payments],
            }
        )
        return
    with buffered_console() as console:
        number = pluralize(sum(cost.reports for cost in costs), "report")
        text = f"{one_line(str(path))}: {number} paid for (of sequences: permanent answers)\n"
        console.print(text, soft_wrap=True)
        if balances:
            console.print(_limit_table(balances))
        else:
            console.print("no limit is stored: the program that uses this ledger sets the limits")
        if not payments:
            return
        console.print()
        console.print(_release_table(payments))
        console.print()
        totals = [
            ("total, sum", written_budget(*total)),
            ("total, by loss distributions", _describe_loss(loss, reason, target_delta)),
        ]
        console.print(field_table(totals))


def open_ledger(path: Path) -> Ledger:
    """Open an existing ledger; a mistyped name must not start a new budget."""
    if not path.is_file():
        raise InvalidInput(f"ledger not found: {path}; create one with: offaxis ledger create")
    return Ledger(path)


def balance_facts(balance: Balance) -> dict[str, Any]:
    """Return a balance for ``--json``, with exact numbers as text."""
    limit, filtered = balance.limit, balance.filtered
    return {
        "epsilon": decimal(limit.epsilon),
        "delta": decimal(limit.delta),
        "slack": decimal(limit.slack),
        "seconds": limit.seconds,
        "spent_epsilon": decimal(balance.epsilon),
        "spent_delta": decimal(balance.delta),
        "spent_epsilon_by_filter": None if filtered is None else rounded(filtered, up=True),
        "left_epsilon": rounded(balance.left, up=False),
    }


def _payment_facts(payment: Spent) -> dict[str, Any]:
    return {
        "release": payment.release,
        "epsilon": decimal(payment.cost.epsilon),
        "delta": decimal(payment.cost.delta),
        "reports": payment.cost.reports,
        "first_paid": format_time(payment.first),
        "last_paid": format_time(payment.last),
    }


def format_time(seconds: float) -> str:
    """Write a Unix time to the second, in UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _limit_table(balances: list[Balance]) -> Table:
    with_filter = any(balance.limit.slack for balance in balances)
    columns = ["limit", "", "spent, sum", *(["by the filter"] if with_filter else []), "left"]
    table = _table(columns)
    for balance in balances:
        cells = [
            written_budget(balance.limit.epsilon, balance.limit.delta),
            balance.limit.stretch,
            written_budget(balance.epsilon, balance.delta),
        ]
        if with_filter:
            filtered = balance.filtered
            cells.append("–" if filtered is None else f"ε = {rounded(filtered, up=True)}")
        left = f"ε = {rounded(balance.left, up=False)}"
        table.add_row(*cells, Text(left, style="bold" if balance.left else "bold red"))
    return table


def _release_table(payments: list[Spent]) -> Table:
    table = _table(["release", "reports", "each", "sum", "last paid (UTC)"])
    for payment in payments:
        table.add_row(
            f"{one_line(payment.release)[:8]}…",
            f"{payment.cost.reports:,}",
            written_budget(payment.cost.epsilon, payment.cost.delta),
            written_budget(*basic([payment.cost])),
            format_time(payment.last)[:16],
        )
    return table


def _table(columns: list[str]) -> Table:
    table = plain_table()
    for name in columns:
        table.add_column(name, justify="right" if name == "reports" else "left")
    return table


# ---- ``offaxis ledger forecast``


@example("offaxis ledger forecast my.release --reports 365 --shuffled")
def forecast(
    release: ReleaseFile,
    reports: Annotated[int, typer.Option(min=1, metavar="N", help="Number of reports.")],
    shuffled: Annotated[
        bool,
        typer.Option(
            "--shuffled",
            help="Also show the central ε of N reports of different people behind an honest "
            "shuffler.",
        ),
    ] = False,
    delta: Delta = DELTA,
    expect: Expect = None,
    as_json: AsJson = False,
) -> None:
    """Show what N reports of a release would cost. Nothing is spent."""
    with usage_errors():
        target_delta = exact_delta(delta)
    loaded = Release.load(release, expect=expect)
    guarantee = loaded.guarantee
    costs = [Cost(guarantee.epsilon, guarantee.delta, _payments(loaded, reports))]
    total = basic(costs)
    loss, reason = _loss_epsilon(costs, target_delta)
    mixed = shuffled_epsilon(loaded, reports, target_delta) if shuffled else None
    central, no_central = _central_epsilon(mixed)
    if as_json:
        facts: dict[str, Any] = {
            "release": loaded.hash,
            "reports": reports,
            "guarantee": guarantee_facts(loaded),
            "one_person": {"epsilon": decimal(total[0]), "delta": decimal(total[1])},
            "by_loss_distribution": {"delta": delta, "epsilon": loss, "why_not": reason},
        }
        if mixed:
            facts["shuffled"] = {
                "delta": delta,
                "central_epsilon": central,
                "bound": mixed.bound,
                "why_not": no_central,
            }
        print_json(facts)
        return
    with buffered_console() as console:
        console.print(f"{_described(loaded, reports)}\n")
        console.print("all about one person: the local guarantee, against anyone who sees them")
        rows = [
            ("sum", written_budget(*total) + ("" if total[1] else ", pure")),
            ("by loss distributions", _describe_loss(loss, reason, target_delta)),
        ]
        console.print(field_table(rows))
        if mixed:
            console.print(f"\none report from each of {reports:,} people")
            local = f"{guarantee}, against anyone who may see whose report it is"
            words = no_central or (
                f"ε = {central}, δ = {decimal(target_delta)}, only against those who see nothing "
                f"but all reports in a random order made by an honest shuffler "
                f"(bound: {_BOUNDS[mixed.bound]})"
            )
            console.print(field_table([("local", local), ("central, shuffled", words)]))


def _described(release: Release, reports: int) -> str:
    """Say what is paid for."""
    number, guarantee = pluralize(reports, "report"), release.guarantee
    if not isinstance(release.randomizer, Memoised):
        return f"{number} of {guarantee}, per {guarantee.unit}"
    if release.randomizer.draws:
        return f"one sequence of {number}, {guarantee} in all"
    answers = pluralize(_payments(release, reports), "permanent answer")
    return f"one sequence of {number}: at most {answers} of {guarantee}"


def _payments(release: Release, reports: int) -> int:
    """Return how often one person pays for so many reports: once for a sequence that ends."""
    randomizer = release.randomizer
    if not isinstance(randomizer, Memoised):
        return reports
    return 1 if randomizer.draws else randomizer.draws_within(reports)


def _loss_epsilon(costs: Sequence[Cost], delta: Fraction) -> tuple[str | None, str | None]:
    """Return ε by privacy loss distributions, or the reason why there is none."""
    try:
        epsilon = composed_epsilon(costs, delta)
    except MissingExtra:
        return None, f"needs dp-accounting: {installing('accounting')}"
    if epsilon is None:
        # Too many reports, or the δ of the reports already exceeds the requested one.
        too_many = sum(cost.reports for cost in costs) > MOST_COMPOSED
        reason = f"more than {MOST_COMPOSED:,} reports" if too_many else "their own δ is larger"
        return None, f"no figure: {reason}"
    return rounded(epsilon, up=True), None


def _describe_loss(loss: str | None, reason: str | None, delta: Fraction) -> str:
    """Describe the result of :func:`_loss_epsilon`, with its assumption."""
    if loss is None:
        return str(reason)
    return (
        f"ε = {loss}, δ = {rounded(delta, up=True)}, if no release is chosen by looking at "
        f"earlier reports"
    )


_BOUNDS: Final = {
    "blanket": "of this randomizer's own law",
    "count": "of this randomizer's own law",
    "clones": "of any randomizer of this ε",
    "local": "the local ε",
}


def _central_epsilon(mixed: Shuffled | None) -> tuple[str | None, str | None]:
    """Return the central ε of shuffled reports, or the reason why none is known."""
    if mixed is None:
        return None, None
    if mixed.epsilon is None:
        return None, f"no figure: {mixed.reason}"
    if mixed.bound == "local":
        return None, "no figure: too few reports for this ε; only the local guarantee counts"
    return rounded(Fraction(mixed.epsilon), up=True), None


ledger: Final = typer.Typer(
    cls=Group,
    no_args_is_help=True,
    help="Track what a person's reports have spent, and forecast what more would cost.",
)
for _command in (create, show, forecast):
    add(ledger, _command)
