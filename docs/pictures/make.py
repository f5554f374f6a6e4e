"""Draw the figures of the documentation: ``python docs/pictures/make.py``.

The measurements are read from utility.csv. To repeat them first, which takes about a minute, run
``PYTHONPATH=. python docs/pictures/make.py --measure`` at the root of the repository.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import diagrams
import epsilon
import measured
import splits
import steps

PICTURES: dict[str, Callable[[], str]] = {
    "off-axis": measured.off_axis,
    "belief": epsilon.belief,
    "tradeoff": epsilon.tradeoff,
    "reports": epsilon.reports,
    "together": epsilon.together,
    "people": epsilon.people,
    "utility": measured.utility,
    "overview": diagrams.overview,
    "steps": steps.steps,
    "households-split": splits.households,
    "images-split": splits.images,
    "protocol": diagrams.protocol,
}


def main() -> None:
    """Write every picture next to this file."""
    if "--measure" in sys.argv:
        measured.write_table(measured.measure())
    for name, draw in PICTURES.items():
        Path(__file__).with_name(f"{name}.svg").write_text(draw(), encoding="utf-8")


if __name__ == "__main__":
    main()
