"""``offaxis recommend``: which release is best for a task, a budget and a goal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from offaxis.cli.examples import example
from offaxis.cli.options import ARRAY, AsJson, Force
from offaxis.cli.showing.terminal import print_json, screen
from offaxis.cli.usage import Misused, reading_options

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
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Try every admissible pure release on public vectors and recommend the best one."""
    for option, given, other, instead in (
        ("--epsilon", epsilon, "--wanted", wanted),
        ("--public", public, "--prior", prior),
    ):
        if given is None and instead is None:
            raise Misused(f"Missing option '{option}' or '{other}'")
        if given is not None and instead is not None:
            raise Misused(f"{option} and {other} exclude each other")
    budgets = [] if epsilon is None else _budgets(epsilon)
    if out is not None and len(budgets) > 1:
        raise Misused("--out writes the release of one budget; give --epsilon one number")
    from offaxis.cli.reading.arrays import read_array
    from offaxis.cli.showing.progress import moving
    from offaxis.errors import InvalidInput
    from offaxis.evaluation.recommend import recommend_range
    from offaxis.evaluation.smallest import smallest_epsilon

    _check_outputs(model, public, out, html, force=force)
    tasks = _tasks(model)
    asked: dict[str, Any] = {"goal": goal, "people": people, "seed": seed}
    asked["weights"] = _weights(weight, tasks) if weight else None
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
    model: list[str], public: str | None, out: Path | None, html: Path | None, *, force: bool
) -> None:
    """Refuse, before any work is done, what cannot be written."""
    from offaxis.cli.files import check_new_release, check_output
    from offaxis.cli.reading.arrays import locate

    sources = [Path(source.partition("=")[2] or source) for source in model]
    sources += [locate(public)[0]] if public else []
    for target in filter(None, (out, html)):
        check_output(target, *sources)
    if out is not None:
        check_new_release(out, force=force)
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
    from offaxis.privacy.guarantee import exact_epsilon

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
    from offaxis.cli.reading.models import load_model

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
    from offaxis.geometry.together import checked_weights

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
    from offaxis.errors import InvalidInput
    from offaxis.evaluation.priors import read_prior
    from offaxis.evaluation.public_side import Tasks

    dim = Tasks.of(tasks, None).input_dim
    if dim is None:
        raise InvalidInput(
            "the model takes any dimension, so a prior does not know its own; use "
            "offaxis.recommend(model, None, prior=offaxis.wide_prior(dim, …)) in Python"
        )
    with reading_options():
        return read_prior(text, dim)
