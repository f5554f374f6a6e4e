"""The studies beyond the paper: other releases of the same budget, with higher utility."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from experiments.engine import Row, Study
from experiments.methods import CLEAN, COUNTERPARTS, METHODS, NETWORK_LABEL, Method
from experiments.sources import CORRUPTIONS, HEADS
from offaxis.evaluation import BUDGETS

FAMILY: Final = "beyond"
TASK_AWARE: Final = "Task-Aware"
"""A method for scalar tasks; for classes the paper trains a network, on MNIST only."""

UNSHIFTED: Final = "no shift"
FIDELITY_BUDGETS: Final = (1.0, 3.0, 5.0, 7.5, 10.0)

RECOMMENDED: Final = "recommended"
FAITHFUL: Final = "recommended for fidelity"
RECOMMENDED_METHODS: Final[dict[str, Method]] = {
    RECOMMENDED: Method("recommended for answers", "recommended", goal="answers"),
    FAITHFUL: Method("recommended for fidelity", "recommended", goal="vectors"),
}
"""The releases that ``offaxis.recommend`` chooses on the public vectors, at each budget."""

NOISE_ALONE: Final[dict[str, Method]] = {
    "optimal PrivUnit2": Method(
        "PrivUnit2, 6 active directions",
        mechanism="privunit2",
        reshaping="optimal",
        percentile=50.0,
        rank=6,
    ),
    "posterior PrivUnit2": Method(
        "PrivUnit2, 9 active directions, posterior decoder",
        mechanism="privunit2",
        reshaping="optimal",
        percentile=50.0,
        rank=9,
        posterior=True,
    ),
    "optimal Laplace": Method(
        "Laplace, 3 active directions",
        mechanism="laplace",
        reshaping="optimal",
        percentile=50.0,
        rank=3,
    ),
}
"""Releases that only add noise; held-out public vectors chose the ranks around ε = 5."""

FOR_IMAGES: Final[dict[str, Method]] = {
    "answer": Method("the model's answer by randomized response", mechanism="class-response"),
    "codebook": Method("codebook in the task's metric", mechanism="response", reshaping="jacobian"),
    **NOISE_ALONE,
    RECOMMENDED: RECOMMENDED_METHODS[RECOMMENDED],
}

FOR_HOUSEHOLDS: Final[dict[str, Method]] = {
    "number": Method("the optimal channel for the answer", mechanism="scalar-response"),
    "one Laplace": Method(
        "Laplace, 1 active direction", mechanism="laplace", reshaping="optimal", rank=1
    ),
    RECOMMENDED: RECOMMENDED_METHODS[RECOMMENDED],
}


def beyond(tables: Mapping[str, Study]) -> list[Study]:
    """Return the studies, built from the paper's tables in our setting."""
    return [
        _main(tables["main-mlp"], FOR_IMAGES, "Beyond the paper: images"),
        _main(tables["main-lr"], FOR_HOUSEHOLDS, "Beyond the paper: households"),
        _shifts(),
        _heads(tables),
        _predicted(),
    ]


def _valid(study: Study) -> tuple[Row, ...]:
    """Return the rows of a table that have a guarantee, and the one without privacy."""
    return tuple(row for row in study.rows if row.label not in COUNTERPARTS)


def _main(base: Study, ours: Mapping[str, Method], title: str) -> Study:
    setting = base.rows[0].setting
    rows = tuple(Row(label, "", setting, method, BUDGETS) for label, method in ours.items())
    return replace(
        base,
        name=base.table.replace("main", FAMILY),
        title=title,
        about=f"{base.about} The paper's rows that have a guarantee, and further releases of the "
        f"same pure ε.",
        rows=(*_valid(base), *rows),
    )


def _recommended(level: str, setting: str) -> Row:
    return Row(RECOMMENDED, level, setting, RECOMMENDED_METHODS[RECOMMENDED], BUDGETS)


_COMPARED: Final = (
    "The recommended release, the best of the paper's methods that have a guarantee (at each "
    "budget, the best one on these images), and the reference line of the head."
)


def _paper_and_recommended(level: str, setting: str) -> list[Row]:
    """Return the paper's methods that have a guarantee, and the recommended release."""
    rows = [
        Row(label, level, setting, method, BUDGETS)
        for label, method in METHODS.items()
        if label not in COUNTERPARTS and label != TASK_AWARE
    ]
    return [*rows, _recommended(level, setting)]


def _shifts() -> Study:
    rows = _paper_and_recommended(UNSHIFTED, "cifar10 relu")
    for corruption in CORRUPTIONS:
        for severity in "12345":
            level = f"{corruption} {severity}"
            rows += _paper_and_recommended(level, f"cifar10-c {level} relu")
    return Study(
        "beyond-shifts",
        "Beyond the paper: twenty shifts",
        f"Share of right answers on the 10,000 test images, shifted as in CIFAR-10-C, with a "
        f"ReLU head. {_COMPARED}",
        tuple(rows),
        "standing",
        level="shift",
    )


def _heads(tables: Mapping[str, Study]) -> Study:
    rows: list[Row] = []
    for data, heads in HEADS.items():
        for head in heads:
            rows += _paper_and_recommended(f"{data} {head}", f"{data} {head}")
    trained = (row for row in tables["mnist-task-aware"].rows if row.label == NETWORK_LABEL)
    rows += [replace(row, level=row.setting) for row in trained]
    return Study(
        "beyond-heads",
        "Beyond the paper: five heads",
        f"Share of right answers on the 10,000 test images of CIFAR-10 and MNIST. {_COMPARED}",
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
        rows.append(_recommended(question, question))
    for setting in pooled:
        question = f"agreement {setting}"
        rows.append(replace(_recommended(question, question), epsilons=FIDELITY_BUDGETS))
    for setting in [*unshifted, *shifted, *pooled[:-1]]:
        question = f"fidelity {setting}"
        rows.append(
            Row(FAITHFUL, question, question, RECOMMENDED_METHODS[FAITHFUL], FIDELITY_BUDGETS)
        )
    for setting in ["cifar10 relu", *shifted]:
        rows.append(_recommended(setting, setting))
        rows.append(Row(CLEAN, setting, setting, METHODS[CLEAN], BUDGETS))
    return Study(
        "beyond-predicted",
        "Beyond the paper: predicted and measured",
        "What offaxis.recommend predicts on public vectors, with three standard errors on either "
        "side, and what is measured on private vectors: the share of the model's answers that is "
        "kept (for households, of the variance of its forecast), and the share of the variance in "
        "the task's metric. There is no shift where both kinds of vectors come from one pool. The "
        "public images of CIFAR-10 trained the network behind the features, and the private "
        "households are different ones, a year later: both are slight shifts.",
        tuple(rows),
        "predicted",
        level="question",
    )
