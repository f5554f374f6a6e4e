"""The panels of each study's figure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from experiments.catalogue import PAIRS
from experiments.compare import (
    LOSS_AT,
    ComparedCell,
    PredictionCheck,
    against_paper,
    kept_under_shifts,
    means,
    prediction_checks,
    recovery_ratios,
)
from experiments.engine import Study
from experiments.means import SPHERE, UNBIASED
from experiments.methods import COUNTERPARTS, LINE, PUBLIC_MEAN
from experiments.pages.figures import (
    BUDGET_TICKS,
    YLABEL,
    Panel,
    Series,
    band,
    budget_panel,
    columns_for,
    reported,
    series_of,
)

Panels = tuple[list[Panel], int]
"""Panels, and the number of columns."""

_SHOWN_BUDGETS: Final = (1.0, 3.0, 5.0, 7.5, 10.0)


def panels(study: Study, cells: Sequence[ComparedCell]) -> Panels:
    """Return the panels of a study's figure and the number of columns."""
    makers: dict[str, Callable[[Study, Sequence[ComparedCell]], Panels]] = {
        "levels": _by_level,
        "clipping": _by_level,
        "recovery": _recovery,
        "curve": _curve,
        "standing": _against_paper,
        "predicted": _predicted,
        "people": by_people,
    }
    maker = _ablation if study.table == "ablation" else makers.get(study.show, _table)
    return maker(study, cells)


# ---- The paper's tables and figures


def _table(study: Study, cells: Sequence[ComparedCell]) -> Panels:
    rows, made = reported(cells), []
    for title, (plain, reshaped) in PAIRS.items():
        series = [
            series_of(rows[label], name, colour=colour, dashed=colour == "plain")
            for label, name, colour in (
                (plain, "plain", "plain"),
                (reshaped, "reshaped", "reshaped"),
            )
            if label in rows
        ]
        made.append(budget_panel(title, series, cells))
    for label, bounded in COUNTERPARTS.items():
        if label in rows and bounded in rows:
            series = [
                series_of(rows[label], "no guarantee", colour="plain", dashed=True),
                series_of(rows[bounded], "valid"),
            ]
            made.append(budget_panel(_short_title(rows[bounded]), series, cells))
    paired = {label: bounded for label, bounded in COUNTERPARTS.items() if bounded in rows}
    done = {*paired, *paired.values(), *sum(PAIRS.values(), ())}
    for label, row in rows.items():
        if label in done:
            continue
        if row[0].paper is None:  # not in the paper
            series = [series_of(row, "", colour="reshaped")]
            made.append(budget_panel(row[0].outcome.row.method.title, series, cells))
            continue
        name = "δ = 1e-5" if "delta" in label else row[0].outcome.row.method.mark
        series = [series_of(row, name, colour="plain")]
        made.append(budget_panel(_short_title(row), series, cells))
    return made, columns_for(len(made))


def _short_title(row: Sequence[ComparedCell]) -> str:
    """Return the title of a row's method, without its setting."""
    name = row[0].outcome.row.method.title.split(",")[0]
    return name[:1].upper() + name[1:]


def _ablation(study: Study, cells: Sequence[ComparedCell]) -> Panels:
    parts: dict[str, dict[str, list[ComparedCell]]] = {}
    for cell in (cell for cell in cells if cell.outcome.row.method.reports):
        name, part = cell.outcome.row.method.title.split(", ", 1)
        parts.setdefault(part, {}).setdefault(name, []).append(cell)
    colours = ("plain", "reshaped", "muted")
    made = [
        budget_panel(
            part,
            [
                series_of(row, name, colour=colour)
                for (name, row), colour in zip(rows.items(), colours, strict=True)
            ],
            cells,
        )
        for part, rows in parts.items()
    ]
    return made, 4


def _number(level: str) -> float:
    return float(level.removeprefix("10^"))


def _across_levels(cells: Sequence[ComparedCell], epsilon: float) -> list[ComparedCell]:
    """Return the cells of a budget in the order of their levels."""
    chosen = [cell for cell in cells if cell.outcome.epsilon == epsilon]
    return sorted(chosen, key=lambda cell: _number(cell.outcome.row.level))


def _by_level(study: Study, cells: Sequence[ComparedCell]) -> Panels:
    made = []
    metric = cells[0].outcome.metric
    ticks = sorted({_number(cell.outcome.row.level) for cell in cells})
    xlabel = "cap λ_max, power of ten" if study.table == "lambda-max" else study.level
    reference = [cell for cell in cells if cell.outcome.row.label == LINE]
    for label, row in reported(cells).items():
        series = []
        for index, epsilon in enumerate(_SHOWN_BUDGETS):
            ours, line = _across_levels(row, epsilon), _across_levels(reference, epsilon)
            strength = 0.36 + 0.16 * index
            series.append(
                Series(
                    f"ε = {epsilon:g}",
                    [_number(cell.outcome.row.level) for cell in ours],
                    [cell.outcome.mean for cell in ours],
                    [band(cell.outcome) for cell in ours],
                    [None if cell.paper is None else cell.paper.mean for cell in ours],
                    strength=strength,
                )
            )
            series.append(
                Series(
                    "",
                    [_number(cell.outcome.row.level) for cell in line],
                    [cell.outcome.mean for cell in line],
                    colour="muted",
                    strength=strength,
                    dashed=True,
                )
            )
        mark = row[0].outcome.row.method.mark
        title = f"{label.replace(' (l1)', '')}{f' ({mark})' if mark else ''}"
        title = title.replace(" w/o bounding", "").replace(", bounded", "")
        title = title.replace("+PA", ", reshaped")
        shown = ticks if len(ticks) < 8 else ticks[::3]
        made.append(Panel(title, series, xlabel, YLABEL[metric], xticks=shown))
    return made, columns_for(len(made))


def _recovery(study: Study, cells: Sequence[ComparedCell]) -> Panels:
    ours = means([cell.outcome for cell in cells])
    ratios, reference = recovery_ratios(ours), recovery_ratios(ours, LINE)
    corruptions = list(dict.fromkeys(level.rsplit(" ", 1)[0] for _, level, _ in ratios))
    budgets = sorted({epsilon for _, _, epsilon in ratios})
    made = []
    for name in PAIRS:
        for corruption in corruptions:
            severities = range(1, 6)
            series = [
                Series(
                    f"ε = {epsilon:g}" if values is ratios else "",
                    list(severities),
                    [values[name, f"{corruption} {s}", epsilon] for s in severities],
                    colour="reshaped" if values is ratios else "muted",
                    strength=0.4 + 0.2 * index,
                    dashed=values is reference,
                )
                for values in (ratios, reference)
                for index, epsilon in enumerate(budgets)
            ]
            title = f"{name}, {corruption.replace('-', ' ')}"
            made.append(Panel(title, series, "severity", "recovered", xticks=list(severities)))
    return made, len(corruptions)


def _curve(study: Study, cells: Sequence[ComparedCell]) -> Panels:
    looks = {
        "PrivUnit2+PA": ("PrivUnit2, reshaped", "reshaped", 1.0),
        "PrivUnitG+PA": ("PrivUnitG, reshaped", "reshaped", 0.7),
        "Laplace+PA": ("Laplace, reshaped", "reshaped", 0.45),
        "Task-Aware": ("task-aware, no guarantee", "plain", 1.0),
        "CW+PA w/o bounding": ("coordinate-wise, no guarantee", "muted", 1.0),
        "CW+PA, bounded": ("coordinate-wise", "muted", 0.6),
    }
    series = [
        series_of(row, looks[label][0], colour=looks[label][1], strength=looks[label][2])
        for label, row in reported(cells).items()
    ]
    return [budget_panel("MNIST, 32 features", series, cells)], 1


# ---- The recommended release


def _against_paper(study: Study, cells: Sequence[ComparedCell]) -> Panels:
    """Return one panel per setting: the recommended release, the paper's best, and the line."""
    levels: dict[str, list[ComparedCell]] = {}
    for cell in cells:
        levels.setdefault(cell.outcome.row.level, []).append(cell)
    made = []
    for level, in_setting in levels.items():
        comparisons = against_paper(in_setting)
        series = [
            series_of([ComparedCell(each.ours, None) for each in comparisons], "recommended"),
            series_of(
                [ComparedCell(each.best, None) for each in comparisons],
                "best of the paper",
                colour="plain",
                dashed=True,
            ),
        ]
        made.append(budget_panel(level.replace("-", " "), series, in_setting))
    return made, columns_for(len(made))


def _predicted(study: Study, cells: Sequence[ComparedCell]) -> Panels:
    """Return predictions as circles on the measured curves, and what shifts cost."""
    made = []
    by_question: dict[str, list[PredictionCheck]] = {}
    for check in prediction_checks(cells):
        if not check.corrupted:
            by_question.setdefault(check.question, []).append(check)
    for question, checks in by_question.items():
        series = Series(
            "",
            [check.measured.epsilon for check in checks],
            [check.measured.mean for check in checks],
            [check.measured.std for check in checks],
            [check.prediction.score for check in checks],
        )
        made.append(Panel(question, [series], "budget ε", "share kept", xticks=BUDGET_TICKS))
    colours = ("reshaped", "muted", "plain")
    for corruption, kept in kept_under_shifts(cells).items():
        severities = [*range(1, 6)]
        by_score = [
            Series(score, severities, values[1:], colour=colour)
            for (score, values), colour in zip(kept.items(), colours, strict=True)
        ]
        title = f"{corruption.replace('-', ' ')}, ε = {LOSS_AT:g}"
        made.append(Panel(title, by_score, "severity", "share kept", xticks=severities))
    return made, columns_for(len(made))


# ---- Means over people

_LOOKS: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "Laplace": ("Laplace", {"colour": "plain"}),
    "piecewise": ("piecewise", {"colour": "plain", "strength": 0.55}),
    "PrivUnit2": ("PrivUnit2", {"colour": "reshaped"}),
    "PrivUnit2, 10 %": ("PrivUnit2, tight ball", {"colour": "reshaped", "strength": 0.55}),
    "codebook": ("codebook", {"colour": "ink"}),
    PUBLIC_MEAN: ("public mean", {"colour": "ink", "dashed": True}),
    UNBIASED: ("unbiased: the limit", {"colour": "muted", "dashed": True}),
    SPHERE: ("best on a sphere", {"colour": "muted", "dashed": True, "strength": 0.55}),
}
"""Label → name and look of the rows that are drawn; the others are close to one of them."""


def by_people(study: Study, cells: Sequence[ComparedCell]) -> Panels:
    """Return one panel per budget: error against the number of people, both axes logarithmic."""
    by_budget: dict[float, dict[str, list[ComparedCell]]] = {}
    for cell in cells:
        rows = by_budget.setdefault(cell.outcome.epsilon, {})
        rows.setdefault(cell.outcome.row.label, []).append(cell)
    made = []
    for epsilon, rows in by_budget.items():
        series = [
            Series(
                name,
                [float(cell.outcome.row.level) for cell in rows[label]],
                [cell.outcome.mean for cell in rows[label]],
                **look,
            )
            for label, (name, look) in _LOOKS.items()
            if label in rows
        ]
        made.append(
            Panel(
                f"ε = {epsilon:g}",
                series,
                "people",
                "squared error, share of the variance",
                logarithmic=True,
                logarithmic_x=True,
                xticks=series[0].x,
            )
        )
    return made, 2
