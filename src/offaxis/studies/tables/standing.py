"""Tables of the recommended release as texts, for pages and documents alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from offaxis.studies.advice import DEVIATIONS
from offaxis.studies.compare import Line
from offaxis.studies.standing import (
    LOSS_AT,
    Prediction,
    Standing,
    kept_under_shifts,
    predictions,
    recommendations,
    standings,
)
from offaxis.studies.study import Study
from offaxis.studies.tables.means import people_tables
from offaxis.studies.tables.text import TextTable

BUDGETS: Final = (1.0, 3.0, 5.0, 7.5, 10.0)


def text_tables(study: Study, lines: Sequence[Line]) -> list[TextTable]:
    """Return what a study shows of its recommendations; nothing where it has none."""
    if study.show == "people":
        return people_tables(lines)
    made = []
    if study.show == "standing":
        made.append(_stands(study, lines))
    if study.show == "predicted":
        found = [each for each in predictions(lines) if not each.corrupted]
        made += [
            _came([each for each in found if each.pooled], "one pool"),
            _came([each for each in found if not each.pooled], "other vectors"),
            _shifts(lines),
        ]
    named = recommendations(lines)
    if named:
        rows = [
            [title, ", ".join(f"{budget:g}" for budget in budgets)]
            for title, budgets in named.items()
        ]
        made.append(TextTable("What was recommended", ["release", "at ε ="], rows))
    return made


def _heads(first: str) -> list[str]:
    return [first, *(f"ε = {epsilon:g}" for epsilon in BUDGETS)]


def _stands(study: Study, lines: Sequence[Line]) -> TextTable:
    levels: dict[str, dict[float, Standing]] = {}
    for stand in standings(lines):
        levels.setdefault(stand.ours.row.level, {})[stand.ours.epsilon] = stand
    rows = []
    for level, found in levels.items():
        shown = [found[epsilon] for epsilon in BUDGETS]
        rows += [
            [f"{level}: recommended", *(f"{stand.ours.mean:.3f}" for stand in shown)],
            [
                "best of the paper",
                *(f"{stand.best.mean:.3f} {stand.best.row.label}" for stand in shown),
            ],
            [
                "reference line",
                *("" if stand.line is None else f"{stand.line.mean:.3f}" for stand in shown),
            ],
        ]
    return TextTable("Where the recommended release stands", _heads(study.level), rows)


def _came(found: Sequence[Prediction], where: str) -> TextTable:
    questions: dict[str, dict[float, Prediction]] = {}
    for each in found:
        questions.setdefault(each.question, {})[each.came.epsilon] = each
    rows = []
    for question, at in questions.items():
        shown = [at[epsilon] for epsilon in BUDGETS]
        rows.append([question.replace("pooled ", ""), *map(_prediction, shown)])
    return TextTable("Predicted, and what came", _heads(where), rows)


def _prediction(each: Prediction) -> str:
    text = f"{each.advice.score:.3f} ± {DEVIATIONS * each.advice.error:.3f}, {each.came.mean:.3f}"
    return text if each.inside else f"{text} (outside)"


def _shifts(lines: Sequence[Line]) -> TextTable:
    rows = []
    for corruption, kept in kept_under_shifts(lines).items():
        for severity in range(1, 6):
            cells = [
                f"{values[severity]:.3f} ({_signed(values[severity] - values[0])})"
                for values in kept.values()
            ]
            rows.append([f"{corruption} {severity}", *cells])
    heads = [f"ε = {LOSS_AT:g}, against no shift", "label accuracy", "agreement", "fidelity"]
    return TextTable("What shifts cost", heads, rows)


def _signed(value: float) -> str:
    return f"{value:+.3f}".replace("-", "\N{MINUS SIGN}")
