"""Put the figures of a run of ``python -m benchmarks`` into docs/benchmarks.md.

    python -m benchmarks --json > figures.json
    python -m benchmarks.page figures.json

Only what lies between the marks of the page is replaced.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.harness import OURS, Growth, amount, figure, line, times

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"
MARKS = "<!-- python -m benchmarks -->\n", "<!-- end of python -m benchmarks -->"
TITLES = {
    "reports": "Exact reports",
    "simulate": "Simulated releases",
    "Gram": "The Gram of a model over public vectors",
    "fit": "Fitting a release",
    "decode": "Decoding reports",
    "sweep": "Evaluation sweeps",
}


def lines(facts: dict[str, Any]) -> Iterator[str]:
    """Write a run as Markdown."""
    where = ", ".join(f"{name} {value}" for name, value in facts["conditions"].items())
    yield f"Conditions: {where}; {facts['effort']} effort."
    for group, title in TITLES.items():
        yield f"\n### {title}\n"
        yield "| task | measured | offaxis is |"
        yield "|---|--:|--:|"
        for race in (race for race in facts["races"] if race["group"] == group):
            for entry in race["figures"]:
                ours = entry["who"] == OURS
                who = f"**{race['task']}**" if ours else f"… {entry['who']}"
                ratio = "" if ours else times(entry["times_faster"])
                yield f"| {who} | {figure(entry['value'])} {race['unit']} | {ratio} |"
    yield "\n### Growth\n"
    yield "| task | with | from … to | measured | exponent | nearest line |"
    yield "|---|---|--:|--:|--:|---|"
    for entry in facts["growth"]:
        names = ("task", "variable", "unit", "sizes", "costs", "expected_at_most")
        grown = Growth(*(entry[name] for name in names))
        slope, error = grown.exponent()
        sizes = " … ".join(figure(grown.sizes[i]) for i in (0, -1))
        costs = " … ".join(amount(grown.costs[i], grown.unit) for i in (0, -1))
        near = line(grown) if grown.expected == 1 else ""
        yield (
            f"| {grown.task} | {grown.variable} | {sizes} | {costs} | {slope:.2f} ± {error:.2f} | "
            f"{near} |"
        )


def main() -> None:
    """Replace what lies between the marks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("figures", type=Path, help="what python -m benchmarks --json printed")
    facts = json.loads(parser.parse_args().figures.read_text())
    first, last = (re.escape(mark) for mark in MARKS)
    text = "\n".join(lines(facts))
    page, found = re.subn(
        f"({first}).*?({last})",
        lambda match: f"{match[1]}{text}\n{match[2]}",
        PAGE.read_text(),
        flags=re.S,
    )
    if found != 1:
        raise SystemExit(f"{PAGE} must hold the marks of python -m benchmarks once, it has {found}")
    PAGE.write_text(page)


if __name__ == "__main__":
    main()
