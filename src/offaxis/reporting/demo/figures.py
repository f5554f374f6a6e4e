"""All figures of the demo's page, drawn from what it measured and from public vectors only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from offaxis.data import DemoData
from offaxis.encoding import reshape
from offaxis.geometry import Geometry, spectrum
from offaxis.release import Release
from offaxis.reporting.demo import plots
from offaxis.reporting.demo.households import LABELS, error_curves
from offaxis.reporting.demo.plane import (
    Plane,
    decoded_covariance,
    ellipse,
    inner_plane,
    noise_plane,
    noise_variance,
    same_answer,
)
from offaxis.reporting.demo.result import DemoResult
from offaxis.reporting.names import TITLES
from offaxis.reporting.recommendation.plots import utility_curve
from offaxis.vectors import Vectors

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
        SVG: plain noise; noise where it is drawn in a reshaped release; the same noise decoded.
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
    """Every figure of the page and the numbers its captions need."""

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
    # Farther than any frame reaches: only where the answer changes first matters.
    same = same_answer(data.head, anchor, plane.axes[0], 100.0)
    values = spectrum(geometry.gram).values
    read = int(np.count_nonzero(values))
    answer = int(data.head.outputs(anchor[None]).argmax())
    spread = plane.project(data.public).std(axis=0)
    return Figures(
        curves={
            name: plots.accuracy_curves(result, name, TITLES[name]) for name in result.randomizers
        },
        households={name: error_curves(result.households, name) for name in LABELS},
        recommended=utility_curve(result.recommended, result.ceilings, "recommended"),
        noise=[_noise(name, releases, plane, data.public, same, epsilon) for name in NOISE],
        spectrum=plots.spectrum_bars(values, read),
        stretch=plots.stretch_bars(
            {
                "Laplace (gauge 1)": reshape(geometry, gauge=1).stretch,
                "the others (gauge 2)": reshape(geometry, gauge=2).stretch,
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
    inner = plots.Cloud(
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
        plots.noise_panel(
            plots.Cloud(points, anchor, [("plain", round_)], stripe, reach),
            f"plain-{name}",
            f"{where}, plain: a circle of radius {plain_std:.3g} around a vector.",
        ),
        plots.noise_panel(
            inner,
            f"inner-{name}",
            f"{where}, reshaped, before decoding: a circle of radius {inner_std:.3g}; the public "
            f"vectors lie almost on a line.",
        ),
        plots.noise_panel(
            plots.Cloud(
                points, anchor, [("reshaped", long), ("plain", round_)], stripe, reach, std[1]
            ),
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
    """Return half the width of a frame that holds the round noise and nearly all the points."""
    return max(1.2 * std, 1.08 * float(np.quantile(np.abs(offsets), 0.995)))
