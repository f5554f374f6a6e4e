"""The studies of means over people: error against the number of people, and what ε allows.

In one study people follow the law of the public vectors, and the public mean is hard to beat. In
the other they differ from it, and the public mean is wrong for any number of people. A third study
has rivals of the literature in place of the other mechanisms. Reports are decoded for means. Two
things keep an error from falling as 1/people: clipping, and vectors that a codebook does not
distinguish.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from experiments.engine import Outcome, Row, Study
from experiments.methods import LINES, PUBLIC_MEAN, Method
from experiments.rivals import MECHANISMS

PEOPLE: Final = (10, 100, 1_000, 10_000)
BUDGETS: Final = (1.0, 3.0, 5.0, 7.5)

ALIKE: Final = "cifar10 relu"
UNLIKE: Final = "cifar10-c gaussian-noise 5 relu"

UNBIASED: Final = "least unbiased"
SPHERE: Final = "sphere"

LIMITS: Final[dict[str, Method]] = {
    UNBIASED: Method("least error of any unbiased report", "unbiased"),
    SPHERE: Method("best unbiased report of points of a sphere", "sphere"),
}
"""A bound at ε for vectors with the public spectrum, and a published line for comparison."""


def _optimal(title: str, randomizer: str, percentile: float = 90.0) -> Method:
    return Method(title, mechanism=randomizer, reshaping="optimal", percentile=percentile)


METHODS: Final[dict[str, Method]] = {
    "Laplace+PA": Method("Laplace, reshaped", mechanism="laplace", reshaping="jacobian"),
    "Laplace": _optimal("Laplace, optimal reshaping", "laplace"),
    "PrivUnit2+PA": Method(
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
    "codebook": Method("codebook by response", mechanism="response", reshaping="jacobian"),
    "subsets": Method("codebook by subsets", mechanism="subset", reshaping="jacobian"),
}
"""Releases that are unbiased for means but for clipping and the resolution of a codebook."""

RIVALS: Final[dict[str, Method]] = {
    **{label: METHODS[label] for label in ("PrivUnit2+PA", "PrivUnit2", "ProjUnit")},
    **{
        f"{label}+PA": Method(f"{label}, reshaped", mechanism=cls.kind, reshaping="jacobian")
        for label, cls in MECHANISMS.items()
    },
    **{
        label: _optimal(f"{label}, optimal reshaping", cls.kind)
        for label, cls in MECHANISMS.items()
    },
}
"""Rivals of the literature next to ours, over the same two maps."""


def _rows(setting: str, methods: Mapping[str, Method]) -> tuple[Row, ...]:
    return tuple(
        Row(label, str(people), f"means {people} {setting}", method, BUDGETS)
        for label, method in methods.items()
        for people in PEOPLE
    )


def mean_studies() -> list[Study]:
    """Return the studies."""
    methods = {PUBLIC_MEAN: LINES[PUBLIC_MEAN], **METHODS}
    about = (
        "Squared error of the mean over people in the metric of a ReLU head on 64 features, as a "
        "share of the variance of one person."
    )
    return [
        Study(
            "means",
            "Means over people: CIFAR-10",
            f"{about} People are test images, drawn for each seed, and follow the law of the "
            f"public ones.",
            _rows(ALIKE, methods | LIMITS),
            "people",
            level="people",
        ),
        Study(
            "means-shift",
            "Means over people who differ from the public",
            f"{about} People are test images under Gaussian noise at severity 5; releases are "
            f"fitted to clean public images.",
            _rows(UNLIKE, methods),
            "people",
            level="people",
        ),
        Study(
            "means-rivals",
            "Means over people: rivals of the literature",
            f"{about} People follow the law of the public ones. Reshaped rows report 64 "
            f"coordinates, the others the ten that the head uses.",
            _rows(ALIKE, {PUBLIC_MEAN: LINES[PUBLIC_MEAN], **RIVALS, **LIMITS}),
            "people",
            level="people",
        ),
    ]


def best_by_people(outcomes: Sequence[Outcome]) -> dict[tuple[str, float], Outcome]:
    """Return the outcome of least error by (people, ε), among methods that report."""
    best: dict[tuple[str, float], Outcome] = {}
    for outcome in outcomes:
        key = outcome.row.level, outcome.epsilon
        if outcome.row.method.reports and (key not in best or outcome.mean < best[key].mean):
            best[key] = outcome
    return best
