"""Read the fenced blocks of a page, and compare printed output with the output it shows."""

from __future__ import annotations

import re
from dataclasses import dataclass

_FENCE = re.compile(r"(<!-- fragment -->\n)?^```([\w-]*)\n(.*?)^```$", re.M | re.S)
_NUMBER = re.compile(r"(\d[\d,]*(?:\.\d+)?)")


@dataclass(frozen=True)
class Block:
    """One fenced block: its language, its text, and the line on which the text begins.

    A fragment, marked by ``<!-- fragment -->`` above the fence, is neither run nor compared.
    """

    kind: str
    text: str
    line: int
    fragment: bool = False


def blocks(page: str) -> list[Block]:
    """Return the fenced blocks of a page in order."""
    return [
        Block(fence[2], fence[3], page.count("\n", 0, fence.start(3)) + 1, bool(fence[1]))
        for fence in _FENCE.finditer(page)
    ]


def as_script(page: str) -> str:
    """Return a shell script that follows the page like a reader.

    It runs shell blocks, and saves each Python block under the name in its first line,
    ``# name.py``.
    """
    parts = []
    for block in blocks(page):
        if block.kind == "sh":
            parts.append(block.text)
        elif block.kind == "python":
            name = re.match(r"# (\w+\.py)\n", block.text)
            assert name is not None, f"line {block.line}: the block has no file name"
            parts.append(f"cat > {name[1]} <<'END OF {name[1]}'\n{block.text}END OF {name[1]}\n")
    return "".join(parts)


def missing(shown: str, printed: str, tolerance: float = 0.1) -> list[str]:
    """Return the lines a page shows that were not printed, in this order.

    ``…`` matches any text. White space is normalized, and numbers match within a relative
    tolerance: fits may end slightly differently on another machine.
    """
    lines = [" ".join(line.split()) for line in printed.splitlines()]
    position, absent = 0, []
    for line in (" ".join(raw.split()) for raw in shown.splitlines()):
        rest = range(position, len(lines))
        match = next((n for n in rest if _matches(line, lines[n], tolerance)), None)
        if match is None:
            absent.append(line)
        else:
            position = match
    return absent


def _matches(shown: str, printed: str, tolerance: float) -> bool:
    parts = _NUMBER.split(shown)
    pattern = "".join(
        r"(\d[\d,]*(?:\.\d+)?)" if index % 2 else re.escape(part).replace("…", ".*")
        for index, part in enumerate(parts)
    )
    match = re.search(pattern, printed)
    if match is None:
        return False
    pairs = zip(parts[1::2], match.groups(), strict=True)
    return all(_is_near(_value(a), _value(b), tolerance) for a, b in pairs)


def _value(number: str) -> float:
    return float(number.replace(",", ""))


def _is_near(a: float, b: float, tolerance: float) -> bool:
    return abs(a - b) <= tolerance * max(abs(a), abs(b))
