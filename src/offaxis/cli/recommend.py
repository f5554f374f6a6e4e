"""``offaxis recommend``: the best release for a task, a budget and a goal."""

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
from offaxis.cli.options import ARRAY, AsJson, Force, UsageError, example, usage_errors
from offaxis.cli.terminal import buffered_console, plain_table, print_json, progress_bar, wrap_text
from offaxis.encoding.reshaping import Reshaping
from offaxis.errors import InvalidInput
from offaxis.evaluation.metrics import BUDGETS
from offaxis.evaluation.priors import read_prior
from offaxis.evaluation.recommend import recommend_range
from offaxis.evaluation.recommendation import Recommendation
from offaxis.evaluation.selection import ScoredCandidate
from offaxis.evaluation.smallest import SmallestBudget, smallest_epsilon
from offaxis.evaluation.utility import Tasks, Utility
from offaxis.geometry import TaskModel
from offaxis.geometry.multitask import checked_weights
from offaxis.privacy.guarantee import exact_epsilon
from offaxis.privacy.wording import MEAN_OVER


@example(
    "offaxis recommend --model head.safetensors --public public.npy --epsilon 3 --out best.release",
    "offaxis recommend --model head.safetensors --public public.npy --epsilon 1,5 --html "
    "advice.html",
)
def recommend(
    model: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODEL",
            help="Public model: package.module:attribute (a model, or a function without "
            "arguments that returns one), a torch.export file (.pt2), an ONNX file (.onnx), or a "
            "weights file written by Layers.save (.safetensors). For one release that serves "
            "several models, repeat the option as NAME=MODEL. Load only models you trust. Without "
            "a model, all directions of the vectors count equally (--goal vectors or means).",
        ),
    ] = None,
    public: Annotated[
        str | None,
        typer.Option(metavar="FILE", help=f"Public vectors, never private ones: {ARRAY}."),
    ] = None,
    prior: Annotated[
        str | None,
        typer.Option(
            metavar="PRIOR",
            help="Instead of public vectors: what is publicly known about each coordinate or about "
            "the length, as box:LOW,HIGH or gaussian:DEVIATION or ball:RADIUS.",
        ),
    ] = None,
    epsilon: Annotated[
        str | None,
        typer.Option(
            metavar="NUMBER",
            help="Budget ε of one report; several as 1,3,5; a range as 0.5:10.",
        ),
    ] = None,
    target: Annotated[
        float | None,
        typer.Option(
            metavar="NUMBER",
            help="Instead of a budget: find the smallest one with this expected utility.",
        ),
    ] = None,
    goal: Annotated[
        Literal["answers", "vectors", "means"],
        typer.Option(
            help="What to optimize: the model's answer for each vector (answers), the vector "
            "itself in the task's metric (vectors), or a mean over people (means)."
        ),
    ] = "answers",
    people: Annotated[
        int, typer.Option(min=1, help="With --goal means: the number of people.")
    ] = MEAN_OVER,
    effort: Annotated[
        Literal["quick", "full"],
        typer.Option(
            help="Stop where the best report is known, and fit most candidates to a few vectors "
            "(quick); or fit and compare all candidates (full)."
        ),
    ] = "quick",
    weight: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=NUMBER", help="Weight of one of several models; equal by default."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="RELEASE", help="Write the best release to this file.")
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Also write an HTML page with figures, tables and cautions."
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, help="Seed that splits the public vectors; not secret.")
    ] = 0,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Try every admissible pure release on public vectors and recommend the best one."""
    for option, value, other, alternative in (
        ("--epsilon", epsilon, "--target", target),
        ("--public", public, "--prior", prior),
    ):
        if value is None and alternative is None:
            raise UsageError(f"Missing option '{option}' or '{other}'")
        if value is not None and alternative is not None:
            raise UsageError(f"{option} and {other} exclude each other")
    budgets = [] if epsilon is None else _parse_budgets(epsilon)
    if out is not None and len(budgets) > 1:
        raise UsageError("--out writes the release for one budget; use --epsilon with one number")
    if not model and goal == "answers":
        raise UsageError("Missing option '--model'; without a model, use --goal vectors or means")
    _check_outputs(model or [], public, out, html, force=force)
    tasks = _load_tasks(model) if model else None
    settings: dict[str, Any] = {"goal": goal, "people": people, "effort": effort, "seed": seed}
    settings["weights"] = _parse_weights(weight, tasks) if weight else None
    settings["prior"] = _parse_prior(prior, tasks) if prior else None
    vectors = read_array(public) if public else None
    smallest: SmallestBudget | None = None
    advice: tuple[Recommendation, ...]
    with progress_bar("starting") as update:
        if target is not None:
            smallest = smallest_epsilon(tasks, vectors, target=target, progress=update, **settings)
            advice = (smallest.recommendation,) if smallest.recommendation else ()
        else:
            advice = recommend_range(tasks, vectors, epsilons=budgets, progress=update, **settings)
    if smallest is not None and not advice:
        raise InvalidInput(smallest.summary)
    if out is not None:
        advice[0].release.save(out)
    if html is not None:
        from offaxis.html.recommendation import write_recommendation

        write_recommendation(advice, html)
    _print_result(advice, smallest, out, html, as_json=as_json)


def _check_outputs(
    model: list[str], public: str | None, out: Path | None, html: Path | None, *, force: bool
) -> None:
    """Reject output files that cannot be written, before any work is done."""
    sources = [Path(source.partition("=")[2] or source) for source in model]
    sources += [locate(public)[0]] if public else []
    for path in filter(None, (out, html)):
        check_output(path, *sources)
    if out is not None:
        check_new_release(out, force=force)
    if html is not None:
        from offaxis.html.pages import require_report_extra

        require_report_extra()


# ---- Reading options


def _parse_budgets(text: str) -> list[float]:
    """Read 3, or 1,3,5, or 0.5:10: both ends and the usual budgets between them."""
    is_range = ":" in text
    try:
        budgets = [float(part) for part in text.split(":" if is_range else ",")]
    except ValueError:
        budgets = []
    if not budgets or (is_range and len(budgets) != 2):
        raise UsageError(
            f"--epsilon must be a number as 3, several as 1,3,5 or a range as 0.5:10, got {text!r}"
        )
    with usage_errors():
        for budget in budgets:
            exact_epsilon(budget)
    if not is_range:
        return budgets
    low, high = budgets
    if low > high:
        raise UsageError(f"the range of --epsilon is reversed; write {high:g}:{low:g}")
    return [low, *(b for b in BUDGETS if low < b < high), *([high] * (high > low))]


def _load_tasks(sources: list[str]) -> TaskModel | dict[str, TaskModel]:
    """Load one model, or several by name."""
    if len(sources) == 1:
        return load_model(sources[0])
    named: dict[str, str] = {}
    for source in sources:
        name, equals, model = source.partition("=")
        if not equals or not name or name in named:
            raise UsageError(
                f"each of several models needs a name, as --model digit=a.safetensors, "
                f"got {source!r}"
            )
        named[name] = model
    return {name: load_model(model) for name, model in named.items()}


def _parse_weights(texts: list[str], tasks: Any) -> dict[str, float]:
    """Read the weight of each task."""
    if not isinstance(tasks, dict):
        raise UsageError("--weight requires several models, as --model NAME=MODEL")
    weights = {}
    for text in texts:
        name, _, number = text.rpartition("=")
        try:
            weights[name] = float(number)
        except ValueError:
            raise UsageError(f"--weight must be NAME=NUMBER, got {text!r}") from None
    with usage_errors():
        checked_weights(weights, tasks)
    return weights


def _parse_prior(text: str, tasks: Any) -> Any:
    """Read a prior in the dimension of the models."""
    dim = Tasks.of(tasks, None).input_dim
    if dim is None:
        raise InvalidInput(
            "the model accepts any dimension, so the dimension of the prior is unknown; use "
            "offaxis.recommend(model, None, prior=offaxis.wide_prior(dim, …)) in Python"
        )
    with usage_errors():
        return read_prior(text, dim)


# ---- Printing

_MAX_ROWS: Final = 12
"""Candidates in the table; --json lists all."""

_INTERVAL: Final = "± is three standard errors."


def _print_result(
    advice: Sequence[Recommendation],
    smallest: SmallestBudget | None,
    out: Path | None,
    html: Path | None,
    *,
    as_json: bool,
) -> None:
    if as_json:
        print_json(advice_facts(advice, smallest, out))
        return
    with buffered_console() as console:
        if smallest is not None:
            console.print(f"{smallest.summary}\n")
        if len(advice) > 1:
            _print_range(advice, console)
        else:
            _print_one(advice[0], console)
        if html is not None:
            console.print(f"\npage: {html}", soft_wrap=True)
        if out is not None:
            console.print(f"\nwrote {out}; next: offaxis inspect {out}", soft_wrap=True)


def _print_one(advice: Recommendation, console: Console) -> None:
    """Print one recommendation: the summary, each task, the candidates, and the cautions."""
    console.print(wrap_text(f"At ε = {advice.epsilon:g}: {advice.summary}", console) + "\n")
    if len(advice.expected_by_task) > 1:
        console.print(_task_table(advice))
        console.print()
    console.print(_candidate_table(advice))
    note = (
        f"The candidates were compared, and the best one chosen, on {advice.compared_on:,} "
        f"vectors; the summary above is measured on {advice.measured_on:,} held-out ones. "
        f"{_INTERVAL}"
    )
    console.print("\n" + wrap_text(note, console), style="dim")
    for missing in advice.not_made:
        console.print(f"\n- not made: {missing.title}: {missing.reason}")
    for caution in advice.cautions:
        console.print(f"\n- {caution}")


def _print_range(advice: Sequence[Recommendation], console: Console) -> None:
    """Print the recommendation for each budget, with the ceiling and the best vector release."""
    means = advice[0].goal == "means"
    vector_columns = [] if means else ["best release of a vector", "keeps"]
    table = _table("ε", "recommended", *_headings(means), *vector_columns)
    for one in advice:
        row = [f"{one.epsilon:g}", one.candidate.title, *_format_utility(one.expected, one.goal)]
        row.append(_format_score(one.ceiling, one.goal))
        if (vector := one.best_vector) is not None and not means:
            row += [vector.candidate.title, _format_score(vector.utility.score, one.goal)]
        table.add_row(*row)
    console.print(table)
    first = advice[0]
    heading = _headings(means)[0].capitalize()
    note = f"{heading}: measured on {first.measured_on:,} held-out vectors"
    note += "" if means else f"; keeps: on the {first.compared_on:,} they were compared on"
    console.print("\n" + wrap_text(f"{note}. {_INTERVAL}", console), style="dim")
    for caution in dict.fromkeys(caution for one in advice for caution in one.cautions):
        console.print(f"\n- {caution}")


def _headings(means: bool) -> tuple[str, str, str]:
    return ("error", "±", "at least") if means else ("expected", "±", "at most")


def _table(*names: str) -> Table:
    """Return a table whose text columns fold and whose numbers do not."""
    table = plain_table()
    for name in names:
        if name in ("recommended", "candidate", "task", "best release of a vector"):
            table.add_column(name, overflow="fold")
        else:
            table.add_column(name, justify="right", no_wrap=True)
    return table


def _task_table(advice: Recommendation) -> Table:
    table = _table("task", *_headings(advice.goal == "means"))
    for name, utility in advice.expected_by_task.items():
        ceiling = _format_score(advice.ceiling_by_task[name], advice.goal)
        table.add_row(name, *_format_utility(utility, advice.goal), ceiling)
    return table


def _candidate_table(advice: Recommendation) -> Table:
    means = advice.goal == "means"
    other = "vectors" if advice.goal == "answers" else "answers"
    columns = ["candidate", "error" if means else advice.goal, "±", *([] if means else [other])]
    table = _table(*columns)
    bound = "unbiased report leaves less than" if means else "ε-LDP report allows more than"
    table.add_row(
        Text(f"no {bound} (estimate)", style="dim"), _format_score(advice.ceiling, advice.goal)
    )
    for scored in advice.candidates[:_MAX_ROWS]:
        style = "bold" if scored.candidate is advice.candidate else ""
        title = Text(scored.candidate.title, style=style)
        extra = [] if means else [_other_score(scored, other)]
        table.add_row(title, *_format_utility(scored.utility, advice.goal), *extra)
    hidden = len(advice.candidates) - _MAX_ROWS
    if hidden > 0:
        table.add_row(Text(f"… and {hidden} more, none better", style="dim"))
    if advice.screened_out:
        note = f"{len(advice.screened_out)} others did worse on a few vectors"
        table.add_row(Text(note, style="dim"))
    return table


def _other_score(scored: ScoredCandidate, name: str) -> str:
    utility = scored.scores.answers if name == "answers" else scored.scores.fidelity
    return "" if utility is None else f"{utility.score:.3f}"


def _format_score(score: float, goal: str) -> str:
    """Write a score; for means the error, which is the negative score."""
    return f"{-score:.3g}" if goal == "means" else f"{score:.3f}"


def _format_utility(utility: Utility, goal: str) -> tuple[str, str]:
    half = utility.interval()[1] - utility.score
    return _format_score(utility.score, goal), f"{half:.2g}" if goal == "means" else f"{half:.3f}"


# ---- Facts for ``--json``


def advice_facts(
    advice: Sequence[Recommendation], smallest: SmallestBudget | None, out: Path | None
) -> dict[str, Any]:
    """Describe recommendations: a single one directly, several as a list of budgets."""
    if len(advice) > 1:
        return {"budgets": [recommendation_facts(one) for one in advice]}
    facts = recommendation_facts(advice[0]) | {"out": None if out is None else str(out)}
    if smallest is not None:
        facts["target"] = smallest.target
        facts["least_possible_epsilon"] = smallest.least_possible
    return facts


def recommendation_facts(advice: Recommendation) -> dict[str, Any]:
    """Describe the recommendation for one budget, and its candidates."""
    frontier = set(map(id, advice.frontier))
    return {
        "epsilon": advice.epsilon,
        "goal": advice.goal,
        "choice": advice.candidate.title,
        "settings": _setting_facts(advice.candidate.settings),
        "decoder": advice.candidate.decoding,
        "expected": _interval_facts(advice.expected),
        "ceiling": advice.ceiling,
        "tasks": {
            name: _interval_facts(utility) | {"ceiling": advice.ceiling_by_task[name]}
            for name, utility in advice.expected_by_task.items()
        },
        "summary": advice.summary,
        "cautions": list(advice.cautions),
        "release": advice.release.hash,
        "candidates": [
            {
                "title": scored.candidate.title,
                "score": scored.utility.score,
                "error": scored.utility.error,
                "answers": scored.scores.answers and scored.scores.answers.score,
                "fidelity": scored.scores.fidelity and scored.scores.fidelity.score,
                "frontier": id(scored) in frontier,
            }
            for scored in advice.candidates
        ],
        "screened_out": [candidate.title for candidate in advice.screened_out],
        "not_made": [vars(failure) for failure in advice.not_made],
    }


def _setting_facts(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of ``fit`` as plain values, those of a reshaping next to its name."""
    facts = dict(settings)
    reshaping = facts.get("reshaping")
    if isinstance(reshaping, Reshaping):
        details = {name: value for name, value in asdict(reshaping).items() if value is not None}
        facts |= {"reshaping": reshaping.name, **details}
    return facts


def _interval_facts(utility: Utility) -> dict[str, float]:
    low, high = utility.interval()
    return {"score": utility.score, "low": low, "high": high}
