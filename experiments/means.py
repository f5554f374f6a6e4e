"""Means over people: how far off, by how many people are asked, beside what ε allows.

One study on people like the public, where the public mean is hard to beat, and one on people who
differ from it, where it is wrong however many are asked. Reports are decoded for means. Two things
keep an error from falling like 1/people: clipping, and what a codebook does not tell apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from experiments.engine import Outcome, Row, Study
from experiments.rows import LINES, PUBLIC_MEAN, Mechanism

PEOPLE: Final = (10, 100, 1_000, 10_000)
BUDGETS: Final = (1.0, 3.0, 5.0, 7.5)

ALIKE: Final = "cifar10 relu"
UNLIKE: Final = "cifar10-c gaussian-noise 5 relu"

UNBIASED: Final = "least unbiased"
SPHERE: Final = "sphere"

LIMITS: Final[dict[str, Mechanism]] = {
    UNBIASED: Mechanism("least error of any unbiased report", "unbiased"),
    SPHERE: Mechanism("best unbiased report of points of a sphere", "sphere"),
}
"""What ε allows for vectors with the public spectrum, and a published line to compare with."""


def _optimal(title: str, randomizer: str, percentile: float = 90.0) -> Mechanism:
    return Mechanism(title, mechanism=randomizer, reshaping="optimal", percentile=percentile)


MECHANISMS: Final[dict[str, Mechanism]] = {
    "Laplace+PA": Mechanism("Laplace, reshaped", mechanism="laplace", reshaping="jacobian"),
    "Laplace": _optimal("Laplace, optimal reshaping", "laplace"),
    "PrivUnit2+PA": Mechanism(
        "PrivUnit2 for means, reshaped", mechanism="privunit2-mean", reshaping="jacobian"
    ),
    "PrivUnit2": _optimal("PrivUnit2 for means, optimal reshaping", "privunit2-mean"),
    "PrivUnit2, 50 %": _optimal(
        "PrivUnit2 for means, radius at the 50th percentile", "privunit2-mean", 50.0
    ),
    "PrivUnit2, 10 %": _optimal(
        "PrivUnit2 for means, radius at the 10th percentile", "privunit2-mean", 10.0
    ),
    "PrivUnitG": _optimal("PrivUnitG for means, optimal reshaping", "privunitg-mean"),
    "ProjUnit": _optimal("ProjUnit for means, optimal reshaping", "projunit-mean"),
    "Duchi": _optimal("Duchi, optimal reshaping", "duchi"),
    "piecewise": _optimal("piecewise, optimal reshaping", "piecewise"),
    "hybrid": _optimal("hybrid, optimal reshaping", "hybrid"),
    "codebook": Mechanism("codebook by response", mechanism="response", reshaping="jacobian"),
    "subsets": Mechanism("codebook by subsets", mechanism="subset", reshaping="jacobian"),
}
"""Releases that are unbiased for means, each but for what it clips or does not tell apart."""


def _rows(setting: str, mechanisms: Mapping[str, Mechanism]) -> tuple[Row, ...]:
    return tuple(
        Row(label, str(people), f"means {people} {setting}", mechanism, BUDGETS)
        for label, mechanism in mechanisms.items()
        for people in PEOPLE
    )


def mean_studies() -> list[Study]:
    """Return both studies."""
    asked = {PUBLIC_MEAN: LINES[PUBLIC_MEAN], **MECHANISMS}
    about = (
        "Squared error of the mean over people in the metric of a ReLU head on 64 features, as a "
        "share of the variance of one person."
    )
    return [
        Study(
            "means",
            "Means over people: CIFAR-10",
            f"{about} People are test images, drawn anew for every seed, and follow the law of the "
            f"public ones.",
            _rows(ALIKE, asked | LIMITS),
            "people",
            level="people",
        ),
        Study(
            "means-shift",
            "Means over people who differ from the public",
            f"{about} People are test images under Gaussian noise at severity 5; releases are "
            f"fitted to clean public images.",
            _rows(UNLIKE, asked),
            "people",
            level="people",
        ),
    ]


def nearest(outcomes: Sequence[Outcome]) -> dict[tuple[str, float], Outcome]:
    """Return the least error by (people, ε), of releases that keep their guarantee."""
    found: dict[tuple[str, float], Outcome] = {}
    for outcome in outcomes:
        key = outcome.row.level, outcome.epsilon
        if outcome.row.mechanism.reports and (key not in found or outcome.mean < found[key].mean):
            found[key] = outcome
    return found
