"""What theory says about a release, for ``offaxis evaluate --theory`` and ``offaxis inspect``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from offaxis.cli.engine import EngineName, Master, check_engine, locate_column, working
from offaxis.cli.inputs import load_model, load_release, read_array, read_targets
from offaxis.cli.options import ARRAY, MODEL, AsJson, Expect, Misused, ReleaseFile, example
from offaxis.cli.terminal import bare_table, counted, counting, print_json, screen, waiting
from offaxis.evaluation import Evaluation
from offaxis.evaluation import evaluate as measure
from offaxis.evaluation.bounds import MEANINGS, Yardstick, limits
from offaxis.geometry import TaskModel
from offaxis.release import Release
from offaxis.theory.table import TheoryRow, label, theory_rows, written
from offaxis.vectors import Vectors, as_batch


def compute_rows(
    release: Release,
    task: TaskModel,
    vectors: Vectors,
    public: str | None,
    *,
    draws: int,
    seed: int,
) -> list[TheoryRow]:
    """Compute the rows of the table, with the public vectors of a file if one is given."""
    known = None if public is None else read_array(public)
    with waiting("computing what theory says"):
        return theory_rows(release, task, vectors, known, draws=draws, seed=seed)


def check_options(theory: bool, public: str | None, seeds: int) -> None:
    """Refuse options that do not go together."""
    if public is not None and not theory:
        raise Misused("--public is read with --theory only; add --theory or leave it out")
    if theory and seeds < 2:
        raise Misused(f"--theory measures errors and needs --seeds 2 or more, got {seeds}")


def theory_facts(rows: list[TheoryRow]) -> dict[str, dict[str, Any]]:
    """Return the rows for ``--json``, by quantity."""
    return {facts.pop("quantity"): facts for facts in map(asdict, rows)}


def print_theory(rows: list[TheoryRow], draws: int, console: Console) -> None:
    """Print the table under a heading of its own."""
    console.print(f"\ntheory, beside {counted(draws, 'simulated report')} a vector\n")
    console.print(theory_table(rows))


def theory_table(rows: list[TheoryRow]) -> Table:
    """Lay out the rows for people; where a condition fails, the reason stands in its place."""
    table = bare_table()
    table.add_column("quantity", no_wrap=True)
    table.add_column("theory", justify="right", no_wrap=True)
    table.add_column("measured", justify="right", no_wrap=True)
    table.add_column("holds for", style="dim", overflow="fold")
    above = None
    for row in rows:
        words = row.fails or row.condition
        measured = written(row.quantity, row.measured)
        if row.standard_error is not None:
            measured += f" ± {written(row.quantity, row.standard_error, digits=2)}"
        theory = Text(written(row.quantity, row.theory), style="bold")
        table.add_row(
            label(row.quantity), theory, measured, "as above" if words == above else words
        )
        above = words
    return table


# ----------------------------------------------------------------------------
# ``offaxis evaluate``: what the task keeps when vectors pass through a release.

_METRICS = {
    "accuracy": "right answers",
    "agreement": "unchanged answers",
    "rmse": "error of targets",
    "output_rmse": "change of outputs",
}
_SHARES = ("accuracy", "agreement")
_SIGNS = {"at most": "≤", "at least": "≥", "line": "~"}


@example(
    "offaxis evaluate my.release --model head.safetensors --vectors test.npy --targets labels.npy",
    "offaxis evaluate my.release --model head.safetensors --vectors test.npy --theory",
)
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
        typer.Option(
            "--theory", help="Add what theory says, on which conditions, beside what is measured."
        ),
    ] = False,
    public: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="With --theory: the public vectors of the release, to compare with.",
        ),
    ] = None,
    engine: EngineName = None,
    master: Master = None,
    expect: Expect = None,
    as_json: AsJson = False,
) -> None:
    """Measure what a model keeps of its answers when vectors pass through a release.

    Beside it stands what ε allows: a bound, or a line to compare with. Nothing here protects the
    vectors: use public ones. With --engine --targets names a column, and bounds are not computed.
    """
    check_options(theory, public, seeds)
    check_engine(engine, master, exact=exact, theory=theory)
    loaded = load_release(release, expect)
    task = load_model(model)
    if engine is not None:
        path, column = locate_column(vectors)
        with working(engine, master, "trying the release") as work:
            source = work.open(path)
            count = work.functions.number_of(source)
            columns = {"vectors": column, "targets": targets}
            (result,) = work.functions.evaluate(
                source, [loaded], task, **columns, seeds=seeds, seed=seed, **work.told
            )
        _tell(loaded, result, {}, None, count, seeds, seed, exact=False, as_json=as_json)
        return
    batch = read_array(vectors)
    wanted = None if targets is None else read_targets(targets)
    with counting("repeating", seeds) as advance:
        result = measure(
            loaded, task, batch, wanted, seeds=seeds, seed=seed, exact=exact, progress=advance
        )
    batch, _ = as_batch(batch, loaded.input_dim)
    allowed = limits(task, batch, wanted, loaded.guarantee)
    rows = None
    if theory:
        rows = compute_rows(loaded, task, batch, public, draws=seeds, seed=seed)
    _tell(loaded, result, allowed, rows, len(batch), seeds, seed, exact=exact, as_json=as_json)


def _tell(
    loaded: Release,
    result: Evaluation,
    allowed: Mapping[str, Yardstick],
    rows: Any,
    count: int,
    seeds: int,
    seed: int,
    *,
    exact: bool,
    as_json: bool,
) -> None:

    if as_json:
        facts = {"release": loaded.hash, "vectors": count, "seeds": seeds, "exact": exact}
        facts |= {"seed": None if exact else seed, "metrics": _metrics(result, allowed)}
        print_json(facts if rows is None else facts | {"theory": theory_facts(rows)})
        return
    how = "real reports" if exact else "simulated reports"
    with screen() as console:
        console.print(
            f"{loaded.guarantee}, {loaded.randomizer.kind}: {counted(count, 'vector')}, "
            f"{counted(seeds, 'repetition')} with {how}\n"
        )
        console.print(_table(result, allowed))
        print_limits(allowed, console)
        if rows is not None:
            print_theory(rows, seeds, console)


def _metrics(result: Evaluation, allowed: Mapping[str, Yardstick]) -> dict[str, Any]:
    return {
        name: {
            "without_privacy": result.clean[name],
            "mean": result.mean(name),
            "std": result.std(name),
            "limit": limit_facts(allowed.get(name)),
            "runs": runs.tolist(),
        }
        for name, runs in result.runs.items()
    }


def limit_facts(limit: Yardstick | None) -> dict[str, Any] | None:
    """Describe what ε allows, for ``--json``."""
    if limit is None:
        return None
    return {"kind": limit.kind, "value": limit.value, "meaning": MEANINGS[limit.kind]}


def print_limits(allowed: Mapping[str, Yardstick], console: Console) -> None:
    """Say under a table what the signs before its limits mean."""
    kinds = dict.fromkeys(limit.kind for limit in allowed.values())
    for kind in kinds:
        console.print(Text(f"\n{_SIGNS[kind]}  {MEANINGS[kind]}.", style="dim"))


def _table(result: Evaluation, allowed: Mapping[str, Yardstick]) -> Table:
    table = bare_table()
    table.add_column("measure", no_wrap=True)
    for name in ("without privacy", "with the release", "bound or line"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("", style="dim")
    for name in sorted(result.runs, key=[*_METRICS, *result.runs].index):
        spread = f"{_score(name, result.mean(name))} ± {_score(name, result.std(name))}"
        table.add_row(
            name,
            _score(name, result.clean[name]),
            Text(spread, style="bold"),
            written_limit(name, allowed.get(name)),
            _METRICS.get(name, ""),
        )
    return table


def written_limit(name: str, limit: Yardstick | None) -> str:
    """Write what ε allows with its sign: ≤ and ≥ for bounds, ~ for a line."""
    return "" if limit is None else f"{_SIGNS[limit.kind]} {_score(name, limit.value)}"


def _score(name: str, value: float) -> str:
    return f"{100 * value:.1f} %" if name in _SHARES else f"{value:.4g}"
