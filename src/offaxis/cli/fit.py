"""``offaxis fit``: fit a release to public data, or to a question that people answer."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import typer

from offaxis.card import report_bytes
from offaxis.cli.answers import describe_asked, read_asked
from offaxis.cli.engine import EngineName, Master, check_engine, locate_column, open_engine
from offaxis.cli.inputs import check_new_release, check_output, load_model, locate, read_array
from offaxis.cli.inspect import describe
from offaxis.cli.options import ARRAY, MODEL, AsJson, Force, UsageError, example, usage_errors
from offaxis.cli.terminal import (
    buffered_console,
    field_table,
    pluralize,
    print_json,
    spinner,
    step_bar,
)
from offaxis.encoding.pairs import Asked, Number
from offaxis.encoding.reshaping import Allocation, Jacobian, Optimal, Reshaping
from offaxis.errors import InvalidInput
from offaxis.fitting import fit as fit_release
from offaxis.geometry import Layers, TaskModel
from offaxis.learning import fit_answers, fit_pairs, fit_second_moments, principal
from offaxis.mechanisms import find_mechanism
from offaxis.privacy.guarantee import exact_delta, exact_epsilon
from offaxis.release import Release
from offaxis.vectors import Vectors

_PEOPLE: Final = 10_000
"""The number of people for which the precision of shares is printed."""
_RANK: Final = 9
"""Directions of a release for later questions, unless chosen or the vectors have fewer numbers."""


@example(
    "offaxis fit --model head.safetensors --public public.npy --epsilon 5 --out my.release",
    "offaxis fit --public public.npy --epsilon 1 --goal questions --out crowd.release",
    "offaxis fit --public public.npy --epsilon 5 --goal covariance --out moments.release",
    "offaxis fit --answers no,yes --epsilon 1 --out smokers.release",
    "offaxis fit --number 0 100 --bins 20 --epsilon 1 --out ages.release",
)
def fit(
    epsilon: Annotated[
        str,
        typer.Option(metavar="NUMBER", help="Budget ε of one report, read exactly: 0.1 or 1/3."),
    ],
    out: Annotated[Path, typer.Option(metavar="RELEASE", help="The release file to write.")],
    public: Annotated[
        str | None,
        typer.Option(metavar="FILE", help=f"Public vectors, never private ones: {ARRAY}."),
    ] = None,
    model: Annotated[str | None, MODEL] = None,
    goal: Annotated[
        Literal["answers", "vectors", "means", "covariance", "questions"] | None,
        typer.Option(
            help="What reports are for: the model's answer for each vector (answers, the "
            "default), the vector itself (vectors), a mean over people (means), their covariance "
            "and principal directions (covariance), or questions that come later (questions). It "
            "chooses the mechanism."
        ),
    ] = None,
    answers: Annotated[
        str | None,
        typer.Option(
            metavar="WHAT",
            help="Without --public: people report a private answer and no vector, one of classes "
            'such as "no,yes", or of a number of classes as 10, or the answers that a .json file '
            "describes (docs/cli.md).",
        ),
    ] = None,
    number: Annotated[
        tuple[float, float] | None,
        typer.Option(
            metavar="LOW HIGH",
            help="Instead of --answers: people report a number in this range; numbers outside "
            "count as its ends.",
        ),
    ] = None,
    bins: Annotated[
        int | None,
        typer.Option(min=2, help="With --number: how many equal bins the range is counted in."),
    ] = None,
    mechanism: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Instead of a goal. laplace, gaussian, spherical-laplace: release the vector; "
            "privunit2, privunitg, "
            "privunitg-sphere, projunit: its direction; privunit2-mean, privunitg-mean, "
            "projunit-mean: for means over people; duchi, piecewise, hybrid: a vector in a box; "
            "response, subset: the nearest codeword; class-response, scalar-response: the model's "
            "answer; coordinatewise-laplace, coordinatewise-gaussian, instance-optimal, plan, "
            "task-aware, task-aware-network: mechanisms from the literature. With --answers or "
            "--number: response, subset or hashing; by default the one of least error.",
        ),
    ] = None,
    delta: Annotated[
        str | None,
        typer.Option(metavar="NUMBER", help="δ, for Gaussian mechanisms only, such as 1e-5."),
    ] = None,
    unit: Annotated[
        Literal["item", "user"],
        typer.Option(
            help="What one report covers: one vector (item), or all data of a person (user)."
        ),
    ] = "item",
    reshaping: Annotated[
        Literal["jacobian", "optimal", "centre", "none"] | None,
        typer.Option(
            help="How to shape the noise: to the model (jacobian, the default); to the model and "
            "the spread of the public vectors (optimal); only subtract the public mean (centre); "
            "or not at all (none). The last two need no model.",
        ),
    ] = None,
    percentile: Annotated[
        float | None,
        typer.Option(
            min=1,
            max=100,
            help="Clip vectors beyond this percentile of the public vectors' lengths; 90 by "
            "default, and for --goal covariance the one of least expected error.",
        ),
    ] = None,
    lambda_max: Annotated[
        float | None,
        typer.Option(
            min=1,
            help="Largest stretch of a direction the model ignores (jacobian); 1000 by default.",
        ),
    ] = None,
    order: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="Order p of the volume constraint (jacobian); by default that of the "
            "mechanism's norm.",
        ),
    ] = None,
    allocation: Annotated[
        Literal["capped", "gap"] | None,
        typer.Option(
            help="How directions share the noise (jacobian): under a cap (the default), or by "
            "threshold."
        ),
    ] = None,
    rank: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="R",
            help="Number of directions in a report (optimal), by default all that the model uses; "
            "for --goal covariance and --goal questions 9.",
        ),
    ] = None,
    size: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Number of codewords (response, subset), of numbers per report "
            "(task-aware-network) or of projected coordinates (projunit).",
        ),
    ] = None,
    statement: Annotated[
        str,
        typer.Option(
            metavar="TEXT", help="Where the public data came from; stored in the release file."
        ),
    ] = "",
    engine: EngineName = None,
    master: Master = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Fit a release to public data, or to a question that people answer privately.

    A release depends on public data only, so the release file can be published. With --answers or
    --number people report no vector, and `offaxis ask` reads shares, histograms and medians. With
    --goal covariance it reads covariances and principal directions, and with --goal questions it
    answers what nobody thought of before.
    """
    check_engine(engine, master)
    if goal is not None and mechanism is not None:
        raise UsageError("--goal chooses the mechanism: use either --goal or --mechanism")
    with usage_errors():
        exact_epsilon(epsilon)
    of_a_model = {
        "model": model,
        "delta": delta,
        "reshaping": reshaping,
        "lambda-max": lambda_max,
        "order": order,
        "allocation": allocation,
        "size": size,
        "engine": engine,
    }
    common: Any = {"epsilon": epsilon, "unit": unit, "statement": statement}
    if answers is not None or number is not None or bins is not None:
        others = {"public": public, "goal": goal, "percentile": percentile, "rank": rank}
        _check_unused("--answers or --number", others | of_a_model)
        asked = _read_binned(answers, number, bins)
        check_output(out, *([Path(answers)] if answers and Path(answers).is_file() else []))
        check_new_release(out, force=force)
        release = _fit_answers(asked, common | {"mechanism": mechanism})
        release.save(out)
        _print_result(release, out, as_json)
        return
    if public is None:
        raise UsageError(
            "Missing option '--public': public vectors; or ask people for an answer alone with "
            "--answers or --number"
        )
    if goal in ("covariance", "questions"):
        unused = {"percentile": percentile} if goal == "questions" else {}
        _check_unused(f"--goal {goal}", of_a_model | unused)
        check_output(out, locate(public)[0])
        check_new_release(out, force=force)
        vectors = read_array(public)
        with spinner("measuring the public vectors"):
            if goal == "covariance":
                release = fit_second_moments(vectors, rank, percentile=percentile, **common)
            else:
                directions = min(_RANK, vectors.shape[-1]) if rank is None else rank
                release = fit_pairs(principal(vectors, directions), None, **common)
        release.save(out)
        _print_result(release, out, as_json)
        return
    shape: Any = _reshaping(reshaping, lambda_max, order, allocation, rank)
    with usage_errors():
        if delta is not None:
            exact_delta(delta)
        if mechanism is None:
            uses_model = model is not None or goal in (None, "answers")
            _check_no_settings(delta=delta, size=size, percentile=percentile, reshaping=shape)
        else:
            chosen = find_mechanism(mechanism)
            chosen.check_delta(delta)
            chosen.check_size(size)
            chosen.read_percentile(percentile)
            shape = chosen.read_reshaping(shape)
            uses_model = shape.uses_task or chosen.needs_task
            shape = None if chosen.reshaping == "none" else shape
    if model is None and uses_model:
        raise UsageError(
            "Missing option '--model': reports are fitted to it; without a model, use --goal "
            "vectors or --goal means, or --reshaping none and a mechanism that needs no task"
        )
    source = locate(public)[0] if engine is None else Path(locate_column(public)[0])
    check_output(out, source, *([Path(model)] if model else []))
    check_new_release(out, force=force)
    task = load_model(model) if model and uses_model else None
    settings: dict[str, Any] = {
        "goal": goal,
        "mechanism": mechanism,
        "delta": delta,
        "reshaping": shape,
        "percentile": percentile,
        "size": size,
        **common,
    }
    label = "measuring the public vectors"
    if engine is None:
        vectors = read_array(public)
        # Without a model there is nothing to measure, and fitting reports no steps.
        with step_bar(label, len(vectors) if task else None) as advance:
            release = fit_release(task, vectors, **settings, progress=advance)
        _warn_of_silent_units(task, vectors, shape)
    else:
        with open_engine(engine, master, label) as running:
            release = fit_release(task, running.public_vectors(public), **settings)
    release.save(out)
    _print_result(release, out, as_json)


def _check_unused(used: str, settings: dict[str, Any]) -> None:
    """Reject options that would have no effect."""
    for name, value in settings.items():
        if value is not None:
            raise UsageError(f"--{name} has no effect with {used}: leave it out")


def _read_binned(
    answers: str | None, number: tuple[float, float] | None, bins: int | None
) -> tuple[Asked, ...]:
    """Return what people are asked; numbers have bins."""
    if (number is None) != (bins is None):
        raise UsageError("--number and --bins belong together, such as --number 0 100 --bins 20")
    asked = read_asked(answers, number, bins or 0)
    if any(isinstance(part, Number) and not part.bins for part in asked):
        raise InvalidInput(f'{answers} describes a number without bins: add "bins": 20, say')
    return asked


def _fit_answers(asked: tuple[Asked, ...], settings: dict[str, Any]) -> Release:
    with usage_errors():
        return fit_answers(list(asked), **settings)


def _reshaping(
    name: str | None,
    lambda_max: float | None,
    order: float | None,
    allocation: Allocation | None,
    rank: int | None,
) -> str | Reshaping | None:
    """Return the reshaping that the options describe; reject those that would have no effect."""
    options = {"lambda_max": lambda_max, "order": order, "allocation": allocation}
    settings = {key: value for key, value in options.items() if value is not None}
    if settings and name not in (None, "jacobian"):
        option = f"--{next(iter(settings)).replace('_', '-')}"
        raise UsageError(f"{option} requires --reshaping jacobian, got --reshaping {name}")
    if rank is not None and name != "optimal":
        raise UsageError("--rank requires --reshaping optimal")
    if settings:
        return Jacobian(**settings)  # type: ignore[arg-type]
    return name if rank is None else Optimal(rank=rank)


def _check_no_settings(**settings: Any) -> None:
    """Reject settings of a mechanism if none is named."""
    for name, value in settings.items():
        if value is not None:
            raise UsageError(f"--{name} is a setting of a mechanism: name one with --mechanism")


def _warn_of_silent_units(task: TaskModel | None, vectors: Vectors, reshaping: Any) -> None:
    """Warn if reshaping aims noise at units that are inactive on all public vectors."""
    if isinstance(reshaping, Jacobian) and isinstance(task, Layers):
        silent = int(task.silent_units(vectors).sum())
        if silent:
            typer.echo(
                f"warning: {silent} of the model's {len(task.biases[0])} first-layer units are "
                f"silent on all public vectors; noise may activate them. Compare with the model "
                f"without them (Layers.without_silent_units)",
                err=True,
            )


def _print_result(release: Release, out: Path, as_json: bool) -> None:
    if as_json:
        print_json({"out": str(out), **describe(release)})
        return
    settings = release.provenance.settings
    rows = [
        ("wrote", str(out)),
        ("guarantee", f"{release.guarantee}, per {release.guarantee.unit}"),
        ("mechanism", _mechanism_name(release)),
    ]
    if release.asked:
        rows += [("asked", describe_asked(part)) for part in release.asked]
    else:
        rows.append(("vectors", f"of dimension {release.input_dim}"))
    size = report_bytes(release)
    rows.append(("reports", "none, simulations only" if size is None else f"{size:,} bytes each"))
    if release.asked:
        rows.append(("precision", _precision(release.randomizer)))
    else:
        rows.append(("fitted to", f"{release.provenance.public.count:,} public vectors"))
        if settings["mechanism"] == "second-moments":
            rank = pluralize(int(settings["rank"]), "direction")
            kept = f"{100 * float(settings['kept']):.0f} % of the public variance in them"
            rows += [("measures", rank), ("keeps", f"{kept}; clipping takes the rest")]
        elif settings["mechanism"] == "pairs":
            rank = pluralize(int(settings["rank"]), "principal coordinate")
            rows.append(("shows", f"the direction of {rank} of a vector"))
        else:
            rows.append(("utility", release.summary))
    rows += [("release", release.hash), ("next", f"offaxis inspect {out}")]
    with buffered_console() as console:
        console.print(field_table(rows))


def _mechanism_name(release: Release) -> str:
    name = str(release.provenance.settings["mechanism"])
    return f"{name}, by {release.randomizer.kind}" if release.asked else name


def _precision(randomizer: Any) -> str:
    """Say how far off a share is at most, from the probabilities that a report names a symbol."""
    own, other = randomizer.own_chance, randomizer.other_chance
    named = min(max(0.5, other), own)
    error = math.sqrt(named * (1 - named) / _PEOPLE) / (own - other)
    return f"a share of {_PEOPLE:,} people has a standard error of {100 * error:.2g} % at most"
