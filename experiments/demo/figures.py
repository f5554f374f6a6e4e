"""The demo's figures as inline SVG: curves, noise in a plane, and the spectrum.

They are drawn from the demo's results and from public vectors only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from experiments.catalogue import PAIRS
from experiments.data import DemoData
from experiments.demo.result import METRIC, DemoResult, HouseholdResult, find
from offaxis.decoding import LinearDecoder
from offaxis.encoding import AffineEncoder, reshape
from offaxis.geometry import Geometry, TaskModel, spectrum
from offaxis.html.pages import (
    CARD,
    INK,
    LINE_DASHES,
    MUTED,
    PLAIN,
    POINT,
    RESHAPED,
    SAME,
    TITLES,
    budget_axis,
    canvas,
    inline,
)
from offaxis.html.recommendation import utility_curve
from offaxis.release import Release
from offaxis.vectors import Vectors


@dataclass(frozen=True, eq=False)
class Plane:
    """Two orthonormal directions through a point of the space.

    Attributes
    ----------
    axes : (2, m) array
        The direction that the task reads most, and the ignored direction along which the public
        vectors vary most.
    centre : (m,) array
        μ, the origin of the plane.
    """

    axes: Vectors
    centre: Vectors

    def project(self, Z: Vectors) -> Vectors:
        """Return coordinates in the plane, (n, 2)."""
        return (Z - self.centre) @ self.axes.T


def noise_plane(geometry: Geometry) -> Plane:
    """Choose the plane from public data: the largest γ and the most variable ignored direction.

    If the task ignores nothing, the second direction is the one that it reads least.
    """
    eigen = spectrum(geometry.gram, geometry.covariance)
    # Ignored directions come last, sorted by descending variance.
    read = int(np.count_nonzero(eigen.values))
    second = min(read, eigen.values.size - 1)
    return Plane(eigen.basis[:, [0, second]].T, geometry.mean)


def noise_variance(release: Release) -> float:
    """Return the variance of the noise per coordinate of the encoding, averaged over them."""
    return release.randomizer.expected_squared_error() / release.encoder.output_dim


def decoded_covariance(release: Release, plane: Plane) -> Vectors:
    """Return the covariance of the decoded noise in the plane, (2, 2)."""
    decoder = release.decoder
    matrix = plane.axes @ decoder.matrix if isinstance(decoder, LinearDecoder) else plane.axes
    covariance: Vectors = noise_variance(release) * (matrix @ matrix.T)
    return covariance


def inner_plane(release: Release, plane: Plane) -> tuple[Plane, Vectors]:
    """Return the plane in the encoder's space, and the factor by which each axis is stretched."""
    encoder = release.encoder
    if not isinstance(encoder, AffineEncoder):
        return plane, np.ones(2)
    images = plane.axes @ encoder.matrix.T
    lengths = np.linalg.norm(images, axis=1)
    return Plane(images / lengths[:, None], np.zeros(encoder.output_dim)), lengths


def ellipse(covariance: Vectors, centre: Sequence[float] | Vectors, points: int = 361) -> Vectors:
    """Return the outline of the 1-σ ellipse of a covariance, (points, 2)."""
    values, vectors = np.linalg.eigh(covariance)
    angle = np.linspace(0, 2 * np.pi, points)
    circle = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    outline: Vectors = circle * np.sqrt(np.maximum(values, 0)) @ vectors.T + np.asarray(centre)
    return outline


def same_answer(
    task: TaskModel, z: Vectors, direction: Vectors, reach: float
) -> tuple[float, float]:
    """Return how far z can move in both directions along a line before its answer changes."""
    steps = np.linspace(0, reach, 4001)
    sides = []
    for sign in (-1.0, 1.0):
        answers: NDArray[np.intp] = task.outputs(z + sign * steps[:, None] * direction).argmax(1)
        changed = np.flatnonzero(answers != answers[0])
        sides.append(sign * float(steps[changed[0]] if changed.size else reach))
    return sides[0], sides[1]


# ---- Curves against the budget

HOUSEHOLD_ROWS: Final = {
    "laplace": PAIRS["Laplace"],
    "privunit2": PAIRS["PrivUnit2"],
    "privunitg-sphere": PAIRS["PrivUnitG"],
}
"""Randomizer → the labels of its plain and reshaped row in the studies."""

_CURVES: Final[dict[str, tuple[str, str, Any]]] = {
    "none": ("plain", PLAIN, (0, (4, 2))),
    "jacobian": ("reshaped", RESHAPED, "-"),
}


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
    """Draw a dotted level with its name on the left, above or below it."""
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


def error_curves(result: HouseholdResult, randomizer: str) -> str:
    """Draw the error against the budget for one randomizer, on a logarithmic scale."""
    epsilons = result.epsilons
    curves: dict[str, Vectors] = {
        shape: np.array(result.means(randomizer, shape)) for shape in _CURVES
    }
    with canvas(3.4, 2.5) as (figure, axes):
        # Named in the page's legend: inside the figure a label would cross a curve.
        for level in (result.constant, result.clean):
            axes.axhline(level, color=MUTED, linewidth=0.9, linestyle=(0, (1, 2)))
        axes.plot(
            epsilons,
            [result.lines[epsilon] for epsilon in epsilons],
            color=INK,
            linestyle=LINE_DASHES,
            linewidth=1.1,
        )
        for shape, (_, colour, dashes) in _CURVES.items():
            axes.plot(
                epsilons,
                curves[shape],
                color=colour,
                linestyle=dashes,
                linewidth=1.8,
                marker="o",
                ms=2.8,
            )
        axes.set_yscale("log")
        axes.set(ylim=(0.045, 30), xlabel="budget ε", ylabel="error, kWh")
        axes.set_yticks([0.1, 1, 10], ["0.1", "1", "10"])
        axes.minorticks_off()
        budget_axis(axes, max(epsilons))
        label = (
            f"{TITLES[randomizer]}: error against the budget. At ε = {epsilons[0]:g}, "
            f"{curves['none'][0]:.3g} kWh plain and {curves['jacobian'][0]:.3g} reshaped; at "
            f"ε = {epsilons[-1]:g}, {curves['none'][-1]:.3g} and {curves['jacobian'][-1]:.3g}. "
            f"The best channel for the answer alone: {result.lines[epsilons[0]]:.3g} and "
            f"{result.lines[epsilons[-1]]:.3g}."
        )
        return inline(figure, f"household-{randomizer}", label)


# ---- Noise in a plane


@dataclass(frozen=True, eq=False)
class Cloud:
    """The content of one panel of the noise figure, in the panel's coordinates.

    Attributes
    ----------
    points : (n, 2) array
        Public vectors.
    anchor : (2,) array
        The vector whose noise is drawn.
    outlines : list of (name, outline)
        1-σ ellipses by "plain" or "reshaped"; the first is filled, others are behind it.
    same : (low, high)
        Horizontal interval in which the task's answer stays the same.
    reach : float
        Half the width of the square frame.
    beyond : float or None
        Vertical extent of the noise if it is outside the frame.
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
        # One fixed frame, so that adjacent panels are aligned.
        figure.set_layout_engine("none")
        axes.set_position((0.17, 0.135, 0.81, 0.845))
        axes.grid(visible=False)
        axes.axvspan(*cloud.same, color=SAME, linewidth=0, zorder=0)
        front, *behind = cloud.outlines
        for kind, outline in behind:
            axes.plot(*outline.T, color=colours[kind], linewidth=1, linestyle=(0, (3, 2)))
        axes.fill(*front[1].T, color=colours[front[0]], alpha=0.2, linewidth=0)
        axes.plot(*front[1].T, color=colours[front[0]], linewidth=1.6)
        _dots(axes, cloud.points)
        axes.plot(*cloud.anchor, "o", color=INK, ms=4.5, mec=CARD, mew=0.9, zorder=5)
        axes.set_aspect("equal")
        axes.set_xlabel("direction the task reads", color=INK)
        axes.set_ylabel("direction the task ignores")
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
                    front[1][:, 0].max() + 0.05 * cloud.reach,
                    height,
                    text.format(cloud.beyond),
                    transform=axes.get_xaxis_transform(),
                    va="top" if height > 0.5 else "bottom",
                    color=RESHAPED,
                    fontweight="bold",
                )
        return inline(figure, name, label)


def _dots(axes: Any, points: Vectors) -> None:
    """Draw points as one path of zero-length strokes, a tenth of the size of separate marks."""
    gaps = np.full((len(points), 1, 2), np.nan)
    path = np.concatenate([points[:, None], points[:, None], gaps], axis=1).reshape(-1, 2)
    axes.plot(*path.T, color=POINT, linewidth=1.9, solid_capstyle="round", alpha=0.55)


# ---- The spectrum


def spectrum_bars(values: Vectors, read: int) -> str:
    """Draw γ, the sensitivity of the task along every direction, on a logarithmic scale."""
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
    """Draw λ, the stretch of the noise along every direction, for one or two orders."""
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


# ---- All figures of the page

Releases = Mapping[tuple[str, str], Release]

NOISE: Final = ("laplace", "privunit2")
"""Randomizers whose noise is drawn in the plane."""
_POINTS: Final = 500


@dataclass(frozen=True)
class NoiseFigure:
    """Noise of one randomizer before and after reshaping.

    Attributes
    ----------
    title : str
    plain, inner, reshaped : str
        SVG: plain noise; the noise of a reshaped release in the encoder's space; the same decoded.
    plain_std, read_std, ignored_std, inner_std : float
        1-σ lengths: of the plain noise, of the reshaped noise along the two directions, and of the
        noise before decoding.
    """

    title: str
    plain: str
    inner: str
    reshaped: str
    plain_std: float
    read_std: float
    ignored_std: float
    inner_std: float


@dataclass(frozen=True)
class Figures:
    """All figures of the page, and the numbers in their captions."""

    curves: dict[str, str]
    households: dict[str, str]
    recommended: str
    noise: list[NoiseFigure]
    spectrum: str
    stretch: str
    read: int
    data_std: tuple[float, float]
    anchor_class: str
    same: tuple[float, float]


def draw(
    result: DemoResult, data: DemoData, geometry: Geometry, releases: Releases, epsilon: float
) -> Figures:
    """Draw everything; the releases are those of the budget ``epsilon``."""
    plane = noise_plane(geometry)
    anchor = data.public[0]
    # Farther than any frame: only the first change of the answer matters.
    same = same_answer(data.head, anchor, plane.axes[0], 100.0)
    values = spectrum(geometry.gram).values
    read = int(np.count_nonzero(values))
    answer = int(data.head.outputs(anchor[None]).argmax())
    spread = plane.project(data.public).std(axis=0)
    return Figures(
        curves={name: accuracy_curves(result, name, TITLES[name]) for name in result.randomizers},
        households={name: error_curves(result.households, name) for name in HOUSEHOLD_ROWS},
        recommended=utility_curve(result.recommended, result.ceilings, "recommended"),
        noise=[_noise(name, releases, plane, data.public, same, epsilon) for name in NOISE],
        spectrum=spectrum_bars(values, read),
        stretch=stretch_bars(
            {
                "Laplace (order 1)": reshape(geometry, order=1).stretch,
                "others (order 2)": reshape(geometry, order=2).stretch,
            }
        ),
        read=read,
        data_std=(float(spread[0]), float(spread[1])),
        anchor_class=data.class_names[answer],
        same=same,
    )


def _noise(
    name: str,
    releases: Releases,
    plane: Plane,
    public: Vectors,
    same: tuple[float, float],
    epsilon: float,
) -> NoiseFigure:
    plain, reshaped = releases[name, "none"], releases[name, "jacobian"]
    title = TITLES[name]
    some = public[:: max(1, len(public) // _POINTS)]
    points, anchor = plane.project(some), plane.project(public[:1])[0]
    before, after = decoded_covariance(plain, plane), decoded_covariance(reshaped, plane)
    plain_std, inner_std = float(np.sqrt(before[0, 0])), float(np.sqrt(noise_variance(reshaped)))
    round_, long = ellipse(before, anchor), ellipse(after, anchor)
    stripe = (anchor[0] + same[0], anchor[0] + same[1])
    inside, lengths = inner_plane(reshaped, plane)
    inner_anchor = anchor * lengths
    inner_points = inside.project(reshaped.encoder.encode(some))
    inner = Cloud(
        inner_points,
        inner_anchor,
        [("reshaped", ellipse(inner_std**2 * np.eye(2), inner_anchor))],
        (stripe[0] * lengths[0], stripe[1] * lengths[0]),
        _reach(inner_points - inner_anchor, inner_std),
    )
    reach = _reach(points - anchor, plain_std)
    std = np.sqrt(np.diag(after))
    where = f"{title} at ε = {epsilon:g}"
    return NoiseFigure(
        title,
        noise_panel(
            Cloud(points, anchor, [("plain", round_)], stripe, reach),
            f"plain-{name}",
            f"{where}, plain: a circle of radius {plain_std:.3g} around a vector.",
        ),
        noise_panel(
            inner,
            f"inner-{name}",
            f"{where}, reshaped, before decoding: a circle of radius {inner_std:.3g}; the public "
            f"vectors are almost on a line.",
        ),
        noise_panel(
            Cloud(points, anchor, [("reshaped", long), ("plain", round_)], stripe, reach, std[1]),
            f"reshaped-{name}",
            f"{where}, reshaped: an ellipse {std[0]:.3g} wide along the direction the task reads "
            f"and {std[1]:.0f} long along the ignored one.",
        ),
        plain_std,
        float(std[0]),
        float(std[1]),
        inner_std,
    )


def _reach(offsets: Vectors, std: float) -> float:
    """Return half the width of a frame with the round noise and nearly all points."""
    return max(1.2 * std, 1.08 * float(np.quantile(np.abs(offsets), 0.995)))
