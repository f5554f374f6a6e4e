"""The privacy card: a release on one page, for people who have to decide whether to trust it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from offaxis.card import averages, spent
from offaxis.cli.showing.facts import direction_facts, stretch_facts
from offaxis.cli.showing.terminal import bare_table, fields, plain
from offaxis.formats.manifest import VERSION
from offaxis.privacy import wording
from offaxis.privacy.guarantee import decimal
from offaxis.privacy.numbers import kept

if TYPE_CHECKING:
    from offaxis.release import Release

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
