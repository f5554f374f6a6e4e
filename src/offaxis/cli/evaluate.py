"""``offaxis evaluate``: how well a task works on vectors that pass through a release.

The section on theory also serves ``offaxis inspect``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from offaxis.cli.engine import EngineName, Master, check_engine, locate_column, open_engine
from offaxis.cli.inputs import load_model, read_array, read_targets
from offaxis.cli.options import ARRAY, MODEL, AsJson, Expect, ReleaseFile, UsageError, example
from offaxis.cli.terminal import (
    buffered_console,
    plain_table,
    pluralize,
    print_json,
    spinner,
    step_bar,
)
from offaxis.encoding.pairs import PairEncoder
from offaxis.encoding.questions import AnswersEncoder
from offaxis.errors import InvalidInput
from offaxis.evaluation import Evaluation
from offaxis.evaluation import evaluate as measure
from offaxis.evaluation.bounds import MEANINGS, ReferenceValue, limits
from offaxis.geometry import TaskModel
from offaxis.release import Release
from offaxis.theory.table import TheoryRow, label, theory_rows, written
from offaxis.vectors import Vectors, as_batch

_DESCRIPTIONS = {
    "accuracy": "correct answers",
    "agreement": "unchanged answers",
    "rmse": "error against the targets",
    "output_rmse": "change of the outputs",
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
        str, typer.Option(metavar="FILE", help=f"Public vectors to test the release on: {ARRAY}.")
    ],
    targets: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Labels 0, 1, 2 … or real targets, one per vector."),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Number of repetitions.")] = 20,
    seed: Annotated[
        int, typer.Option(min=0, help="Seed of the simulation; --exact uses none.")
    ] = 0,
    exact: Annotated[
        bool, typer.Option("--exact", help="Make and decode real reports instead of simulating.")
    ] = False,
    theory: Annotated[
        bool,
        typer.Option(
            "--theory", help="Also show what theory predicts, its conditions, and what is measured."
        ),
    ] = False,
    public: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="With --theory: the public vectors that the release was fitted to, for the "
            "public/private gap.",
        ),
    ] = None,
    engine: EngineName = None,
    master: Master = None,
    expect: Expect = None,
    as_json: AsJson = False,
) -> None:
    """Measure how well a model works on vectors that pass through a release.

    The table also shows what ε allows: a bound, or a line to compare with. This command does not
    protect the vectors: use public ones. With --engine, --targets names a column, and bounds are
    not computed.
    """
    if public is not None and not theory:
        raise UsageError("--public is used with --theory only; add --theory or drop --public")
    if theory and seeds < 2:
        raise UsageError(f"--theory measures errors and needs --seeds 2 or more, got {seeds}")
    check_engine(engine, master, exact=exact, theory=theory)
    loaded = Release.load(release, expect=expect)
    if isinstance(loaded.encoder, AnswersEncoder):
        raise InvalidInput("reports of this release hold people's own answers, not vectors")
    if isinstance(loaded.encoder, PairEncoder):
        raise InvalidInput(
            "reports of this release are for learning a model, not for the answers of one: see "
            "offaxis learn evaluate"
        )
    task = load_model(model)
    if engine is not None:
        path, column = locate_column(vectors)
        with open_engine(engine, master, "evaluating the release") as running:
            source = running.open(path)
            count = running.functions.number_of(source)
            columns = {"vectors": column, "targets": targets}
            (result,) = running.functions.evaluate(
                source, [loaded], task, **columns, seeds=seeds, seed=seed, **running.callbacks
            )
        _print_result(loaded, result, {}, None, count, seeds, seed, exact=False, as_json=as_json)
        return
    batch = read_array(vectors)
    expected = None if targets is None else read_targets(targets)
    with step_bar("repeating", seeds) as advance:
        result = measure(
            loaded, task, batch, expected, seeds=seeds, seed=seed, exact=exact, progress=advance
        )
    batch, _ = as_batch(batch, loaded.input_dim)
    allowed = limits(task, batch, expected, loaded.single_report_guarantee)
    rows = None
    if theory:
        rows = compute_theory(loaded, task, batch, public, draws=seeds, seed=seed)
    _print_result(
        loaded, result, allowed, rows, len(batch), seeds, seed, exact=exact, as_json=as_json
    )


def _print_result(
    loaded: Release,
    result: Evaluation,
    allowed: Mapping[str, ReferenceValue],
    rows: list[TheoryRow] | None,
    count: int,
    seeds: int,
    seed: int,
    *,
    exact: bool,
    as_json: bool,
) -> None:
    if as_json:
        facts = {"release": loaded.hash, "vectors": count, "seeds": seeds, "exact": exact}
        facts |= {"seed": None if exact else seed, "metrics": _metric_facts(result, allowed)}
        print_json(facts if rows is None else facts | {"theory": theory_facts(rows)})
        return
    kind = "real reports" if exact else "simulated reports"
    with buffered_console() as console:
        console.print(
            f"{loaded.guarantee}, {loaded.randomizer.kind}: {pluralize(count, 'vector')}, "
            f"{pluralize(seeds, 'repetition')} with {kind}\n"
        )
        console.print(_metric_table(result, allowed))
        print_limits(allowed, console)
        if rows is not None:
            print_theory(rows, seeds, console)


def _metric_facts(result: Evaluation, allowed: Mapping[str, ReferenceValue]) -> dict[str, Any]:
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


def _metric_table(result: Evaluation, allowed: Mapping[str, ReferenceValue]) -> Table:
    table = plain_table()
    table.add_column("metric", no_wrap=True)
    for name in ("without privacy", "with the release", "bound or line"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("", style="dim")
    for name in sorted(result.runs, key=[*_DESCRIPTIONS, *result.runs].index):
        spread = (
            f"{_format_score(name, result.mean(name))} ± {_format_score(name, result.std(name))}"
        )
        table.add_row(
            name,
            _format_score(name, result.clean[name]),
            Text(spread, style="bold"),
            format_limit(name, allowed.get(name)),
            _DESCRIPTIONS.get(name, ""),
        )
    return table


def _format_score(name: str, value: float) -> str:
    return f"{100 * value:.1f} %" if name in _SHARES else f"{value:.4g}"


# ---- What ε allows: bounds and lines


def limit_facts(limit: ReferenceValue | None) -> dict[str, Any] | None:
    """Describe a bound or a line for ``--json``."""
    if limit is None:
        return None
    return {"kind": limit.kind, "value": limit.value, "meaning": MEANINGS[limit.kind]}


def format_limit(name: str, limit: ReferenceValue | None) -> str:
    """Write a limit with its sign: ≤ and ≥ for bounds, ~ for a line."""
    return "" if limit is None else f"{_SIGNS[limit.kind]} {_format_score(name, limit.value)}"


def print_limits(allowed: Mapping[str, ReferenceValue], console: Console) -> None:
    """Explain the signs of the limits, below a table."""
    for kind in dict.fromkeys(limit.kind for limit in allowed.values()):
        console.print(Text(f"\n{_SIGNS[kind]}  {MEANINGS[kind]}.", style="dim"))


# ---- What theory predicts


def compute_theory(
    release: Release,
    task: TaskModel,
    vectors: Vectors,
    public: str | None,
    *,
    draws: int,
    seed: int,
) -> list[TheoryRow]:
    """Compute the rows of the theory table; ``public`` names a file of public vectors."""
    fitted_to = None if public is None else read_array(public)
    with spinner("computing what theory predicts"):
        return theory_rows(release, task, vectors, fitted_to, draws=draws, seed=seed)


def theory_facts(rows: list[TheoryRow]) -> dict[str, dict[str, Any]]:
    """Return the rows for ``--json``, by quantity."""
    return {facts.pop("quantity"): facts for facts in map(asdict, rows)}


def print_theory(rows: list[TheoryRow], draws: int, console: Console) -> None:
    """Print the theory table under a heading."""
    console.print(f"\ntheory, compared with {pluralize(draws, 'simulated report')} per vector\n")
    console.print(_theory_table(rows))


def _theory_table(rows: list[TheoryRow]) -> Table:
    """Lay out the rows; where a condition fails, the reason replaces the conditions."""
    table = plain_table()
    table.add_column("quantity", no_wrap=True)
    table.add_column("theory", justify="right", no_wrap=True)
    table.add_column("measured", justify="right", no_wrap=True)
    table.add_column("holds for", style="dim", overflow="fold")
    above = None
    for row in rows:
        condition = row.fails or row.condition
        measured = written(row.quantity, row.measured)
        if row.standard_error is not None:
            measured += f" ± {written(row.quantity, row.standard_error, digits=2)}"
        theory = Text(written(row.quantity, row.theory), style="bold")
        shown = "as above" if condition == above else condition
        table.add_row(label(row.quantity), theory, measured, shown)
        above = condition
    return table
