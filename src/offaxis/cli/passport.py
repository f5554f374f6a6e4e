"""``offaxis passport``: attacks that people fear, beside what ε allows at most."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from offaxis.cli.answers import read_answers
from offaxis.cli.inputs import check_output, load_model, locate, read_array, read_targets
from offaxis.cli.options import ARRAY, MODEL, AsJson, Expect, ReleaseFile, example
from offaxis.cli.terminal import (
    buffered_console,
    plain_table,
    pluralize,
    print_json,
    progress_bar,
    spinner,
)
from offaxis.leakage import Leak, LeakPassport
from offaxis.leakage import passport as issue
from offaxis.leakage.issuer import FALSE_ALARM, LEAST, MOST, TRIALS
from offaxis.leakage.result import CAVEAT
from offaxis.release import Release

EXCEEDED = 1
_SHORT = {"no privacy": "raw", "float noise": "float", "no clipping": "unclipped"}
"""The columns of the controls."""


@example(
    "offaxis passport my.release --public public.npy --html passport.html",
    "offaxis passport my.release --public public.npy --labels labels.npy --trials 500 --json",
)
def passport(
    release: ReleaseFile,
    public: Annotated[
        str,
        typer.Option(
            metavar="FILE",
            help=f"Public vectors: half of them are known to the attacker, half are attacked: "
            f"{ARRAY}.",
        ),
    ],
    labels: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="The sensitive attribute of the public vectors, one value each; for a release of "
            "pairs, the answers.",
        ),
    ] = None,
    model: Annotated[str | None, MODEL] = None,
    trials: Annotated[
        int,
        typer.Option(
            min=LEAST, max=MOST, metavar="N", help="Number of reports attacked, by attack."
        ),
    ] = TRIALS,
    controls: Annotated[
        bool,
        typer.Option(
            "--controls/--no-controls",
            help="Also attack the vector itself, and float noise with and without clipping.",
        ),
    ] = True,
    seed: Annotated[
        int, typer.Option(min=0, help="Seed of the attacker's choices; exact reports use none.")
    ] = 0,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write the passport as an HTML page.")
    ] = None,
    expect: Expect = None,
    as_json: AsJson = False,
) -> None:
    """Attack reports of public vectors and compare with the proved bounds. Exit code 1: exceeded.

    The attacks name a person among candidates, reconstruct vectors, tell members from others, infer
    a label, link two reports, and find a person in a mean or a model. Use public vectors that the
    release was not fitted to: nothing private is needed and no budget is spent.
    """
    loaded = Release.load(release, expect=expect)
    if html is not None:
        inputs = [locate(source)[0] for source in (public, labels) if source is not None]
        check_output(html, release, *inputs)
        with spinner("loading"):
            from offaxis.html.pages import require_report_extra

            require_report_extra()
    if model is not None:
        loaded = loaded.with_model(load_model(model))
    vectors = read_array(public)
    values = None if labels is None else _labels(labels, loaded)
    with progress_bar("starting") as update:
        result = issue(
            loaded,
            vectors,
            labels=values,
            trials=trials,
            false_alarm=FALSE_ALARM,
            controls=controls,
            seed=seed,
            progress=update,
        )
    if html is not None:
        from offaxis.html.passport_page import write_page

        write_page(result, html)
    if as_json:
        print_json(result.facts() | {"html": None if html is None else str(html)})
    else:
        with buffered_console() as console:
            _print_result(result, html, console)
    if result.exceeded:
        raise typer.Exit(EXCEEDED)


def _labels(source: str, release: Release) -> Any:
    """Read labels, or the answers that a release of pairs asks for."""
    if len(release.asked) != 1:
        return read_targets(source)
    return next(iter(read_answers(source, release.asked).values()))


def _print_result(result: LeakPassport, html: Path | None, console: Console) -> None:
    exceeded = bool(result.exceeded)
    title = Text("Leak passport", style="bold")
    title.append(f"   {result.guarantee}, {result.randomizer}   ", style="not bold")
    title.append(
        "A BOUND IS EXCEEDED" if exceeded else "NO BOUND EXCEEDED",
        style=f"bold {'red' if exceeded else 'cyan'}",
    )
    notes = Text(result.summary + "\n\n", style="bold red" if exceeded else "bold")
    seconds = pluralize(round(result.seconds), "second")
    notes.append(
        f"{CAVEAT} Limits are exact: all attacks together accuse a sound release in at most one "
        f"run of {1 / result.false_alarm:,.0f}. People attacked: {result.people}, vectors known: "
        f"{result.known}; label: {result.labels}. {seconds}, release "
        f"{result.release[:16]}…",
        style="not bold default",
    )
    if result.of_controls:
        notes.append(
            "\nThe last columns are the same attacks on the vector itself, on Laplace noise in "
            "floating point, and on that without clipping; ! marks what is above the bound.",
            style="not bold default",
        )
    for name, reason in result.not_run.items():
        notes.append(f"\nNot run: {name}: {reason}", style="not bold default")
    for part in (title, _table(result), notes):
        console.print()
        console.print(Padding(part, (0, 0, 0, 2)))
    if html is not None:
        console.print(Padding(f"\npage: {html}", (0, 0, 0, 2)), soft_wrap=True)


def _table(result: LeakPassport) -> Table:
    sources = list(dict.fromkeys(leak.source for leak in result.of_controls))
    table = plain_table()
    table.add_column("attack")
    for name in ("success", "chance", "at most", *(_SHORT[source] for source in sources)):
        table.add_column(name, justify="right", no_wrap=True)
    group = None
    for leak in result.of_release:
        if leak.attack != group:
            group = leak.attack
            table.add_row(Text(leak.attack.upper(), style="bold"))
        controls = result.beside(leak)
        table.add_row(
            Text(leak.setting),
            _value(leak),
            Text(share(leak.chance), style="dim"),
            Text("–" if leak.bound is None else share(leak.bound, up=True)),
            *(_value(controls[name]) if name in controls else Text("") for name in sources),
        )
    return table


def _value(leak: Leak) -> Text:
    style = "bold red" if leak.exceeds and leak.source == "release" else ""
    return Text(share(leak.value) + " !" * leak.exceeds, style=style)


def share(value: float, *, up: bool = False) -> str:
    """Write a share in %; a bound is never rounded down."""
    digits = 1 if abs(value) >= 0.01 else 2
    percent = 100 * value
    if up:
        percent = min(100.0, percent + 0.5 * 10**-digits - 1e-9)
    return f"{percent:.{digits}f} %"
