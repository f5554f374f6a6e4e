"""Tables of a study of means: which release is nearest for how many people, and all errors."""

from __future__ import annotations

from collections.abc import Sequence

from offaxis.studies.compare import Line
from offaxis.studies.engine import Outcome
from offaxis.studies.means import nearest
from offaxis.studies.mechanisms import PUBLIC_MEAN
from offaxis.studies.tables.text import TextTable


def people_tables(lines: Sequence[Line]) -> list[TextTable]:
    """Return the nearest release by people and budget, then a table of errors a budget."""
    outcomes = [line.outcome for line in lines]
    budgets = sorted({outcome.epsilon for outcome in outcomes})
    return [_nearest(outcomes, budgets), *(_errors(outcomes, epsilon) for epsilon in budgets)]


def _people(outcomes: Sequence[Outcome]) -> list[str]:
    return sorted({outcome.row.level for outcome in outcomes}, key=int)


def _short(error: float) -> str:
    return f"{error:.2g}" if error < 10 else f"{error:.0f}"


def _nearest(outcomes: Sequence[Outcome], budgets: Sequence[float]) -> TextTable:
    found = nearest(outcomes)
    unasked = {o.row.level: o.mean for o in outcomes if o.row.label == PUBLIC_MEAN}
    rows = []
    for people in _people(outcomes):
        cells = [f"{int(people):,}"]
        for epsilon in budgets:
            best = found[people, epsilon]
            mark = "" if best.mean < unasked[people] else " \N{DAGGER}"
            cells.append(f"{best.row.label}: {_short(best.mean)}{mark}")
        rows.append(cells)
    heads = ["people", *(f"ε = {epsilon:g}" for epsilon in budgets)]
    return TextTable(
        "The least error (\N{DAGGER} asking nobody is nearer still)",
        heads,
        rows,
    )


def _errors(outcomes: Sequence[Outcome], epsilon: float) -> TextTable:
    people = _people(outcomes)
    rows: dict[str, list[str]] = {}
    for outcome in outcomes:
        if outcome.epsilon == epsilon:
            title = outcome.row.mechanism.title
            rows.setdefault(title, [title]).append(_short(outcome.mean))
    heads = ["squared error", *(f"{int(each):,} people" for each in people)]
    return TextTable(f"ε = {epsilon:g}", heads, list(rows.values()))
