"""``offaxis evaluate``: what the task keeps when vectors pass through a release."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from offaxis.cli.options import ARRAY, MODEL, AsJson, Expect, ReleaseFile
from offaxis.cli.terminal import counted, print_json, screen

if TYPE_CHECKING:
    from rich.table import Table

    from offaxis.evaluation import Evaluation

MEANINGS = {
    "accuracy": "right answers",
    "agreement": "same answer as without",
    "rmse": "error against targets",
    "output_rmse": "change of the outputs",
}
_SHARES = ("accuracy", "agreement")


def evaluate(
    release: ReleaseFile,
    model: Annotated[str, MODEL],
    vectors: Annotated[
        str, typer.Option(metavar="FILE", help=f"Public vectors to try the release on: {ARRAY}.")
    ],
    targets: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Labels 0, 1, 2 … or real targets, one a vector."),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Independent repetitions.")] = 20,
    seed: Annotated[int, typer.Option(min=0, help="Of the simulation; --exact takes none.")] = 0,
    exact: Annotated[
        bool, typer.Option("--exact", help="Make and decode real reports instead of simulating.")
    ] = False,
    theory: Annotated[
        bool,
        typer.Option("--theory", help="Add what theory says, under which conditions, and what is."),
    ] = False,
    public: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="With --theory: the public vectors of the release, to compare with.",
        ),
    ] = None,
    expect: Expect = None,
    as_json: AsJson = False,
) -> None:
    """Measure what a model keeps of its answers when vectors pass through a release.

    Nothing here protects the vectors: use public ones.
    """
    from offaxis.cli.arrays import read_array, read_targets
    from offaxis.cli.facts import load_release
    from offaxis.cli.models import load_model
    from offaxis.cli.progress import counting
    from offaxis.cli.theory import check_options, compute_rows, print_theory, theory_facts
    from offaxis.evaluation import evaluate as measure

    check_options(theory, public, seeds)
    loaded = load_release(release, expect)
    task = load_model(model)
    batch = read_array(vectors)
    wanted = None if targets is None else read_targets(targets)
    with counting("repeating", seeds) as advance:
        result = measure(
            loaded, task, batch, wanted, seeds=seeds, seed=seed, exact=exact, progress=advance
        )
    rows = None
    if theory:
        rows = compute_rows(loaded, task, batch, public, draws=seeds, seed=seed)
    count = len(batch) if batch.ndim == 2 else 1
    if as_json:
        facts = {"release": loaded.hash, "vectors": count, "seeds": seeds, "exact": exact}
        facts |= {"seed": None if exact else seed, "metrics": _metrics(result)}
        print_json(facts if rows is None else facts | {"theory": theory_facts(rows)})
        return
    how = "real reports" if exact else "simulated reports"
    with screen() as console:
        console.print(
            f"{loaded.guarantee}, {loaded.randomizer.kind}: {counted(count, 'vector')}, "
            f"{counted(seeds, 'repetition')} with {how}\n"
        )
        console.print(_table(result))
        if rows is not None:
            print_theory(rows, seeds, console)


def _metrics(result: Evaluation) -> dict[str, Any]:
    return {
        name: {
            "without_privacy": result.clean[name],
            "mean": result.mean(name),
            "std": result.std(name),
            "runs": runs.tolist(),
        }
        for name, runs in result.runs.items()
    }


def _table(result: Evaluation) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="dim")
    table.add_column("measure", no_wrap=True)
    for name in ("without privacy", "with the release"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("", style="dim")
    for name in sorted(result.runs, key=[*MEANINGS, *result.runs].index):
        spread = f"{_score(name, result.mean(name))} ± {_score(name, result.std(name))}"
        kept = Text(spread, style="bold")
        table.add_row(name, _score(name, result.clean[name]), kept, MEANINGS.get(name, ""))
    return table


def _score(name: str, value: float) -> str:
    return f"{100 * value:.1f} %" if name in _SHARES else f"{value:.4g}"
