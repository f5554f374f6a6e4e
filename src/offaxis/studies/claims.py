"""Whether what the paper says holds here, study by study; of what goes beyond it, our own words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from typing import Final

from offaxis.studies.ablations import ABLATIONS
from offaxis.studies.catalogue import PAIRS
from offaxis.studies.claims_beyond import BEYOND
from offaxis.studies.compare import Claim, Line, Means, budgets_of, means, recovery_ratios
from offaxis.studies.study import Study

WITHIN: Final = 0.15
"""Relative difference of an error in the regression study."""
GAIN_WITHIN: Final = 0.06
APART: Final = 0.02
NEAR_CHANCE: Final = 0.02
CHANCE: Final = 0.1


def _errors_agree(lines: Sequence[Line]) -> Claim:
    worst, share = None, 0.0
    for line in lines:
        if line.paper is not None:
            gap = abs(line.outcome.mean / line.paper.mean - 1)
            if worst is None or gap > share:
                worst, share = line, gap
    where = "" if worst is None else f"{worst.outcome.row.label}, ε = {worst.outcome.epsilon:g}: "
    return Claim(
        f"Every error lies within {WITHIN:.0%} of the published one",
        share <= WITHIN,
        f"{where}{share:.1%}",
    )


def _gains_agree(lines: Sequence[Line]) -> Claim:
    ours = {_key(line): line.outcome.mean for line in lines}
    paper = {_key(line): line.paper.mean for line in lines if line.paper is not None}
    worst, holds, largest = "", True, -1.0
    for (plain, reshaped), epsilon in _pairs(ours):
        mine = ours[reshaped, "", epsilon] - ours[plain, "", epsilon]
        theirs = paper[reshaped, "", epsilon] - paper[plain, "", epsilon]
        gap = abs(mine - theirs)
        # Rounded to four digits in print: what is zero there may have either sign.
        same_sign = mine * theirs > 0 or abs(theirs) < 1e-4
        holds &= same_sign and gap <= GAIN_WITHIN
        if gap > largest or not same_sign:
            largest = gap
            worst = (
                f"{reshaped}, ε = {epsilon:g}: {100 * mine:+.1f} points, "
                f"published {100 * theirs:+.1f}"
            )
    return Claim(
        "Every gain from reshaping has the published sign and lies within 6 points of it",
        holds,
        worst,
    )


def _pairs(ours: Means) -> Iterator[tuple[tuple[str, str], float]]:
    for pair in PAIRS.values():
        for epsilon in budgets_of(ours):
            yield pair, epsilon


def _order_agrees(lines: Sequence[Line]) -> Claim:
    table: dict[tuple[str, float], list[Line]] = {}
    for line in lines:
        if line.paper is not None:
            table.setdefault((line.outcome.row.level, line.outcome.epsilon), []).append(line)
    swapped, counted = [], 0
    for (_, epsilon), column in table.items():
        for a, b in combinations(column, 2):
            assert a.paper is not None
            assert b.paper is not None
            if abs(a.paper.mean - b.paper.mean) <= APART:
                continue
            counted += 1
            ours = a.outcome.mean - b.outcome.mean
            if ours * (a.paper.mean - b.paper.mean) <= 0:
                gap = f"{a.outcome.row.label} and {b.outcome.row.label} at ε = {epsilon:g}"
                swapped.append(gap)
    worst = f"{counted} pairs compared"
    if swapped:
        worst = f"{len(swapped)} of {counted} pairs stand otherwise, first {swapped[0]}"
    return Claim(
        "Rows that the paper shows more than 2 points apart stand in the same order",
        not swapped,
        worst,
    )


def _parts_are_needed(lines: Sequence[Line]) -> Claim:
    broken = ("pre only", "post only", "principal axes", "permuted axes")
    assert set(broken) <= set(ABLATIONS)
    found = [line.outcome for line in lines if line.outcome.row.mechanism.ablation in broken]
    worst = max(found, key=lambda outcome: abs(outcome.mean - CHANCE))
    return Claim(
        "Half a map, or the wrong directions, leave an accuracy within 2 points of chance",
        abs(worst.mean - CHANCE) <= NEAR_CHANCE,
        f"{worst.row.mechanism.title}, ε = {worst.epsilon:g}: {worst.mean:.4f}",
    )


def _recovers(lines: Sequence[Line]) -> Claim:
    ratios = recovery_ratios(means([line.outcome for line in lines]))
    (name, level, epsilon), least = min(ratios.items(), key=lambda item: item[1])
    shifts = len({level for _, level, _ in ratios})
    return Claim(
        f"Reshaping gives something back for every randomizer, in all {shifts} shifts, at every "
        f"budget",
        least > 0,
        f"least: {name}, {level}, ε = {epsilon:g}: {least:.4f}",
    )


def _key(line: Line) -> tuple[str, str, float]:
    return line.outcome.row.label, line.outcome.row.level, line.outcome.epsilon


_CLAIMS: Final[dict[str, Sequence[Callable[[Sequence[Line]], Claim]]]] = {
    "main-lr": (_errors_agree,),
    "lr-std": (_errors_agree,),
    "main-mlp": (_gains_agree, _order_agrees),
    "ablation": (_parts_are_needed,),
    "recovery": (_recovers,),
    **BEYOND,
}


def claims(study: Study, lines: Sequence[Line]) -> list[Claim]:
    """Hold the figures of a study against what is said about it."""
    return [claim(lines) for claim in _CLAIMS.get(study.name, ())]
