"""``offaxis recommend``: which release is best for a task, a budget and a goal."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from offaxis.cli.options import ARRAY, MODEL, AsJson
from offaxis.cli.terminal import print_json, screen

if TYPE_CHECKING:
    from rich.table import Table

    from offaxis.evaluation.recommend import Recommendation

_SHOWN: Final = 12
"""Candidates that the table shows; --json has all."""


def recommend(
    model: Annotated[str, MODEL],
    public: Annotated[
        str, typer.Option(metavar="FILE", help=f"Public vectors, never private ones: {ARRAY}.")
    ],
    epsilon: Annotated[
        float | None, typer.Option(metavar="NUMBER", help="Budget of one report.")
    ] = None,
    wanted: Annotated[
        float | None,
        typer.Option(
            metavar="NUMBER",
            help="In place of a budget: find the smallest one whose expected utility is this.",
        ),
    ] = None,
    goal: Annotated[
        Literal["answers", "fidelity", "mean"],
        typer.Option(
            help="The model's answer of each vector; the vector itself in the task's metric; or a "
            "mean over people."
        ),
    ] = "answers",
    people: Annotated[int, typer.Option(min=1, help="People a mean is taken over.")] = 1000,
    out: Annotated[
        Path | None, typer.Option(metavar="RELEASE", help="Write the best release to this file.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Public; cuts the public vectors.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Try every admissible pure release on public vectors and recommend the best one."""
    if (epsilon is None) == (wanted is None):
        raise typer.BadParameter("is needed, or --wanted, but not both", param_hint="'--epsilon'")
    from offaxis.cli.arrays import locate, read_array
    from offaxis.cli.files import check_output
    from offaxis.cli.models import load_model
    from offaxis.cli.progress import moving, waiting
    from offaxis.errors import InvalidInput
    from offaxis.evaluation.recommend import recommend as try_all
    from offaxis.evaluation.recommend import smallest_epsilon

    if out is not None:
        check_output(out, locate(public)[0], Path(model))
    task, vectors = load_model(model), read_array(public)
    if wanted is not None:
        with waiting("trying budgets"):
            found = smallest_epsilon(task, vectors, wanted=wanted, goal=goal, people=people)
        if found is None:
            raise InvalidInput(f"no budget up to 10 reaches {wanted:g} on these public vectors")
        epsilon, result = found
    else:
        assert epsilon is not None
        with moving("starting") as move:
            result = try_all(
                task,
                vectors,
                epsilon=epsilon,
                goal=goal,
                people=people,
                seed=seed,
                progress=move,
            )
    if out is not None:
        result.release.save(out)
    if as_json:
        print_json(_facts(result, epsilon, goal, out))
        return
    with screen() as console:
        console.print(f"At ε = {epsilon:g}: {result.sentence}\n")
        console.print(_table(result))
        for caution in result.cautions:
            console.print(f"\n- {caution}")
        if out is not None:
            console.print(f"\nwrote {out}; next: offaxis inspect {out}", soft_wrap=True)


def _table(result: Recommendation) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("tried", overflow="fold")
    table.add_column("utility", justify="right", no_wrap=True)
    table.add_column("±", justify="right", no_wrap=True)
    if result.ceiling is not None:
        table.add_row("no ε-LDP report allows more than", f"{result.ceiling:.3f}", "")
    for each in result.tried[:_SHOWN]:
        table.add_row(
            each.candidate.title, f"{each.utility.score:.3f}", f"{2 * each.utility.error:.3f}"
        )
    left = len(result.tried) - _SHOWN
    if left > 0:
        table.add_row(f"… and {left} more, none better", "", "")
    return table


def _facts(result: Recommendation, epsilon: float, goal: str, out: Path | None) -> dict[str, Any]:
    low, high = result.expected.interval()
    return {
        "epsilon": epsilon,
        "goal": goal,
        "choice": result.candidate.title,
        "settings": dict(result.candidate.settings),
        "decoder": result.candidate.decoding,
        "expected": {"score": result.expected.score, "low": low, "high": high},
        "ceiling": result.ceiling,
        "sentence": result.sentence,
        "cautions": list(result.cautions),
        "release": result.release.hash,
        "out": None if out is None else str(out),
        "tried": [
            {
                "title": each.candidate.title,
                "score": each.utility.score,
                "error": each.utility.error,
            }
            for each in result.tried
        ],
    }
