"""The page of an audit: attacks, their power, and findings, in one HTML file.

The page refers to nothing outside itself and runs no script.
"""

from __future__ import annotations

import math
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import numpy as np

from offaxis.auditing.result import CAVEAT, AuditResult, Finding
from offaxis.files import replacing
from offaxis.html.pages import (
    CARD,
    INK,
    MUTED,
    PLAIN,
    RESHAPED,
    SAME,
    SUPERSCRIPTS,
    TITLES,
    canvas,
    inline,
    require_report_extra,
    template,
)
from offaxis.privacy.guarantee import decimal

_LEAST_SHARE: Final = 1e-7
"""Smallest share on the axes of the curve."""

_MAIN: Final = ("worst-pair", "main-")
"""How the names of the tests begin whose curve is drawn, of a release and of a function."""

_MANY: Final = 0.05
"""A curve that begins with at least this share of reports begins with equal scores."""


def write_page(result: AuditResult, path: Path) -> None:
    """Write the page of an audit; the file is replaced atomically."""
    page = render(result)
    with replacing(path) as file:
        file.write(page.encode())


def render(result: AuditResult) -> str:
    """Return the page as text."""
    require_report_extra()
    groups = {
        name: list(part) for name, part in groupby(result.findings, key=lambda part: part.group)
    }
    # For a function, the curve is that of the first statistic on the main pair.
    main = next((f for f in result.findings if f.test.startswith(_MAIN) and f.count), None)
    promised = decimal(result.guarantee.epsilon)
    return template("audit.html.j2", count=lambda number: f"{number:,}").render(
        result=result,
        promised=promised,
        promise=result.promise or f"ε = {promised}",
        title=result.target or TITLES.get(str(result.randomizer), result.randomizer),
        name=result.target or str(result.release)[:16],
        groups=groups,
        main=main,
        curve=curve_figure(result, main) if main is not None and result.curve else None,
        bounds=bounds_figure(result),
        noise=max(
            (f for f in result.findings if f.shift is not None),
            key=lambda f: f.shift or 0.0,
            default=None,
        ),
        caveat=CAVEAT,
        runs=round(1 / result.false_alarm),
    )


def curve_figure(result: AuditResult, main: Finding) -> str:
    """Draw the shares of reports of both vectors in an event, and what the guarantee allows."""
    epsilon, delta = float(result.guarantee.epsilon), float(result.guarantee.delta)
    # A share of a handful of reports is too uncertain to draw.
    enough = max(_LEAST_SHARE, 5 / (main.count.other_trials if main.count else 1))
    points = np.array([p for p in result.curve if p[0] >= enough and p[1] > 0] or [(1.0, 1.0)])
    edge = max(_LEAST_SHARE, min(points[:, 0].min(), math.exp(-min(epsilon, 700.0))) / 8)
    if points[0, 1] > _MANY:
        # Events among equal scores can be thinned at random: a straight line to zero.
        points = np.concatenate([points[:1] * (edge / points[0, 0]), points])
    share = np.geomspace(edge, 1, 300)
    allowed = np.minimum(1.0, np.exp(np.minimum(epsilon + np.log(share), 0.0)) + delta)
    low = min(0.005, points[:, 1].min(), allowed.min())
    with canvas(5.2, 3.4) as (figure, axes):
        axes.fill_between(share, allowed, 2.0, color=SAME, linewidth=0)
        axes.plot(share, allowed, color=PLAIN, linewidth=1.6)
        axes.plot(share, share, color=MUTED, linewidth=0.9, linestyle=(0, (1, 2)))
        axes.plot(points[:, 0], points[:, 1], color=RESHAPED, linewidth=2.0)
        axes.set(xscale="log", yscale="log", xlim=(edge, 1), ylim=(low, 1.0))
        axes.set_xlabel("share of the second vector’s reports in the event")
        axes.set_ylabel("share of the first vector’s reports")
        axes.tick_params(length=0)
        axes.minorticks_off()
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(lambda value, _: _power_of_ten(value))
        label = (
            f"Shares of reports in an event, first against second vector, on logarithmic axes. "
            f"The measured curve stays below the line that ε = {epsilon:g} allows."
            if not result.violated
            else "Shares of reports in an event, first against second vector, and what is allowed."
        )
        return inline(figure, "curve", label)


def _power_of_ten(value: float) -> str:
    """Write 0.001 as 10⁻³: a long decimal would be cut when the figure joins the page."""
    power = round(math.log10(value))
    return "1" if power == 0 else "10" + str(power).translate(SUPERSCRIPTS)


def bounds_figure(result: AuditResult) -> str | None:
    """Draw every lower bound on ε, the largest that was possible, and the promised ε."""
    bounded = [finding for finding in result.findings if finding.epsilon is not None][::-1]
    if not bounded:
        return None
    promised = float(result.guarantee.epsilon)
    reach = 1.06 * max(result.resolution, *(f.epsilon or 0.0 for f in bounded), 0.1)
    reach = max(reach, min(1.12 * promised, 3 * reach))
    with canvas(9.2, 0.8 + 0.3 * len(bounded)) as (figure, axes):
        for row, finding in enumerate(bounded):
            colour = PLAIN if finding.verdict == "violation" else RESHAPED
            axes.barh(row, finding.resolution or 0.0, height=0.62, color=SAME, linewidth=0)
            axes.barh(row, finding.epsilon or 0.0, height=0.62, color=colour, linewidth=0)
            _value(axes, row, finding)
        if promised <= reach:
            axes.axvline(promised, color=INK, linewidth=1.4)
        axes.set(xlim=(0, reach), ylim=(-0.6, len(bounded) - 0.4), xlabel="ε")
        axes.set_yticks(range(len(bounded)), [finding.test for finding in bounded])
        axes.tick_params(length=0)
        axes.grid(visible=False, axis="y")
        axes.spines["left"].set_visible(False)
        shown = ", ".join(f"{f.test} {f.epsilon:.2f}" for f in bounded[::-1])
        return inline(figure, "bounds", f"Lower bounds on ε, promised ε = {promised:g}: {shown}.")


def _value(axes: Any, row: int, finding: Finding) -> None:
    """Write the bound into its bar, or next to it if the bar is short."""
    epsilon = finding.epsilon or 0.0
    inside = epsilon > 0.12 * axes.get_xlim()[1]
    axes.annotate(
        f"{epsilon:.2f}",
        (epsilon, row),
        xytext=(-4 if inside else 4, 0),
        textcoords="offset points",
        va="center",
        ha="right" if inside else "left",
        fontsize=8,
        color=CARD if inside else MUTED,
    )
