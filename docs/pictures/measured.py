"""Figures of measurements: utility against ε on bundled features, and noise in a plane."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
from drawing import dots, finish, label, panels

import offaxis
from offaxis.evaluation import evaluate
from offaxis.html.pages import INK, MUTED, PLAIN, POINT, RESHAPED, SAME
from offaxis.simulation import simulate
from offaxis.theory import agreement_ceiling, answer_prior

TABLE = Path(__file__).with_name("utility.csv")
BUDGETS = (0.5, 1, 2, 3, 4, 5, 6, 7.5, 10)
CURVES: dict[str, dict[str, Any]] = {
    "the model's answer": {"mechanism": "class-response"},
    "codebook": {"mechanism": "response"},
    "PrivUnit2, six directions": {"mechanism": "privunit2", "reshaping": offaxis.Optimal(rank=6)},
    "PrivUnit2, plain": {"mechanism": "privunit2", "reshaping": "none"},
    "Laplace, reshaped": {"mechanism": "laplace"},
}


def measure(budgets: tuple[float, ...] = BUDGETS, seeds: int = 5) -> list[dict[str, str]]:
    """Measure agreement on the bundled test vectors: rows of budget, curve, value; bound first."""
    from experiments.data import load_cifar10_features  # in a checkout only

    bundled = load_cifar10_features()
    rows = []
    for epsilon in budgets:
        bound = agreement_ceiling(answer_prior(bundled.head, bundled.vectors), epsilon)
        rows.append((epsilon, "bound", bound.probability))
        for name, settings in CURVES.items():
            release = offaxis.fit(bundled.head, bundled.public, epsilon=epsilon, **settings)
            evaluation = evaluate(release, bundled.head, bundled.vectors, seeds=seeds)
            rows.append((epsilon, name, evaluation.mean("agreement")))
    return [
        {"epsilon": f"{epsilon:g}", "curve": name, "agreement": f"{value:.4f}"}
        for epsilon, name, value in rows
    ]


def write_table(rows: list[dict[str, str]]) -> None:
    """Write the measurements to utility.csv."""
    with TABLE.open("w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        table.writeheader()
        table.writerows(rows)


def read_table() -> list[dict[str, str]]:
    """Read the measurements from utility.csv."""
    with TABLE.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def utility() -> str:
    """Draw agreement with the model's answer against the budget, with the bound."""
    curves: dict[str, tuple[list[float], list[float]]] = {}
    for row in read_table():
        xs, ys = curves.setdefault(row["curve"], ([], []))
        xs.append(float(row["epsilon"]))
        ys.append(100 * float(row["agreement"]))
    styles = {
        "bound": (MUTED, "-", "no report exceeds this"),
        "the model's answer": (RESHAPED, "-", "the model's answer"),
        "codebook": (RESHAPED, (0, (4, 2)), "codebook"),
        "PrivUnit2, six directions": (RESHAPED, (0, (1, 1.4)), "PrivUnit2, six directions"),
        "PrivUnit2, plain": (PLAIN, "-", "PrivUnit2, plain"),
        "Laplace, reshaped": (PLAIN, (0, (4, 2)), "Laplace, reshaped"),
    }
    with panels(1, 4.7, 4.3) as (figure, (axes,)):
        for name, (colour, dashes, title) in styles.items():
            xs, ys = curves[name]
            # The bound is wide and behind the others, because the best curve coincides with it.
            form = {"linewidth": 6, "alpha": 0.35} if name == "bound" else {"linewidth": 1.7}
            axes.plot(xs, ys, color=colour, linestyle=dashes, label=title, **form)
        axes.axhline(10, color=MUTED, linewidth=0.9, linestyle=(0, (1, 2)))
        label(axes, "guessing", (10, 10), MUTED, ha="right", va="top", shift=(0, -2))
        # Below the axes, so that it fits on a narrow screen.
        below = {"loc": "upper center", "bbox_to_anchor": (0.45, -0.16), "ncols": 2}
        legend = axes.legend(**below, frameon=False, fontsize=9)
        for text in legend.get_texts():
            text.set_color(INK)
        axes.set(xlabel="budget ε of one report", ylabel="answers that survive, %", ylim=(0, 102))
        axes.set_xticks([0.5, 1, 2, 3, 4, 5, 6, 7.5, 10])
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        at = {name: dict(zip(*points, strict=True)) for name, points in curves.items()}
        values = "; ".join(f"{name} {ys[3]:.0f} and {ys[5]:.0f} %" for name, ys in at.items())
        description = f"How often the model's answer survives one report, at ε = 3 and 5: {values}."
        return finish(figure, "utility", description)


def off_axis() -> str:
    """Draw reports of one vector in a plane, plain and reshaped, for a task with one direction."""
    rng = np.random.default_rng(4)
    public = rng.normal(size=(4000, 2))
    task = np.array([[1.0, 0.0]])
    mine = np.array([1.0, 0.6])
    with panels(2, 7.6, 3.9) as (figure, axes):
        stretched = offaxis.Jacobian(lambda_max=8)
        shown = (("none", "plain", PLAIN), (stretched, "reshaped", RESHAPED))
        shares = []
        for panel, (shape, title, colour) in zip(axes, shown, strict=True):
            release = offaxis.fit(task, public, epsilon=4, reshaping=shape, mechanism="laplace")
            noisy = simulate(release, np.tile(mine, (400, 1)), np.random.default_rng(1))
            correct = 100 * float((noisy[:, 0] > -0.5).mean())
            shares.append(f"{title}: {correct:.0f} %")
            panel.axvspan(-0.5, 20, color=SAME, linewidth=0, zorder=0)
            dots(panel, noisy, colour, 3.0, 0.5)
            dots(panel, public[:150], POINT, 1.6, 0.5)
            panel.plot(*mine, "o", color=INK, ms=6, zorder=5)
            panel.set(xlim=(-7, 9), ylim=(-8, 8), aspect="equal")
            panel.set_xlabel("direction the task uses →", color=INK)
            panel.set_ylabel("direction it ignores →")
            panel.set_title(f"{title}: {correct:.0f} % correct", color=colour, fontsize=10.5)
            panel.grid(visible=False)
            panel.set_xticks([])
            panel.set_yticks([])
        description = (
            "400 simulated reports of one vector at the same ε, Laplace noise. The task is to "
            "decide whether a vector is to the right of a line. Plain reports spread evenly; "
            f"reshaped ones spread along the line. On the correct side: {', '.join(shares)}."
        )
        return finish(figure, "off-axis", description)
