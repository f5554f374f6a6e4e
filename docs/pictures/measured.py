"""Pictures of what was measured: utility against ε on bundled features, and noise in a plane."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
from drawing import dots, finish, panels, say

import offaxis
from experiments.data import load_cifar10_features
from offaxis.evaluation import evaluate
from offaxis.reporting.pages import INK, MUTED, PLAIN, POINT, RESHAPED, SAME
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
    """Return rows of budget, curve and agreement on the bundled test vectors, bound first."""
    bundled = load_cifar10_features()
    rows = []
    for epsilon in budgets:
        bound = agreement_ceiling(answer_prior(bundled.head, bundled.vectors), epsilon)
        rows.append((epsilon, "bound", bound.probability))
        for name, settings in CURVES.items():
            release = offaxis.fit(bundled.head, bundled.public, epsilon=epsilon, **settings)
            found = evaluate(release, bundled.head, bundled.vectors, seeds=seeds)
            rows.append((epsilon, name, found.mean("agreement")))
    return [
        {"epsilon": f"{epsilon:g}", "curve": name, "agreement": f"{value:.4f}"}
        for epsilon, name, value in rows
    ]


def write_table(rows: list[dict[str, str]]) -> None:
    """Keep what was measured beside the picture of it."""
    with TABLE.open("w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        table.writeheader()
        table.writerows(rows)


def read_table() -> list[dict[str, str]]:
    """Return what was measured."""
    with TABLE.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def utility() -> str:
    """Draw agreement with the model's answer against the budget, and what ε allows at most."""
    curves: dict[str, tuple[list[float], list[float]]] = {}
    for row in read_table():
        xs, ys = curves.setdefault(row["curve"], ([], []))
        xs.append(float(row["epsilon"]))
        ys.append(100 * float(row["agreement"]))
    styles = {
        "bound": (MUTED, "-", "no report passes this"),
        "the model's answer": (RESHAPED, "-", "the model's answer"),
        "codebook": (RESHAPED, (0, (4, 2)), "codebook"),
        "PrivUnit2, six directions": (RESHAPED, (0, (1, 1.4)), "PrivUnit2, six directions"),
        "PrivUnit2, plain": (PLAIN, "-", "PrivUnit2, plain"),
        "Laplace, reshaped": (PLAIN, (0, (4, 2)), "Laplace, reshaped"),
    }
    with panels(1, 4.7, 4.3) as (figure, (axes,)):
        for name, (colour, dashes, words) in styles.items():
            xs, ys = curves[name]
            # The bound is broad and behind: the best curve lies upon it.
            form = {"linewidth": 6, "alpha": 0.35} if name == "bound" else {"linewidth": 1.7}
            axes.plot(xs, ys, color=colour, linestyle=dashes, label=words, **form)
        axes.axhline(10, color=MUTED, linewidth=0.9, linestyle=(0, (1, 2)))
        say(axes, "guessing", (10, 10), MUTED, ha="right", va="top", shift=(0, -2))
        # Below, where a narrow screen has room for it.
        below = {"loc": "upper center", "bbox_to_anchor": (0.45, -0.16), "ncols": 2}
        legend = axes.legend(**below, frameon=False, fontsize=9)
        for text in legend.get_texts():
            text.set_color(INK)
        axes.set(xlabel="budget ε of one report", ylabel="the model's answer, %", ylim=(0, 102))
        axes.set_xticks([0.5, 1, 2, 3, 4, 5, 6, 7.5, 10])
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        at = {name: dict(zip(*points, strict=True)) for name, points in curves.items()}
        words = "; ".join(f"{name} {ys[3]:.0f} and {ys[5]:.0f} %" for name, ys in at.items())
        label = f"How often the model's answer survives one report, at ε = 3 and 5: {words}."
        return finish(figure, "utility", label)


def off_axis() -> str:
    """Draw reports of one vector, plain and reshaped, in the plane of a task that looks one way."""
    rng = np.random.default_rng(4)
    public = rng.normal(size=(4000, 2))
    task = np.array([[1.0, 0.0]])
    mine = np.array([1.0, 0.6])
    with panels(2, 7.6, 3.9) as (figure, axes):
        stretched = offaxis.Jacobian(lambda_max=8)
        shown = (("none", "plain", PLAIN), (stretched, "reshaped", RESHAPED))
        told = []
        for one, (shape, title, colour) in zip(axes, shown, strict=True):
            release = offaxis.fit(task, public, epsilon=4, reshaping=shape)
            noisy = simulate(release, np.tile(mine, (400, 1)), np.random.default_rng(1))
            right = 100 * float((noisy[:, 0] > -0.5).mean())
            told.append(f"{title}: {right:.0f} %")
            one.axvspan(-0.5, 20, color=SAME, linewidth=0, zorder=0)
            dots(one, noisy, colour, 3.0, 0.5)
            dots(one, public[:150], POINT, 1.6, 0.5)
            one.plot(*mine, "o", color=INK, ms=6, zorder=5)
            one.set(xlim=(-7, 9), ylim=(-8, 8), aspect="equal")
            one.set_xlabel("the task looks this way →", color=INK)
            one.set_ylabel("and ignores this way →")
            one.set_title(f"{title}: {right:.0f} % on the right side", color=colour, fontsize=10.5)
            one.grid(visible=False)
            one.set_xticks([])
            one.set_yticks([])
        label = (
            "400 simulated reports of one vector at the same ε, Laplace noise. The task asks "
            "whether a vector lies right of a line. Plain, the reports spread evenly; reshaped, "
            f"they spread along the line. Still on the right side: {', '.join(told)}."
        )
        return finish(figure, "off-axis", label)
