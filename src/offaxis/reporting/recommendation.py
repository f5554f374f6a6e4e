"""Figures of recommendations: what they are worth beside what ε allows, and what else there is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from offaxis.errors import InvalidInput
from offaxis.evaluation.recommend import ScoredCandidate
from offaxis.evaluation.recommendation import Recommendation
from offaxis.evaluation.utility import Utility
from offaxis.files import replacing
from offaxis.reporting.pages import (
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
    "fidelity": "variance explained, %",
    "mean": "squared error, share of the variance",
}
"""What is drawn, by goal; for means a utility is an error with its sign turned."""

_LOWEST: Final = -10.0
"""Percent of the variance below which a candidate is not drawn: worse than no report at all."""


def utility_curve(
    found: Sequence[Recommendation], ceilings: Mapping[float, float], name: str
) -> str:
    """Draw the expected utility against the budget, with its interval, and the ceiling.

    Parameters
    ----------
    ceilings : mapping
        Budget → what no ε-LDP report passes.
    name : str
        Unique in the page.
    """
    goal = found[0].goal
    means = goal == "mean"
    sign = -1.0 if means else 100.0
    with canvas(4.6, 2.9) as (figure, axes):
        budgets = sorted(ceilings)
        heights = [sign * ceilings[epsilon] for epsilon in budgets]
        axes.plot(budgets, heights, color=INK, linestyle=LINE_DASHES, linewidth=1.1, zorder=1)
        others = {each.epsilon: vector.utility for each in found if (vector := beside(each))}
        _bars(axes, others, sign, PLAIN, CARD)
        expected = {each.epsilon: each.expected for each in found}
        _bars(axes, expected, sign, RESHAPED, RESHAPED)
        axes.set(xlabel="budget ε", ylabel=LABELS[goal])
        if means:
            axes.set_yscale("log")
            axes.yaxis.set_major_formatter(lambda value, _: number(value))
            axes.minorticks_off()
        else:
            axes.set_ylim(min(0.0, 1.1 * min(100 * each.expected.score for each in found)), 104)
        axes.set_xlim(0, 1.05 * budgets[-1])
        budget_axis(axes, budgets[-1])
        words = "; ".join(
            f"at ε = {each.epsilon:g}, {sign * each.expected.score:.3g} with "
            f"{each.candidate.title}, bound {sign * each.ceiling:.3g}"
            for each in found
        )
        return inline(figure, name, f"{LABELS[goal]} against the budget: {words}.")


def beside(found: Recommendation) -> ScoredCandidate | None:
    """Return the best release of a vector, where the recommended one tells the answer alone."""
    return found.best_vector if found.candidate.is_answer else None


def _bars(
    axes: Any, utilities: Mapping[float, Utility], sign: float, colour: str, inside: str
) -> None:
    """Draw a point a budget, with its interval."""
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


def exchange(found: Recommendation, name: str) -> str:
    """Draw what every finalist keeps of the answers against what it keeps of the vector.

    Those that none passes in both are joined. Where the goal is the answers or the vector, its
    ceiling is drawn too. What reads no report is left out, and what is far worse than that.
    """
    scored = [(each, *shares) for each in found.candidates if (shares := _shares(each))]
    told = [point for point in scored if not point[0].candidate.is_silent]
    shown = [point for point in told if min(point[1:]) >= _LOWEST]
    joined = [point for point in shown if point[0] in found.frontier]
    with canvas(4.6, 2.9) as (figure, axes):
        bound = 100 * found.ceiling
        draw = axes.axhline if found.goal == "answers" else axes.axvline
        draw(bound, color=INK, linestyle=LINE_DASHES, linewidth=1.1)
        axes.plot([p[2] for p in shown], [p[1] for p in shown], "o", color=POINT, ms=4, alpha=0.6)
        axes.plot(
            [p[2] for p in joined],
            [p[1] for p in joined],
            color=RESHAPED,
            marker="o",
            ms=5,
            linewidth=1.4,
        )
        for each, answers, fidelity in joined:
            if each.candidate is found.candidate:
                axes.plot(fidelity, answers, "o", color=RESHAPED, ms=11, mfc="none", mew=1.6)
        axes.set(xlabel=LABELS["fidelity"], ylabel=LABELS["answers"])
        axes.spines["left"].set_visible(False)
        axes.tick_params(length=0)
        words = "; ".join(f"{p[0].candidate.title} {p[1]:.1f} and {p[2]:.1f}" for p in joined)
        label = (
            f"{len(shown)} candidates at ε = {found.epsilon:g}. None is passed in both by another: "
            f"{words}. Bound of the goal: {bound:.1f} %."
        )
        return inline(figure, name, label)


def _shares(each: ScoredCandidate) -> tuple[float, float] | None:
    """Return what is kept of the answers and of the vector, in %; None for means."""
    answers, fidelity = each.scores.answers, each.scores.fidelity
    if answers is None or fidelity is None:
        return None
    return 100 * answers.score, 100 * fidelity.score


# ----------------------------------------------------------------------------
# The page of a recommendation: the advice, its ceiling, and what else was tried; one HTML file.
#
# It refers to nothing outside itself and runs no script.

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
        candidates=[_candidate(each, goal) for each in main.candidates[:_SHOWN]],
        unshown=max(0, len(main.candidates) - _SHOWN) + len(main.screened_out),
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
        "summary": found.summary,
        "expected": written(found.expected, found.goal),
        "bound": written_bound(found.ceiling, found.goal),
        "vector": other and other.candidate.title,
        "vector_kept": other and written(other.utility, found.goal)[0],
    }


def _candidate(each: ScoredCandidate, goal: str) -> dict[str, Any]:
    return {
        "title": each.candidate.title,
        "utility": written(each.utility, goal),
        "other": written(each.scores.fidelity if goal == "answers" else each.scores.answers, goal),
    }


def _tasks(found: Recommendation) -> list[dict[str, Any]]:
    """Return the tasks one by one, where there are several."""
    if len(found.expected_by_task) < 2:
        return []
    return [
        {
            "name": name,
            "expected": written(utility, found.goal),
            "bound": written_bound(found.ceiling_by_task[name], found.goal),
        }
        for name, utility in found.expected_by_task.items()
    ]
