"""Claims about the studies, each checked on their figures, never asserted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

from experiments.ablations import ABLATIONS
from experiments.beyond import NOISE_ALONE, RECOMMENDED
from experiments.catalogue import PAIRS
from experiments.compare import (
    ComparedCell,
    Means,
    against_paper,
    budgets_of,
    means,
    prediction_checks,
    recovery_ratios,
)
from experiments.engine import Study
from experiments.methods import PUBLIC_MEAN


@dataclass(frozen=True)
class Claim:
    """A sentence about a study, whether it holds here, and the case that decides."""

    text: str
    holds: bool
    worst: str


Check = Callable[[Sequence[ComparedCell]], Claim]


def claims(study: Study, cells: Sequence[ComparedCell]) -> list[Claim]:
    """Check the claims about a study on its figures."""
    return [check(cells) for check in _CHECKS.get(study.name, ())]


# ---- Claims of the paper

WITHIN: Final = 0.15
"""Largest relative difference of an error in the regression study."""
GAIN_WITHIN: Final = 0.06
APART: Final = 0.02
NEAR_CHANCE: Final = 0.02
CHANCE: Final = 0.1


def _errors_agree(cells: Sequence[ComparedCell]) -> Claim:
    worst, largest = None, 0.0
    for cell in cells:
        if cell.paper is not None:
            gap = abs(cell.outcome.mean / cell.paper.mean - 1)
            if worst is None or gap > largest:
                worst, largest = cell, gap
    where = "" if worst is None else f"{worst.outcome.row.label}, ε = {worst.outcome.epsilon:g}: "
    return Claim(
        f"Every error is within {WITHIN:.0%} of the published one",
        largest <= WITHIN,
        f"{where}{largest:.1%}",
    )


def _gains_agree(cells: Sequence[ComparedCell]) -> Claim:
    ours = {_key(cell): cell.outcome.mean for cell in cells}
    paper = {_key(cell): cell.paper.mean for cell in cells if cell.paper is not None}
    worst, holds, largest = "", True, -1.0
    for (plain, reshaped), epsilon in _pairs(ours):
        mine = ours[reshaped, "", epsilon] - ours[plain, "", epsilon]
        theirs = paper[reshaped, "", epsilon] - paper[plain, "", epsilon]
        gap = abs(mine - theirs)
        # Published numbers are rounded to four digits: a zero may have either sign.
        same_sign = mine * theirs > 0 or abs(theirs) < 1e-4
        holds &= same_sign and gap <= GAIN_WITHIN
        if gap > largest or not same_sign:
            largest = gap
            worst = (
                f"{reshaped}, ε = {epsilon:g}: {100 * mine:+.1f} points, "
                f"published {100 * theirs:+.1f}"
            )
    return Claim(
        "Every gain from reshaping has the published sign and is within 6 points of it",
        holds,
        worst,
    )


def _key(cell: ComparedCell) -> tuple[str, str, float]:
    return cell.outcome.row.label, cell.outcome.row.level, cell.outcome.epsilon


def _pairs(ours: Means) -> Iterator[tuple[tuple[str, str], float]]:
    for pair in PAIRS.values():
        for epsilon in budgets_of(ours):
            yield pair, epsilon


def _order_agrees(cells: Sequence[ComparedCell]) -> Claim:
    columns: dict[tuple[str, float], list[ComparedCell]] = {}
    for cell in cells:
        if cell.paper is not None:
            columns.setdefault((cell.outcome.row.level, cell.outcome.epsilon), []).append(cell)
    swapped, compared = [], 0
    for (_, epsilon), column in columns.items():
        for a, b in combinations(column, 2):
            assert a.paper is not None
            assert b.paper is not None
            if abs(a.paper.mean - b.paper.mean) <= APART:
                continue
            compared += 1
            ours = a.outcome.mean - b.outcome.mean
            if ours * (a.paper.mean - b.paper.mean) <= 0:
                swapped.append(
                    f"{a.outcome.row.label} and {b.outcome.row.label} at ε = {epsilon:g}"
                )
    worst = f"{compared} pairs compared"
    if swapped:
        worst = f"{len(swapped)} of {compared} pairs are in another order, first {swapped[0]}"
    return Claim(
        "Rows that the paper shows more than 2 points apart are in the same order",
        not swapped,
        worst,
    )


def _parts_are_needed(cells: Sequence[ComparedCell]) -> Claim:
    broken = ("pre only", "post only", "principal axes", "permuted axes")
    assert set(broken) <= set(ABLATIONS)
    outcomes = [cell.outcome for cell in cells if cell.outcome.row.method.ablation in broken]
    worst = max(outcomes, key=lambda outcome: abs(outcome.mean - CHANCE))
    return Claim(
        "Half a map, or the wrong directions, leave an accuracy within 2 points of chance",
        abs(worst.mean - CHANCE) <= NEAR_CHANCE,
        f"{worst.row.method.title}, ε = {worst.epsilon:g}: {worst.mean:.4f}",
    )


def _recovers(cells: Sequence[ComparedCell]) -> Claim:
    ratios = recovery_ratios(means([cell.outcome for cell in cells]))
    (name, level, epsilon), least = min(ratios.items(), key=lambda item: item[1])
    shifts = len({level for _, level, _ in ratios})
    return Claim(
        f"Reshaping recovers accuracy for every randomizer, in all {shifts} shifts, at every "
        f"budget",
        least > 0,
        f"least: {name}, {level}, ε = {epsilon:g}: {least:.4f}",
    )


# ---- Claims beyond the paper

SHARE_OF_LINE: Final = 0.98
FROM: Final = 1.0
"""The budget from which on the recommended release must be close to the reference line."""

NOISE_KEEPS: Final = {5.0: 0.55, 7.5: 0.68}
"""Budget → accuracy that adding noise alone must keep."""

OF_PUBLIC_MEAN: Final = {0.5: 0.995, 3.0: 0.80, 5.0: 0.62, 10.0: 0.44}
"""Budget → largest share of the public mean's error that may remain."""

FAITHFUL_SETTING: Final = "fidelity cifar10-c brightness 5 relu"
FAITHFUL_BUDGET: Final = 7.5
FAITHFUL_SHARE: Final = 0.75


def _never_behind(cells: Sequence[ComparedCell]) -> Claim:
    comparisons = against_paper(cells)
    least = min(comparisons, key=lambda comparison: comparison.margin)
    return Claim(
        f"The recommended release is at least as good as every valid method of the paper, in all "
        f"{len(comparisons)} cells",
        least.margin >= 0,
        f"least margin {least.margin:+.4f}: {least.place}, {least.best.row.method.title}",
    )


def _near_the_line(cells: Sequence[ComparedCell]) -> Claim:
    shares = {
        comparison.place: comparison.ours.mean / comparison.line.mean
        for comparison in against_paper(cells)
        if comparison.line is not None and comparison.ours.epsilon >= FROM
    }
    place, least = min(shares.items(), key=lambda item: item[1])
    return Claim(
        f"The recommended release reaches at least {SHARE_OF_LINE:.0%} of the reference line from "
        f"ε = {FROM:g} on",
        least >= SHARE_OF_LINE,
        f"least: {place}: {least:.1%}",
    )


def _noise_alone(cells: Sequence[ComparedCell]) -> Claim:
    ours = means([cell.outcome for cell in cells])
    best = {e: max(ours[label, "", e] for label in NOISE_ALONE) for e in NOISE_KEEPS}
    targets = ", ".join(f"{share:.2f} at ε = {e:g}" for e, share in NOISE_KEEPS.items())
    return Claim(
        f"Releases that only add noise keep at least {targets}",
        all(best[e] >= share for e, share in NOISE_KEEPS.items()),
        ", ".join(f"ε = {e:g}: {value:.4f}" for e, value in best.items()),
    )


def _shares_of_public_mean(cells: Sequence[ComparedCell]) -> dict[float, float]:
    ours = means([cell.outcome for cell in cells])
    return {e: ours[RECOMMENDED, "", e] / ours[PUBLIC_MEAN, "", e] for e in budgets_of(ours)}


def _below_the_public_mean(cells: Sequence[ComparedCell]) -> Claim:
    shares = _shares_of_public_mean(cells)
    epsilon, largest = max(shares.items(), key=lambda item: item[1])
    return Claim(
        "The recommended release is never worse than always answering the public mean",
        largest <= 1,
        f"largest share of its error: ε = {epsilon:g}: {largest:.4f}",
    )


def _far_below_it(cells: Sequence[ComparedCell]) -> Claim:
    shares = _shares_of_public_mean(cells)
    targets = ", ".join(f"{share:g} at ε = {e:g}" for e, share in OF_PUBLIC_MEAN.items())
    return Claim(
        f"Its error is at most this share of the public mean's: {targets}",
        all(shares[e] <= share for e, share in OF_PUBLIC_MEAN.items()),
        ", ".join(f"ε = {e:g}: {shares[e]:.3f}" for e in OF_PUBLIC_MEAN),
    )


def _predictions_hold(score: str) -> Check:
    def check(cells: Sequence[ComparedCell]) -> Claim:
        checks = [
            check
            for check in prediction_checks(cells)
            if check.pooled and check.question.startswith(score)
        ]
        inside = sum(check.inside for check in checks)
        furthest = max(checks, key=lambda c: abs(c.gap) - 3 * c.prediction.error, default=None)
        worst = "nothing was predicted"
        if furthest is not None:
            worst = (
                f"{inside} of {len(checks)}; furthest: {furthest.question}, "
                f"ε = {furthest.measured.epsilon:g}: predicted {furthest.prediction.score:.4f} ± "
                f"{3 * furthest.prediction.error:.4f}, measured {furthest.measured.mean:.4f}"
            )
        return Claim(
            f"Without a shift, {score} is within three standard errors of the prediction in every "
            f"cell",
            inside == len(checks) > 0,
            worst,
        )

    return check


def _faithful(cells: Sequence[ComparedCell]) -> Claim:
    kept = next(
        cell.outcome.mean
        for cell in cells
        if cell.outcome.row.setting == FAITHFUL_SETTING and cell.outcome.epsilon == FAITHFUL_BUDGET
    )
    return Claim(
        f"Under brightness 5 the release for fidelity keeps at least {FAITHFUL_SHARE:.0%} of the "
        f"variance in the task's metric at ε = {FAITHFUL_BUDGET:g}",
        kept >= FAITHFUL_SHARE,
        f"{kept:.4f}",
    )


_CHECKS: Final[dict[str, Sequence[Check]]] = {
    "main-lr": (_errors_agree,),
    "lr-std": (_errors_agree,),
    "main-mlp": (_gains_agree, _order_agrees),
    "ablation": (_parts_are_needed,),
    "recovery": (_recovers,),
    "beyond-mlp": (_near_the_line, _never_behind, _noise_alone),
    "beyond-lr": (_below_the_public_mean, _far_below_it, _never_behind),
    "beyond-shifts": (_never_behind, _near_the_line),
    "beyond-heads": (_never_behind, _near_the_line),
    "beyond-predicted": (
        _predictions_hold("agreement"),
        _predictions_hold("fidelity"),
        _faithful,
    ),
}
