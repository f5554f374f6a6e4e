"""What the figure of each study shows: from outcomes to panels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from offaxis.reporting.study_figures import Panel, Series
from offaxis.studies.catalogue import PAIRS, Study
from offaxis.studies.compare import Line, means, recovery_ratios
from offaxis.studies.mechanisms import CLEAN, COUNTERPARTS

_BUDGET_TICKS: Final = (1.0, 2.5, 5.0, 7.5, 10.0)
_SHOWN_BUDGETS: Final = (1.0, 3.0, 5.0, 7.5, 10.0)
_YLABEL: Final = {"accuracy": "right answers", "rmse": "error, kWh (log scale)"}


def panels(study: Study, lines: Sequence[Line]) -> tuple[list[Panel], int]:
    """Return the panels of a study's figure and how many stand side by side."""
    makers: dict[str, Callable[[Study, Sequence[Line]], tuple[list[Panel], int]]] = {
        "levels": _by_level,
        "clipping": _by_level,
        "recovery": _recovery,
        "curve": _curve,
    }
    maker = _ablation if study.name == "ablation" else makers.get(study.show, _table)
    return maker(study, lines)


def _columns(count: int) -> int:
    """Return three or four, whichever leaves fewer places empty."""
    return min((4, 3), key=lambda columns: -count % columns)


def _series(lines: Sequence[Line], name: str, **look: object) -> Series:
    return Series(
        name,
        [line.outcome.epsilon for line in lines],
        [line.outcome.mean for line in lines],
        [line.outcome.std for line in lines],
        [None if line.paper is None else line.paper.mean for line in lines],
        **look,  # type: ignore[arg-type]
    )


def _rows(lines: Sequence[Line]) -> dict[str, list[Line]]:
    found: dict[str, list[Line]] = {}
    for line in lines:
        found.setdefault(line.outcome.row.label, []).append(line)
    return found


def _budget_panel(title: str, series: list[Series], lines: Sequence[Line]) -> Panel:
    metric = lines[0].outcome.metric
    clean = next((o.outcome.mean for o in lines if o.outcome.row.label == CLEAN), None)
    return Panel(
        title,
        series,
        "budget ε",
        _YLABEL[metric],
        metric == "rmse",
        _BUDGET_TICKS,
        None if clean is None else ("without privacy", clean),
    )


def _table(study: Study, lines: Sequence[Line]) -> tuple[list[Panel], int]:
    rows, made = _rows(lines), []
    for title, (plain, reshaped) in PAIRS.items():
        series = [
            _series(rows[label], name, colour=colour, dashed=colour == "plain")
            for label, name, colour in (
                (plain, "plain", "plain"),
                (reshaped, "reshaped", "reshaped"),
            )
            if label in rows
        ]
        made.append(_budget_panel(title, series, lines))
    for label, bounded in COUNTERPARTS.items():
        if label in rows:
            series = [
                _series(rows[label], "no guarantee", colour="plain", dashed=True),
                _series(rows[bounded], "valid"),
            ]
            made.append(_budget_panel(label.split(" ")[0], series, lines))
    shown = {bounded for label, bounded in COUNTERPARTS.items() if label in rows}
    done = {CLEAN, *COUNTERPARTS, *shown, *sum(PAIRS.values(), ())}
    for label, found in rows.items():
        if label in done:
            continue
        if found[0].paper is None:  # a row of our own
            series = [_series(found, "", colour="reshaped")]
            made.append(_budget_panel(found[0].outcome.row.mechanism.title, series, lines))
            continue
        name = "δ = 1e-5" if "delta" in label else ""
        series = [_series(found, name, colour="plain")]
        made.append(_budget_panel(label.split(" ")[0], series, lines))
    return made, _columns(len(made))


def _ablation(study: Study, lines: Sequence[Line]) -> tuple[list[Panel], int]:
    parts: dict[str, dict[str, list[Line]]] = {}
    for line in lines:
        name, part = line.outcome.row.mechanism.title.split(", ", 1)
        parts.setdefault(part, {}).setdefault(name, []).append(line)
    colours = ("plain", "reshaped", "muted")
    made = [
        _budget_panel(
            part,
            [
                _series(found, name, colour=colour)
                for (name, found), colour in zip(rows.items(), colours, strict=True)
            ],
            lines,
        )
        for part, rows in parts.items()
    ]
    return made, 4


def _number(level: str) -> float:
    return float(level.removeprefix("10^"))


def _by_level(study: Study, lines: Sequence[Line]) -> tuple[list[Panel], int]:
    made = []
    metric = lines[0].outcome.metric
    ticks = sorted({_number(line.outcome.row.level) for line in lines})
    xlabel = "cap λ_max, power of ten" if study.name == "lambda-max" else study.level
    for label, found in _rows(lines).items():
        if label == CLEAN:
            continue
        series = []
        for index, epsilon in enumerate(_SHOWN_BUDGETS):
            chosen = [line for line in found if line.outcome.epsilon == epsilon]
            chosen.sort(key=lambda line: _number(line.outcome.row.level))
            series.append(
                Series(
                    f"ε = {epsilon:g}",
                    [_number(line.outcome.row.level) for line in chosen],
                    [line.outcome.mean for line in chosen],
                    [line.outcome.std for line in chosen],
                    [None if line.paper is None else line.paper.mean for line in chosen],
                    strength=0.36 + 0.16 * index,
                )
            )
        mark = found[0].outcome.row.mechanism.mark
        title = f"{label.replace(' (l1)', '')}{f' ({mark})' if mark else ''}"
        title = title.replace(" w/o bounding", "").replace(", bounded", "")
        title = title.replace("+PA", ", reshaped")
        some = ticks if len(ticks) < 8 else ticks[::3]
        made.append(Panel(title, series, xlabel, _YLABEL[metric], xticks=some))
    return made, _columns(len(made))


def _recovery(study: Study, lines: Sequence[Line]) -> tuple[list[Panel], int]:
    ratios = recovery_ratios(means([line.outcome for line in lines]))
    corruptions = list(dict.fromkeys(level.rsplit(" ", 1)[0] for _, level, _ in ratios))
    budgets = sorted({epsilon for _, _, epsilon in ratios})
    made = []
    for name in PAIRS:
        for corruption in corruptions:
            severities = range(1, 6)
            series = [
                Series(
                    f"ε = {epsilon:g}",
                    list(severities),
                    [ratios[name, f"{corruption} {s}", epsilon] for s in severities],
                    strength=0.4 + 0.2 * index,
                )
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
        _series(found, looks[label][0], colour=looks[label][1], strength=looks[label][2])
        for label, found in _rows(lines).items()
    ]
    return [_budget_panel("MNIST, 32 features", series, lines)], 1
