"""``offaxis ledger forecast``: what reports of a release would cost, before any is made."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from offaxis.cli.examples import example
from offaxis.cli.options import AsJson, Expect, ReleaseFile
from offaxis.cli.showing.terminal import counted, fields, print_json, screen
from offaxis.cli.usage import reading_options

if TYPE_CHECKING:
    from offaxis.privacy.guarantee import Guarantee

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
    from offaxis.card import guarantee_facts
    from offaxis.cli.reading.releases import load_release
    from offaxis.cli.showing.ledger import by_loss, loss_words, written_budget
    from offaxis.privacy.composition import Cost, basic
    from offaxis.privacy.guarantee import decimal, exact_delta

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
    from offaxis.cli.showing.ledger import rounded
    from offaxis.privacy.composition import shuffled_epsilon

    if not guarantee.pure:
        return None, "no figure: it is known for pure releases only"
    found = shuffled_epsilon(guarantee.epsilon, reports, delta)
    if found is None:
        return None, "no figure: too few reports for this ε; only the local guarantee counts"
    return rounded(Fraction(found), up=True), None
