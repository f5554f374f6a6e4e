"""The studies by name: the paper's fifteen tables, its figures, and those beyond the paper.

Tables take their rows from the published ones. A row without a valid guarantee is followed by the
same mechanism with one.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Final

from experiments.ablations import PERCENTILES
from experiments.beyond import FAMILY, beyond
from experiments.engine import Row, Study
from experiments.means import mean_studies
from experiments.methods import (
    CLEAN,
    COUNTERPARTS,
    LEAST,
    LINE,
    LINES,
    METHODS,
    PUBLIC_MEAN,
    Method,
    ablated,
)
from experiments.published import PublishedRow, published
from experiments.sources import CORRUPTIONS
from offaxis.errors import InvalidInput, unknown_name
from offaxis.evaluation import BUDGETS

__all__ = ["study"]

BRIGHTEST: Final = "cifar10-c brightness 5 relu"
CLIPPING_BUDGETS: Final = (1.0, 3.0, 5.0, 7.5, 10.0)
RECOVERY_BUDGETS: Final = (1.0, 3.0, 5.0, 7.5)
PLANE_CAP: Final = 6.0
PAIRS: Final = {
    "Laplace": ("Laplace (l1)", "Laplace+PA"),
    "PrivUnit2": ("PrivUnit2", "PrivUnit2+PA"),
    "PrivUnitG": ("PrivUnitG", "PrivUnitG+PA"),
}
"""Randomizer → its plain and its reshaped row."""

NETWORK: Final = Method("task-aware, trained network", mechanism="task-aware-network", size=3)


def _method(row: PublishedRow) -> Method:
    if row.table == "ablation":
        return ablated(row.label)
    if row.table == "mnist-task-aware" and row.label == "Task-Aware":
        return NETWORK
    if row.table == "lambda-max":
        cap = 10.0 ** int(row.level.removeprefix("10^"))
        return replace(METHODS[row.label], lambda_max=cap)
    return METHODS[row.label]


def _rows(table: str, setting: str) -> tuple[Row, ...]:
    rows = []
    for row in published(table):
        if table.startswith("shift-"):
            corruption = table.removeprefix("shift-")
            shifted = f"cifar10-c {corruption} {row.level} relu"
            setting = "cifar10 relu" if row.level == "0" else shifted
        level = "" if table == "mnist-task-aware" else row.level
        rows.append(Row(row.label, level, setting, _method(row), BUDGETS))
        if row.label in COUNTERPARTS:
            label = COUNTERPARTS[row.label]
            rows.append(Row(label, level, setting, METHODS[label], BUDGETS))
    return tuple(rows)


_ACCURACY: Final = "Share of right answers on the 10,000 test images"


def _tables() -> list[Study]:
    studies = [
        Study(
            "main-lr",
            "Next day's energy of London households",
            "Root mean squared error in kWh per half-hour of a linear forecast from 16 days, one "
            "report per household, 400 reports per seed. Lower is better.",
            _rows("main-lr", "lhsm"),
            table="main-lr",
        ),
        Study(
            "lr-std",
            "Next day's energy, with deviations",
            "The study main-lr with the standard deviations over seeds, in kWh per half-hour. "
            "Lower is better.",
            _rows("lr-std", "lhsm"),
            table="lr-std",
        ),
        Study(
            "main-mlp",
            "Images under a shift: CIFAR-10-C, brightness 5",
            f"{_ACCURACY}, made brighter at severity 5, with a ReLU head on 64 features.",
            _rows("main-mlp", BRIGHTEST),
            table="main-mlp",
        ),
        Study(
            "ablation",
            "What each part of the map contributes",
            f"{_ACCURACY} (brightness 5, ReLU head) when a part of the method is left out. All "
            "rows keep the full guarantee.",
            _rows("ablation", BRIGHTEST),
            table="ablation",
        ),
        Study(
            "lambda-max",
            "The cap on stretches",
            f"{_ACCURACY} (brightness 5, ReLU head) for caps from 10 to 100,000.",
            _rows("lambda-max", BRIGHTEST),
            "levels",
            "lambda-max",
            "cap λ_max",
        ),
        Study(
            "cifar10-linear",
            "CIFAR-10, linear head",
            f"{_ACCURACY}, with the linear head of the network itself.",
            _rows("cifar10-linear", "cifar10 linear"),
            table="cifar10-linear",
        ),
    ]
    for head, title in (("relu", "ReLU"), ("gelu", "GELU"), ("tanh", "Tanh")):
        name = f"cifar10-mlp-{head}"
        about = f"{_ACCURACY}, with a {title} head on 64 features."
        rows = _rows(name, f"cifar10 {head}")
        studies.append(Study(name, f"CIFAR-10, {title} head", about, rows, table=name))
    for corruption in CORRUPTIONS:
        name, words = f"shift-{corruption}", corruption.replace("-", " ")
        about = (
            f"{_ACCURACY} under {words}, severities 1 to 5 and none, with a ReLU head. Everything "
            f"is fitted on clean public images."
        )
        title = f"CIFAR-10-C, {words}"
        studies.append(Study(name, title, about, _rows(name, ""), "levels", name, "severity"))
    for name, title in (
        ("mnist-mlp-relu", "MNIST, ReLU head"),
        ("mnist-task-aware", "MNIST, compared with a trained mechanism"),
    ):
        about = f"{_ACCURACY}, with a ReLU head on 32 features of a variational autoencoder."
        studies.append(Study(name, title, about, _rows(name, "mnist relu"), table=name))
    return studies


def _clipping() -> Study:
    rows = tuple(
        Row(
            reshaped,
            f"{percentile:g}",
            BRIGHTEST,
            replace(METHODS[reshaped], percentile=percentile),
            CLIPPING_BUDGETS,
        )
        for _, reshaped in PAIRS.values()
        for percentile in PERCENTILES
    )
    return Study(
        "clipping",
        "How large the ball should be",
        f"{_ACCURACY} (brightness 5, ReLU head) with the radius at the 10th to the 100th "
        "percentile of the public norms. The paper shows a figure without numbers.",
        rows,
        "clipping",
        level="percentile",
    )


def _recovery(tables: dict[str, Study]) -> Study:
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
        "/ (without privacy − plain), for four corruptions at five severities.",
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


@cache
def studies() -> dict[str, Study]:
    """Return all studies by name, tables first."""
    tables = {study.name: study for study in _tables()}
    others = [_clipping(), _recovery(tables), _curve(tables), _ellipse(), *beyond(tables)]
    with_lines = {study.name: _with_lines(study) for study in (*tables.values(), *others)}
    return with_lines | {study.name: study for study in mean_studies()}


def study(name: str) -> Study:
    """Return a study by its name.

    Examples
    --------
    >>> from experiments.catalogue import study
    >>> main = study("main-lr")
    >>> main.title, main.cells
    ("Next day's energy of London households", 192)
    """
    by_name = studies()
    if name not in by_name:
        raise InvalidInput(
            unknown_name("study", name, (*by_name, FAMILY), "python -m experiments list")
        )
    return by_name[name]


def studies_named(name: str) -> list[Study]:
    """Return the studies of a name: one of them, or the whole family "beyond"."""
    if name == FAMILY:
        return [entry for key, entry in studies().items() if key.startswith(f"{FAMILY}-")]
    return [study(name)]
