"""``offaxis bench``: how fast releases are on this machine, beside what else people would use."""

from __future__ import annotations

import json
import sys
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from offaxis.cli.examples import example
from offaxis.cli.options import AsJson
from offaxis.cli.showing.terminal import print_json
from offaxis.cli.usage import Misused
from offaxis.errors import unknown_name

if TYPE_CHECKING:
    from offaxis.bench.effort import Effort
    from offaxis.bench.guard import Fallen
    from offaxis.bench.results import Result

SLOWER: Final = 1


@example("offaxis bench decode --quick")
def bench(
    groups: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="GROUP",
            help="reports, simulate, gram, fit, decode, sweep, memory, growth; all by default.",
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Seconds instead of minutes; rough figures.")
    ] = False,
    full: Annotated[
        bool,
        typer.Option(
            "--full", help="More turns, wider ranges, ten million vectors: about six minutes."
        ),
    ] = False,
    guard: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Compare ratios, never seconds, with a record; exit code 1 if one fell.",
        ),
    ] = None,
    fraction: Annotated[
        float,
        typer.Option(min=0, max=1, help="Share of a recorded ratio that the guard asks for."),
    ] = 0.5,
    record: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the ratios for a later --guard.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Measure speed, memory and growth on this machine. Exit code 1 means the guard found less.

    Rivals take turns with us in one process: OpenDP, torch, scikit-learn if they are installed,
    plain NumPy, and one vector at a time. Only made-up and bundled vectors are used.
    """
    from offaxis.bench.effort import FULL, QUICK, USUAL
    from offaxis.bench.guard import judge, read_ratios
    from offaxis.bench.run import GROUPS, Run, ratios_of
    from offaxis.cli.files import check_input, check_output
    from offaxis.cli.showing.bench import print_conditions, print_fallen, print_results

    if quick and full:
        raise Misused("--quick and --full exclude each other")
    unknown = sorted(set(groups or ()) - set(GROUPS))
    if unknown:
        raise Misused(unknown_name("group", unknown[0], GROUPS))
    if guard is not None:
        check_input(guard)
    if record is not None:
        check_output(record, *([guard] if guard else []))
    recorded = read_ratios(guard) if guard else None
    effort = QUICK if quick else FULL if full else USUAL
    results: dict[str, list[Result]] = {}
    run = Run.start(effort)
    if not as_json:
        print_conditions(run)
    for name in [name for name in GROUPS if not groups or name in groups]:
        results[name] = _measured(name, effort)
        if not as_json:
            print_results(name, results[name])
    run = run.having(chain.from_iterable(results.values()))
    if record is not None:
        record.write_text(json.dumps(run.record(), indent=1, ensure_ascii=False) + "\n")
    fell: list[Fallen] = []
    if recorded is not None:
        by_group = {name: ratios_of(found) for name, found in results.items()}
        fell = judge(by_group, recorded, lambda n: ratios_of(_measured(n, effort)), fraction)
    if as_json:
        print_json(run.facts() | {"fallen": [entry._asdict() for entry in fell]})
    elif recorded is not None:
        print_fallen(fell, fraction)
    if fell:
        raise typer.Exit(SLOWER)


def _measured(name: str, effort: Effort) -> list[Result]:
    """Measure one group, and say so without a moving bar, which would take time from it."""
    from offaxis.bench.run import GROUPS

    watched = sys.stderr.isatty()
    if watched:
        typer.echo(f"  measuring {name} …\r", err=True, nl=False)
    found = list(GROUPS[name](effort))
    if watched:
        typer.echo("\x1b[2K", err=True, nl=False)
    return found
