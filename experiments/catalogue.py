"""The studies by name: the paper's fifteen tables, its figures, and those beyond the paper.

Every table and figure is a study in two modes. Under its plain name it follows the protocol of the
paper's public code ("as published"): encoders, heads and mechanisms of the reference recipe, five
heads on each of two encoders (on one for the shift tables). With the suffix ``-ours`` it is *our
setting*: better heads, exact calibrations, and next to a row without a valid guarantee the same
mechanism with one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from typing import Final

from experiments.ablations import PERCENTILES
from experiments.beyond import FAMILY, beyond
from experiments.engine import Row, Study
from experiments.means import mean_studies
from experiments.methods import (
    AS_PRINTED,
    CLEAN,
    COUNTERPARTS,
    LEAST,
    LINE,
    LINES,
    METHODS,
    NETWORK,
    NETWORK_LABEL,
    PUBLIC_MEAN,
    Method,
    Protocol,
    ablated,
)
from experiments.models.weights import TASK_AWARE, load_card
from experiments.published import PublishedRow, published
from experiments.sources import CORRUPTIONS, FIRST_ENCODER, PUBLISHED
from experiments.without_guarantee import TASK_AWARE_IMAGES
from offaxis.errors import InvalidInput, unknown_name
from offaxis.evaluation import BUDGETS

__all__ = ["study"]

BRIGHTEST: Final = "cifar10-c brightness 5 relu"
CLIPPING_BUDGETS: Final = (1.0, 3.0, 5.0, 7.5, 10.0)
RECOVERY_BUDGETS: Final = (1.0, 3.0, 5.0, 7.5)
PLANE_CAP: Final = 6.0
OURS: Final = "-ours"
"""The end of the name of a study in our setting."""

PAIRS: Final = {
    "Laplace": ("Laplace (l1)", "Laplace+PA"),
    "PrivUnit2": ("PrivUnit2", "PrivUnit2+PA"),
    "PrivUnitG": ("PrivUnitG", "PrivUnitG+PA"),
}
"""Randomizer → its plain and its reshaped row."""


def _setting(name: str, protocol: Protocol, table: str = "") -> str:
    """Return the setting of a mode; households are the same in both.

    The 84 settings of the shift tables have the five heads of one encoder, others of both.
    """
    if protocol == "ours" or name == "lhsm":
        return name
    return f"{FIRST_ENCODER if table.startswith('shift-') else PUBLISHED}{name}"


def _method(row: PublishedRow) -> Method:
    if row.table == "ablation":
        return ablated(row.label)
    if row.table == "lambda-max":
        cap = 10.0 ** int(row.level.removeprefix("10^"))
        return replace(METHODS[row.label], lambda_max=cap)
    return METHODS[row.label]


def _rows(table: str, setting: str, protocol: Protocol) -> tuple[Row, ...]:
    rows = []
    for row in published(table):
        level = "" if table == "mnist-task-aware" else row.level
        if row.table == "mnist-task-aware" and row.label == "Task-Aware":
            rows.append(_task_aware(level, setting, protocol))
            continue
        if table.startswith("shift-"):
            corruption = table.removeprefix("shift-")
            shifted = f"cifar10-c {corruption} {row.level} relu"
            setting = "cifar10 relu" if row.level == "0" else shifted
        method = replace(_method(row), protocol=protocol)
        where = _setting(setting, protocol, table)
        rows.append(Row(row.label, level, where, method, BUDGETS))
        if method.ablation == "rotation":
            label = f"{row.label}{AS_PRINTED}"
            printed = replace(ablated(label), protocol=protocol)
            rows.append(Row(label, level, where, printed, BUDGETS))
        if protocol == "ours" and row.label in COUNTERPARTS:
            label = COUNTERPARTS[row.label]
            rows.append(Row(label, level, where, METHODS[label], BUDGETS))
    return tuple(rows)


def _task_aware(level: str, setting: str, protocol: Protocol) -> Row:
    """Return the mechanism of Cheng et al. on images, or our network on the vectors."""
    if protocol == "ours":
        return Row(NETWORK_LABEL, level, setting, NETWORK, BUDGETS)
    version = load_card(TASK_AWARE).sha256[:16]
    method = Method("task-aware, by its public code", TASK_AWARE_IMAGES, version=version)
    # Its figures depend on no head of ours.
    return Row("Task-Aware", level, "mnist relu-0", method, BUDGETS)


_ACCURACY: Final = "Share of right answers on the 10,000 test images"
_MODE: Final[dict[Protocol, str]] = {
    "published": "As published: models, draws, fits and mechanisms follow the paper's public code.",
    "ours": "Our setting.",
}


def _tables(protocol: Protocol) -> list[Study]:
    made = [
        (
            "main-lr",
            "Next day's energy of London households",
            "Root mean squared error in kWh per half-hour of a linear forecast from 16 days, one "
            "report per household, about 2,400 reports per seed. Lower is better.",
            "lhsm",
        ),
        (
            "lr-std",
            "Next day's energy, with deviations",
            "The study main-lr with the standard deviations over seeds, in kWh per half-hour. "
            "Lower is better.",
            "lhsm",
        ),
        (
            "main-mlp",
            "Images under a shift: CIFAR-10-C, brightness 5",
            f"{_ACCURACY}, made brighter at severity 5, with a ReLU head on 64 features.",
            BRIGHTEST,
        ),
        (
            "ablation",
            "What each part of the map contributes",
            f"{_ACCURACY} (brightness 5, ReLU head) when a part of the method is left out. All "
            "rows keep the full guarantee.",
            BRIGHTEST,
        ),
        (
            "lambda-max",
            "The cap on stretches",
            f"{_ACCURACY} (brightness 5, ReLU head) for caps from 10 to 100,000.",
            BRIGHTEST,
        ),
        (
            "cifar10-linear",
            "CIFAR-10, linear head",
            f"{_ACCURACY}, with the linear head of the network itself.",
            "cifar10 linear",
        ),
    ]
    for head, title in (("relu", "ReLU"), ("gelu", "GELU"), ("tanh", "Tanh")):
        about = f"{_ACCURACY}, with a {title} head on 64 features."
        made.append((f"cifar10-mlp-{head}", f"CIFAR-10, {title} head", about, f"cifar10 {head}"))
    for corruption in CORRUPTIONS:
        words = corruption.replace("-", " ")
        about = (
            f"{_ACCURACY} under {words}, severities 1 to 5 and none, with a ReLU head. Everything "
            f"is fitted on clean public images."
        )
        made.append((f"shift-{corruption}", f"CIFAR-10-C, {words}", about, ""))
    for name, title in (
        ("mnist-mlp-relu", "MNIST, ReLU head"),
        ("mnist-task-aware", "MNIST, compared with a trained mechanism"),
    ):
        about = f"{_ACCURACY}, with a ReLU head on 32 features of a variational autoencoder."
        made.append((name, title, about, "mnist relu"))
    levels = {"lambda-max": "cap λ_max", **{f"shift-{name}": "severity" for name in CORRUPTIONS}}
    return [
        Study(
            name,
            title,
            f"{about} {_MODE[protocol]}",
            _rows(name, setting, protocol),
            "levels" if name in levels else "table",
            name,
            levels.get(name, ""),
        )
        for name, title, about, setting in made
    ]


def _clipping(protocol: Protocol) -> list[Study]:
    return [
        Study(
            name,
            title,
            f"{_ACCURACY} ({where}, ReLU head) with the radius at the 10th to the 100th "
            f"percentile of the public norms. The paper shows no numbers. {_MODE[protocol]}",
            tuple(
                Row(
                    reshaped,
                    f"{percentile:g}",
                    _setting(setting, protocol),
                    replace(METHODS[reshaped], percentile=percentile, protocol=protocol),
                    CLIPPING_BUDGETS,
                )
                for _, reshaped in PAIRS.values()
                for percentile in PERCENTILES
            ),
            "clipping",
            level="percentile",
        )
        for name, title, where, setting in (
            ("clipping", "How large the ball should be", "brightness 5", BRIGHTEST),
            ("mnist-clipping", "How large the ball should be, MNIST", "MNIST", "mnist relu"),
        )
    ]


def _recovery(tables: dict[str, Study], protocol: Protocol) -> Study:
    labels = {CLEAN, *(label for pair in PAIRS.values() for label in pair)}
    rows = tuple(
        replace(row, level=f"{corruption} {row.level}", epsilons=RECOVERY_BUDGETS)
        for corruption in CORRUPTIONS
        for row in tables[f"shift-{corruption}"].rows
        if row.label in labels and row.level != "0"
    )
    return Study(
        "recovery",
        "What reshaping recovers, shift by shift",
        "The share of the accuracy lost to privacy that reshaping recovers, (reshaped − plain) "
        "/ (without privacy − plain), for four corruptions at five severities. The paper's follow "
        f"from its tables. {_MODE[protocol]}",
        rows,
        "recovery",
        level="corruption and severity",
    )


def _curve(tables: dict[str, Study]) -> Study:
    return replace(
        tables["mnist-task-aware"],
        name="mnist-curve",
        title="MNIST: accuracy against the budget",
        show="curve",
    )


def _ellipse() -> Study:
    plain, reshaped = PAIRS["Laplace"]
    methods = {
        CLEAN: METHODS[CLEAN],
        plain: METHODS[plain],
        reshaped: replace(METHODS[reshaped], lambda_max=PLANE_CAP),
    }
    return Study(
        "ellipse",
        "The shape of the noise, in two dimensions",
        "A linear classifier of points in the plane, Laplace noise plain and reshaped: the "
        f"paper's motivating example, drawn from releases with a cap of {PLANE_CAP:g} so that "
        "both fit one picture. The paper's figure has no numbers.",
        tuple(Row(label, "", "plane", method, (5.0,)) for label, method in methods.items()),
        "ellipse",
    )


def _with_lines(study: Study) -> Study:
    """Add the reference lines of every setting of a study."""
    places: dict[tuple[str, str], Row] = {}
    for row in study.rows:
        if row.method.kind != TASK_AWARE_IMAGES:
            places.setdefault((row.setting, row.level), row)
    added = tuple(
        Row(label, row.level, row.setting, LINES[label], row.epsilons)
        for row in places.values()
        for label in _lines_of(row.setting)
    )
    return replace(study, rows=(*study.rows, *added))


def _lines_of(setting: str) -> tuple[str, ...]:
    match setting.split()[0]:
        case "lhsm":
            return PUBLIC_MEAN, LEAST
        case "fidelity":
            return ()
        case "agreement" if "lhsm" in setting:
            return ()
    return (LINE,)


def _paper(protocol: Protocol) -> dict[str, Study]:
    """Return the paper's tables and figures in one mode, by their plain names."""
    tables = {study.name: study for study in _tables(protocol)}
    figures = [*_clipping(protocol), _recovery(tables, protocol)]
    return tables | {study.name: study for study in figures}


def _named(studies: Iterable[Study]) -> dict[str, Study]:
    return {study.name: study for study in studies}


@cache
def studies() -> dict[str, Study]:
    """Return all studies by name: as published, in our setting, and beyond the paper."""
    as_published, ours = _paper("published"), _paper("ours")
    figures = [_curve(as_published), _ellipse()]
    renamed = [
        replace(study, name=f"{name}{OURS}", title=f"{study.title} (our setting)")
        for name, study in ours.items()
    ]
    paper = (*as_published.values(), *figures, *renamed)
    return _named((*map(_with_lines, (*paper, *beyond(ours))), *mean_studies()))


def study(name: str) -> Study:
    """Return a study by its name.

    Examples
    --------
    >>> from experiments.catalogue import study
    >>> main = study("main-lr")
    >>> main.title, main.cells
    ("Next day's energy of London households", 168)
    """
    by_name = studies()
    if name not in by_name:
        raise InvalidInput(
            unknown_name("study", name, (*by_name, FAMILY), "python -m experiments list")
        )
    return by_name[name]


def paper_studies() -> dict[str, Study]:
    """Return the studies of the paper's tables and recovery ratios, in both modes."""
    return {
        name: study
        for name, study in studies().items()
        if study.show in ("recovery", "clipping") or study.table == name.removesuffix(OURS) != ""
    }


def studies_named(name: str) -> list[Study]:
    """Return the studies of a name: one of them, or the whole family "beyond"."""
    if name == FAMILY:
        return [entry for key, entry in studies().items() if key.startswith(f"{FAMILY}-")]
    return [study(name)]
