"""``offaxis learn plan``: how many people a model takes, before anybody is asked."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import typer
from rich.table import Table

from offaxis.card import guarantee_facts
from offaxis.cli.answers import (
    ASKED,
    asked_facts,
    describe_asked,
    locate_answers,
    read_answers,
    read_asked,
)
from offaxis.cli.inputs import (
    check_new_release,
    check_output,
    load_model,
    locate,
    read_array,
)
from offaxis.cli.options import (
    ARRAY,
    AsJson,
    Force,
    UsageError,
    example,
    usage_errors,
)
from offaxis.cli.terminal import (
    buffered_console,
    field_table,
    plain_table,
    print_json,
    spinner,
    wrap_text,
)
from offaxis.encoding.pairs import Asked, Number
from offaxis.learning import (
    FeatureMap,
    Plan,
    Prediction,
    cells,
    plan_learning,
    principal,
    random_features,
)
from offaxis.privacy.guarantee import exact_epsilon

_PEOPLE: Final = (1_000, 4_000, 10_000, 40_000, 100_000)

Public = Annotated[
    str, typer.Option(metavar="FILE", help=f"Public vectors, never private ones: {ARRAY}.")
]
AskedText = Annotated[str | None, typer.Option("--answers", metavar="WHAT", help=ASKED)]
NumberRange = Annotated[
    tuple[float, float] | None,
    typer.Option(
        "--number",
        metavar="LOW HIGH",
        help="Instead of --answers: people are asked for a number in this range; numbers outside "
        "count as its ends.",
    ),
]
UnitName = Annotated[
    Literal["item", "user"],
    typer.Option("--unit", help="What one report covers: one pair (item), or a person (user)."),
]
Statement = Annotated[
    str,
    typer.Option(
        "--statement",
        metavar="TEXT",
        help="Where the public data came from; stored in the release file.",
    ),
]


@example(
    "offaxis learn plan --public public.npy --answers no,yes --epsilon 1",
    "offaxis learn plan --public public.npy --answers no,yes --epsilon 1 --people 10000 --out "
    "pairs.release",
)
def plan(
    public: Public,
    epsilon: Annotated[
        str,
        typer.Option(metavar="NUMBER", help="Budget ε of one report, read exactly: 0.1 or 1/3."),
    ],
    answers: AskedText = None,
    number: NumberRange = None,
    people: Annotated[
        int | None,
        typer.Option(min=10, help="How many people will report. Too few are refused."),
    ] = None,
    target: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            help="The accuracy to reach (for numbers R²); by default half of what is possible "
            "beyond guessing.",
        ),
    ] = None,
    signal: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            help="The accuracy that a model is assumed to have without privacy (for numbers R²); "
            "0.8 by default.",
        ),
    ] = None,
    deviation: Annotated[
        float | None,
        typer.Option(
            help="The assumed standard deviation of numbers; by default a quarter of their range.",
        ),
    ] = None,
    related: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Instead of --signal: public answers to a similar question, one per public "
            "vector.",
        ),
    ] = None,
    labels: Annotated[
        Literal["private", "public"],
        typer.Option(
            help="Whether people report their answers (private), or the collector knows the label "
            "of every report anyway (public)."
        ),
    ] = "private",
    features: Annotated[
        Literal["auto", "cells", "principal", "random"],
        typer.Option(
            help="What a model sees of a vector: its public cluster (cells), its main directions "
            "(principal), or random functions of these (random). auto takes cells if the public "
            "vectors cluster, otherwise directions."
        ),
    ] = "auto",
    size: Annotated[
        int | None,
        typer.Option(min=1, help="With --features: the number of cells, or of directions."),
    ] = None,
    head: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODEL",
            help="A public model: use the directions in which it changes most. May be given "
            "several times. Load only models you trust.",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="RELEASE", help="Write the release to this file.")
    ] = None,
    figure: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also draw expected accuracy by people: .png or .svg."),
    ] = None,
    unit: UnitName = "item",
    statement: Statement = "",
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Tell how many people a model takes, and write the release that asks them.

    From public vectors alone, before anybody is asked. A plan cannot know how answers depend on
    vectors, so it assumes a signal and says so. If --people are too few, nothing is written.
    """
    with usage_errors():
        exact_epsilon(epsilon)
    if size is not None and features == "auto":
        raise UsageError("--size needs --features cells, principal or random")
    if head and features in ("cells", "random"):
        raise UsageError("--head is for --features principal")
    if related is not None and signal is not None:
        raise UsageError("--related and --signal exclude each other: both are the signal")
    if related is not None and deviation is not None:
        raise UsageError("--related and --deviation exclude each other: labels have one")
    asked = read_asked(answers, number)
    if deviation is not None and not isinstance(asked[0], Number):
        raise UsageError("--deviation is for numbers")
    inputs = [locate(public)[0], *([locate_answers(related)] if related else [])]
    for path in filter(None, (out, figure)):
        check_output(path, *inputs)
    if out is not None:
        check_new_release(out, force=force)
    vectors = read_array(public)
    similar = None
    if related is not None:
        similar = read_answers(related, asked[:1])[asked[0].name]
    feature_map = _features(vectors, features, size, head)
    with spinner("planning"):
        planned = plan_learning(
            vectors,
            answers=list(asked),
            epsilon=epsilon,
            features=feature_map,
            signal=signal,
            deviation=deviation,
            related=similar,
            labels=labels,
            unit=unit,
            statement=statement,
        )
        if people is not None:
            planned.require(people, target)
        facts = _plan_facts(planned, asked, people, target)
        if figure is not None:
            planned.figure(figure)
    if out is not None:
        planned.release.save(out)
    if as_json:
        print_json({"out": out and str(out)} | facts)
        return
    _print_plan(planned, facts, out, figure)


def _features(
    vectors: Any, name: str, size: int | None, head: list[str] | None
) -> FeatureMap | None:
    """Return the feature map that the options name; None to choose one."""
    if head:
        return principal(vectors, size, heads=[load_model(source) for source in head])
    maps: dict[str, Callable[..., FeatureMap]] = {
        "cells": cells,
        "principal": principal,
        "random": random_features,
    }
    return maps[name](vectors, size) if name in maps else None


def _plan_facts(
    planned: Plan, asked: tuple[Asked, ...], people: int | None, target: float | None
) -> dict[str, Any]:
    epsilon = planned.release.guarantee.epsilon
    wanted = (planned.guess + planned.best) / 2 if target is None else target
    counts = sorted({*_PEOPLE, *([people] if people else [])})
    budgets = [epsilon * factor for factor in (Fraction(1, 2), 1, 2)]
    table = planned.table(counts, budgets)
    return {
        "release": planned.release.hash,
        "guarantee": guarantee_facts(planned.release),
        "asked": asked_facts(asked),
        "labels": "private" if planned.private_labels else "public",
        "features": planned.features.kind,
        "size": planned.features.size,
        "measure": "R²" if isinstance(planned.asked, Number) else "accuracy",
        "guess": planned.guess,
        "best": planned.best,
        "target": wanted,
        "smallest_people": planned.smallest_people(wanted),
        "people": people,
        "assumed": planned.assumption,
        "expected": [_prediction(cell) for row in table for cell in row],
    }


def _prediction(found: Prediction) -> dict[str, Any]:
    return {
        "people": found.people,
        "epsilon": float(found.epsilon),
        "accuracy": found.accuracy,
        "low": found.low,
        "high": found.high,
    }


def _print_plan(
    planned: Plan, facts: dict[str, Any], out: Path | None, figure: Path | None
) -> None:
    measure, epsilon = facts["measure"], float(planned.release.guarantee.epsilon)
    kinds = {"cells": "which of {} public cells", "linear": "{} public features"}
    reported = kinds[planned.features.kind].format(planned.features.size)
    asked = [describe_asked(part) for part in planned.release.asked]
    if not asked:
        asked = [f"nothing; the labels are public ({describe_asked(planned.asked)})"]
    needed = facts["smallest_people"]
    goal = f"{measure} {facts['target']:.2f}"
    rows = [
        *(("asked", part) for part in asked),
        ("reported", f"{reported}, with the answers" if planned.private_labels else reported),
        ("nobody asked", f"{measure} {facts['guess']:.2f}"),
        ("everybody", f"{measure} {facts['best']:.2f}, without privacy"),
        (
            "people needed",
            f"no number of people reaches {goal} with these features"
            if needed is None
            else f"about {needed:,} for {goal} at ε = {epsilon:g}",
        ),
    ]
    with buffered_console() as console:
        console.print(field_table(rows))
        console.print(f"\nExpected {measure}, and the range of 95 % of tasks:\n")
        console.print(_plan_table(facts))
        console.print("\n" + wrap_text(f"Assumed: {facts['assumed']}.", console))
        if figure is not None:
            console.print(f"\nfigure: {figure}", soft_wrap=True)
        if out is not None:
            console.print(f"\nwrote {out}; next: offaxis inspect {out}", soft_wrap=True)


def _plan_table(facts: dict[str, Any]) -> Table:
    """Lay out predictions, one row per number of people and one column per budget."""
    budgets = sorted({cell["epsilon"] for cell in facts["expected"]})
    table = plain_table(3)
    table.add_column("people", justify="right", no_wrap=True)
    for budget in budgets:
        table.add_column(f"ε = {budget:g}", justify="right", no_wrap=True)
    for people in sorted({cell["people"] for cell in facts["expected"]}):
        row = [cell for cell in facts["expected"] if cell["people"] == people]
        row.sort(key=lambda cell: cell["epsilon"])
        cells_ = (f"{c['accuracy']:.2f} ({c['low']:.2f}–{c['high']:.2f})" for c in row)
        table.add_row(f"{people:,}", *cells_)
    return table
