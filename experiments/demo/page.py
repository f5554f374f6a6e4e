"""The demo's page: one HTML file with everything inside, readable without any script."""

from __future__ import annotations

import math
import platform
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import scipy

from experiments.data import DemoData
from experiments.demo.figures import HOUSEHOLD_ROWS, Figures, Releases
from experiments.demo.result import METRIC, DemoResult, find
from offaxis.html.pages import SHAPE_TITLES, TITLES, number, template
from offaxis.html.recommendation import joined_cautions, recommendation_row
from offaxis.theory.table import CONDITIONS, TheoryRow
from offaxis.version import __version__

HEADLINE_RANDOMIZER: Final = "privunit2"
TIE: Final = 2.0
"""Standard errors within which a mean counts as equal to the best of its column."""
AGREE: Final = 4.0
"""Standard errors beyond which real reports and their simulation count as different."""


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
    return template("demo.html.j2", "experiments", percent=percent).render(
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
        guarantees=_guarantees(releases),
        release=result.release,
        titles=TITLES,
        versions=versions,
        elapsed=elapsed,
        agree=AGREE,
    )


@dataclass(frozen=True)
class Cell:
    """One number of the table."""

    mean: str
    std: str
    best: bool


@dataclass(frozen=True)
class Group:
    """One randomizer of the table: a plain row, a reshaped row, and the gain."""

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
    """Return the table's content; means as good as the best of their column are marked."""
    means = {
        (row.mechanism, row.reshaping.name, row.epsilon): row.evaluation.mean(METRIC)
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
    theory = result.theory
    return {
        "title": TITLES[theory.randomizer],
        "lines": [in_words(row) for row in theory.rows],
        "hold": bounds_hold(theory.rows),
    }


def _households(result: DemoResult) -> dict[str, Any]:
    households = result.households
    lines = [
        (
            TITLES[name],
            shape,
            SHAPE_TITLES[shape],
            [f"{e:.3f}" if e < 1 else f"{e:#.3g}" for e in households.means(name, shape)],
        )
        for name in HOUSEHOLD_ROWS
        for shape in SHAPE_TITLES
    ]
    return {
        "lines": lines,
        "limits": [f"{households.lines[epsilon]:.3f}" for epsilon in households.epsilons],
        "epsilons": households.epsilons,
        "clean": households.clean,
        "constant": households.constant,
        "reports": households.reports,
        "first": [
            households.mean("laplace", shape, households.epsilons[0]) for shape in SHAPE_TITLES
        ],
    }


def _guarantees(releases: Releases) -> list[dict[str, Any]]:
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


# ---- The theory's table in words that need no mathematics

BOUND: Final = "at most"
"""The prefix of the conditions of quantities that are bounds."""
BROKEN: Final = 4.0
"""Standard errors by which a measured value must exceed its bound to count as a violation."""

_WORDS: Final = {
    "noise_risk": (
        "Error from noise",
        "How far noise moves the model’s outputs, as a mean square, if the model were linear "
        "around every vector.",
    ),
    "clipping_risk": ("Error from clipping", "The same for what clipping removes."),
    "first_order_risk": (
        "Error from both",
        "The sum. Measured: how far the outputs of the real, nonlinear model move.",
    ),
    "root_gap": (
        "Error of the linear approximation",
        "How far apart the roots of the two values above can be.",
    ),
    "root_gap_behind_first_layer": (
        "… behind the first layer",
        "The same, without the noise that the first layer ignores.",
    ),
    "root_gap_of_leaving_reports": (
        "… of reports that leave their cell",
        "The same, counting only reports for which a hidden unit of the model switches.",
    ),
    "risk_gap": ("… as mean squares", "How far apart the two values themselves can be."),
    "disagreement": ("Changed answers", "The share of reports whose answer changes."),
    "public_private_gap": (
        "Public instead of private vectors",
        "How much the error from noise can differ because the map was fitted to public vectors.",
    ),
    "stretch_l1": (
        "Stretch, absolute values (ℓ1)",
        "The largest factor by which encoding moves two vectors apart. A bound known before "
        "encoding does not hold after it, so the device clips every encoded vector.",
    ),
    "stretch_l2": ("Stretch, Euclidean (ℓ2)", "The same in the Euclidean norm."),
}
assert _WORDS.keys() == CONDITIONS.keys(), "every quantity is described"


@dataclass(frozen=True)
class TheoryLine:
    """One row of the page's table; ``note`` states when it holds, or why it does not."""

    title: str
    meaning: str
    theory: str
    measured: str
    note: str


def in_words(row: TheoryRow) -> TheoryLine:
    """Return one row in words."""
    title, meaning = _WORDS[row.quantity]
    share = row.quantity == "disagreement"
    bound = row.condition.startswith(BOUND)
    theory, measured = number(row.theory, share=share), number(row.measured, share=share)
    if row.theory is not None and bound:
        theory = f"≤ {theory}"
    if row.standard_error is not None:
        measured += f" ± {number(row.standard_error, share=share, digits=2)}"
    note = row.fails or row.condition.removeprefix(BOUND).removeprefix(";").strip()
    if share and row.theory is not None and row.theory >= 1:
        note += " (all reports: here the bound is trivial)"
    return TheoryLine(title, meaning, theory, measured, note)


def bounds_hold(rows: Iterable[TheoryRow]) -> bool:
    """Return whether no measured value exceeds its bound by more than chance explains."""
    return not any(
        row.condition.startswith(BOUND)
        and row.theory is not None
        and row.measured is not None
        and row.measured > row.theory + BROKEN * (row.standard_error or 0.0)
        for row in rows
    )
