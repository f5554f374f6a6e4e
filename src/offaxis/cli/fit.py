"""``offaxis fit``: a release from a public model and public vectors."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from offaxis.cli.engine import EngineName, Master, check_engine, locate_column, working
from offaxis.cli.examples import example
from offaxis.cli.options import ARRAY, MODEL, AsJson, Force
from offaxis.cli.showing.terminal import fields, print_json, screen
from offaxis.cli.usage import Misused, reading_options

if TYPE_CHECKING:
    from offaxis.geometry import TaskModel
    from offaxis.release import Release
    from offaxis.vectors import Vectors


@example("offaxis fit --model head.safetensors --public public.npy --epsilon 5 --out my.release")
def fit(
    public: Annotated[
        str, typer.Option(metavar="FILE", help=f"Public vectors, never private ones: {ARRAY}.")
    ],
    epsilon: Annotated[
        str,
        typer.Option(metavar="NUMBER", help="Budget of one report, read exactly: 0.1 or 1/3."),
    ],
    out: Annotated[Path, typer.Option(metavar="RELEASE", help="The release file to write.")],
    model: Annotated[str | None, MODEL] = None,
    randomizer: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="laplace, gaussian, spherical-laplace: the vector; privunit2, privunitg, "
            "privunitg-sphere, projunit: its direction; privunit2-mean, privunitg-mean, "
            "projunit-mean: for means over people; duchi, piecewise, hybrid: a box; response, "
            "subset: the nearest of some codewords; class-response, scalar-response: the model's "
            "answer; coordinatewise-laplace, coordinatewise-gaussian, instance-optimal, plan, "
            "task-aware, task-aware-network: as in the literature. laplace is the default "
            "because it is pure, unbiased and gives means; for answers use offaxis recommend.",
        ),
    ] = "laplace",
    delta: Annotated[
        str | None, typer.Option(metavar="NUMBER", help="For the Gaussian ones only, such as 1e-5.")
    ] = None,
    unit: Annotated[
        Literal["item", "user"],
        typer.Option(help="What one report stands for: one vector, or all of a person's."),
    ] = "item",
    reshaping: Annotated[
        Literal["jacobian", "optimal", "centre", "none"],
        typer.Option(
            help="Shape the noise to the model; to the model and the public vectors' spread at "
            "once; only subtract the public mean; or plain noise. The last two need no model."
        ),
    ] = "jacobian",
    percentile: Annotated[
        float,
        typer.Option(
            min=1, max=100, help="Percentile of the public vectors' lengths kept unclipped."
        ),
    ] = 90.0,
    lambda_max: Annotated[
        float, typer.Option(min=1, help="Largest stretch of a direction the model ignores.")
    ] = 1000.0,
    gauge: Annotated[
        float | None,
        typer.Option(
            min=0, help="p of the volume constraint; by default the randomizer's own norm."
        ),
    ] = None,
    rank: Annotated[
        Literal["capped", "gap"],
        typer.Option(help="How directions share the noise: under a cap, or by threshold."),
    ] = "capped",
    active: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="R",
            help="How many directions a report tells of (optimal); all the model sees if not told.",
        ),
    ] = None,
    size: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Number of codewords (response, subset), of numbers a report carries "
            "(task-aware-network) or of projected coordinates (projunit).",
        ),
    ] = None,
    statement: Annotated[
        str,
        typer.Option(
            metavar="TEXT", help="Where the public data came from, in your words; kept in the file."
        ),
    ] = "",
    engine: EngineName = None,
    master: Master = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Fit a release to a public model and public vectors.

    Everything is learnt from public data. The release file can be published.
    """
    from offaxis.cli.files import check_new_release, check_output
    from offaxis.cli.reading.arrays import locate, read_array
    from offaxis.cli.reading.models import load_model
    from offaxis.cli.showing.progress import counting
    from offaxis.fitting import fit as fit_release

    check_engine(engine, master)
    looks_at_task = _looks_at_task(randomizer, epsilon, delta, reshaping, active)
    if model is None and looks_at_task:
        raise Misused(
            "Missing option '--model': the noise is shaped to it; use --reshaping none, and a "
            "randomizer that looks at no task, to go without one"
        )
    source = locate(public)[0] if engine is None else Path(locate_column(public)[0])
    check_output(out, source, *([Path(model)] if model else []))
    check_new_release(out, force=force)
    task = load_model(model) if model and looks_at_task else None
    settings: dict[str, Any] = {
        "epsilon": epsilon,
        "randomizer": randomizer,
        "delta": delta,
        "unit": unit,
        "reshaping": reshaping,
        "percentile": percentile,
        "lambda_max": lambda_max,
        "gauge": gauge,
        "rank": rank,
        "active": active,
        "size": size,
        "statement": statement,
    }
    label = "measuring the public vectors"
    if engine is None:
        vectors = read_array(public)
        # Without a model there is nothing to measure, and fitting does not count its steps.
        with counting(label, len(vectors) if task else None) as advance:
            release = fit_release(task, vectors, **settings, progress=advance)
        _warn(task, vectors, reshaping)
    else:
        with working(engine, master, label) as work:
            release = fit_release(task, work.public_vectors(public), **settings)
    release.save(out)
    _tell(release, out, randomizer, as_json)


def _looks_at_task(
    randomizer: str, epsilon: str, delta: str | None, reshaping: str, active: int | None
) -> bool:
    """Check what can be told without a file, and whether a model is needed."""
    from offaxis.privacy.guarantee import exact_delta, exact_epsilon
    from offaxis.recipes import recipe

    with reading_options():
        chosen = recipe(randomizer)
        exact_epsilon(epsilon)
        chosen.check_delta(delta, randomizer)
        if delta is not None:
            exact_delta(delta)
    if active is not None and (reshaping != "optimal" or chosen.order is None):
        raise Misused("--active goes with --reshaping optimal and a randomizer of numbers")
    return reshaping in ("jacobian", "optimal") or chosen.needs_task


def _warn(task: TaskModel | None, vectors: Vectors, reshaping: str) -> None:
    """Say so if reshaping aims its noise at units that no public vector turns on."""
    from offaxis.geometry import Layers

    if reshaping == "jacobian" and isinstance(task, Layers):
        silent = int(task.silent_units(vectors).sum())
        if silent:
            typer.echo(
                f"warning: {silent} of the model's {len(task.biases[0])} first-layer units are "
                f"silent on all public vectors; noise may wake them up. Compare with the model "
                f"without them (Layers.without_silent_units)",
                err=True,
            )


def _tell(release: Release, out: Path, randomizer: str, as_json: bool) -> None:
    from offaxis.cli.showing.facts import describe

    if as_json:
        print_json({"out": str(out), **describe(release)})
        return
    rows = [
        ("wrote", str(out)),
        ("guarantee", f"{release.guarantee}, per {release.guarantee.unit}"),
        ("randomizer", randomizer),
        ("vectors", f"of dimension {release.input_dim}"),
        ("reports", f"{release.report_size:,} bytes each"),
        ("fitted to", f"{release.provenance.public.count:,} public vectors"),
        ("release", release.hash),
        ("next", f"offaxis inspect {out}"),
    ]
    with screen() as console:
        console.print(fields(rows))
