"""The demo's page: one HTML file with everything inside, readable without any script."""

from __future__ import annotations

import math
import platform
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy

from offaxis.data import DemoData
from offaxis.reporting.demo.figures import Figures, Releases
from offaxis.reporting.demo.households import LABELS, SHAPES
from offaxis.reporting.demo.result import METRIC, DemoResult, find
from offaxis.reporting.demo.theory_lines import bounds_hold, line
from offaxis.reporting.names import SHAPE_TITLES, TITLES
from offaxis.reporting.pages import template
from offaxis.reporting.recommendation.page import joined_cautions, recommendation_row
from offaxis.version import __version__

HEADLINE_RANDOMIZER = "privunit2"
TIE = 2.0
"""Standard errors within which a mean counts as equal to the best of its column."""
AGREE = 4.0
"""Standard errors beyond which real reports and their simulation count as different."""


@dataclass(frozen=True)
class Cell:
    """One number of the table."""

    mean: str
    std: str
    best: bool


@dataclass(frozen=True)
class Group:
    """One randomizer of the table: a plain row, a reshaped row, and what was gained."""

    title: str
    pure: bool
    lines: list[tuple[str, str, list[Cell]]]
    gains: list[str]


def percent(value: float, digits: int = 1) -> str:
    """Write a share as a percentage, for example ``46.7 %`` with a thin no-break space."""
    return f"{100 * value:.{digits}f}\N{NARROW NO-BREAK SPACE}%"


def points(value: float) -> str:
    """Write a difference of shares in percentage points, signed."""
    return f"{100 * value:+.1f}".replace("-", "\N{MINUS SIGN}")


def table_groups(result: DemoResult, releases: Releases) -> list[Group]:
    """Return the table's content; means no worse than the best of their column are marked."""
    means = {
        (row.randomizer, row.reshaping, row.epsilon): row.evaluation.mean(METRIC)
        for row in result.rows
    }
    best = {
        epsilon: max(mean for (_, _, e), mean in means.items() if e == epsilon)
        for epsilon in result.epsilons
    }
    groups = []
    for name in result.randomizers:
        lines = []
        for shape, title in SHAPE_TITLES.items():
            cells = []
            for epsilon in result.epsilons:
                cell = result.cell(name, shape, epsilon)
                mean, std = cell.mean(METRIC), cell.std(METRIC)
                error = std / math.sqrt(result.seeds)
                near_best = mean >= best[epsilon] - TIE * error
                cells.append(Cell(f"{100 * mean:.1f}", f"{100 * std:.1f}", near_best))
            lines.append((shape, title, cells))
        gains = [
            points(means[name, "jacobian", epsilon] - means[name, "none", epsilon])
            for epsilon in result.epsilons
        ]
        groups.append(Group(TITLES[name], releases[name, "none"].guarantee.pure, lines, gains))
    return groups


def _headline(result: DemoResult, epsilon: float) -> dict[str, Any]:
    plain = result.cell(HEADLINE_RANDOMIZER, "none", epsilon).mean(METRIC)
    reshaped = result.cell(HEADLINE_RANDOMIZER, "jacobian", epsilon).mean(METRIC)
    return {
        "title": TITLES[HEADLINE_RANDOMIZER],
        "epsilon": epsilon,
        "plain": plain,
        "centred": find(result.centred, HEADLINE_RANDOMIZER, "centre", epsilon).mean(METRIC),
        "reshaped": reshaped,
        "published": find(result.published, HEADLINE_RANDOMIZER, "jacobian", epsilon).mean(METRIC),
    }


def _checks(result: DemoResult) -> dict[str, Any]:
    lines = [
        {
            "title": TITLES[check.randomizer],
            "shape": SHAPE_TITLES[check.reshaping],
            "repetitions": len(check.exact.runs[METRIC]),
            "simulated": (check.simulated.mean(METRIC), check.error(check.simulated)),
            "exact": (check.exact.mean(METRIC), check.error(check.exact)),
            "gap": f"{check.gap:+.1f}".replace("-", "\N{MINUS SIGN}"),
        }
        for check in result.exact
    ]
    largest = max(abs(check.gap) for check in result.exact)
    return {"lines": lines, "largest": largest, "agree": largest <= AGREE}


def _theory(result: DemoResult) -> dict[str, Any]:
    found = result.theory
    return {
        "title": TITLES[found.randomizer],
        "lines": [line(row) for row in found.rows],
        "hold": bounds_hold(found.rows),
    }


def _households(result: DemoResult) -> dict[str, Any]:
    found = result.households
    lines = [
        (
            TITLES[name],
            shape,
            SHAPE_TITLES[shape],
            [f"{e:.3f}" if e < 1 else f"{e:.3g}" for e in found.means(name, shape)],
        )
        for name in LABELS
        for shape in SHAPES
    ]
    return {
        "lines": lines,
        "limits": [f"{found.lines[epsilon]:.3f}" for epsilon in found.epsilons],
        "epsilons": found.epsilons,
        "clean": found.clean,
        "constant": found.constant,
        "reports": found.reports,
        "first": [found.mean("laplace", shape, found.epsilons[0]) for shape in SHAPES],
    }


def _promises(releases: Releases) -> list[dict[str, Any]]:
    return [
        {
            "title": TITLES[name],
            "guarantee": str(release.guarantee),
            "pure": release.guarantee.pure,
            "report_size": release.report_size,
        }
        for (name, shape), release in releases.items()
        if shape == "jacobian"
    ]


def render(
    result: DemoResult,
    data: DemoData,
    releases: Releases,
    figures: Figures,
    *,
    headline: float,
    elapsed: float,
) -> str:
    """Return the page as text; it refers to nothing outside itself."""
    import matplotlib as mpl

    versions = {
        "offaxis": __version__,
        "Python": platform.python_version(),
        "NumPy": np.__version__,
        "SciPy": scipy.__version__,
        "Matplotlib": mpl.__version__,
    }
    return template("demo.html.j2", percent=percent).render(
        result=result,
        data=data,
        figures=figures,
        headline=_headline(result, headline),
        groups=table_groups(result, releases),
        checks=_checks(result),
        theory=_theory(result),
        households=_households(result),
        recommended=[recommendation_row(each) for each in result.recommended],
        cautions=joined_cautions(result.recommended),
        promises=_promises(releases),
        release=result.release,
        titles=TITLES,
        versions=versions,
        elapsed=elapsed,
        agree=AGREE,
    )
