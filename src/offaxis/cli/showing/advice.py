"""How recommendations are printed: a table of what was tried, a table of budgets, or JSON."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from offaxis.cli.showing.terminal import bare_table, filled

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from offaxis.evaluation.recommendation import Recommendation
    from offaxis.evaluation.smallest import SmallestBudget
    from offaxis.evaluation.trials import Tried
    from offaxis.evaluation.utility import Utility

_SHOWN: Final = 12
"""Candidates that the table shows; --json has all."""

_ERRORS: Final = "± is three standard errors."


def print_advice(found: Recommendation, console: Console) -> None:
    """Print one recommendation: the sentence, what was tried, every task, and the cautions."""
    console.print(filled(f"At ε = {found.epsilon:g}: {found.sentence}", console) + "\n")
    if len(found.each) > 1:
        console.print(_tasks(found))
        console.print()
    console.print(_tried(found))
    console.print(filled(_measured(found), console), style="dim")
    for caution in found.cautions:
        console.print(f"\n- {caution}")


def print_range(found: Sequence[Recommendation], console: Console) -> None:
    """Print what is recommended at every budget, beside the ceiling and the best vector."""
    means = found[0].goal == "mean"
    beside = [] if means else ["best release of a vector", "keeps"]
    table = _table("ε", "choose", *_headings(means), *beside)
    for each in found:
        row = [f"{each.epsilon:g}", each.candidate.title, *_numbers(each.expected, each.goal)]
        row.append(_number(each.ceiling, each.goal))
        if (vector := each.best_vector) is not None and not means:
            row += [vector.candidate.title, _number(vector.utility.score, each.goal)]
        table.add_row(*row)
    console.print(table)
    first = found[0]
    words = (
        f"{_headings(means)[0].capitalize()}: measured on {first.measured_on:,} vectors that had "
        f"no say in the choice"
    )
    words += "" if means else f"; keeps: on the {first.compared_on:,} they were compared on"
    console.print("\n" + filled(f"{words}. {_ERRORS}", console), style="dim")
    for caution in dict.fromkeys(words for each in found for words in each.cautions):
        console.print(f"\n- {caution}")


def _headings(means: bool) -> tuple[str, str, str]:
    return ("error", "±", "at least") if means else ("expected", "±", "at most")


def _table(*names: str) -> Table:
    """Open a table whose wordy columns fold and whose numbers do not."""

    table = bare_table()
    for name in names:
        if name in ("choose", "tried", "task", "best release of a vector"):
            table.add_column(name, overflow="fold")
        else:
            table.add_column(name, justify="right", no_wrap=True)
    return table


def _tasks(found: Recommendation) -> Table:
    table = _table("task", *_headings(found.goal == "mean"))
    for name, utility in found.each.items():
        ceiling = _number(found.ceilings[name], found.goal)
        table.add_row(name, *_numbers(utility, found.goal), ceiling)
    return table


def _tried(found: Recommendation) -> Table:
    from rich.text import Text

    means = found.goal == "mean"
    other = "fidelity" if found.goal == "answers" else "answers"
    table = _table("tried", "error" if means else found.goal, "±", *([] if means else [other]))
    kind = "unbiased report leaves less than" if means else "ε-LDP report allows more than"
    table.add_row(Text(f"no {kind}", style="dim"), _number(found.ceiling, found.goal))
    chosen = found.candidate
    for each in found.tried[:_SHOWN]:
        title = Text(each.candidate.title, style="bold" if each.candidate is chosen else "")
        table.add_row(title, *_numbers(each.utility, found.goal), *_other(each, other, means))
    left = len(found.tried) - _SHOWN
    if left > 0:
        table.add_row(Text(f"… and {left} more, none better", style="dim"))
    if found.left_out:
        words = f"{len(found.left_out)} others fell behind on a few vectors"
        table.add_row(Text(words, style="dim"))
    return table


def _measured(found: Recommendation) -> str:
    """Say which vectors the table tells of, and which the sentence."""
    return (
        f"Compared on {found.compared_on:,} vectors, and chosen there; the sentence above is "
        f"measured on {found.measured_on:,} others. {_ERRORS}"
    )


def _other(each: Tried, name: str, means: bool) -> list[str]:
    if means:
        return []
    utility: Utility = getattr(each.verdict, name)
    return [f"{utility.score:.3f}"]


def _number(score: float, goal: str) -> str:
    """Write a score; for means the error, which is its negative."""
    return f"{-score:.3g}" if goal == "mean" else f"{score:.3f}"


def _numbers(utility: Utility, goal: str) -> tuple[str, str]:
    half = utility.interval()[1] - utility.score
    return _number(utility.score, goal), f"{half:.2g}" if goal == "mean" else f"{half:.3f}"


def facts(
    found: Sequence[Recommendation], smallest: SmallestBudget | None, out: Path | None
) -> dict[str, Any]:
    """Describe recommendations for ``--json``: one as itself, several as a list of budgets."""
    if len(found) > 1:
        return {"budgets": [recommendation_facts(each) for each in found]}
    known = recommendation_facts(found[0]) | {"out": None if out is None else str(out)}
    if smallest is not None:
        known["wanted"] = smallest.wanted
        known["least_possible_epsilon"] = smallest.least_possible
    return known


def recommendation_facts(found: Recommendation) -> dict[str, Any]:
    """Describe what is recommended at one budget, and what was tried."""
    frontier = set(map(id, found.frontier))
    return {
        "epsilon": found.epsilon,
        "goal": found.goal,
        "choice": found.candidate.title,
        "settings": dict(found.candidate.settings),
        "decoder": found.candidate.decoding,
        "expected": _interval(found.expected),
        "ceiling": found.ceiling,
        "tasks": {
            name: _interval(utility) | {"ceiling": found.ceilings[name]}
            for name, utility in found.each.items()
        },
        "sentence": found.sentence,
        "cautions": list(found.cautions),
        "release": found.release.hash,
        "tried": [
            {
                "title": each.candidate.title,
                "score": each.utility.score,
                "error": each.utility.error,
                "answers": each.verdict.answers and each.verdict.answers.score,
                "fidelity": each.verdict.fidelity and each.verdict.fidelity.score,
                "frontier": id(each) in frontier,
            }
            for each in found.tried
        ],
        "left_out": [each.title for each in found.left_out],
    }


def _interval(utility: Utility) -> dict[str, float]:
    low, high = utility.interval()
    return {"score": utility.score, "low": low, "high": high}
