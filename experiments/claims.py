"""Claims about single studies, each checked on their figures, never asserted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from experiments.beyond import NOISE_ALONE, RECOMMENDED
from experiments.catalogue import OURS
from experiments.claim_checks import Figures, Mode
from experiments.compare import (
    ComparedCell,
    against_paper,
    budgets_of,
    means,
    prediction_checks,
)
from experiments.engine import Study
from experiments.methods import PUBLIC_MEAN
from experiments.paper_claims import claims_about, verdict


@dataclass(frozen=True)
class Claim:
    """A sentence about a study, whether it holds here, and the case that decides."""

    text: str
    holds: bool
    worst: str


Check = Callable[[Sequence[ComparedCell]], Claim]


def claims(study: Study, cells: Sequence[ComparedCell]) -> list[Claim]:
    """Check the claims about a study: the paper's that need it alone, and those beyond the paper.

    Claims whose cells are missing are left out; :func:`experiments.paper_claims.all_verdicts` lists
    them as not run.
    """
    return [*_of_paper(study, cells), *(check(cells) for check in _CHECKS.get(study.name, ()))]


def _of_paper(study: Study, cells: Sequence[ComparedCell]) -> list[Claim]:
    mode: Mode = "ours" if study.name.endswith(OURS) else "published"
    figures, checked = Figures({study.name: cells}, mode), []
    for claim in claims_about(study.name):
        found = verdict(claim, figures, mode)
        if found.state in ("held", "not held"):
            worst = ". ".join(filter(None, (found.evidence, found.explanation.rstrip("."))))
            checked.append(Claim(f"{claim.text} [{claim.place}]", found.state == "held", worst))
    return checked


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
