"""What ε means, as pictures that follow from formulas alone."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from drawing import finish, panels, say

from offaxis.privacy.composition import Cost, by_loss_distribution
from offaxis.reporting.pages import INK, LINE_DASHES, MUTED, PLAIN, RESHAPED
from offaxis.theory import sphere_mean_error

BUDGETS = (0.5, 1, 2, 3, 5)
ALONG = {"rotation": 45, "ha": "center", "va": "center"}


def _strength(at: int, count: int) -> float:
    """Return how strongly the ``at``-th of some curves is drawn: the last one fully."""
    return 0.4 + 0.6 * at / (count - 1)


def _per_cent(axes: Any) -> None:
    """Write both axes in per cent; the origin is named once."""
    axes.xaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")
    axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %" if value else "")


def belief() -> str:
    """Draw how sure somebody can become of a guess, from how sure they were."""
    before = np.linspace(0, 1, 81)
    with panels(1, 4.4, 4.1) as (figure, (axes,)):
        axes.plot([0, 1], [0, 1], color=MUTED, linewidth=0.9, linestyle=(0, (1, 2)))
        for at, epsilon in enumerate(BUDGETS):
            strong = _strength(at, len(BUDGETS))
            for sign in (1, -1):
                factor = math.exp(sign * epsilon)
                after = before * factor / (1 - before + before * factor)
                axes.plot(before, after, color=RESHAPED, alpha=strong, linewidth=1.5)
            corner = 1 / (1 + math.exp(epsilon / 2))
            # Along the curve, which rises by one for one there.
            say(axes, f"ε = {epsilon:g}", (corner, 1 - corner), INK, shift=(-5, 5), **ALONG)
        say(axes, "no report", (0.5, 0.5), MUTED, shift=(5, -5), **ALONG)
        axes.set(xlabel="sure before the report", ylabel="sure after it, at most and at least")
        axes.set(xlim=(0, 1), ylim=(0, 1.02), aspect="equal")
        _per_cent(axes)
        label = (
            "How sure somebody is of a guess after one report, against how sure before, for "
            "ε = 0.5, 1, 2, 3, 5: each ε gives two curves, mirrored at the diagonal, which enclose "
            "what can happen. From one half, ε = 1 leads to 73 % at most, ε = 3 to 95 %."
        )
        return finish(figure, "belief", label)


def tradeoff() -> str:
    """Draw which pairs of mistakes an attacker can choose from, for several budgets."""
    with panels(1, 4.4, 4.1) as (figure, (axes,)):
        axes.plot([0, 1], [1, 0], color=MUTED, linewidth=0.9, linestyle=(0, (1, 2)))
        for at, epsilon in enumerate(BUDGETS[:-1]):
            e = math.exp(epsilon)
            alpha = np.array([0, 1 / (1 + e), 1])
            missed = np.maximum(np.maximum(1 - e * alpha, (1 - alpha) / e), 0)
            strong = _strength(at, len(BUDGETS) - 1)
            axes.plot(alpha, missed, color=RESHAPED, alpha=strong, linewidth=1.5)
            axes.fill_between(alpha, missed, 1 - alpha, color=RESHAPED, alpha=0.06, linewidth=0)
            corner = 1 / (1 + e)
            say(
                axes,
                f"ε = {epsilon:g}",
                (corner, corner),
                INK,
                ha="left",
                va="bottom",
                shift=(3, 2),
            )
        say(
            axes,
            "guessing",
            (0.5, 0.5),
            MUTED,
            rotation=-45,
            ha="center",
            va="bottom",
            shift=(5, 0),
        )
        axes.set(xlabel="errors: z′ taken for z", ylabel="errors: z taken for z′", aspect="equal")
        axes.set(xlim=(0, 1), ylim=(0, 1.02))
        _per_cent(axes)
        label = (
            "Two kinds of mistakes of somebody who tells from one report whether it came from z or "
            "z′. Below the curve of an ε nobody gets: at ε = 1 both mistakes are at least 26.9 % "
            "where they are equal, at ε = 3 at least 4.7 %."
        )
        return finish(figure, "tradeoff", label)


def reports() -> str:
    """Draw how the reports of two people are distributed who differ as much as they can."""
    with panels(3, 8.4, 2.5) as (figure, axes):
        for one, epsilon in zip(axes, (0.5, 2, 5), strict=True):
            scale = 2 / epsilon
            where = np.union1d(np.linspace(-9, 9, 61), np.linspace(-3, 3, 61))
            for centre, colour, dashes in ((-1, PLAIN, LINE_DASHES), (1, RESHAPED, "-")):
                law = np.exp(-np.abs(where - centre) / scale) / (2 * scale)
                one.plot(where, law, color=colour, linewidth=1.6, linestyle=dashes)
                one.fill_between(where, law, color=colour, alpha=0.12, linewidth=0)
            one.set_title(
                f"ε = {epsilon:g}: up to {math.exp(epsilon):.3g} times", fontsize=9.5, color=INK
            )
            one.set_yticks([])
            one.set(xlabel="report", xlim=(-9, 9), ylim=(0, None))
            one.spines["left"].set_visible(False)
        label = (
            "How the reports of two vectors, −1 and 1, are distributed under Laplace noise at "
            "ε = 0.5, 2 and 5: nearly the same hill, two overlapping hills, two separate peaks."
        )
        return finish(figure, "reports", label)


def together() -> str:
    """Draw what several reports about one person cost, and what that means for a guess."""
    counts = np.arange(1, 101)
    with panels(2, 8.4, 3.2) as (figure, (left, right)):
        left.plot(counts, 0.5 * counts, color=RESHAPED, linewidth=1.8)
        few = np.array([1, 2, 4, 7, 10, 15, 20, 30, 40, 50, 60, 80, 100])
        by_loss = [by_loss_distribution([Cost("1/2", reports=int(n))], "1e-6") for n in few]
        left.plot(few, by_loss, color=PLAIN, linewidth=1.6, linestyle=LINE_DASHES)
        say(left, "added up, pure", (62, 31), RESHAPED, ha="right", shift=(-5, 2))
        say(
            left,
            "by loss distributions,\nδ = 10⁻⁶",
            (70, by_loss[-2]),
            PLAIN,
            va="top",
            shift=(0, -12),
        )
        left.set(xlabel="reports of ε = 0.5 each", ylabel="ε together", xlim=(0, 102), ylim=(0, 52))
        days = np.arange(13)
        for at, epsilon in enumerate((0.25, 0.5, 1, 2)):
            odds = 0.01 / 0.99 * np.exp(epsilon * days)
            share = odds / (1 + odds)
            right.plot(
                days,
                share,
                color=RESHAPED,
                alpha=_strength(at, 4),
                linewidth=1.6,
                marker="o",
                ms=2.6,
            )
            seen = min(12, math.ceil(math.log(99) / epsilon))
            say(
                right,
                f"ε = {epsilon:g}",
                (seen, share[seen]),
                INK,
                va="bottom",
                ha="right",
                shift=(-5, 0),
            )
        right.set(
            xlabel="reports about one person",
            ylabel="sure at most, from 1 % before",
            xlim=(0, 12.3),
            ylim=(0, 1.03),
        )
        right.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")
        label = (
            "Left: reports of ε = 0.5 each cost 50 after 100 of them, added up; by loss "
            f"distributions and with δ = 1e-6 {by_loss[-1]:.3g}. Right: a guess held with 1 % can "
            "become a near certainty after five reports of ε = 2, and needs many more of ε = 0.25."
        )
        return finish(figure, "together", label)


def people() -> str:
    """Draw how many people are needed for a share and for a mean vector."""
    budgets = np.geomspace(0.1, 10, 60)
    with panels(2, 8.4, 3.4) as (figure, (left, right)):
        e = np.exp(budgets)
        left.plot(budgets, (0.25 + e / (e - 1) ** 2) / 1e-4, color=RESHAPED, linewidth=1.8)
        left.axhline(2500, color=MUTED, linewidth=0.9, linestyle=(0, (1, 2)))
        say(left, "without privacy: 2,500", (0.1, 2500), MUTED, va="top", shift=(2, -4))
        left.set(ylabel="people for a yes/no share ± 1 point", ylim=(1e3, 2e6))
        budgets = np.geomspace(0.1, 10, 25)
        for at, dim in enumerate((8, 64, 512)):
            needed = [sphere_mean_error(dim, float(epsilon)) / 0.01 for epsilon in budgets]
            right.plot(budgets, needed, color=RESHAPED, alpha=_strength(at, 3), linewidth=1.8)
            say(right, f"{dim} numbers", (10, needed[-1]), INK, va="center", shift=(5, 0))
        right.set(ylabel="people for a mean ± 0.1 in length", ylim=(10, 1e8))
        for axes in (left, right):
            axes.set(xlabel="budget ε of each report", xscale="log", yscale="log")
            axes.set_xticks([0.1, 0.3, 1, 3, 10])
            axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
            axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
            axes.minorticks_off()
        label = (
            "People needed against ε. Left, for a yes/no share to within one point: a million at "
            "ε = 0.1, 11,700 at ε = 1, 2,690 at ε = 4. Right, for a mean of unit vectors with an "
            "error of length 0.1: more in proportion to the dimension at small ε."
        )
        return finish(figure, "people", label)
