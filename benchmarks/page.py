"""Write the figures of a run of ``python -m benchmarks`` into docs/benchmarks.md.

    python -m benchmarks --json > figures.json
    python -m benchmarks.page figures.json

Only the text between the marks of the page is replaced.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.harness import OURS, Growth, cost_text, line_text, number_text, ratio_text

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
    """Yield the lines of a run in Markdown."""
    conditions = ", ".join(f"{name} {value}" for name, value in facts["conditions"].items())
    yield f"Conditions: {conditions}; {facts['effort']} effort."
    for group, title in TITLES.items():
        yield f"\n### {title}\n"
        yield "| task | measured | offaxis is |"
        yield "|---|--:|--:|"
        for race in (race for race in facts["races"] if race["group"] == group):
            for entry in race["figures"]:
                ours = entry["who"] == OURS
                who = f"**{race['task']}**" if ours else f"… {entry['who']}"
                ratio = "" if ours else ratio_text(entry["times_faster"])
                yield f"| {who} | {number_text(entry['value'])} {race['unit']} | {ratio} |"
    yield "\n### Growth\n"
    yield "| task | with | from … to | measured | exponent | nearest line |"
    yield "|---|---|--:|--:|--:|---|"
    for entry in facts["growth"]:
        names = ("task", "variable", "unit", "sizes", "costs", "expected_at_most")
        growth = Growth(*(entry[name] for name in names))
        slope, error = growth.exponent()
        sizes = " … ".join(number_text(growth.sizes[i]) for i in (0, -1))
        costs = " … ".join(cost_text(growth.costs[i], growth.unit) for i in (0, -1))
        line = line_text(growth) if growth.expected == 1 else ""
        yield (
            f"| {growth.task} | {growth.variable} | {sizes} | {costs} | "
            f"{slope:.2f} ± {error:.2f} | {line} |"
        )


def main() -> None:
    """Replace the text between the marks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("figures", type=Path, help="the output of python -m benchmarks --json")
    facts = json.loads(parser.parse_args().figures.read_text())
    first, last = (re.escape(mark) for mark in MARKS)
    text = "\n".join(lines(facts))
    page, count = re.subn(
        f"({first}).*?({last})",
        lambda match: f"{match[1]}{text}\n{match[2]}",
        PAGE.read_text(),
        flags=re.S,
    )
    if count != 1:
        raise SystemExit(
            f"{PAGE} must contain the marks {MARKS[0].strip()} … {MARKS[1]} once, not {count} times"
        )
    PAGE.write_text(page)


if __name__ == "__main__":
    main()
