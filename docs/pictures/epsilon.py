"""Figures of what ε means, drawn from formulas without any measurement."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from drawing import finish, label, panels

from offaxis.html.pages import INK, LINE_DASHES, MUTED, PLAIN, RESHAPED
from offaxis.privacy.composition import Cost, by_loss_distribution
from offaxis.theory import sphere_mean_error

BUDGETS = (0.5, 1, 2, 3, 5)
ALONG = {"rotation": 45, "ha": "center", "va": "center"}


def _opacity(at: int, count: int) -> float:
    """Return the opacity of the ``at``-th of ``count`` curves; the last one is opaque."""
    return 0.4 + 0.6 * at / (count - 1)


def _per_cent(axes: Any) -> None:
    """Label both axes in per cent; the origin is labelled once."""
    axes.xaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")
    axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %" if value else "")


def belief() -> str:
    """Draw the belief after one report against the belief before it."""
    before = np.linspace(0, 1, 81)
    with panels(1, 4.4, 4.1) as (figure, (axes,)):
        axes.plot([0, 1], [0, 1], color=MUTED, linewidth=0.9, linestyle=(0, (1, 2)))
        for at, epsilon in enumerate(BUDGETS):
            opacity = _opacity(at, len(BUDGETS))
            for sign in (1, -1):
                factor = math.exp(sign * epsilon)
                after = before * factor / (1 - before + before * factor)
                axes.plot(before, after, color=RESHAPED, alpha=opacity, linewidth=1.5)
            corner = 1 / (1 + math.exp(epsilon / 2))
            # Along the curve, whose slope is one there.
            label(axes, f"ε = {epsilon:g}", (corner, 1 - corner), INK, shift=(-5, 5), **ALONG)
        label(axes, "no report", (0.5, 0.5), MUTED, shift=(5, -5), **ALONG)
        axes.set(xlabel="belief before the report", ylabel="belief after it, at most and at least")
        axes.set(xlim=(0, 1), ylim=(0, 1.02), aspect="equal")
        _per_cent(axes)
        description = (
            "Belief after one report against belief before it, for ε = 0.5, 1, 2, 3, 5. Each ε "
            "has two curves, mirrored at the diagonal, that enclose the possible values. A belief "
            "of 50 % becomes at most 73 % at ε = 1, and at most 95 % at ε = 3."
        )
        return finish(figure, "belief", description)


def tradeoff() -> str:
    """Draw the pairs of error rates that an attacker can reach, for several budgets."""
    with panels(1, 4.4, 4.1) as (figure, (axes,)):
        axes.plot([0, 1], [1, 0], color=MUTED, linewidth=0.9, linestyle=(0, (1, 2)))
        for at, epsilon in enumerate(BUDGETS[:-1]):
            e = math.exp(epsilon)
            alpha = np.array([0, 1 / (1 + e), 1])
            missed = np.maximum(np.maximum(1 - e * alpha, (1 - alpha) / e), 0)
            opacity = _opacity(at, len(BUDGETS) - 1)
            axes.plot(alpha, missed, color=RESHAPED, alpha=opacity, linewidth=1.5)
            axes.fill_between(alpha, missed, 1 - alpha, color=RESHAPED, alpha=0.06, linewidth=0)
            corner = 1 / (1 + e)
            label(
                axes,
                f"ε = {epsilon:g}",
                (corner, corner),
                INK,
                ha="left",
                va="bottom",
                shift=(3, 2),
            )
        label(
            axes,
            "guessing",
            (0.5, 0.5),
            MUTED,
            rotation=-45,
            ha="center",
            va="bottom",
            shift=(5, 0),
        )
        axes.set(xlabel="z′ mistaken for z", ylabel="z mistaken for z′", aspect="equal")
        axes.set(xlim=(0, 1), ylim=(0, 1.02))
        _per_cent(axes)
        description = (
            "The two error rates of an attacker who decides from one report whether it came from "
            "z or z′. No attacker gets below the curve of an ε. Where both rates are equal, they "
            "are at least 26.9 % at ε = 1 and at least 4.7 % at ε = 3."
        )
        return finish(figure, "tradeoff", description)


def reports() -> str:
    """Draw the distributions of the reports of the two vectors that differ most."""
    with panels(3, 8.4, 2.5) as (figure, axes):
        for panel, epsilon in zip(axes, (0.5, 2, 5), strict=True):
            scale = 2 / epsilon
            where = np.union1d(np.linspace(-9, 9, 61), np.linspace(-3, 3, 61))
            for centre, colour, dashes in ((-1, PLAIN, LINE_DASHES), (1, RESHAPED, "-")):
                density = np.exp(-np.abs(where - centre) / scale) / (2 * scale)
                panel.plot(where, density, color=colour, linewidth=1.6, linestyle=dashes)
                panel.fill_between(where, density, color=colour, alpha=0.12, linewidth=0)
            panel.set_title(
                f"ε = {epsilon:g}: ratio up to {math.exp(epsilon):.3g}", fontsize=9.5, color=INK
            )
            panel.set_yticks([])
            panel.set(xlabel="report", xlim=(-9, 9), ylim=(0, None))
            panel.spines["left"].set_visible(False)
        description = (
            "The distributions of the reports of two vectors, −1 and 1, under Laplace noise at "
            "ε = 0.5, 2 and 5: almost the same curve, two overlapping curves, two separate peaks."
        )
        return finish(figure, "reports", description)


def together() -> str:
    """Draw the total cost of several reports about one person, and its effect on a belief."""
    counts = np.arange(1, 101)
    with panels(2, 8.4, 3.2) as (figure, (left, right)):
        left.plot(counts, 0.5 * counts, color=RESHAPED, linewidth=1.8)
        few = np.array([1, 2, 4, 7, 10, 15, 20, 30, 40, 50, 60, 80, 100])
        by_loss = [by_loss_distribution([Cost("1/2", reports=int(n))], "1e-6") for n in few]
        left.plot(few, by_loss, color=PLAIN, linewidth=1.6, linestyle=LINE_DASHES)
        label(left, "sum, pure", (62, 31), RESHAPED, ha="right", shift=(-5, 2))
        label(
            left,
            "by loss distributions,\nδ = 10⁻⁶",
            (70, by_loss[-2]),
            PLAIN,
            va="top",
            shift=(0, -12),
        )
        left.set(xlabel="reports of ε = 0.5 each", ylabel="total ε", xlim=(0, 102), ylim=(0, 52))
        counts = np.arange(13)
        for at, epsilon in enumerate((0.25, 0.5, 1, 2)):
            odds = 0.01 / 0.99 * np.exp(epsilon * counts)
            belief_after = odds / (1 + odds)
            right.plot(
                counts,
                belief_after,
                color=RESHAPED,
                alpha=_opacity(at, 4),
                linewidth=1.6,
                marker="o",
                ms=2.6,
            )
            at_label = min(12, math.ceil(math.log(99) / epsilon))
            label(
                right,
                f"ε = {epsilon:g}",
                (at_label, belief_after[at_label]),
                INK,
                va="bottom",
                ha="right",
                shift=(-5, 0),
            )
        right.set(
            xlabel="reports about one person",
            ylabel="largest belief, from 1 % before",
            xlim=(0, 12.3),
            ylim=(0, 1.03),
        )
        right.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")
        description = (
            "Left: 100 reports of ε = 0.5 each cost 50 in total by summation, and "
            f"{by_loss[-1]:.3g} by loss distributions with δ = 1e-6. Right: a belief of 1 % can "
            "become near certainty after five reports of ε = 2, and after many more of ε = 0.25."
        )
        return finish(figure, "together", description)


def people() -> str:
    """Draw the number of people needed for a share and for a mean vector."""
    budgets = np.geomspace(0.1, 10, 60)
    with panels(2, 8.4, 3.4) as (figure, (left, right)):
        e = np.exp(budgets)
        left.plot(budgets, (0.25 + e / (e - 1) ** 2) / 1e-4, color=RESHAPED, linewidth=1.8)
        left.axhline(2500, color=MUTED, linewidth=0.9, linestyle=(0, (1, 2)))
        label(left, "without privacy: 2,500", (0.1, 2500), MUTED, va="top", shift=(2, -4))
        left.set(ylabel="people for a yes/no share ± 1 point", ylim=(1e3, 2e6))
        budgets = np.geomspace(0.1, 10, 25)
        for at, dim in enumerate((8, 64, 512)):
            needed = [sphere_mean_error(dim, float(epsilon)) / 0.01 for epsilon in budgets]
            right.plot(budgets, needed, color=RESHAPED, alpha=_opacity(at, 3), linewidth=1.8)
            label(right, f"{dim} dimensions", (10, needed[-1]), INK, va="center", shift=(5, 0))
        right.set(ylabel="people for a mean with error 0.1", ylim=(10, 1e8))
        for axes in (left, right):
            axes.set(xlabel="budget ε of each report", xscale="log", yscale="log")
            axes.set_xticks([0.1, 0.3, 1, 3, 10])
            axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
            axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
            axes.minorticks_off()
        description = (
            "People needed against ε. Left, for a yes/no share to within one percentage point: a "
            "million at ε = 0.1, 11,700 at ε = 1, 2,690 at ε = 4. Right, for a mean of unit "
            "vectors with an error of length 0.1: at small ε, in proportion to the dimension."
        )
        return finish(figure, "people", description)
