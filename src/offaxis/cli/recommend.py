"""How recommendations are printed: a table of what was tried, a table of budgets, or JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from offaxis.cli.inputs import check_new_release, check_output, load_model, locate, read_array
from offaxis.cli.options import ARRAY, AsJson, Force, Misused, example, reading_options
from offaxis.cli.terminal import bare_table, filled, moving, print_json, screen
from offaxis.encoding.reshaping import Reshaping
from offaxis.errors import InvalidInput
from offaxis.evaluation.metrics import BUDGETS
from offaxis.evaluation.priors import read_prior
from offaxis.evaluation.recommend import SmallestBudget, recommend_range, smallest_epsilon
from offaxis.evaluation.recommendation import Recommendation
from offaxis.evaluation.selection import ScoredCandidate
from offaxis.evaluation.utility import Tasks, Utility
from offaxis.geometry import TaskModel
from offaxis.geometry.multitask import checked_weights
from offaxis.privacy.guarantee import exact_epsilon

_SHOWN: Final = 12
"""Candidates that the table shows; --json has all."""

_ERRORS: Final = "± is three standard errors."


def print_advice(found: Recommendation, console: Console) -> None:
    """Print one recommendation: the sentence, what was tried, every task, and the cautions."""
    console.print(filled(f"At ε = {found.epsilon:g}: {found.summary}", console) + "\n")
    if len(found.expected_by_task) > 1:
        console.print(_task_table(found))
        console.print()
    console.print(_tried(found))
    console.print(filled(_measured(found), console), style="dim")
    for caution in found.cautions:
        console.print(f"\n- {caution}")


def print_range(found: Sequence[Recommendation], console: Console) -> None:
    """Print what is recommended at every budget, beside the ceiling and the best vector."""
    means = found[0].goal == "mean"
    beside = [] if means else ["best release of a vector", "keeps"]
    table = _table("ε", "choose", *_headings(means), *beside)
    for each in found:
        row = [f"{each.epsilon:g}", each.candidate.title, *_numbers(each.expected, each.goal)]
        row.append(_number(each.ceiling, each.goal))
        if (vector := each.best_vector) is not None and not means:
            row += [vector.candidate.title, _number(vector.utility.score, each.goal)]
        table.add_row(*row)
    console.print(table)
    first = found[0]
    heading = _headings(means)[0].capitalize()
    words = f"{heading}: measured on {first.measured_on:,} held-out vectors"
    words += "" if means else f"; keeps: on the {first.compared_on:,} they were compared on"
    console.print("\n" + filled(f"{words}. {_ERRORS}", console), style="dim")
    for caution in dict.fromkeys(words for each in found for words in each.cautions):
        console.print(f"\n- {caution}")


def _headings(means: bool) -> tuple[str, str, str]:
    return ("error", "±", "at least") if means else ("expected", "±", "at most")


def _table(*names: str) -> Table:
    """Open a table whose wordy columns fold and whose numbers do not."""

    table = bare_table()
    for name in names:
        if name in ("choose", "tried", "task", "best release of a vector"):
            table.add_column(name, overflow="fold")
        else:
            table.add_column(name, justify="right", no_wrap=True)
    return table


def _task_table(found: Recommendation) -> Table:
    table = _table("task", *_headings(found.goal == "mean"))
    for name, utility in found.expected_by_task.items():
        ceiling = _number(found.ceiling_by_task[name], found.goal)
        table.add_row(name, *_numbers(utility, found.goal), ceiling)
    return table


def _tried(found: Recommendation) -> Table:
    means = found.goal == "mean"
    other = "fidelity" if found.goal == "answers" else "answers"
    table = _table("tried", "error" if means else found.goal, "±", *([] if means else [other]))
    kind = "unbiased report leaves less than" if means else "ε-LDP report allows more than"
    table.add_row(Text(f"no {kind}", style="dim"), _number(found.ceiling, found.goal))
    chosen = found.candidate
    for each in found.candidates[:_SHOWN]:
        title = Text(each.candidate.title, style="bold" if each.candidate is chosen else "")
        table.add_row(title, *_numbers(each.utility, found.goal), *_other(each, other, means))
    left = len(found.candidates) - _SHOWN
    if left > 0:
        table.add_row(Text(f"… and {left} more, none better", style="dim"))
    if found.screened_out:
        words = f"{len(found.screened_out)} others fell behind on a few vectors"
        table.add_row(Text(words, style="dim"))
    return table


def _measured(found: Recommendation) -> str:
    """Say which vectors the table tells of, and which the sentence."""
    return (
        f"Compared on {found.compared_on:,} vectors, and chosen there; the sentence above is "
        f"measured on {found.measured_on:,} others. {_ERRORS}"
    )


def _other(each: ScoredCandidate, name: str, means: bool) -> list[str]:
    if means:
        return []
    utility: Utility = getattr(each.scores, name)
    return [f"{utility.score:.3f}"]


def _number(score: float, goal: str) -> str:
    """Write a score; for means the error, which is its negative."""
    return f"{-score:.3g}" if goal == "mean" else f"{score:.3f}"


def _numbers(utility: Utility, goal: str) -> tuple[str, str]:
    half = utility.interval()[1] - utility.score
    return _number(utility.score, goal), f"{half:.2g}" if goal == "mean" else f"{half:.3f}"


def facts(
    found: Sequence[Recommendation], smallest: SmallestBudget | None, out: Path | None
) -> dict[str, Any]:
    """Describe recommendations for ``--json``: one as itself, several as a list of budgets."""
    if len(found) > 1:
        return {"budgets": [recommendation_facts(each) for each in found]}
    known = recommendation_facts(found[0]) | {"out": None if out is None else str(out)}
    if smallest is not None:
        known["target"] = smallest.target
        known["least_possible_epsilon"] = smallest.least_possible
    return known


def recommendation_facts(found: Recommendation) -> dict[str, Any]:
    """Describe what is recommended at one budget, and what was tried."""
    frontier = set(map(id, found.frontier))
    return {
        "epsilon": found.epsilon,
        "goal": found.goal,
        "choice": found.candidate.title,
        "settings": _settings(found.candidate.settings),
        "decoder": found.candidate.decoding,
        "expected": _interval(found.expected),
        "ceiling": found.ceiling,
        "tasks": {
            name: _interval(utility) | {"ceiling": found.ceiling_by_task[name]}
            for name, utility in found.expected_by_task.items()
        },
        "summary": found.summary,
        "cautions": list(found.cautions),
        "release": found.release.hash,
        "candidates": [
            {
                "title": each.candidate.title,
                "score": each.utility.score,
                "error": each.utility.error,
                "answers": each.scores.answers and each.scores.answers.score,
                "fidelity": each.scores.fidelity and each.scores.fidelity.score,
                "frontier": id(each) in frontier,
            }
            for each in found.candidates
        ],
        "screened_out": [each.title for each in found.screened_out],
    }


def _settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of ``fit`` as plain values; those of a reshaping beside its name."""
    known = dict(settings)
    shape = known.get("reshaping")
    if isinstance(shape, Reshaping):
        given = {name: value for name, value in asdict(shape).items() if value is not None}
        known |= {"reshaping": shape.name, **given}
    return known


def _interval(utility: Utility) -> dict[str, float]:
    low, high = utility.interval()
    return {"score": utility.score, "low": low, "high": high}


# ----------------------------------------------------------------------------
# ``offaxis recommend``: which release is best for a task, a budget and a goal.


@example(
    "offaxis recommend --model head.safetensors --public public.npy --epsilon 3 --out best.release",
    "offaxis recommend --model head.safetensors --public public.npy --epsilon 1,5 --html "
    "advice.html",
)
def recommend(
    model: Annotated[
        list[str],
        typer.Option(
            metavar="MODEL",
            help="Public model: package.module:attribute (a model, or a function without "
            "arguments that returns one), a torch.export file (.pt2), or a weights file written "
            "by Layers.save (.safetensors). Several, each as NAME=MODEL, are served by one "
            "release. Load only models you trust.",
        ),
    ],
    public: Annotated[
        str | None,
        typer.Option(metavar="FILE", help=f"Public vectors, never private ones: {ARRAY}."),
    ] = None,
    prior: Annotated[
        str | None,
        typer.Option(
            metavar="PRIOR",
            help="In place of public vectors, what is publicly known of every coordinate or of "
            "the length: box:LOW,HIGH or gaussian:DEVIATION or ball:RADIUS.",
        ),
    ] = None,
    epsilon: Annotated[
        str | None,
        typer.Option(
            metavar="NUMBER",
            help="Budget of one report; several as 1,3,5, a range as 0.5:10.",
        ),
    ] = None,
    target: Annotated[
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
    weight: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=NUMBER", help="Importance of one of several tasks; all alike otherwise."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="RELEASE", help="Write the best release to this file.")
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also write a page: figures, tables and cautions."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Public; cuts the public vectors.")] = 0,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Try every admissible pure release on public vectors and recommend the best one."""
    for option, given, other, instead in (
        ("--epsilon", epsilon, "--target", target),
        ("--public", public, "--prior", prior),
    ):
        if given is None and instead is None:
            raise Misused(f"Missing option '{option}' or '{other}'")
        if given is not None and instead is not None:
            raise Misused(f"{option} and {other} exclude each other")
    budgets = [] if epsilon is None else _budgets(epsilon)
    if out is not None and len(budgets) > 1:
        raise Misused("--out writes the release of one budget; give --epsilon one number")
    _check_outputs(model, public, out, html, force=force)
    tasks = _tasks(model)
    asked: dict[str, Any] = {"goal": goal, "people": people, "seed": seed}
    asked["weights"] = _weights(weight, tasks) if weight else None
    asked["prior"] = _prior(prior, tasks) if prior else None
    vectors = read_array(public) if public else None
    smallest: SmallestBudget | None = None
    found: tuple[Recommendation, ...]
    with moving("starting") as move:
        if target is not None:
            smallest = smallest_epsilon(tasks, vectors, target=target, progress=move, **asked)
            found = (smallest.recommendation,) if smallest.recommendation else ()
        else:
            found = recommend_range(tasks, vectors, epsilons=budgets, progress=move, **asked)
    if smallest is not None and not found:
        raise InvalidInput(smallest.summary)
    if out is not None:
        found[0].release.save(out)
    if html is not None:
        from offaxis.reporting.recommendation import write_recommendation

        write_recommendation(found, html)
    _tell(found, smallest, out, html, as_json=as_json)


def _check_outputs(
    model: list[str], public: str | None, out: Path | None, html: Path | None, *, force: bool
) -> None:
    """Refuse, before any work is done, what cannot be written."""
    sources = [Path(source.partition("=")[2] or source) for source in model]
    sources += [locate(public)[0]] if public else []
    for target in filter(None, (out, html)):
        check_output(target, *sources)
    if out is not None:
        check_new_release(out, force=force)
    if html is not None:
        from offaxis.reporting.pages import require_report_extra

        require_report_extra()


def _tell(
    found: Sequence[Recommendation],
    smallest: SmallestBudget | None,
    out: Path | None,
    html: Path | None,
    *,
    as_json: bool,
) -> None:

    if as_json:
        print_json(facts(found, smallest, out))
        return
    with screen() as console:
        if smallest is not None:
            console.print(f"{smallest.summary}\n")
        if len(found) > 1:
            print_range(found, console)
        else:
            print_advice(found[0], console)
        if html is not None:
            console.print(f"\npage: {html}", soft_wrap=True)
        if out is not None:
            console.print(f"\nwrote {out}; next: offaxis inspect {out}", soft_wrap=True)


def _budgets(text: str) -> list[float]:
    """Read 3, or 1,3,5, or 0.5:10, which are both ends and the usual budgets between them."""
    ranged = ":" in text
    try:
        budgets = [float(part) for part in text.split(":" if ranged else ",")]
    except ValueError:
        budgets = []
    if not budgets or (ranged and len(budgets) != 2):
        raise Misused(
            f"--epsilon must be a number as 3, several as 1,3,5 or a range as 0.5:10, got {text!r}"
        )
    with reading_options():
        for budget in budgets:
            exact_epsilon(budget)
    if not ranged:
        return budgets
    low, high = budgets
    if low > high:
        raise Misused(f"the range of --epsilon runs downwards, write {high:g}:{low:g}")
    return [low, *(b for b in BUDGETS if low < b < high), *([high] * (high > low))]


def _tasks(sources: list[str]) -> TaskModel | dict[str, TaskModel]:
    """Load one model, or several by name."""
    if len(sources) == 1:
        return load_model(sources[0])
    named: dict[str, str] = {}
    for source in sources:
        name, equals, where = source.partition("=")
        if not equals or not name or name in named:
            raise Misused(
                f"several models need a name each, as --model digit=a.safetensors, got {source!r}"
            )
        named[name] = where
    return {name: load_model(where) for name, where in named.items()}


def _weights(given: list[str], tasks: Any) -> dict[str, float]:
    """Read the importance of every task."""
    if not isinstance(tasks, dict):
        raise Misused("--weight goes with several models, as --model NAME=MODEL")
    found = {}
    for text in given:
        name, _, number = text.rpartition("=")
        try:
            found[name] = float(number)
        except ValueError:
            raise Misused(f"--weight must be NAME=NUMBER, got {text!r}") from None
    with reading_options():
        checked_weights(found, tasks)
    return found


def _prior(text: str, tasks: Any) -> Any:
    """Read a prior in the dimension of the models."""
    dim = Tasks.of(tasks, None).input_dim
    if dim is None:
        raise InvalidInput(
            "the model takes any dimension, so a prior does not know its own; use "
            "offaxis.recommend(model, None, prior=offaxis.wide_prior(dim, …)) in Python"
        )
    with reading_options():
        return read_prior(text, dim)
