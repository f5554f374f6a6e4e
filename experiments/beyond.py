"""The family of studies that goes beyond the paper: releases of the same budget that keep more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from experiments.engine import Row, Study
from experiments.rows import CLEAN, MECHANISMS, Mechanism
from experiments.sources import CORRUPTIONS, HEADS
from offaxis.evaluation import BUDGETS

FAMILY: Final = "beyond"
TASK_AWARE: Final = "Task-Aware"
"""A method for one number; for answers the paper trains a network, on MNIST alone."""

UNSHIFTED: Final = "no shift"
FIDELITY_BUDGETS: Final = (1.0, 3.0, 5.0, 7.5, 10.0)

RECOMMENDED: Final = "recommended"
FAITHFUL: Final = "recommended for fidelity"
ADVISED: Final[dict[str, Mechanism]] = {
    RECOMMENDED: Mechanism("recommended for answers", "recommended", goal="answers"),
    FAITHFUL: Mechanism("recommended for fidelity", "recommended", goal="fidelity"),
}
"""What ``offaxis.recommend`` chooses on the public vectors, at each budget anew."""

NOISE_ALONE: Final[dict[str, Mechanism]] = {
    "optimal PrivUnit2": Mechanism(
        "PrivUnit2, 6 active directions",
        mechanism="privunit2",
        reshaping="optimal",
        percentile=50.0,
        rank=6,
    ),
    "posterior PrivUnit2": Mechanism(
        "PrivUnit2, 9 active directions, posterior decoder",
        mechanism="privunit2",
        reshaping="optimal",
        percentile=50.0,
        rank=9,
        posterior=True,
    ),
    "optimal Laplace": Mechanism(
        "Laplace, 3 active directions",
        mechanism="laplace",
        reshaping="optimal",
        percentile=50.0,
        rank=3,
    ),
}
"""Noise is added and nothing else; ranks as held-out public vectors chose them around ε = 5."""

FOR_IMAGES: Final[dict[str, Mechanism]] = {
    "answer": Mechanism("the model's answer by response", mechanism="class-response"),
    "codebook": Mechanism(
        "codebook in the task's metric", mechanism="response", reshaping="jacobian"
    ),
    **NOISE_ALONE,
    RECOMMENDED: ADVISED[RECOMMENDED],
}

FOR_HOUSEHOLDS: Final[dict[str, Mechanism]] = {
    "number": Mechanism("the optimal channel for the answer", mechanism="scalar-response"),
    "one Laplace": Mechanism(
        "Laplace, 1 active direction", mechanism="laplace", reshaping="optimal", rank=1
    ),
    RECOMMENDED: ADVISED[RECOMMENDED],
}


def beyond(tables: Mapping[str, Study]) -> list[Study]:
    """Return the family, made of the paper's tables."""
    return [
        _main(tables["main-mlp"], FOR_IMAGES, "Beyond the paper: images"),
        _main(tables["main-lr"], FOR_HOUSEHOLDS, "Beyond the paper: households"),
        _shifts(),
        _heads(tables),
        _predicted(),
    ]


def _valid(study: Study) -> tuple[Row, ...]:
    """Return the rows of a table that have a guarantee, and the one without privacy."""
    return tuple(row for row in study.rows if not row.mechanism.mark)


def _main(base: Study, ours: Mapping[str, Mechanism], title: str) -> Study:
    where = base.rows[0].setting
    rows = tuple(Row(label, "", where, each, BUDGETS) for label, each in ours.items())
    return replace(
        base,
        name=base.name.replace("main", FAMILY),
        title=title,
        about=f"{base.about} The paper's rows that have a guarantee, and releases of the same pure "
        f"ε that go further.",
        rows=(*_valid(base), *rows),
    )


def _advised(level: str, setting: str) -> Row:
    return Row(RECOMMENDED, level, setting, ADVISED[RECOMMENDED], BUDGETS)


_STANDING: Final = (
    "The recommended release beside the best of the paper's methods that have a guarantee, at each "
    "budget the best one on these very images, and beside the reference line of the head."
)


def _beside(level: str, setting: str) -> list[Row]:
    """Return the paper's methods that have a guarantee, and the recommended release."""
    rows = [
        Row(label, level, setting, mechanism, BUDGETS)
        for label, mechanism in MECHANISMS.items()
        if not mechanism.mark and label != TASK_AWARE
    ]
    return [*rows, _advised(level, setting)]


def _shifts() -> Study:
    rows = _beside(UNSHIFTED, "cifar10 relu")
    for corruption in CORRUPTIONS:
        for severity in "12345":
            level = f"{corruption} {severity}"
            rows += _beside(level, f"cifar10-c {level} relu")
    return Study(
        "beyond-shifts",
        "Beyond the paper: twenty shifts",
        f"Share of right answers on the 10,000 test images, shifted as CIFAR-10-C has it, with a "
        f"ReLU head. {_STANDING}",
        tuple(rows),
        "standing",
        level="shift",
    )


def _heads(tables: Mapping[str, Study]) -> Study:
    rows: list[Row] = []
    for data, heads in HEADS.items():
        for head in heads:
            rows += _beside(f"{data} {head}", f"{data} {head}")
    trained = (row for row in tables["mnist-task-aware"].rows if row.label == TASK_AWARE)
    rows += [replace(row, level=row.setting) for row in trained]
    return Study(
        "beyond-heads",
        "Beyond the paper: five heads",
        f"Share of right answers on the 10,000 test images of CIFAR-10 and MNIST. {_STANDING}",
        tuple(rows),
        "standing",
        level="head",
    )


def _predicted() -> Study:
    unshifted = [f"{data} {head}" for data, heads in HEADS.items() for head in heads]
    shifted = [f"cifar10-c {name} {severity} relu" for name in CORRUPTIONS for severity in "12345"]
    pooled = [f"pooled {setting}" for setting in [*unshifted, "lhsm"]]
    rows = []
    for setting in [*unshifted, "lhsm", *shifted]:
        question = f"agreement {setting}"
        rows.append(_advised(question, question))
    for setting in pooled:
        question = f"agreement {setting}"
        rows.append(replace(_advised(question, question), epsilons=FIDELITY_BUDGETS))
    for setting in [*unshifted, *shifted, *pooled[:-1]]:
        question = f"fidelity {setting}"
        rows.append(Row(FAITHFUL, question, question, ADVISED[FAITHFUL], FIDELITY_BUDGETS))
    for setting in ["cifar10 relu", *shifted]:
        rows.append(_advised(setting, setting))
        rows.append(Row(CLEAN, setting, setting, MECHANISMS[CLEAN], BUDGETS))
    return Study(
        "beyond-predicted",
        "Beyond the paper: what was predicted, and what came",
        "What offaxis.recommend predicts on public vectors, three standard errors to either side, "
        "and what the private vectors then have: the share of the model's answers that is kept "
        "(for households, of the variance of its forecast), and the share of the variance in the "
        "task's metric. There is no shift where both kinds of vectors come from one pool. The "
        "public images of CIFAR-10 trained the network behind the features, and the private "
        "households are others, a year later: these are other vectors, if slightly.",
        tuple(rows),
        "predicted",
        level="question",
    )
