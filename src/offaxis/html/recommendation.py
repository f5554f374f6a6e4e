"""The page of recommendations: the release, its utility and bound, and the other candidates.

It is one HTML file that refers to nothing outside itself and runs no script.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from offaxis.errors import InvalidInput
from offaxis.evaluation.recommendation import Recommendation
from offaxis.evaluation.selection import ScoredCandidate
from offaxis.evaluation.utility import Utility
from offaxis.files import replacing
from offaxis.html.pages import (
    CARD,
    INK,
    LINE_DASHES,
    PLAIN,
    POINT,
    RESHAPED,
    budget_axis,
    canvas,
    inline,
    number,
    require_report_extra,
    template,
)
from offaxis.version import __version__

LABELS: Final = {
    "answers": "answers kept, %",
    "vectors": "variance explained, %",
    "means": "squared error, share of the variance",
}
"""What is shown, by goal; for means, the utility with its sign changed."""

_LOWEST: Final = -10.0
"""Candidates below this percentage are not drawn: they are much worse than no report."""

_OTHER: Final = {"answers": "vectors", "vectors": "answers"}
_SHOWN: Final = 12
"""Number of candidates in the table."""


def write_recommendation(recommendations: Sequence[Recommendation], out: Path) -> Path:
    """Write the page of recommendations for one task and goal, one per budget; return its path.

    Raises
    ------
    MissingExtra
        If matplotlib or jinja2 is not installed.
    """
    require_report_extra()
    page = render(recommendations)
    with replacing(out) as file:
        file.write(page.encode())
    return out


def render(recommendations: Sequence[Recommendation]) -> str:
    """Return the page as text; the middle budget is shown in detail."""
    if not recommendations:
        raise InvalidInput("a page needs at least one recommendation, got none")
    ordered = sorted(recommendations, key=lambda each: each.epsilon)
    goal = ordered[0].goal
    main = ordered[len(ordered) // 2]
    return template("recommend.html.j2").render(
        goal=goal,
        label=LABELS[goal],
        other=None if goal == "means" else LABELS[_OTHER[goal]],
        means=goal == "means",
        rows=[recommendation_row(each) for each in ordered],
        main=main,
        main_row=recommendation_row(main),
        settings={
            key: value for key, value in main.candidate.settings.items() if value is not None
        },
        candidates=[_candidate_row(each, goal) for each in main.candidates[:_SHOWN]],
        unshown=max(0, len(main.candidates) - _SHOWN) + len(main.screened_out),
        tasks=_task_rows(main),
        curve=utility_curve(ordered, {each.epsilon: each.ceiling for each in ordered}, "curve")
        if len(ordered) > 1
        else None,
        trade_off=None if goal == "means" else trade_off_figure(main, "trade-off"),
        cautions=joined_cautions(ordered),
        version=__version__,
    )


def _formatted(utility: Utility | None, goal: str) -> tuple[str, str]:
    """Format a utility and half its interval: in %, or for means the error as a share."""
    if utility is None:
        return "", ""
    low, high = utility.interval()
    half = (high - low) / 2
    if goal == "means":
        return f"{-utility.score:.3g}", f"± {half:.2g}"
    return f"{100 * utility.score:.1f}", f"± {100 * half:.1f}"


def _formatted_bound(value: float, goal: str) -> str:
    """Format a ceiling as :func:`_formatted` does a utility."""
    return f"{-value:.3g}" if goal == "means" else f"{100 * value:.1f}"


def joined_cautions(recommendations: Sequence[Recommendation]) -> list[str]:
    """Return the cautions of all recommendations, without duplicates."""
    return list(dict.fromkeys(text for each in recommendations for text in each.cautions))


def recommendation_row(recommendation: Recommendation) -> dict[str, Any]:
    """Return the texts and formatted numbers of one budget."""
    goal, vector = recommendation.goal, _vector_if_answer(recommendation)
    return {
        "epsilon": f"{recommendation.epsilon:g}",
        "title": recommendation.candidate.title,
        "summary": recommendation.summary,
        "expected": _formatted(recommendation.expected, goal),
        "bound": _formatted_bound(recommendation.ceiling, goal),
        "vector": vector and vector.candidate.title,
        "vector_kept": vector and _formatted(vector.utility, goal)[0],
    }


def _vector_if_answer(recommendation: Recommendation) -> ScoredCandidate | None:
    """Return the best release of a vector, if the recommended one reports only the answer."""
    return recommendation.best_vector if recommendation.candidate.is_answer else None


def _candidate_row(scored: ScoredCandidate, goal: str) -> dict[str, Any]:
    other = scored.scores.fidelity if goal == "answers" else scored.scores.answers
    return {
        "title": scored.candidate.title,
        "utility": _formatted(scored.utility, goal),
        "other": _formatted(other, goal),
    }


def _task_rows(recommendation: Recommendation) -> list[dict[str, Any]]:
    """Return one row per task; empty for a single task."""
    if len(recommendation.expected_by_task) < 2:
        return []
    return [
        {
            "name": name,
            "expected": _formatted(utility, recommendation.goal),
            "bound": _formatted_bound(recommendation.ceiling_by_task[name], recommendation.goal),
        }
        for name, utility in recommendation.expected_by_task.items()
    ]


# ---- Figures


def utility_curve(
    recommendations: Sequence[Recommendation], ceilings: Mapping[float, float], name: str
) -> str:
    """Draw the expected utility against the budget, with its interval and the ceiling.

    Parameters
    ----------
    ceilings : mapping
        Budget → upper bound on the utility of any ε-LDP report.
    name : str
        Unique in the page.
    """
    goal = recommendations[0].goal
    means = goal == "means"
    sign = -1.0 if means else 100.0
    with canvas(4.6, 2.9) as (figure, axes):
        budgets = sorted(ceilings)
        heights = [sign * ceilings[epsilon] for epsilon in budgets]
        axes.plot(budgets, heights, color=INK, linestyle=LINE_DASHES, linewidth=1.1, zorder=1)
        vectors = {
            each.epsilon: vector.utility
            for each in recommendations
            if (vector := _vector_if_answer(each))
        }
        _points(axes, vectors, sign, PLAIN, CARD)
        expected = {each.epsilon: each.expected for each in recommendations}
        _points(axes, expected, sign, RESHAPED, RESHAPED)
        axes.set(xlabel="budget ε", ylabel=LABELS[goal])
        if means:
            axes.set_yscale("log")
            axes.yaxis.set_major_formatter(lambda value, _: number(value))
            axes.minorticks_off()
        else:
            lowest = min(100 * each.expected.score for each in recommendations)
            axes.set_ylim(min(0.0, 1.1 * lowest), 104)
        axes.set_xlim(0, 1.05 * budgets[-1])
        budget_axis(axes, budgets[-1])
        words = "; ".join(
            f"at ε = {each.epsilon:g}, {sign * each.expected.score:.3g} with "
            f"{each.candidate.title}, bound {sign * each.ceiling:.3g}"
            for each in recommendations
        )
        return inline(figure, name, f"{LABELS[goal]} against the budget: {words}.")


def _points(
    axes: Any, utilities: Mapping[float, Utility], sign: float, colour: str, inside: str
) -> None:
    """Draw one point per budget, with its interval."""
    spans = [utility.interval() for utility in utilities.values()]
    axes.errorbar(
        list(utilities),
        [sign * utility.score for utility in utilities.values()],
        yerr=[abs(sign) * (high - low) / 2 for low, high in spans],
        color=colour,
        mfc=inside,
        fmt="o",
        ms=5,
        linewidth=1.4,
    )


def trade_off_figure(recommendation: Recommendation, name: str) -> str:
    """Draw the answers that every finalist keeps against the variance that it explains.

    The Pareto-optimal candidates are joined, and the ceiling of the goal is drawn. Candidates that
    ignore the report, or are much worse than these, are left out.
    """
    scored = [(each, *shares) for each in recommendation.candidates if (shares := _shares(each))]
    reporting = [point for point in scored if not point[0].candidate.is_silent]
    shown = [point for point in reporting if min(point[1:]) >= _LOWEST]
    optimal = [point for point in shown if point[0] in recommendation.frontier]
    with canvas(4.6, 2.9) as (figure, axes):
        bound = 100 * recommendation.ceiling
        draw = axes.axhline if recommendation.goal == "answers" else axes.axvline
        draw(bound, color=INK, linestyle=LINE_DASHES, linewidth=1.1)
        axes.plot([p[2] for p in shown], [p[1] for p in shown], "o", color=POINT, ms=4, alpha=0.6)
        axes.plot(
            [p[2] for p in optimal],
            [p[1] for p in optimal],
            color=RESHAPED,
            marker="o",
            ms=5,
            linewidth=1.4,
        )
        for each, answers, fidelity in optimal:
            if each.candidate is recommendation.candidate:
                axes.plot(fidelity, answers, "o", color=RESHAPED, ms=11, mfc="none", mew=1.6)
        axes.set(xlabel=LABELS["vectors"], ylabel=LABELS["answers"])
        axes.spines["left"].set_visible(False)
        axes.tick_params(length=0)
        words = "; ".join(f"{p[0].candidate.title} {p[1]:.1f} and {p[2]:.1f}" for p in optimal)
        label = (
            f"{len(shown)} candidates at ε = {recommendation.epsilon:g}. Not beaten in both by "
            f"another: {words}. Bound of the goal: {bound:.1f} %."
        )
        return inline(figure, name, label)


def _shares(scored: ScoredCandidate) -> tuple[float, float] | None:
    """Return the answers kept and the variance explained, in %; None for means."""
    answers, fidelity = scored.scores.answers, scored.scores.fidelity
    if answers is None or fidelity is None:
        return None
    return 100 * answers.score, 100 * fidelity.score
