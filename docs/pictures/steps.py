"""The steps from a vector to a decoded report, in a plane: drawn from a real release."""

from __future__ import annotations

from typing import Any

import numpy as np
from drawing import dots, finish

import offaxis
from offaxis.encoding import reshape
from offaxis.geometry import PublicVectors, as_task_model, measure
from offaxis.html.pages import INK, MUTED, PLAIN, POINT, RESHAPED, SAME, canvas
from offaxis.simulation import simulate

CAP = 6.0
"""λ_max, small enough for both scales to be visible in one picture."""

REACH = 4.6
"""Half the width of every panel: all have one scale."""


def plane() -> dict[str, Any]:
    """Return the points of every step: the public vectors, one vector, and 200 reports of it."""
    rng = np.random.default_rng(5)
    normal = np.array([0.8, 0.6])
    across, along = 0.8 * rng.normal(size=400), 1.1 * rng.normal(size=400)
    public = np.outer(across, normal) + np.outer(along, [-0.6, 0.8]) + [0.9, 0.5]
    mine = public.mean(axis=0) + 1.8 * normal + 1.0 * np.array([-0.6, 0.8])
    settings = {"order": 1, "lambda_max": CAP}
    release = offaxis.fit(
        normal[None], public, epsilon=6, mechanism="laplace", reshaping=offaxis.Jacobian(**settings)
    )
    fitted = reshape(measure(as_task_model(normal[None]), PublicVectors(public)), **settings)
    decoded = simulate(release, np.tile(mine, (200, 1)), np.random.default_rng(2))
    forward, back = fitted.frame.encoder.encode, fitted.frame.back
    radius = float(release.randomizer.radius)
    encoded = np.vstack([forward(public), forward(mine[None])])
    norms = np.abs(encoded).sum(axis=1, keepdims=True)
    return {
        "release": release,
        "fitted": fitted,
        "radius": radius,
        "vectors": np.vstack([public, mine]),
        "rotated": (np.vstack([public, mine]) - fitted.centre) @ fitted.basis,
        "encoded": encoded,
        "clipped": encoded * np.minimum(1, radius / norms),
        "noisy": (decoded - fitted.centre) @ np.linalg.inv(back).T,
        "decoded": decoded,
        "normal": normal,
    }


def steps() -> str:
    """Draw the six stages of one report."""
    stage = plane()
    with canvas(330 / 72, 560 / 72) as (figure, axes):
        figure.delaxes(axes)
        grid = figure.subplots(3, 2).ravel()
        shown = (
            ("1  vector z and task", "vectors"),
            ("2  shift and rotate", "rotated"),
            ("3  rescale", "encoded"),
            ("4  clip", "clipped"),
            ("5  add noise", "noisy"),
            ("6  undo 3 and 2", "decoded"),
        )
        for panel, (title, name) in zip(grid, shown, strict=True):
            in_plane = name in ("vectors", "decoded")
            middle = stage["fitted"].centre if in_plane else np.zeros(2)
            _task(panel, stage, name)
            if name in ("clipped", "noisy"):
                corner = stage["radius"] * np.array([[1, 0], [0, 1], [-1, 0], [0, -1], [1, 0]])
                panel.plot(*corner.T, color=INK, linewidth=1.2)
            if name in ("noisy", "decoded"):
                dots(panel, stage[name], RESHAPED, 3.0, 0.55)
                start = stage["clipped" if name == "noisy" else "vectors"][-1]
            else:
                dots(panel, stage[name][:150], POINT, 2.0, 0.6)
                start = stage[name][-1]
            if name == "clipped":
                before = stage["encoded"][-1]
                panel.plot(*np.stack([before, start]).T, color=PLAIN, linewidth=1.2)
                panel.plot(*before, "o", color=PLAIN, mfc="none", ms=5)
            panel.plot(*start, "o", color=PLAIN, ms=5.5, zorder=5)
            panel.set_title(title, fontsize=9.5, color=INK, loc="left")
            panel.set(
                xlim=(middle[0] - REACH, middle[0] + REACH),
                ylim=(middle[1] - REACH, middle[1] + REACH),
                aspect="equal",
            )
            panel.grid(visible=False)
            panel.set_xticks([])
            panel.set_yticks([])
            for side in panel.spines.values():
                side.set_visible(True)
        for panel in grid[1:5]:
            panel.set_xlabel("used by the task →", color=MUTED, fontsize=8.5)
            panel.set_ylabel("ignored →", color=MUTED, fontsize=8.5)
        figure.draw_without_rendering()
        description = (
            "Six stages of one report in a plane. 1: a private vector among public vectors, and "
            "the line at which the task changes its answer. 2: shifted and rotated, so that the "
            "first axis is the direction the task uses. 3: rescaled, wider along the direction "
            "the task uses and narrower along the other. 4: clipped to a diamond, the ℓ1 ball. "
            "5: 200 possible reports, with the same noise in both directions. 6: decoded; the "
            "noise is now narrow across the line and wide along it."
        )
        return finish(figure, "steps", description)


def _task(panel: Any, stage: dict[str, Any], name: str) -> None:
    """Draw the side of the line on which the task gives one answer."""
    fitted = stage["fitted"]
    normal, middle = stage["normal"], np.zeros(2)
    if name not in ("vectors", "decoded"):
        # The line is where n·z = 0, and n is parallel to the first direction of the basis.
        scale = 1.0 if name == "rotated" else float(np.sqrt(fitted.stretch[0]))
        middle = np.array([-float(fitted.basis[:, 0] @ fitted.centre) / scale, 0.0])
        normal = np.array([np.sign(fitted.basis[:, 0] @ stage["normal"]), 0.0])
    along = np.array([-normal[1], normal[0]])
    far = np.array([middle + 20 * along, middle - 20 * along])
    panel.fill(*np.vstack([far, far[::-1] + 30 * normal]).T, color=SAME, linewidth=0, zorder=0)
    panel.plot(*far.T, color=MUTED, linewidth=1)
