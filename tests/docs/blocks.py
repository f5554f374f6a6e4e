"""Fenced blocks of a page, and how what a command printed is compared with what the page shows."""

from __future__ import annotations

import re
from dataclasses import dataclass

_FENCE = re.compile(r"(<!-- fragment -->\n)?^```([\w-]*)\n(.*?)^```$", re.M | re.S)
_NUMBER = re.compile(r"(\d[\d,]*(?:\.\d+)?)")


@dataclass(frozen=True)
class Block:
    """One fenced block: its language, its text, the line it begins at, and whether it is run.

    A fragment shows a form and is neither run nor compared; a comment ``<!-- fragment -->`` above
    the fence says so.
    """

    kind: str
    text: str
    line: int
    fragment: bool = False


def blocks(page: str) -> list[Block]:
    """Return the fenced blocks of a page in their order."""
    return [
        Block(fence[2], fence[3], page.count("\n", 0, fence.start(3)) + 1, bool(fence[1]))
        for fence in _FENCE.finditer(page)
    ]


def as_script(page: str) -> str:
    """Return a shell script that does what a reader of the page does.

    Shell blocks are run; a Python block whose first line is ``# name.py`` is saved under that name.
    """
    parts = []
    for block in blocks(page):
        if block.kind == "sh":
            parts.append(block.text)
        elif block.kind == "python":
            name = re.match(r"# (\w+\.py)\n", block.text)
            assert name is not None, f"line {block.line}: a block without a name cannot be saved"
            parts.append(f"cat > {name[1]} <<'END OF {name[1]}'\n{block.text}END OF {name[1]}\n")
    return "".join(parts)


def missing(shown: str, said: str, tolerance: float = 0.1) -> list[str]:
    """Return the lines a page shows that were not said, in this order.

    ``…`` stands for anything. Blanks count alike, and numbers within the tolerance: they come from
    fits that may end a little elsewhere on another machine.
    """
    lines = [" ".join(line.split()) for line in said.splitlines()]
    at, absent = 0, []
    for line in (" ".join(raw.split()) for raw in shown.splitlines()):
        here = next((n for n in range(at, len(lines)) if _like(line, lines[n], tolerance)), None)
        if here is None:
            absent.append(line)
        else:
            at = here
    return absent


def _like(shown: str, said: str, tolerance: float) -> bool:
    parts = _NUMBER.split(shown)
    pattern = "".join(
        r"(\d[\d,]*(?:\.\d+)?)" if at % 2 else re.escape(part).replace("…", ".*")
        for at, part in enumerate(parts)
    )
    found = re.search(pattern, said)
    if found is None:
        return False
    pairs = zip(parts[1::2], found.groups(), strict=True)
    return all(_near(_value(one), _value(other), tolerance) for one, other in pairs)


def _value(number: str) -> float:
    return float(number.replace(",", ""))


def _near(one: float, other: float, tolerance: float) -> bool:
    return abs(one - other) <= tolerance * max(abs(one), abs(other))
