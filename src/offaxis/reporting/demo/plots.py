"""The demo's figures, each one inline SVG: curves, noise in a plane, and the spectrum."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from offaxis.reporting.demo.result import METRIC, DemoResult, find
from offaxis.reporting.svg import (
    CARD,
    INK,
    LINE_DASHES,
    MUTED,
    PLAIN,
    POINT,
    RESHAPED,
    SAME,
    budget_axis,
    canvas,
    inline,
)
from offaxis.vectors import Vectors

_CURVES = {"none": ("plain", PLAIN, (0, (4, 2))), "jacobian": ("reshaped", RESHAPED, "-")}


def accuracy_curves(result: DemoResult, randomizer: str, title: str) -> str:
    """Draw accuracy against the budget for one randomizer: mean lines, bands of ±1 std."""
    rows, clean, chance, lines = result.rows, result.clean, result.chance, result.lines
    epsilons = sorted(result.epsilons)
    with canvas(4.0, 2.65) as (figure, axes):
        _level(axes, 100 * clean, "without privacy", epsilons, above=True)
        _level(axes, 100 * chance, "guessing", epsilons, above=False)
        heights = [100 * lines[epsilon] for epsilon in epsilons]
        axes.plot(epsilons, heights, color=INK, linestyle=LINE_DASHES, linewidth=1.1)
        ends: dict[str, float] = {}
        for shape, (_, colour, dashes) in _CURVES.items():
            cells = [find(rows, randomizer, shape, epsilon) for epsilon in epsilons]
            mean = 100 * np.array([cell.mean(METRIC) for cell in cells])
            std = 100 * np.array([cell.std(METRIC) for cell in cells])
            axes.fill_between(
                epsilons, mean - std, mean + std, color=colour, alpha=0.22, linewidth=0
            )
            axes.plot(
                epsilons, mean, color=colour, linestyle=dashes, linewidth=1.8, marker="o", ms=2.8
            )
            ends[shape] = mean[-1]
        for shape, height in _apart(ends).items():
            label, colour, _ = _CURVES[shape]
            text = f"{label} {ends[shape]:.0f}"
            axes.annotate(
                text,
                (epsilons[-1], height),
                xytext=(5, 0),
                textcoords="offset points",
                va="center",
                color=colour,
                fontweight="bold",
            )
        axes.set(ylim=(0, 95), xlabel="budget ε", ylabel="right answers, %")
        axes.set_xlim(0, 1.26 * max(epsilons))
        axes.set_yticks([0, 20, 40, 60, 80])
        budget_axis(axes, max(epsilons))
        label = (
            f"{title}: share of right answers against the budget. At ε = {epsilons[-1]:g}, "
            f"{ends['none']:.1f} % plain and {ends['jacobian']:.1f} % reshaped; "
            f"without privacy {100 * clean:.1f} %. The model's answer alone, sent by response: "
            f"{heights[0]:.1f} % at ε = {epsilons[0]:g} and {heights[-1]:.1f} % at the end."
        )
        return inline(figure, f"curve-{randomizer}", label)


def _level(axes: Any, height: float, text: str, epsilons: Sequence[float], *, above: bool) -> None:
    """Draw a dotted level with its name at the left, above or below it."""
    ends = [0, max(epsilons)]
    axes.plot(ends, [height] * 2, color=MUTED, linewidth=0.9, linestyle=(0, (1, 2)))
    axes.annotate(
        text,
        (epsilons[0], height),
        xytext=(0, 3 if above else -3),
        textcoords="offset points",
        va="bottom" if above else "top",
        fontsize=8.5,
        color=MUTED,
    )


def _apart(ends: dict[str, float], least: float = 7.5) -> dict[str, float]:
    """Move the labels of two curves apart where their ends nearly meet."""
    low, high = sorted(ends, key=lambda shape: ends[shape])
    push = max(0.0, least - (ends[high] - ends[low])) / 2
    return {low: ends[low] - push, high: ends[high] + push}


@dataclass(frozen=True, eq=False)
class Cloud:
    """What one panel of the noise figure shows, in its own coordinates.

    Attributes
    ----------
    points : (n, 2) array
        Public vectors.
    anchor : (2,) array
        The vector whose noise is drawn.
    outlines : list of (name, outline)
        1-σ ellipses by "plain" or "reshaped"; the first is the panel's own, others stand behind it.
    same : (low, high)
        Horizontal interval in which the task's answer stays the same.
    reach : float
        Half the width of the square frame.
    beyond : float or None
        How far the noise goes up and down when that is outside the frame.
    """

    points: Vectors
    anchor: Vectors
    outlines: list[tuple[str, Vectors]]
    same: tuple[float, float]
    reach: float
    beyond: float | None = None


def noise_panel(cloud: Cloud, name: str, label: str) -> str:
    """Draw public vectors and noise ellipses in a plane, equally scaled on both axes."""
    colours = {"plain": PLAIN, "reshaped": RESHAPED}
    with canvas(3.2, 3.1) as (figure, axes):
        # One fixed frame, so that panels side by side line up.
        figure.set_layout_engine("none")
        axes.set_position((0.17, 0.135, 0.81, 0.845))
        axes.grid(visible=False)
        axes.axvspan(*cloud.same, color=SAME, linewidth=0, zorder=0)
        own, *behind = cloud.outlines
        for kind, outline in behind:
            axes.plot(*outline.T, color=colours[kind], linewidth=1, linestyle=(0, (3, 2)))
        axes.fill(*own[1].T, color=colours[own[0]], alpha=0.2, linewidth=0)
        axes.plot(*own[1].T, color=colours[own[0]], linewidth=1.6)
        _dots(axes, cloud.points)
        axes.plot(*cloud.anchor, "o", color=INK, ms=4.5, mec=CARD, mew=0.9, zorder=5)
        axes.set_aspect("equal")
        axes.set_xlabel("the task looks this way →", color=INK)
        axes.set_ylabel("the task ignores this way")
        axes.set_xlim(cloud.anchor[0] - cloud.reach, cloud.anchor[0] + cloud.reach)
        axes.set_ylim(cloud.anchor[1] - cloud.reach, cloud.anchor[1] + cloud.reach)
        axes.locator_params(nbins=5, integer=True)
        axes.yaxis.set_label_coords(-0.125, 0.5)
        for side in ("top", "right"):
            axes.spines[side].set_visible(True)
        axes.tick_params(length=0)
        if cloud.beyond is not None:
            for height, text in ((0.985, "↑ to +{:,.0f}"), (0.015, "↓ to −{:,.0f}")):
                axes.text(
                    own[1][:, 0].max() + 0.05 * cloud.reach,
                    height,
                    text.format(cloud.beyond),
                    transform=axes.get_xaxis_transform(),
                    va="top" if height > 0.5 else "bottom",
                    color=RESHAPED,
                    fontweight="bold",
                )
        return inline(figure, name, label)


def _dots(axes: Any, points: Vectors) -> None:
    """Draw points as one path of zero-length strokes: a tenth of the size of one mark each."""
    gaps = np.full((len(points), 1, 2), np.nan)
    path = np.concatenate([points[:, None], points[:, None], gaps], axis=1).reshape(-1, 2)
    axes.plot(*path.T, color=POINT, linewidth=1.9, solid_capstyle="round", alpha=0.55)


def spectrum_bars(values: Vectors, read: int) -> str:
    """Draw γ, how much the task reads along every direction, on a logarithmic scale."""
    index = np.arange(1, values.size + 1)
    with canvas(4.0, 2.4) as (figure, axes):
        axes.bar(index[:read], values[:read], color=RESHAPED, width=0.72)
        axes.set_yscale("log")
        axes.set_ylim(values[:read].min() / 4, values[0] * 1.6)
        if read < values.size:
            _note(
                axes,
                (read + values.size) / 2,
                f"γ = 0: the task\nignores these {values.size - read}",
            )
        _directions(axes, values.size, "γ (log scale)")
        label = (
            f"Bars of γ over {values.size} directions: from {values[0]:.3g} down to "
            f"{values[read - 1]:.3g} for {read} of them, zero for the others."
        )
        return inline(figure, "spectrum", label)


def stretch_bars(stretches: dict[str, Vectors]) -> str:
    """Draw λ, how far noise is stretched along every direction, for one or two gauges."""
    first = next(iter(stretches.values()))
    index = np.arange(1, first.size + 1)
    alphas = (0.35, 1.0)
    with canvas(4.0, 2.4) as (figure, axes):
        for (name, stretch), alpha in zip(stretches.items(), alphas, strict=False):
            axes.bar(
                index, stretch - 1, bottom=1, width=0.72, label=name, color=RESHAPED, alpha=alpha
            )
        axes.set_yscale("log")
        axes.axhline(1, color=MUTED, linewidth=0.9)
        axes.set_ylim(min(s.min() for s in stretches.values()) / 3, first.max() * 1.8)
        legend = axes.legend(frameon=False, fontsize=8.5, loc="lower right", labelcolor=MUTED)
        legend.set_zorder(5)
        _directions(axes, first.size, "λ (log scale)")
        label = (
            "Bars of λ over the directions: below 1 (noise squeezed) where the task reads, up to "
            f"{first.max():.0f} (noise stretched) where it does not."
        )
        return inline(figure, "stretch", label)


def _directions(axes: Any, count: int, label: str) -> None:
    axes.set(xlabel="direction, most read first", ylabel=label, xlim=(0.2, count + 0.8))
    axes.grid(visible=False, axis="x")
    axes.tick_params(length=0, which="both")
    axes.spines["left"].set_visible(False)
    axes.set_xticks([1, *range(10, count + 1, 10)])
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")


def _note(axes: Any, x: float, text: str) -> None:
    axes.text(
        x,
        0.5,
        text,
        transform=axes.get_xaxis_transform(),
        ha="center",
        va="center",
        color=MUTED,
        bbox={"facecolor": CARD, "edgecolor": "none", "pad": 3},
    )
