"""Figures of the recommended release: beside the best of the paper, and beside its prediction."""

from __future__ import annotations

from collections.abc import Sequence

from offaxis.reporting.study.curves import BUDGET_TICKS, budget_panel, columns_for, series_of
from offaxis.reporting.study.figures import Panel, Series
from offaxis.studies.compare import Line
from offaxis.studies.standing import LOSS_AT, Prediction, kept_under_shifts, predictions, standings
from offaxis.studies.study import Study


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
