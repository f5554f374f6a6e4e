"""``offaxis fit``: fit a release to a public model and public vectors."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from offaxis.cli.engine import EngineName, Master, check_engine, locate_column, open_engine
from offaxis.cli.inputs import check_new_release, check_output, load_model, locate, read_array
from offaxis.cli.inspect import describe
from offaxis.cli.options import ARRAY, MODEL, AsJson, Force, UsageError, example, usage_errors
from offaxis.cli.terminal import buffered_console, field_table, print_json, step_bar
from offaxis.encoding.reshaping import Allocation, Jacobian, Optimal, Reshaping
from offaxis.fitting import fit as fit_release
from offaxis.geometry import Layers, TaskModel
from offaxis.mechanisms import find_mechanism
from offaxis.privacy.guarantee import exact_delta, exact_epsilon
from offaxis.release import Release
from offaxis.vectors import Vectors


@example("offaxis fit --model head.safetensors --public public.npy --epsilon 5 --out my.release")
def fit(
    public: Annotated[
        str, typer.Option(metavar="FILE", help=f"Public vectors, never private ones: {ARRAY}.")
    ],
    epsilon: Annotated[
        str,
        typer.Option(metavar="NUMBER", help="Budget ε of one report, read exactly: 0.1 or 1/3."),
    ],
    out: Annotated[Path, typer.Option(metavar="RELEASE", help="The release file to write.")],
    model: Annotated[str | None, MODEL] = None,
    goal: Annotated[
        Literal["answers", "vectors", "means"] | None,
        typer.Option(
            help="What reports are for: the model's answer for each vector (answers, the "
            "default), the vector itself (vectors), or a mean over people (means). It chooses the "
            "mechanism."
        ),
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
            "task-aware, task-aware-network: mechanisms from the literature.",
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
            "default.",
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
            help="Number of directions in a report (optimal); by default all that the model uses.",
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
    """Fit a release to a public model and public vectors.

    A release is fitted to public data only, so the release file can be published.
    """
    check_engine(engine, master)
    if goal is not None and mechanism is not None:
        raise UsageError("--goal chooses the mechanism: use either --goal or --mechanism")
    shape: Any = _reshaping(reshaping, lambda_max, order, allocation, rank)
    with usage_errors():
        exact_epsilon(epsilon)
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
        "epsilon": epsilon,
        "goal": goal,
        "mechanism": mechanism,
        "delta": delta,
        "unit": unit,
        "reshaping": shape,
        "percentile": percentile,
        "size": size,
        "statement": statement,
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
    rows = [
        ("wrote", str(out)),
        ("guarantee", f"{release.guarantee}, per {release.guarantee.unit}"),
        ("mechanism", str(release.provenance.settings["mechanism"])),
        ("vectors", f"of dimension {release.input_dim}"),
        ("reports", f"{release.report_size:,} bytes each"),
        ("fitted to", f"{release.provenance.public.count:,} public vectors"),
        ("utility", release.summary),
        ("release", release.hash),
        ("next", f"offaxis inspect {out}"),
    ]
    with buffered_console() as console:
        console.print(field_table(rows))
