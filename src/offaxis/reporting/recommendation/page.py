"""The page of a recommendation: the advice, its ceiling, and what else was tried; one HTML file.

It refers to nothing outside itself and runs no script.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from offaxis.errors import InvalidInput
from offaxis.evaluation.recommend import Recommendation, Tried
from offaxis.evaluation.utility import Utility
from offaxis.files import replacing
from offaxis.reporting.pages import template
from offaxis.reporting.recommendation.plots import LABELS, beside, exchange, utility_curve
from offaxis.reporting.svg import require_report_extra
from offaxis.version import __version__

_OTHER: Final = {"answers": "fidelity", "fidelity": "answers"}
_SHOWN: Final = 12
"""Candidates in the table of one budget."""


def write_recommendation(found: Sequence[Recommendation], out: Path) -> Path:
    """Write the page of recommendations for one task and goal, one a budget; return its path.

    Raises
    ------
    MissingExtra
        If matplotlib or jinja2 is not installed.
    """
    require_report_extra()
    page = render(found)
    with replacing(out) as file:
        file.write(page.encode())
    return out


def render(found: Sequence[Recommendation]) -> str:
    """Return the page as text."""
    if not found:
        raise InvalidInput("a page needs at least one recommendation, got none")
    ordered = sorted(found, key=lambda each: each.epsilon)
    goal = ordered[0].goal
    main = ordered[len(ordered) // 2]
    return template("recommend.html.j2").render(
        goal=goal,
        label=LABELS[goal],
        other=None if goal == "mean" else LABELS[_OTHER[goal]],
        means=goal == "mean",
        rows=[recommendation_row(each) for each in ordered],
        main=main,
        main_row=recommendation_row(main),
        settings={
            key: value for key, value in main.candidate.settings.items() if value is not None
        },
        candidates=[_candidate(each, goal) for each in main.tried[:_SHOWN]],
        unshown=max(0, len(main.tried) - _SHOWN) + len(main.left_out),
        tasks=_tasks(main),
        curve=utility_curve(ordered, {each.epsilon: each.ceiling for each in ordered}, "curve")
        if len(ordered) > 1
        else None,
        exchange=None if goal == "mean" else exchange(main, "exchange"),
        cautions=joined_cautions(ordered),
        version=__version__,
    )


def written(utility: Utility | None, goal: str) -> tuple[str, str]:
    """Write a utility and half its interval: in %, or for means the error as a share."""
    if utility is None:
        return "", ""
    low, high = utility.interval()
    half = (high - low) / 2
    if goal == "mean":
        return f"{-utility.score:.3g}", f"± {half:.2g}"
    return f"{100 * utility.score:.1f}", f"± {100 * half:.1f}"


def written_bound(value: float, goal: str) -> str:
    """Write a ceiling as :func:`written` writes a utility."""
    return f"{-value:.3g}" if goal == "mean" else f"{100 * value:.1f}"


def joined_cautions(found: Sequence[Recommendation]) -> list[str]:
    """Return what makes any of them doubtful, once each."""
    return list(dict.fromkeys(text for each in found for text in each.cautions))


def recommendation_row(found: Recommendation) -> dict[str, Any]:
    """Put what is recommended at one budget into the words and numbers that are shown."""
    other = beside(found)
    return {
        "epsilon": f"{found.epsilon:g}",
        "title": found.candidate.title,
        "sentence": found.sentence,
        "expected": written(found.expected, found.goal),
        "bound": written_bound(found.ceiling, found.goal),
        "vector": other and other.candidate.title,
        "vector_kept": other and written(other.utility, found.goal)[0],
    }


def _candidate(each: Tried, goal: str) -> dict[str, Any]:
    return {
        "title": each.candidate.title,
        "utility": written(each.utility, goal),
        "other": written(
            each.verdict.fidelity if goal == "answers" else each.verdict.answers, goal
        ),
    }


def _tasks(found: Recommendation) -> list[dict[str, Any]]:
    """Return the tasks one by one, where there are several."""
    if len(found.each) < 2:
        return []
    return [
        {
            "name": name,
            "expected": written(utility, found.goal),
            "bound": written_bound(found.ceilings[name], found.goal),
        }
        for name, utility in found.each.items()
    ]
