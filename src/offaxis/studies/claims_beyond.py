"""What is said about the studies beyond the paper, computed from their figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from offaxis.studies.beyond import NOISE_ALONE, RECOMMENDED
from offaxis.studies.compare import Claim, Line, budgets_of, means
from offaxis.studies.mechanisms import PUBLIC_MEAN
from offaxis.studies.standing import predictions, standings

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
