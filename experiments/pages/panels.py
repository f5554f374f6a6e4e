"""The figure of a study of means: error against the number of people, a panel a budget."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from experiments.catalogue import PAIRS
from experiments.compare import Line, means, recovery_ratios
from experiments.engine import Study
from experiments.means import SPHERE, UNBIASED
from experiments.pages.figures import (
    BUDGET_TICKS,
    YLABEL,
    Panel,
    Series,
    budget_panel,
    columns_for,
    reported,
    series_of,
)
from experiments.recommended import LOSS_AT, Prediction, kept_under_shifts, predictions, standings
from experiments.rows import COUNTERPARTS, LINE, PUBLIC_MEAN

_LOOKS: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "Laplace": ("Laplace", {"colour": "plain"}),
    "piecewise": ("piecewise", {"colour": "plain", "strength": 0.55}),
    "PrivUnit2": ("PrivUnit2", {"colour": "reshaped"}),
    "PrivUnit2, 10 %": ("PrivUnit2, tight ball", {"colour": "reshaped", "strength": 0.55}),
    "codebook": ("codebook", {"colour": "ink"}),
    PUBLIC_MEAN: ("nobody asked", {"colour": "ink", "dashed": True}),
    UNBIASED: ("unbiased: the limit", {"colour": "muted", "dashed": True}),
    SPHERE: ("best on a sphere", {"colour": "muted", "dashed": True, "strength": 0.55}),
}
"""The rows that are drawn, and how; the others lie close to one of them."""


def people(study: Study, lines: Sequence[Line]) -> tuple[list[Panel], int]:
    """Return a panel a budget, with both axes logarithmic."""
    found: dict[float, dict[str, list[Line]]] = {}
    for line in lines:
        rows = found.setdefault(line.outcome.epsilon, {})
        rows.setdefault(line.outcome.row.label, []).append(line)
    made = []
    for epsilon, rows in found.items():
        series = [
            Series(
                name,
                [float(line.outcome.row.level) for line in rows[label]],
                [line.outcome.mean for line in rows[label]],
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


# ----------------------------------------------------------------------------
# Figures of the recommended release: beside the best of the paper, and beside its prediction.


def standing(study: Study, lines: Sequence[Line]) -> tuple[list[Panel], int]:
    """Return a plot a setting: the recommended release, the best of the paper, and the line."""
    levels: dict[str, list[Line]] = {}
    for line in lines:
        levels.setdefault(line.outcome.row.level, []).append(line)
    made = []
    for level, found in levels.items():
        stands = standings(found)
        series = [
            series_of([Line(stand.ours, None) for stand in stands], "recommended"),
            series_of(
                [Line(stand.best, None) for stand in stands],
                "best of the paper",
                colour="plain",
                dashed=True,
            ),
        ]
        made.append(budget_panel(level.replace("-", " "), series, found))
    return made, columns_for(len(made))


def predicted(study: Study, lines: Sequence[Line]) -> tuple[list[Panel], int]:
    """Return what was predicted as marks on the curve of what came, and what shifts cost."""
    made = []
    by_question: dict[str, list[Prediction]] = {}
    for each in predictions(lines):
        if not each.corrupted:
            by_question.setdefault(each.question, []).append(each)
    for question, found in by_question.items():
        series = Series(
            "",
            [each.came.epsilon for each in found],
            [each.came.mean for each in found],
            [each.came.std for each in found],
            [each.advice.score for each in found],
        )
        made.append(Panel(question, [series], "budget ε", "share kept", xticks=BUDGET_TICKS))
    colours = ("reshaped", "muted", "plain")
    for corruption, kept in kept_under_shifts(lines).items():
        severities = [*range(1, 6)]
        series_of_kinds = [
            Series(kind, severities, values[1:], colour=colour)
            for (kind, values), colour in zip(kept.items(), colours, strict=True)
        ]
        title = f"{corruption.replace('-', ' ')}, ε = {LOSS_AT:g}"
        made.append(Panel(title, series_of_kinds, "severity", "share kept", xticks=severities))
    return made, columns_for(len(made))


# ----------------------------------------------------------------------------
# What the figure of each study shows: from outcomes to panels.

_SHOWN_BUDGETS: Final = (1.0, 3.0, 5.0, 7.5, 10.0)


def panels(study: Study, lines: Sequence[Line]) -> tuple[list[Panel], int]:
    """Return the panels of a study's figure and how many stand side by side."""
    makers: dict[str, Callable[[Study, Sequence[Line]], tuple[list[Panel], int]]] = {
        "levels": _by_level,
        "clipping": _by_level,
        "recovery": _recovery,
        "curve": _curve,
        "standing": standing,
        "predicted": predicted,
        "people": people,
    }
    maker = _ablation if study.name == "ablation" else makers.get(study.show, _table)
    return maker(study, lines)


def _table(study: Study, lines: Sequence[Line]) -> tuple[list[Panel], int]:
    rows, made = reported(lines), []
    for title, (plain, reshaped) in PAIRS.items():
        series = [
            series_of(rows[label], name, colour=colour, dashed=colour == "plain")
            for label, name, colour in (
                (plain, "plain", "plain"),
                (reshaped, "reshaped", "reshaped"),
            )
            if label in rows
        ]
        made.append(budget_panel(title, series, lines))
    for label, bounded in COUNTERPARTS.items():
        if label in rows:
            series = [
                series_of(rows[label], "no guarantee", colour="plain", dashed=True),
                series_of(rows[bounded], "valid"),
            ]
            made.append(budget_panel(_kind(rows[bounded]), series, lines))
    shown = {bounded for label, bounded in COUNTERPARTS.items() if label in rows}
    done = {*COUNTERPARTS, *shown, *sum(PAIRS.values(), ())}
    for label, found in rows.items():
        if label in done:
            continue
        if found[0].paper is None:  # a row of our own
            series = [series_of(found, "", colour="reshaped")]
            made.append(budget_panel(found[0].outcome.row.mechanism.title, series, lines))
            continue
        name = "δ = 1e-5" if "delta" in label else ""
        series = [series_of(found, name, colour="plain")]
        made.append(budget_panel(_kind(found), series, lines))
    return made, columns_for(len(made))


def _kind(found: Sequence[Line]) -> str:
    """Return what a row is in our words, without its setting."""
    name = found[0].outcome.row.mechanism.title.split(",")[0]
    return name[:1].upper() + name[1:]


def _ablation(study: Study, lines: Sequence[Line]) -> tuple[list[Panel], int]:
    parts: dict[str, dict[str, list[Line]]] = {}
    for line in (line for line in lines if line.outcome.row.mechanism.reports):
        name, part = line.outcome.row.mechanism.title.split(", ", 1)
        parts.setdefault(part, {}).setdefault(name, []).append(line)
    colours = ("plain", "reshaped", "muted")
    made = [
        budget_panel(
            part,
            [
                series_of(found, name, colour=colour)
                for (name, found), colour in zip(rows.items(), colours, strict=True)
            ],
            lines,
        )
        for part, rows in parts.items()
    ]
    return made, 4


def _number(level: str) -> float:
    return float(level.removeprefix("10^"))


def _across_levels(lines: Sequence[Line], epsilon: float) -> list[Line]:
    """Return the cells of a budget in the order of their levels."""
    chosen = [line for line in lines if line.outcome.epsilon == epsilon]
    return sorted(chosen, key=lambda line: _number(line.outcome.row.level))


def _by_level(study: Study, lines: Sequence[Line]) -> tuple[list[Panel], int]:
    made = []
    metric = lines[0].outcome.metric
    ticks = sorted({_number(line.outcome.row.level) for line in lines})
    xlabel = "cap λ_max, power of ten" if study.name == "lambda-max" else study.level
    drawn = [line for line in lines if line.outcome.row.label == LINE]
    for label, found in reported(lines).items():
        series = []
        for index, epsilon in enumerate(_SHOWN_BUDGETS):
            chosen, line = _across_levels(found, epsilon), _across_levels(drawn, epsilon)
            strength = 0.36 + 0.16 * index
            series.append(
                Series(
                    f"ε = {epsilon:g}",
                    [_number(line.outcome.row.level) for line in chosen],
                    [line.outcome.mean for line in chosen],
                    [line.outcome.std for line in chosen],
                    [None if line.paper is None else line.paper.mean for line in chosen],
                    strength=strength,
                )
            )
            series.append(
                Series(
                    "",
                    [_number(each.outcome.row.level) for each in line],
                    [each.outcome.mean for each in line],
                    colour="muted",
                    strength=strength,
                    dashed=True,
                )
            )
        mark = found[0].outcome.row.mechanism.mark
        title = f"{label.replace(' (l1)', '')}{f' ({mark})' if mark else ''}"
        title = title.replace(" w/o bounding", "").replace(", bounded", "")
        title = title.replace("+PA", ", reshaped")
        some = ticks if len(ticks) < 8 else ticks[::3]
        made.append(Panel(title, series, xlabel, YLABEL[metric], xticks=some))
    return made, columns_for(len(made))


def _recovery(study: Study, lines: Sequence[Line]) -> tuple[list[Panel], int]:
    ours = means([line.outcome for line in lines])
    ratios, drawn = recovery_ratios(ours), recovery_ratios(ours, LINE)
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
                    dashed=values is drawn,
                )
                for values in (ratios, drawn)
                for index, epsilon in enumerate(budgets)
            ]
            title = f"{name}, {corruption.replace('-', ' ')}"
            made.append(Panel(title, series, "severity", "recovered", xticks=list(severities)))
    return made, len(corruptions)


def _curve(study: Study, lines: Sequence[Line]) -> tuple[list[Panel], int]:
    looks = {
        "PrivUnit2+PA": ("PrivUnit2, reshaped", "reshaped", 1.0),
        "PrivUnitG+PA": ("PrivUnitG, reshaped", "reshaped", 0.7),
        "Laplace+PA": ("Laplace, reshaped", "reshaped", 0.45),
        "Task-Aware": ("task-aware", "plain", 1.0),
        "CW+PA w/o bounding": ("coordinate-wise, no guarantee", "muted", 1.0),
        "CW+PA, bounded": ("coordinate-wise", "muted", 0.6),
    }
    series = [
        series_of(found, looks[label][0], colour=looks[label][1], strength=looks[label][2])
        for label, found in reported(lines).items()
    ]
    return [budget_panel("MNIST, 32 features", series, lines)], 1
