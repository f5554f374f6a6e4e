"""The picture in docs/module-map.md: a matrix of imports between packages, as SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

CELL = 18
LEFT, TOP, RIGHT = 188, 20, 64
HUES = (250, 200, 165, 130, 90, 60, 35, 10, 340, 300)
"""One hue per group; labels distinguish the groups as well."""

STYLE = """
text { font: 11.5px system-ui, 'Segoe UI', sans-serif; fill: #1c2230; }
.group { font-weight: 600; }
.note { fill: #5a6375; }
.card { fill: #fbfbfd; stroke: #d8dce6; }
.band { fill-opacity: .07; }
.line { stroke: #8a93a8; stroke-opacity: .25; }
.package { fill-opacity: .9; }
@media (prefers-color-scheme: dark) {
  text { fill: #e4e8f1; }
  .note { fill: #a3adc2; }
  .card { fill: #1b1f2a; stroke: #353c4d; }
  .band { fill-opacity: .13; }
}
"""


def _colour(hue: int) -> str:
    return f"hsl({hue} 55% 52%)"


def _text(x: float, y: float, words: str, kind: str, more: str = "") -> str:
    return f'<text class="{kind}" x="{x:g}" y="{y:g}"{more}>{escape(words)}</text>'


def _rect(x: float, y: float, width: float, height: float, rest: str) -> str:
    return f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" {rest}/>'


def picture(
    groups: Mapping[str, Sequence[str]],
    imports: Mapping[tuple[str, str], int],
) -> str:
    """Return the matrix: packages in order, and a mark where a row imports a column."""
    packages = [package for group in groups.values() for package in group]
    hue = {package: HUES[at] for at, group in enumerate(groups.values()) for package in group}
    size = len(packages) * CELL
    width, height = LEFT + size + RIGHT, TOP + size + 20
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        f'width="{width}" height="{height}">',
        "<title>Which package imports which</title>",
        f"<style>{STYLE}</style>",
        _rect(0.5, 0.5, width - 1, height - 1, 'rx="8" class="card"'),
    ]
    parts += _bands(groups, hue)
    for row, package in enumerate(packages):
        y = TOP + row * CELL
        end = LEFT + row * CELL
        # Guide lines to the left of the package's cell and below it.
        parts.append(
            f'<path class="line" d="M{LEFT} {y + CELL / 2:g}H{end}M{end + CELL / 2:g} {y + CELL}'
            f'V{TOP + size}"/>'
        )
        last = row
        for column, other in enumerate(packages):
            if count := imports.get((package, other)):
                last = max(last, column)
                parts.append(_mark(LEFT + column * CELL, y, count, hue[other], package, other))
        parts.append(_name(end, LEFT + last * CELL, y, package, hue[package]))
    parts += _legend(LEFT + size * 0.50, TOP + 20)
    return "\n".join([*parts, "</svg>", ""])


def _bands(groups: Mapping[str, Sequence[str]], hue: Mapping[str, int]) -> list[str]:
    parts, row = [], 0
    for group, packages in groups.items():
        y, tall = TOP + row * CELL, len(packages) * CELL
        wide = LEFT + (row + len(packages)) * CELL - 8
        colour = _colour(hue[packages[0]])
        parts.append(_rect(8, y + 1, wide, tall - 2, f'rx="4" class="band" fill="{colour}"'))
        parts.append(_rect(8, y + 1, 4, tall - 2, f'rx="2" fill="{colour}"'))
        parts.append(_text(20, y + tall / 2 + 4, group, "group"))
        row += len(packages)
    return parts


def _mark(x: float, y: float, count: int, hue: int, package: str, other: str) -> str:
    """Draw a mark in one of three sizes: few, some or many imports."""
    side = 6 if count <= 3 else 10 if count <= 12 else 14
    gap = (CELL - side) / 2
    rest = f'rx="2" fill="{_colour(hue)}"'
    square = _rect(x + gap, y + gap, side, side, rest)
    return square.replace("/>", f"><title>{package} imports {other}</title></rect>")


def _name(x: float, last: float, y: float, package: str, hue: int) -> str:
    box = _rect(x + 1, y + 1, CELL - 2, CELL - 2, f'rx="3" class="package" fill="{_colour(hue)}"')
    return box + _text(last + CELL + 5, y + CELL / 2 + 4, package, "name")


def _legend(x: float, y: float) -> list[str]:
    words = (
        "Each row is a package; its marks show what it imports.",
        "One mark is right of the diagonal:",
        "reading a file returns a release.",
    )
    return [_text(x, y + 17 * at, line, "note") for at, line in enumerate(words)]
