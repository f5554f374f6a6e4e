"""What is said about the studies beyond the paper, computed from their figures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from typing import Final

from experiments.ablations import ABLATIONS
from experiments.beyond import NOISE_ALONE, RECOMMENDED
from experiments.catalogue import PAIRS
from experiments.compare import Claim, Line, Means, budgets_of, means, recovery_ratios
from experiments.engine import Study
from experiments.recommended import predictions, standings
from experiments.rows import PUBLIC_MEAN

SHARE_OF_LINE: Final = 0.98
FROM: Final = 1.0
"""The budget from which on the recommended release is to be close to the line."""

NOISE_KEEPS: Final = {5.0: 0.55, 7.5: 0.68}
"""Budget → accuracy that adding noise alone is to keep."""

OF_PUBLIC_MEAN: Final = {0.5: 0.995, 3.0: 0.80, 5.0: 0.62, 10.0: 0.44}
"""Budget → share of the public mean's error that is to be left, at most."""

FAITHFUL_SETTING: Final = "fidelity cifar10-c brightness 5 relu"
FAITHFUL_BUDGET: Final = 7.5
FAITHFUL_SHARE: Final = 0.75


def _never_behind(lines: Sequence[Line]) -> Claim:
    found = standings(lines)
    least = min(found, key=lambda standing: standing.margin)
    return Claim(
        f"The recommended release is at least as good as every valid method of the paper, in all "
        f"{len(found)} cells",
        least.margin >= 0,
        f"least margin {least.margin:+.4f}: {least.place}, {least.best.row.mechanism.title}",
    )


def _near_the_line(lines: Sequence[Line]) -> Claim:
    shares = {
        standing.place: standing.ours.mean / standing.line.mean
        for standing in standings(lines)
        if standing.line is not None and standing.ours.epsilon >= FROM
    }
    place, least = min(shares.items(), key=lambda item: item[1])
    return Claim(
        f"The recommended release has at least {SHARE_OF_LINE:.0%} of the reference line from "
        f"ε = {FROM:g} on",
        least >= SHARE_OF_LINE,
        f"least: {place}: {least:.1%}",
    )


def _noise_alone(lines: Sequence[Line]) -> Claim:
    ours = means([line.outcome for line in lines])
    best = {e: max(ours[label, "", e] for label in NOISE_ALONE) for e in NOISE_KEEPS}
    wanted = ", ".join(f"{share:.2f} at ε = {e:g}" for e, share in NOISE_KEEPS.items())
    return Claim(
        f"Releases that only add noise keep at least {wanted}",
        all(best[e] >= share for e, share in NOISE_KEEPS.items()),
        ", ".join(f"ε = {e:g}: {value:.4f}" for e, value in best.items()),
    )


def _shares_of_public_mean(lines: Sequence[Line]) -> dict[float, float]:
    ours = means([line.outcome for line in lines])
    return {e: ours[RECOMMENDED, "", e] / ours[PUBLIC_MEAN, "", e] for e in budgets_of(ours)}


def _below_the_public_mean(lines: Sequence[Line]) -> Claim:
    shares = _shares_of_public_mean(lines)
    epsilon, largest = max(shares.items(), key=lambda item: item[1])
    return Claim(
        "The recommended release is never worse than always answering the public mean",
        largest <= 1,
        f"largest share of its error: ε = {epsilon:g}: {largest:.4f}",
    )


def _far_below_it(lines: Sequence[Line]) -> Claim:
    shares = _shares_of_public_mean(lines)
    wanted = ", ".join(f"{share:g} at ε = {e:g}" for e, share in OF_PUBLIC_MEAN.items())
    return Claim(
        f"Its error is at most this share of the public mean's: {wanted}",
        all(shares[e] <= share for e, share in OF_PUBLIC_MEAN.items()),
        ", ".join(f"ε = {e:g}: {shares[e]:.3f}" for e in OF_PUBLIC_MEAN),
    )


def _predictions_hold(kind: str) -> Callable[[Sequence[Line]], Claim]:
    def claim(lines: Sequence[Line]) -> Claim:
        found = [
            each for each in predictions(lines) if each.pooled and each.question.startswith(kind)
        ]
        inside = sum(each.inside for each in found)
        furthest = max(found, key=lambda each: abs(each.gap) - 3 * each.advice.error, default=None)
        worst = "nothing was predicted"
        if furthest is not None:
            worst = (
                f"{inside} of {len(found)}; furthest: {furthest.question}, "
                f"ε = {furthest.came.epsilon:g}: predicted {furthest.advice.score:.4f} ± "
                f"{3 * furthest.advice.error:.4f}, came {furthest.came.mean:.4f}"
            )
        return Claim(
            f"Where there is no shift, {kind} comes within three standard errors of the prediction "
            f"in every cell",
            inside == len(found) > 0,
            worst,
        )

    return claim


def _faithful(lines: Sequence[Line]) -> Claim:
    came = next(
        line.outcome.mean
        for line in lines
        if line.outcome.row.setting == FAITHFUL_SETTING and line.outcome.epsilon == FAITHFUL_BUDGET
    )
    return Claim(
        f"Under brightness 5 the release for fidelity keeps at least {FAITHFUL_SHARE:.0%} of the "
        f"variance in the task's metric at ε = {FAITHFUL_BUDGET:g}",
        came >= FAITHFUL_SHARE,
        f"{came:.4f}",
    )


BEYOND: Final[dict[str, Sequence[Callable[[Sequence[Line]], Claim]]]] = {
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


# ----------------------------------------------------------------------------
# Whether what the paper says holds here, study by study; of what goes beyond it, our own words.

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
