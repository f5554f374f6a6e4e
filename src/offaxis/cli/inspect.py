"""``offaxis inspect``, the privacy card of a release, and ``offaxis export-onnx``."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from offaxis import randomizers
from offaxis.card import (
    averages,
    card_facts,
    guarantee_facts,
    loss_above_epsilon,
    report_bytes,
    sequence_promises,
    spent,
    subject,
)
from offaxis.cli.answers import asked_facts, describe_asked
from offaxis.cli.evaluate import (
    compute_theory,
    format_limit,
    limit_facts,
    print_limits,
    print_theory,
    theory_facts,
)
from offaxis.cli.inputs import check_output, load_model, read_array
from offaxis.cli.options import ARRAY, MODEL, AsJson, Expect, ReleaseFile, UsageError, example
from offaxis.cli.terminal import buffered_console, field_table, plain_table, print_json, printable
from offaxis.encoding.pairs import PairEncoder
from offaxis.encoding.questions import AnswersEncoder
from offaxis.errors import InvalidInput
from offaxis.evaluation.bounds import ReferenceValue, limits
from offaxis.files import replacing
from offaxis.formats.release_file import VERSION
from offaxis.geometry import Layers
from offaxis.privacy import wording
from offaxis.privacy.guarantee import decimal
from offaxis.privacy.wording import ANSWERS, kept
from offaxis.randomizers import parameters
from offaxis.randomizers.privunit import RankForm
from offaxis.release import Release
from offaxis.theory import amplification
from offaxis.theory.ceilings import agreement_ceiling
from offaxis.theory.table import TheoryRow
from offaxis.vectors import as_batch


@example(
    "offaxis inspect my.release",
    "offaxis inspect my.release --model head.safetensors --vectors test.npy",
)
def inspect(
    release: ReleaseFile,
    model: Annotated[str | None, MODEL] = None,
    vectors: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help=f"With --model: public vectors to evaluate the theory on: {ARRAY}.",
        ),
    ] = None,
    public: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="With --model and --vectors: the public vectors that the release was fitted to, "
            "for the public/private gap.",
        ),
    ] = None,
    seeds: Annotated[
        int,
        typer.Option(min=2, help="Simulated reports per vector, to compare with the theory."),
    ] = 20,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the simulation.")] = 0,
    expect: Expect = None,
    as_json: AsJson = False,
) -> None:
    """Show the privacy card of a release: its guarantee, assumptions and limits.

    With a model and vectors, also show what ε allows for the model's answers and what theory
    predicts for the release. This command does not protect the vectors: use public ones.
    """
    if (model is None) != (vectors is None):
        missing = "--model" if model is None else "--vectors"
        raise UsageError(f"theory needs both --model and --vectors; add {missing}")
    if public is not None and model is None:
        raise UsageError("--public is used with --model and --vectors only; add them")
    loaded = Release.load(release, expect=expect)
    allowed, rows = None, None
    if model is not None and vectors is not None:
        allowed, rows = _compute_limits_and_theory(
            loaded, model, vectors, public, draws=seeds, seed=seed
        )
    if not as_json:
        with buffered_console() as console:
            print_card(loaded, console)
            for name, limit in (allowed or {}).items():
                console.print(
                    f"\n{name} with this model on these vectors: {format_limit(name, limit)}"
                )
            print_limits(allowed or {}, console)
            if rows is not None:
                print_theory(rows, seeds, console)
        return
    card = {
        name: value
        for name, value in card_facts(loaded).items()
        if name in ("strength", "promise", "protected", "not_promised", "sequence")
    }
    facts = describe(loaded) | {"card": card}
    if allowed is not None and rows is not None:
        facts["limits"] = {name: limit_facts(limit) for name, limit in allowed.items()}
        facts["theory"] = theory_facts(rows)
    print_json(facts)


def _compute_limits_and_theory(
    release: Release, model: str, vectors: str, public: str | None, *, draws: int, seed: int
) -> tuple[dict[str, ReferenceValue], list[TheoryRow]]:
    """Return what ε allows for the model's answers, and what theory predicts for the release."""
    if isinstance(release.encoder, PairEncoder | AnswersEncoder):
        raise InvalidInput(
            "reports of this release hold people's own answers, and not those of a model: "
            "leave out --model and --vectors"
        )
    task = load_model(model)
    batch, _ = as_batch(read_array(vectors), release.input_dim)
    allowed = limits(task, batch, None, release.single_report_guarantee)
    return allowed, compute_theory(release, task, batch, public, draws=draws, seed=seed)


# ---- A release as facts, for ``--json``


def describe(release: Release) -> dict[str, Any]:
    """Describe a release."""
    provenance = release.provenance
    return {
        "release": release.hash,
        "format_version": VERSION,
        "guarantee": guarantee_facts(release),
        "spent": spent(release),
        "loss_above_epsilon": loss_above_epsilon(release),
        "allowed_if_equally_likely": _guess_probabilities(release),
        "report_bytes": report_bytes(release),
        "can_decode_mean": release.supports_mean,
        "summary": release.summary,
        "input_dim": release.input_dim,
        "asked": asked_facts(release.asked),
        "encoder": {"kind": release.encoder.kind, "output_dim": release.encoder.output_dim},
        "stretch": _stretch_facts(release),
        "randomizer": {
            "kind": release.randomizer.kind,
            "part_of_offaxis": randomizers.is_own(release.randomizer),
            "parameters": parameters(release.randomizer),
            "directions": _direction_facts(release),
        },
        "decoder": {"kind": release.decoder.kind, "output_dim": release.decoder.output_dim},
        "provenance": {
            "model": vars(provenance.model) if provenance.model else None,
            "public": vars(provenance.public),
            "settings": dict(provenance.settings),
            "statement": provenance.statement,
        },
    }


def _guess_probabilities(release: Release) -> dict[str, float] | None:
    """Return the highest probability of guessing one of k equally likely answers, by k.

    None unless the guarantee is pure. The file does not state how likely answers really are.
    """
    if not release.guarantee.pure:
        return None
    epsilon = release.guarantee.epsilon
    return {str(k): agreement_ceiling([1.0] * k, epsilon).probability for k in ANSWERS}


def _direction_facts(release: Release) -> dict[str, Any] | None:
    """Describe what a finite set of directions keeps of the ideal report, if reports use one."""
    randomizer = release.randomizer
    if not isinstance(randomizer, RankForm):
        return None
    return {
        "count": randomizer.directions,
        "near": randomizer.near,
        "kept_correlation": min(1.0, randomizer.mean / randomizer.ideal_mean),
    }


def _stretch_facts(release: Release) -> dict[str, float] | None:
    """Return how far encoding can move two vectors apart; None if the encoder is not affine."""
    try:
        stretch = amplification(release)
    except InvalidInput:
        return None
    return {"l1": stretch.l1, "l2": stretch.l2}


# ---- The privacy card: a release on one page, for people who decide whether to trust it

_COLOURS = {"strong": "green", "moderate": "cyan", "weak": "yellow", "very weak": "red"}
_INDENT = 2


def print_card(release: Release, console: Console) -> None:
    """Print the privacy card of a release."""
    guarantee, about = release.guarantee, subject(release)
    _print_title(release, console)
    _print_section(console, "What is promised", _promised(release))
    if promises := sequence_promises(release):
        _print_section(console, "What a sequence of reports promises", [field_table(promises)])
    if rows := wording.allowed(guarantee):
        verb = "allows" if about in ("report", "pair", "answers") else "allow"
        _print_section(console, f"What {wording.ABOUT[about]} {verb}", _allowed(rows, about))
    protected = wording.protected(guarantee, about)
    _print_section(console, "To whom", map(Text, protected))
    assumptions = map(_as_sentence, guarantee.assumptions)
    _print_section(console, "Under which assumptions", _bullets(assumptions))
    not_promised = wording.not_promised(guarantee, about)
    _print_section(console, "What is not promised", _bullets(not_promised))
    _print_section(console, "Reports", [field_table(_report_rows(release))])
    if stretch := _stretch_facts(release):
        _print_section(console, "Why vectors are clipped", _clipping(stretch))
    _print_section(console, "Provenance", [field_table(_provenance_rows(release))])
    identity = [("release", release.hash), ("format", f"version {VERSION}")]
    _print_section(console, "Identity", [field_table(identity)])
    console.print()
    note = "Percentages and factors are rounded against the promise, never in its favour."
    console.print(Padding(Text(note, style="dim italic"), (0, 0, 0, _INDENT)))


def _print_title(release: Release, console: Console) -> None:
    strength, _ = wording.strength(release.guarantee)
    console.print()
    title = Text("Privacy card", style="bold")
    title.append(f"   {release.guarantee}, per {card_facts(release)['per']}   ")
    title.append(f"{strength} protection".upper(), style=f"bold {_COLOURS[strength]}")
    console.print(Padding(title, (0, 0, 0, _INDENT)))


def _print_section(console: Console, heading: str, parts: Iterable[RenderableType]) -> None:
    console.print()
    console.print(Padding(Text(heading.upper(), style="bold"), (0, 0, 0, _INDENT)))
    for index, part in enumerate(parts):
        # A blank line separates paragraphs, but not the rows of a list.
        space = 1 if index and isinstance(part, Text) else 0
        console.print(Padding(part, (space, 0, 0, 2 * _INDENT)))


def _as_sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + "."


def _bullets(lines: Iterable[str]) -> list[RenderableType]:
    rows: list[RenderableType] = []
    for line in lines:
        row = Table.grid(padding=(0, 1))
        row.add_column(width=1)
        row.add_column()
        row.add_row(Text("•", style="dim"), Text(printable(line)))
        rows.append(row)
    return rows


def _promised(release: Release) -> list[RenderableType]:
    guarantee, about = release.guarantee, subject(release)
    strength, meaning = wording.strength(guarantee, about)
    promise = wording.promise(guarantee, about)
    parts: list[RenderableType] = [Text(line) for line in promise]
    if rows := wording.beliefs(release.guarantee):
        parts.append(
            Text(f"How sure anyone can be of a guess, before and after {wording.ABOUT[about]}:")
        )
        parts.append(_number_table(("before", "after, at least", "after, at most"), rows))
    verdict = Text(f"In plain words: {strength}. ", style=f"bold {_COLOURS[strength]}")
    verdict.append(meaning, style="not bold default")
    parts.append(verdict)
    return parts


def _allowed(rows: Iterable[tuple[str, ...]], about: wording.Subject) -> list[RenderableType]:
    what = {
        "report": "the vector, from any report of this ε",
        "pair": "the vector or its private answers, from any report of this ε",
        "answers": "a person, from any report of this ε",
        "sequence": "a person, from all reports together",
        "answer": "a vector, from all reports of one permanent answer",
    }[about]
    parts: list[RenderableType] = [
        Text(f"How often anyone can guess one of several equally likely answers about {what}:"),
        _number_table(("answers", "without a report", "with reports, at most"), rows),
    ]
    if about not in ("pair", "answers"):
        parts.append(
            Text(
                "A model's answers are seldom equally likely. With --model and --vectors, offaxis "
                "inspect computes the bound for the answers of that model."
            )
        )
    return parts


def _number_table(names: Iterable[str], rows: Iterable[tuple[str, ...]]) -> RenderableType:
    table = plain_table(4)
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    return Padding(table, (0, 0, 0, _INDENT))


def _report_rows(release: Release) -> list[tuple[str, str]]:
    encoder, asked = release.encoder, release.asked
    vector_dim = release.input_dim - len(asked)
    size = f"{vector_dim} numbers"
    if encoder.output_dim != vector_dim:
        joined = ", with the answers" if asked else ""
        symbols = (
            "one of " if isinstance(encoder, PairEncoder) and encoder.form != "moments" else ""
        )
        size += f"{joined}, encoded to {symbols}{encoder.output_dim}"
    alone = isinstance(encoder, AnswersEncoder)
    of = "answer" if alone else "vector and answer" if asked else "vector"
    rows = [
        ("one report", _describe_report(release, of)),
        ("one answer", f"one of {encoder.output_dim:,}") if alone else ("one vector", size),
        *(("asked", describe_asked(part)) for part in asked),
        ("randomizer", randomizers.shown(release.randomizer)),
        ("really spent", _describe_spent(release)),
    ]
    if loss := loss_above_epsilon(release):
        rows.append(("loss above ε", loss))
    if directions := _direction_facts(release):
        share = f"{kept(directions['kept_correlation'])} of the ideal correlation with its vector"
        number = f"{directions['count']:,} directions, {directions['near']:,} of them near"
        rows.append(("accuracy", f"keeps {share}: {number}"))
    rows.append(("averages over people", averages(release)))
    if "expected" in release.provenance.settings:
        rows.append(("utility", release.summary))
    return rows


def _describe_report(release: Release, of: str) -> str:
    size = report_bytes(release)
    return "none, simulations only" if size is None else f"{size:,} bytes, the same for every {of}"


def _describe_spent(release: Release) -> str:
    """Compare what the integer arithmetic really spends with the promise."""
    promised, actual = release.guarantee, spent(release)
    symbol, name = ("ε", "epsilon") if promised.pure else ("δ", "delta")
    total = decimal(promised.epsilon if promised.pure else promised.delta)
    value = actual[name]
    share = f"{symbol} = {value}"
    share += ", as promised" if value == total else f" of the {total} promised"
    return share if promised.pure else f"{share}, at ε = {actual['epsilon']}"


def _clipping(stretch: dict[str, float]) -> list[RenderableType]:
    rows = [
        ("stretch in ℓ1", f"{stretch['l1']:<8.4g}largest column sum of the map, ‖L⁻¹‖₁"),
        ("stretch in ℓ2", f"{stretch['l2']:<8.4g}largest singular value, ‖L⁻¹‖₂"),
    ]
    return [field_table(rows), Text(wording.why_clipped(**stretch))]


def _provenance_rows(release: Release) -> list[tuple[str, str]]:
    provenance = release.provenance
    public, model = provenance.public, provenance.model
    rows = [
        ("vectors", f"{public.count:,} public vectors of dimension {public.dim}"),
        ("sha256", public.sha256),
    ]
    if model:
        rows += [("model", f"{model.name} ({model.kind})"), ("sha256", model.sha256)]
    else:
        rows.append(("model", "none used"))
    settings = (
        f"{key} {value:g}" if isinstance(value, float) else f"{key} {value}"
        for key, value in provenance.settings.items()
    )
    rows.append(("settings", ", ".join(settings)))
    rows.append(("statement", provenance.statement or "none given"))
    return rows


# ---- ``offaxis export-onnx``


@example("offaxis export-onnx my.release --out encoder.onnx")
def export_onnx(
    release: ReleaseFile,
    out: Annotated[Path, typer.Option(metavar="FILE", help="The ONNX file to write.")],
    network: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A public network in front of the encoder, whose outputs are the vectors: a "
            "weights file written by Layers.save (.safetensors). Export torch networks from "
            "Python.",
        ),
    ] = None,
    dtype: Annotated[
        Literal["float32", "float64"], typer.Option(help="Number type of the graph.")
    ] = "float32",
    expect: Expect = None,
    as_json: AsJson = False,
) -> None:
    """Export the public encoder of a release as an ONNX graph, for devices without Python.

    The graph is not private: it adds no noise. Its output must pass the release's randomizer on
    the device before it leaves the device.
    """
    from offaxis.integrations.onnx import to_onnx

    check_output(out, release, *([network] if network else []))
    loaded = Release.load(release, expect=expect)
    model = to_onnx(loaded, Layers.load(network) if network else None, dtype=dtype)
    with replacing(out) as file:
        file.write(model.SerializeToString())
    source, target = model.graph.input[0].name, model.graph.output[0].name
    if as_json:
        facts = {"out": str(out), "release": loaded.hash, "input": source, "output": target}
        print_json(facts | {"dtype": dtype, "private": False})
        return
    typer.echo(f"{out}: from {source} to {target}, in {dtype}; release {loaded.hash[:16]}…")
    typer.echo("The graph protects nobody: randomize its output before it leaves the device.")
