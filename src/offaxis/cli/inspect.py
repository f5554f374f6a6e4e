"""A release as plain facts, the same for people's cards and for ``--json``."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from offaxis.card import averages, guarantee_facts, spent
from offaxis.cli.evaluate import (
    compute_rows,
    limit_facts,
    print_limits,
    print_theory,
    theory_facts,
    written_limit,
)
from offaxis.cli.inputs import check_output, load_model, load_release, read_array
from offaxis.cli.options import ARRAY, MODEL, AsJson, Expect, Misused, ReleaseFile, example
from offaxis.cli.terminal import bare_table, fields, plain, print_json, screen
from offaxis.errors import InvalidInput
from offaxis.evaluation.bounds import Yardstick, limits
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


def allowed(release: Release) -> dict[str, float] | None:
    """Return how often one of 2, 10, 100 equally likely answers is guessed at most, by number.

    None where the promise is not pure. The shares that answers really have are not in the file.
    """
    if not release.guarantee.pure:
        return None
    epsilon = release.guarantee.epsilon
    return {str(k): agreement_ceiling([1.0] * k, epsilon).probability for k in ANSWERS}


def direction_facts(release: Release) -> dict[str, Any] | None:
    """Describe what finitely many directions keep of the ideal report; None if it names none."""
    randomizer = release.randomizer
    if not isinstance(randomizer, RankForm):
        return None
    return {
        "count": randomizer.directions,
        "near": randomizer.near,
        "kept_correlation": min(1.0, randomizer.mean / randomizer.ideal_mean),
    }


def stretch_facts(release: Release) -> dict[str, float] | None:
    """Return how far encoding can pull two vectors apart; None if its map is not affine."""
    try:
        found = amplification(release)
    except InvalidInput:
        return None
    return {"l1": found.l1, "l2": found.l2}


def describe(release: Release) -> dict[str, Any]:
    """Describe a release."""
    origin = release.provenance
    return {
        "release": release.hash,
        "format_version": VERSION,
        "guarantee": guarantee_facts(release),
        "spent": spent(release),
        "allowed_if_equally_likely": allowed(release),
        "report_bytes": release.report_size,
        "can_decode_mean": release.supports_mean,
        "input_dim": release.input_dim,
        "encoder": {"kind": release.encoder.kind, "output_dim": release.encoder.output_dim},
        "stretch": stretch_facts(release),
        "randomizer": {
            "kind": release.randomizer.kind,
            "parameters": parameters(release.randomizer),
            "directions": direction_facts(release),
        },
        "decoder": {"kind": release.decoder.kind, "output_dim": release.decoder.output_dim},
        "provenance": {
            "model": vars(origin.model) if origin.model else None,
            "public": vars(origin.public),
            "settings": dict(origin.settings),
            "statement": origin.statement,
        },
    }


# ----------------------------------------------------------------------------
# The privacy card: a release on one page, for people who have to decide whether to trust it.

_COLOURS = {"strong": "green", "moderate": "cyan", "weak": "yellow", "very weak": "red"}
_INDENT = 2


def print_card(release: Release, console: Console) -> None:
    """Print the card of a release."""
    _title(release, console)
    _section(console, "What is promised", _promised(release))
    if rows := wording.allowed(release.guarantee):
        _section(console, "What one report allows", _allowed(rows))
    _section(console, "To whom", map(Text, wording.protected(release.guarantee)))
    _section(
        console, "Under which assumptions", _bullets(map(_sentence, release.guarantee.assumptions))
    )
    _section(console, "What is not promised", _bullets(wording.not_promised(release.guarantee)))
    _section(console, "Reports", [fields(_report_rows(release))])
    if found := stretch_facts(release):
        _section(console, "Why vectors are clipped", _clipping(found))
    _section(console, "Where it came from", [fields(_origin_rows(release))])
    identity = [("release", release.hash), ("format", f"version {VERSION}")]
    _section(console, "Identity", [fields(identity)])
    console.print()
    note = "Percentages and factors are rounded against the promise, never in its favour."
    console.print(Padding(Text(note, style="dim italic"), (0, 0, 0, _INDENT)))


def _title(release: Release, console: Console) -> None:
    word, _ = wording.strength(release.guarantee)
    console.print()
    title = Text("Privacy card", style="bold")
    title.append(f"   {release.guarantee}, per {release.guarantee.unit}   ")
    title.append(f"{word} protection".upper(), style=f"bold {_COLOURS[word]}")
    console.print(Padding(title, (0, 0, 0, _INDENT)))


def _section(console: Console, heading: str, parts: Iterable[RenderableType]) -> None:
    console.print()
    console.print(Padding(Text(heading.upper(), style="bold"), (0, 0, 0, _INDENT)))
    for index, part in enumerate(parts):
        # Paragraphs are set apart; the rows of a list are one part each and stay together.
        space = 1 if index and isinstance(part, Text) else 0
        console.print(Padding(part, (space, 0, 0, 2 * _INDENT)))


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + "."


def _bullets(lines: Iterable[str]) -> list[RenderableType]:
    rows: list[RenderableType] = []
    for line in lines:
        row = Table.grid(padding=(0, 1))
        row.add_column(width=1)
        row.add_column()
        row.add_row(Text("•", style="dim"), Text(plain(line)))
        rows.append(row)
    return rows


def _promised(release: Release) -> list[RenderableType]:
    word, meaning = wording.strength(release.guarantee)
    parts: list[RenderableType] = [Text(line) for line in wording.promise(release.guarantee)]
    if rows := wording.beliefs(release.guarantee):
        parts.append(Text("How sure somebody can be of a guess, before and after one report:"))
        parts.append(_numbers(("before", "after, at least", "after, at most"), rows))
    verdict = Text(f"In plain words: {word}. ", style=f"bold {_COLOURS[word]}")
    verdict.append(meaning, style="not bold default")
    parts.append(verdict)
    return parts


def _allowed(rows: Iterable[tuple[str, ...]]) -> list[RenderableType]:
    return [
        Text(
            "How often one of several equally likely answers about the vector can be guessed, by "
            "anybody, from any report of this ε:"
        ),
        _numbers(("answers", "without a report", "from one report, at most"), rows),
        Text(
            "A model's answers are seldom equally likely. With --model and --vectors, offaxis "
            "inspect says it for the shares they have there."
        ),
    ]


def _numbers(names: Iterable[str], rows: Iterable[tuple[str, ...]]) -> RenderableType:
    table = bare_table(4)
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    return Padding(table, (0, 0, 0, _INDENT))


def _report_rows(release: Release) -> list[tuple[str, str]]:
    made_of = f"{release.input_dim} numbers"
    if release.encoder.output_dim != release.input_dim:
        made_of += f", encoded to {release.encoder.output_dim}"
    rows = [
        ("one report", f"{release.report_size:,} bytes, the same for every vector"),
        ("a vector is", made_of),
        ("randomizer", release.randomizer.kind),
        ("really spent", _spent(release)),
    ]
    if directions := direction_facts(release):
        share = f"{kept(directions['kept_correlation'])} of the ideal correlation with its vector"
        number = f"{directions['count']:,} directions, {directions['near']:,} of them near"
        rows.append(("accuracy", f"keeps {share}: {number}"))
    rows.append(("averages over people", averages(release)))
    return rows


def _clipping(stretch: dict[str, float]) -> list[RenderableType]:
    rows = [
        ("stretch in ℓ1", f"{stretch['l1']:<8.4g}largest column sum of the map, ‖L⁻¹‖₁"),
        ("stretch in ℓ2", f"{stretch['l2']:<8.4g}largest singular value, ‖L⁻¹‖₂"),
    ]
    return [fields(rows), Text(wording.why_clipped(**stretch))]


def _spent(release: Release) -> str:
    """Say what the integers really spend of the promise."""
    promised, found = release.guarantee, spent(release)
    sign, name = ("ε", "epsilon") if promised.pure else ("δ", "delta")
    whole = decimal(promised.epsilon if promised.pure else promised.delta)
    part = found[name]
    share = f"{sign} = {part}" + (", as promised" if part == whole else f" of the {whole} promised")
    return share if promised.pure else f"{share}, at ε = {found['epsilon']}"


def _origin_rows(release: Release) -> list[tuple[str, str]]:
    origin = release.provenance
    rows = [
        ("vectors", f"{origin.public.count:,} public vectors of dimension {origin.public.dim}"),
        ("sha256", origin.public.sha256),
    ]
    if origin.model:
        rows += [
            ("model", f"{origin.model.name} ({origin.model.kind})"),
            ("sha256", origin.model.sha256),
        ]
    else:
        rows.append(("model", "none was used"))
    shown = (
        f"{key} {value:g}" if isinstance(value, float) else f"{key} {value}"
        for key, value in origin.settings.items()
    )
    rows.append(("settings", ", ".join(shown)))
    rows.append(("statement", origin.statement or "none was given"))
    return rows


# ----------------------------------------------------------------------------
# ``offaxis inspect``: the privacy card of a release, and what theory says about it.


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
            help=f"With --model: public vectors for which theory is worked out: {ARRAY}.",
        ),
    ] = None,
    public: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="With --model and --vectors: the public vectors of the release, to compare with.",
        ),
    ] = None,
    seeds: Annotated[
        int, typer.Option(min=2, help="Simulated reports a vector, beside the theory.")
    ] = 20,
    seed: Annotated[int, typer.Option(min=0, help="Of the simulation.")] = 0,
    expect: Expect = None,
    as_json: AsJson = False,
) -> None:
    """Show what a release promises, to whom, on which conditions, and what it does not.

    With a model and vectors also what ε allows for the model's answers, and what theory says about
    the release. Nothing here protects the vectors: use public ones.
    """
    _check_options(model, vectors, public)
    loaded = load_release(release, expect)
    allowed, rows = None, None
    if model is not None and vectors is not None:
        allowed, rows = _theory(loaded, model, vectors, public, draws=seeds, seed=seed)
    if not as_json:
        with screen() as console:
            print_card(loaded, console)
            for name, limit in (allowed or {}).items():
                console.print(
                    f"\n{name} with this model, of these vectors: {written_limit(name, limit)}"
                )
            print_limits(allowed or {}, console)
            if rows is not None:
                print_theory(rows, seeds, console)
        return
    words = {
        "strength": wording.strength(loaded.guarantee)[0],
        "promise": wording.promise(loaded.guarantee),
        "protected": wording.protected(loaded.guarantee),
        "not_promised": wording.not_promised(loaded.guarantee),
    }
    facts = describe(loaded) | {"card": words}
    if allowed is not None and rows is not None:
        facts["limits"] = {name: limit_facts(limit) for name, limit in allowed.items()}
        facts["theory"] = theory_facts(rows)
    print_json(facts)


def _check_options(model: str | None, vectors: str | None, public: str | None) -> None:
    if (model is None) != (vectors is None):
        missing = "--model" if model is None else "--vectors"
        raise Misused(f"theory needs --model and --vectors together; add {missing}")
    if public is not None and model is None:
        raise Misused("--public is read with --model and --vectors only; add them")


def _theory(
    release: Release, model: str, vectors: str, public: str | None, *, draws: int, seed: int
) -> tuple[dict[str, Yardstick], list[TheoryRow]]:
    """Return what ε allows for the model's answers, and what theory says of the release."""
    task = load_model(model)
    batch, _ = as_batch(read_array(vectors), release.input_dim)
    allowed = limits(task, batch, None, release.guarantee)
    return allowed, compute_rows(release, task, batch, public, draws=draws, seed=seed)


# ----------------------------------------------------------------------------
# ``offaxis export-onnx``: the public part of a release as a graph for devices.


@example("offaxis export-onnx my.release --out encoder.onnx")
def export_onnx(
    release: ReleaseFile,
    out: Annotated[Path, typer.Option(metavar="FILE", help="The ONNX file to write.")],
    network: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A public network in front, whose outputs are the vectors: a weights file written "
            "by Layers.save (.safetensors). Export torch networks from Python.",
        ),
    ] = None,
    dtype: Annotated[
        Literal["float32", "float64"], typer.Option(help="What the graph computes in.")
    ] = "float32",
    expect: Expect = None,
    as_json: AsJson = False,
) -> None:
    """Write the public encoder of a release as an ONNX graph, for devices without Python.

    The graph is not private: there is no noise in it. What it returns must pass the release's
    randomizer on the device before it leaves it.
    """
    from offaxis.integrations.onnx import to_onnx

    check_output(out, release, *([network] if network else []))
    loaded = load_release(release, expect)
    model = to_onnx(loaded, Layers.load(network) if network else None, dtype=dtype)
    with replacing(out) as file:
        file.write(model.SerializeToString())
    into, made = model.graph.input[0].name, model.graph.output[0].name
    if as_json:
        facts = {"out": str(out), "release": loaded.hash, "input": into, "output": made}
        print_json(facts | {"dtype": dtype, "private": False})
        return
    typer.echo(f"{out}: from {into} to {made}, in {dtype}; release {loaded.hash[:16]}…")
    typer.echo("The graph protects nobody: randomize what it returns before it leaves the device.")
