"""The motivating figure: Laplace noise around a point, plain and reshaped, in two dimensions.

Outlines are sets of equal density, where half of the noise lies inside.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from offaxis.decoding import LinearDecoder
from offaxis.release import Release
from offaxis.reporting.study.figures import Palette
from offaxis.studies.engine import Row
from offaxis.studies.sources import Source
from offaxis.vectors import Vectors

_HALF = 1.678346990016661
"""Half of all (ξ₁, ξ₂) with standard Laplace coordinates have |ξ₁| + |ξ₂| below this."""


def _outline(release: Release) -> Vectors:
    """Return the corners of the set of equal density that holds half of the decoded noise."""
    randomizer: Any = release.randomizer
    corners = np.array([[1, 0], [0, 1], [-1, 0], [0, -1], [1, 0]]) * _HALF * randomizer.scale
    decoder = release.decoder
    outline: Vectors = corners @ decoder.matrix.T if isinstance(decoder, LinearDecoder) else corners
    return outline


def draw_ellipse(rows: Sequence[Row], source: Source, palette: Palette) -> Any:
    """Return the figure: the same point, classifier and budget, with both noises."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.6, 3.9), layout="constrained")
    grid = figure.subplots(1, 2, sharex=True, sharey=True)
    public = source.sample(0)
    normal: Vectors = source.task.jacobians(public.vectors[:1])[0, 1]
    normal = normal / np.linalg.norm(normal)
    anchor = source.geometry.mean + 1.2 * normal
    some = slice(0, 500)
    outlines = {}
    for row in rows:
        for release in row.mechanism.make(source, row.epsilons).values():
            if isinstance(release, Release):
                plain = row.mechanism.reshaping == "none"
                outlines["plain" if plain else "reshaped"] = _outline(release)
    reach = 1.06 * max(np.abs(outline + anchor).max() for outline in outlines.values())
    for axes, (name, outline) in zip(grid, outlines.items(), strict=True):
        colour = getattr(palette, name)
        for label, shade in ((0, palette.point), (1, palette.ink)):
            points = public.vectors[some][public.answers[some] == label]
            axes.plot(*points.T, ".", color=shade, ms=2.2, alpha=0.5)
        side = np.array([-normal[1], normal[0]]) * 3 * reach
        axes.plot(*np.stack([-side, side]).T, color=palette.muted, linewidth=1.1)
        axes.fill(*(anchor + outline).T, color=colour, alpha=0.16, linewidth=0)
        axes.plot(*(anchor + outline).T, color=colour, linewidth=1.8)
        axes.plot(*anchor, "o", color=palette.ink, ms=5, mec=palette.card, mew=1)
        axes.set(xlim=(-reach, reach), ylim=(-reach, reach), title=f"Laplace, {name}")
        axes.set_aspect("equal")
        axes.tick_params(length=0)
        axes.grid(visible=False)
    return figure
