"""The figure of a study of means: error against the number of people, a panel a budget."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from offaxis.reporting.study.figures import Panel, Series
from offaxis.studies.compare import Line
from offaxis.studies.means import SPHERE, UNBIASED
from offaxis.studies.mechanisms import PUBLIC_MEAN
from offaxis.studies.study import Study

_LOOKS: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "Laplace": ("Laplace", {"colour": "plain"}),
    "piecewise": ("piecewise", {"colour": "plain", "strength": 0.55}),
    "PrivUnit2": ("PrivUnit2", {"colour": "reshaped"}),
    "PrivUnit2, 10 %": ("PrivUnit2, tight ball", {"colour": "reshaped", "strength": 0.55}),
    "codebook": ("codebook", {"colour": "ink"}),
    PUBLIC_MEAN: ("nobody asked", {"colour": "ink", "dashed": True}),
    UNBIASED: ("unbiased: the limit", {"colour": "muted", "dashed": True}),
    SPHERE: ("best on a sphere", {"colour": "muted", "dashed": True, "strength": 0.55}),
}
"""The rows that are drawn, and how; the others lie close to one of them."""


def people(study: Study, lines: Sequence[Line]) -> tuple[list[Panel], int]:
    """Return a panel a budget, with both axes logarithmic."""
    found: dict[float, dict[str, list[Line]]] = {}
    for line in lines:
        rows = found.setdefault(line.outcome.epsilon, {})
        rows.setdefault(line.outcome.row.label, []).append(line)
    made = []
    for epsilon, rows in found.items():
        series = [
            Series(
                name,
                [float(line.outcome.row.level) for line in rows[label]],
                [line.outcome.mean for line in rows[label]],
                **look,
            )
            for label, (name, look) in _LOOKS.items()
            if label in rows
        ]
        made.append(
            Panel(
                f"ε = {epsilon:g}",
                series,
                "people",
                "squared error, share of the variance",
                logarithmic=True,
                logarithmic_x=True,
                xticks=series[0].x,
            )
        )
    return made, 2
