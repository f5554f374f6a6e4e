"""``offaxis learn``: plan a model, learn it from reports of pairs, check and evaluate it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import typer
from rich.table import Table

from offaxis.card import guarantee_facts
from offaxis.cli.answers import (
    ANSWERS,
    asked_facts,
    describe_asked,
    locate_answers,
    read_answers,
    read_asked,
)
from offaxis.cli.decode import read_labels
from offaxis.cli.inputs import (
    check_input,
    check_new_release,
    check_output,
    load_model,
    locate,
    read_array,
)
from offaxis.cli.options import (
    ARRAY,
    AsJson,
    Expect,
    Force,
    Group,
    ReleaseFile,
    UsageError,
    add,
    example,
    usage_errors,
)
from offaxis.cli.plan import AskedText, NumberRange, Public, Statement, UnitName, plan
from offaxis.cli.reports import SOURCES, number_of_reports, opened_reports, report_files
from offaxis.cli.terminal import (
    buffered_console,
    field_table,
    plain_table,
    pluralize,
    print_json,
)
from offaxis.encoding.pairs import Asked, Classes, Number
from offaxis.errors import InvalidInput
from offaxis.files import replacing
from offaxis.geometry import Layers, TaskModel
from offaxis.geometry.models import answer_names
from offaxis.learning import ReportClassifier, ReportRegressor, accuracy, fit_check
from offaxis.learning import learn as learn_from
from offaxis.privacy.guarantee import exact_epsilon
from offaxis.release import Release
from offaxis.vectors import as_batch

LEVEL: Final = 0.95
_SHOWN: Final = 24
"""The most coefficients that are printed."""

_NO_EVIDENCE: Final = "none: the reports do not show that there is anything to learn"
_UNKNOWN: Final = (
    "unknown: pass --public for an estimate under assumptions, or ask other people with "
    "offaxis learn check"
)
_METHODS: Final[dict[str, Any]] = {"least-squares": "least squares", "logistic": "logistic"}

learn = typer.Typer(
    cls=Group,
    no_args_is_help=True,
    help="Plan, learn and check models from reports of vectors and private answers.",
)


# ---- ``offaxis learn fit``


@example(
    "offaxis learn fit pairs.release --reports pairs.reports --out learnt.safetensors",
    "offaxis learn fit pairs.release --reports days/ --public public.npy --out learnt.safetensors",
)
def fit(
    release: ReleaseFile,
    reports: Annotated[
        list[Path],
        typer.Option(metavar="FILE|FOLDER", help=SOURCES),
    ],
    out: Annotated[
        Path,
        typer.Option(metavar="MODEL", help="The weights file to write, .safetensors."),
    ],
    answer: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Which answer to predict, if people gave several."),
    ] = None,
    labels: Annotated[
        str | None,
        typer.Option(
            metavar="FILE[:COLUMN]",
            help="For a release without answers: one public label per report, in the order of "
            "the reports: .csv, .txt, .npy, .npz or .parquet.",
        ),
    ] = None,
    number: Annotated[
        tuple[float, float] | None,
        typer.Option(metavar="LOW HIGH", help="With --labels: they are numbers in this range."),
    ] = None,
    method: Annotated[
        Literal["least-squares", "logistic"] | None,
        typer.Option(
            help="How to learn from directions; least-squares by default. logistic needs --public."
        ),
    ] = None,
    public: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help=f"Public vectors, to tell how accurate a model of directions is: {ARRAY}.",
        ),
    ] = None,
    onnx: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write the model as an ONNX graph.")
    ] = None,
    expect: Expect = None,
    as_json: AsJson = False,
) -> None:
    """Learn a public model from reports.

    The model is a function of the reports, so it can be published and costs no further privacy. It
    is read by all commands that take a model, and by devices.
    """
    if method == "logistic" and public is None:
        raise UsageError("--method logistic needs --public")
    if number is not None and labels is None:
        raise UsageError("--number describes --labels; a release knows what it asked people")
    _check_weights(out)
    files = report_files(reports)
    others = [locate(public)[0]] if public else []
    others += [locate_answers(labels)] if labels else []
    check_output(out, release, *files, *others)
    if onnx is not None:
        check_output(onnx, release, out, *files, *others)
    loaded = Release.load(release, expect=expect)
    loaded.require_single_reports(
        "a model would count the reports of a person as those of several people; learn from a "
        "release of single reports"
    )
    vectors = None if public is None else read_array(public)
    values, kind = None, None
    if labels is not None:
        values, kind = _labels(labels, number, number_of_reports(files, loaded.report_size))
    with opened_reports(files, loaded.report_size) as source:
        model = learn_from(
            loaded,
            source,
            labels=values,
            answers=kind,
            answer=answer,
            method=None if method is None else _METHODS[method],
            public=vectors if method == "logistic" else None,
        )
    if not hasattr(model, "layers_"):
        raise InvalidInput(
            "the model has too many cells for a weights file: plan with fewer, or use "
            "offaxis.learn in Python"
        )
    if public is not None and (isinstance(model, ReportRegressor) or hasattr(model, "table_")):
        raise InvalidInput("--public is for classes learnt from directions: leave it out")
    graph = None if onnx is None else _graph_of(model)
    with replacing(out) as file:
        model.save(file.name)
    if onnx is not None and graph is not None:
        with replacing(onnx) as file:
            file.write(graph)
    facts = _model_facts(model, loaded, vectors)
    if as_json:
        print_json({"out": str(out), "onnx": onnx and str(onnx)} | facts)
        return
    _print_model(model, facts, out, onnx)


def _check_weights(out: Path) -> None:
    if out.suffix.lower() != ".safetensors":
        raise UsageError(f"--out must be a .safetensors file, got {out}")


def _labels(
    labels: str, number: tuple[float, float] | None, count: int
) -> tuple[list[Any], Number | None]:
    """Read one public label per report, and what the labels are if they are numbers."""
    if number is None:
        return list(read_labels(labels, count)), None
    with usage_errors():
        asked = Number(*number, name="label")
    return read_answers(labels, (asked,))["label"], asked


def _graph_of(model: ReportClassifier | ReportRegressor) -> bytes:
    from offaxis.integrations.onnx import model_to_onnx

    graph: bytes = model_to_onnx(model).SerializeToString()
    return graph


def _model_facts(
    model: ReportClassifier | ReportRegressor, release: Release, public: Any
) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "release": release.hash,
        "guarantee": guarantee_facts(release),
        "reports": model.report_count_,
        "evidence": bool(model.evidence_),
        "level": LEVEL,
    }
    if isinstance(model, ReportRegressor):
        low, high = model.interval(LEVEL)
        return facts | {
            "learnt": "a number",
            "explained_deviation": model.explained_deviation(),
            "coefficients": model.estimate_.tolist(),
            "standard_error": model.standard_error_.tolist(),
            "low": low.tolist(),
            "high": high.tolist(),
        }
    facts |= {"learnt": "classes", "classes": [str(name) for name in model.classes_]}
    if public is None and not hasattr(model, "table_"):
        return facts | {"accuracy": None, "accuracy_unknown": _UNKNOWN}
    try:
        expected = model.expected_accuracy(public, LEVEL)
    except InvalidInput as error:
        return facts | {"accuracy": None, "accuracy_unknown": str(error)}
    return facts | {
        "accuracy": expected.estimate,
        "low": expected.low,
        "high": expected.high,
        "assumed": expected.assumption,
    }


def _print_model(
    model: ReportClassifier | ReportRegressor, facts: dict[str, Any], out: Path, onnx: Path | None
) -> None:
    of = f"{len(facts['classes'])} classes" if "classes" in facts else "a number"
    count = pluralize(model.report_count_, "report")
    rows = [
        ("learnt", f"{of}, from {count} of {model.release.guarantee}"),
        ("evidence", "yes" if facts["evidence"] else _NO_EVIDENCE),
    ]
    if isinstance(model, ReportRegressor):
        rows.append(("explains", f"a deviation of {facts['explained_deviation']:.3g}"))
    elif facts["accuracy"] is None:
        rows.append(("accuracy", facts["accuracy_unknown"]))
    else:
        interval = f"{100 * LEVEL:.0f} % interval {facts['low']:.3f} to {facts['high']:.3f}"
        rows += [
            ("accuracy", f"{facts['accuracy']:.3f}, {interval}"),
            ("assumed", facts["assumed"]),
        ]
    rows.append(("wrote", " and ".join(str(path) for path in (out, onnx) if path)))
    rows.append(("next", f"offaxis learn check --model {out} …"))
    with buffered_console() as console:
        console.print(field_table(rows))
        if isinstance(model, ReportRegressor):
            console.print("\nCoefficients of the features, by least squares:\n")
            console.print(_coefficient_table(facts))


def _coefficient_table(facts: dict[str, Any]) -> Table:
    table = plain_table(3)
    for name in ("feature", "coefficient", "standard error", f"{100 * LEVEL:.0f} % interval"):
        table.add_column(name, justify="right", no_wrap=True)
    columns = [facts[name] for name in ("coefficients", "standard_error", "low", "high")]
    for index, (value, error, low, high) in enumerate(zip(*columns, strict=True)):
        if index == _SHOWN:
            table.add_row("…")
            break
        table.add_row(str(index), f"{value:.3g}", f"{error:.2g}", f"{low:.3g} to {high:.3g}")
    return table


# ---- ``offaxis learn check``


@example(
    "offaxis learn check --model learnt.safetensors --public public.npy --epsilon 1 --out "
    "check.release",
)
def check(
    model: Annotated[
        str,
        typer.Option(metavar="MODEL", help="The model to check, such as one of offaxis learn fit."),
    ],
    public: Public,
    epsilon: Annotated[
        str,
        typer.Option(metavar="NUMBER", help="Budget ε of one report, read exactly: 0.1 or 1/3."),
    ],
    out: Annotated[Path, typer.Option(metavar="RELEASE", help="The release file to write.")],
    answers: AskedText = None,
    number: NumberRange = None,
    within: Annotated[
        float | None,
        typer.Option(help="With --number: how far off a right prediction may be."),
    ] = None,
    unit: UnitName = "item",
    statement: Statement = "",
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Write a release that asks other people one bit: is this model right for you?

    Ask people whose reports the model was not learnt from. The model's own answers are asked for,
    unless --answers or --number say otherwise. `offaxis learn evaluate` reads the reports.
    """
    with usage_errors():
        exact_epsilon(epsilon)
    if (number is None) != (within is None):
        raise UsageError("--number and --within belong together")
    asked = None if answers is None and number is None else read_asked(answers, number)
    check_output(out, locate(public)[0], *([Path(model)] if Path(model).is_file() else []))
    check_new_release(out, force=force)
    release = fit_check(
        load_model(model),
        read_array(public),
        list(asked) if asked else None,
        epsilon=epsilon,
        within=within,
        unit=unit,
        statement=statement,
    )
    release.save(out)
    n, error = 1_000, _check_error(release)
    if as_json:
        print_json(
            {
                "out": str(out),
                "release": release.hash,
                "guarantee": guarantee_facts(release),
                "asked": asked_facts(release.asked),
                "people": n,
                "expected_standard_error": error / math.sqrt(n),
            }
        )
        return
    rows = [
        ("wrote", str(out)),
        ("guarantee", f"{release.guarantee}, per {release.guarantee.unit}"),
        *(("asked", describe_asked(part)) for part in release.asked),
        ("reported", "one bit: whether the model is right"),
        ("precision", f"±{error / math.sqrt(n):.3f} from {n:,} people; it falls with 1/√people"),
        ("next", f"offaxis privatize {out} --vectors … --answers … --out …"),
    ]
    with buffered_console() as console:
        console.print(field_table(rows))


def _check_error(release: Release) -> float:
    """Return the largest standard error of an accuracy from one report: 1/(2 tanh(ε/2))."""
    return 1 / (2 * math.tanh(float(release.guarantee.epsilon) / 2))


# ---- ``offaxis learn evaluate``


@example(
    "offaxis learn evaluate check.release --reports check.reports",
    "offaxis learn evaluate learnt.safetensors --vectors test.npy --answers test.csv",
)
def evaluate(
    source: Annotated[
        str,
        typer.Argument(
            metavar="RELEASE|MODEL",
            help="A release of offaxis learn check, for reports; or a model, for public vectors.",
        ),
    ],
    reports: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE|FOLDER", help="Reports of the release, as in offaxis learn fit."
        ),
    ] = None,
    vectors: Annotated[
        str | None,
        typer.Option(metavar="FILE", help=f"Public vectors to test the model on: {ARRAY}."),
    ] = None,
    answers: Annotated[
        str | None,
        typer.Option(metavar="FILE", help=f"Their public answers: {ANSWERS}."),
    ] = None,
    expect: Expect = None,
    as_json: AsJson = False,
) -> None:
    """Tell how often a model is right: from private bits of people, or on public vectors.

    The accuracy from reports is unbiased, with an interval that holds for any people. Public
    vectors are not protected.
    """
    if (reports is None) == (vectors is None) or (vectors is None) != (answers is None):
        raise UsageError(
            "use --reports with a release of offaxis learn check, or --vectors and --answers with "
            "a model"
        )
    if reports is not None:
        check_input(Path(source))
        loaded = Release.load(source, expect=expect)
        files = report_files(reports)
        with opened_reports(files, loaded.report_size) as opened:
            found = accuracy(loaded, opened)
        count = number_of_reports(files, loaded.report_size)
        low, high = found.interval(LEVEL)
        _print_evaluation(
            {
                "measure": "accuracy",
                "estimate": found.estimate,
                "standard_error": found.standard_error,
                "low": low,
                "high": high,
            },
            pluralize(count, "private bit"),
            as_json=as_json,
        )
        return
    if expect is not None:
        raise UsageError("--expect is for a release: leave it out with a model")
    assert vectors is not None
    assert answers is not None
    facts, count = _tested(load_model(source), vectors, answers)
    _print_evaluation(facts, pluralize(count, "public vector"), as_json=as_json)


def _tested(model: TaskModel, vectors: str, answers: str) -> tuple[dict[str, Any], int]:
    """Return the accuracy of a model, or R² of one with a single output, on public vectors."""
    layers = model if isinstance(model, Layers) else None
    batch, _ = as_batch(read_array(vectors), layers.input_dim if layers is not None else None)
    outputs = model.outputs(batch)
    names = answer_names(model)
    asked: Asked = Number(-1e20, 1e20)
    if outputs.shape[1] > 1:
        asked = Classes(list(names) if names else outputs.shape[1])
    expected = asked.codes_of(read_answers(answers, (asked,))[asked.name])
    if len(expected) != len(outputs):
        raise InvalidInput(f"there are {len(outputs)} vectors and {len(expected)} answers")
    count = len(outputs)
    if isinstance(asked, Number):
        missed = outputs[:, 0] - expected
        explained = 1 - float((missed**2).mean()) / max(float(expected.var()), 1e-300)
        rmse = math.sqrt(float((missed**2).mean()))
        return {"measure": "R²", "estimate": explained, "root_mean_square_error": rmse}, count
    share = float((outputs.argmax(axis=1) == expected).mean())
    low, high = _wilson(share, count)
    error = math.sqrt(share * (1 - share) / count)
    facts = {"measure": "accuracy", "estimate": share, "standard_error": error}
    return facts | {"low": low, "high": high}, count


def _wilson(share: float, count: int) -> tuple[float, float]:
    """Return the score interval of a share (Wilson 1927)."""
    z = 1.959963984540054
    middle = (share + z * z / (2 * count)) / (1 + z * z / count)
    half = z * math.sqrt(share * (1 - share) / count + (z / (2 * count)) ** 2) / (1 + z * z / count)
    return max(0.0, middle - half), min(1.0, middle + half)


def _print_evaluation(facts: dict[str, Any], source: str, *, as_json: bool) -> None:
    if as_json:
        print_json({"from": source, "level": LEVEL} | facts)
        return
    if "low" not in facts:
        rmse = facts["root_mean_square_error"]
        typer.echo(f"{facts['measure']} {facts['estimate']:.3f} on {source}")
        typer.echo(f"root mean square error: {rmse:.4g}")
        return
    typer.echo(
        f"{facts['measure']} {facts['estimate']:.3f} ± {facts['standard_error']:.3f} from {source}"
    )
    typer.echo(f"{100 * LEVEL:.0f} % interval: {facts['low']:.3f} to {facts['high']:.3f}")


for _command in (plan, fit, check, evaluate):
    add(learn, _command)
