"""``offaxis recommend``: which release is best for a task, a budget and a goal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from offaxis.cli.examples import example
from offaxis.cli.options import ARRAY, AsJson
from offaxis.cli.showing.terminal import print_json, screen

if TYPE_CHECKING:
    from offaxis.evaluation.recommendation import Recommendation
    from offaxis.evaluation.smallest import SmallestBudget
    from offaxis.geometry import TaskModel


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
    as_json: AsJson = False,
) -> None:
    """Try every admissible pure release on public vectors and recommend the best one."""
    for option, given, other, instead in (
        ("--epsilon", epsilon, "--wanted", wanted),
        ("--public", public, "--prior", prior),
    ):
        if (given is None) == (instead is None):
            raise typer.BadParameter(
                f"is needed, or {other}, but not both", param_hint=f"'{option}'"
            )
    budgets = [] if epsilon is None else _budgets(epsilon)
    if out is not None and len(budgets) > 1:
        raise typer.BadParameter("writes the release of one budget", param_hint="'--out'")
    from offaxis.cli.reading.arrays import read_array
    from offaxis.cli.showing.progress import moving
    from offaxis.errors import InvalidInput
    from offaxis.evaluation.recommend import recommend_range
    from offaxis.evaluation.smallest import smallest_epsilon

    _check_outputs(model, public, out, html)
    tasks = _tasks(model)
    asked: dict[str, Any] = {"goal": goal, "people": people, "seed": seed}
    asked["weights"] = _weights(weight) if weight else None
    asked["prior"] = _prior(prior, tasks) if prior else None
    vectors = read_array(public) if public else None
    smallest: SmallestBudget | None = None
    found: tuple[Recommendation, ...]
    with moving("starting") as move:
        if wanted is not None:
            smallest = smallest_epsilon(tasks, vectors, wanted=wanted, progress=move, **asked)
            found = (smallest.recommendation,) if smallest.recommendation else ()
        else:
            found = recommend_range(tasks, vectors, epsilons=budgets, progress=move, **asked)
    if smallest is not None and not found:
        raise InvalidInput(smallest.sentence)
    if out is not None:
        found[0].release.save(out)
    if html is not None:
        from offaxis.reporting.recommendation.page import write_recommendation

        write_recommendation(found, html)
    _tell(found, smallest, out, html, as_json=as_json)


def _check_outputs(
    model: list[str], public: str | None, out: Path | None, html: Path | None
) -> None:
    """Refuse, before any work is done, what cannot be written."""
    from offaxis.cli.files import check_output
    from offaxis.cli.reading.arrays import locate

    sources = [Path(source.partition("=")[2] or source) for source in model]
    sources += [locate(public)[0]] if public else []
    for target in filter(None, (out, html)):
        check_output(target, *sources)
    if html is not None:
        from offaxis.reporting.svg import require_report_extra

        require_report_extra()


def _tell(
    found: Sequence[Recommendation],
    smallest: SmallestBudget | None,
    out: Path | None,
    html: Path | None,
    *,
    as_json: bool,
) -> None:
    from offaxis.cli.showing.advice import facts, print_advice, print_range

    if as_json:
        print_json(facts(found, smallest, out))
        return
    with screen() as console:
        if smallest is not None:
            console.print(f"{smallest.sentence}\n")
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
    from offaxis.evaluation.sweep import BUDGETS

    try:
        if ":" in text:
            low, high = (float(part) for part in text.split(":"))
            if low <= high:
                return [low, *(b for b in BUDGETS if low < b < high), *([high] * (high > low))]
            raise ValueError
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise typer.BadParameter(
            f"must be a number as 3, several as 1,3,5 or a range as 0.5:10, got {text!r}",
            param_hint="'--epsilon'",
        ) from None


def _tasks(sources: list[str]) -> TaskModel | dict[str, TaskModel]:
    """Load one model, or several by name."""
    from offaxis.cli.reading.models import load_model
    from offaxis.errors import InvalidInput

    if len(sources) == 1:
        return load_model(sources[0])
    found: dict[str, TaskModel] = {}
    for source in sources:
        name, equals, where = source.partition("=")
        if not equals or not name or name in found:
            raise InvalidInput(
                f"several models need a name each, as --model digit=a.safetensors, got {source!r}"
            )
        found[name] = load_model(where)
    return found


def _weights(given: list[str]) -> dict[str, float]:
    found = {}
    for text in given:
        name, _, number = text.rpartition("=")
        try:
            found[name] = float(number)
        except ValueError:
            raise typer.BadParameter(
                f"must be NAME=NUMBER, got {text!r}", param_hint="'--weight'"
            ) from None
    return found


def _prior(text: str, tasks: Any) -> Any:
    """Read a prior in the dimension of the models."""
    from offaxis.errors import InvalidInput
    from offaxis.evaluation.priors import read_prior
    from offaxis.evaluation.public_side import Tasks

    dim = Tasks.of(tasks, None).input_dim
    if dim is None:
        raise InvalidInput(
            "the model takes any dimension, so a prior does not know its own; use "
            "offaxis.recommend(model, None, prior=offaxis.wide_prior(dim, …)) in Python"
        )
    return read_prior(text, dim)
