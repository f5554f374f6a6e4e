from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from experiments.catalogue import PAIRS, RECOVERY_BUDGETS, study
from experiments.compare import (
    ComparedCell,
    agreement,
    compare,
    published_recovery_ratios,
    recovery_ratios,
)
from experiments.engine import Outcome
from experiments.methods import CLEAN
from experiments.published import published_number
from experiments.sources import CORRUPTIONS
from experiments.tables import put, records, section, write_csv, write_parquet


def cells_of(name: str, changed: Callable[[Outcome, float], float]) -> list[ComparedCell]:
    """Return the cells of a study, with the published numbers changed by a function."""
    entry = study(name)
    empty = [Outcome(row, e, "accuracy", (0.1,)) for row in entry.rows for e in row.epsilons]
    outcomes = []
    for cell in compare(entry, empty):
        paper = cell.outcome.mean if cell.paper is None else cell.paper.mean
        value = changed(cell.outcome, paper)
        outcomes.append(Outcome(cell.outcome.row, cell.outcome.epsilon, "accuracy", (value,)))
    return compare(entry, outcomes)


def test_the_published_numbers_agree_with_themselves() -> None:
    one = agreement(cells_of("main-mlp", lambda _, paper: paper))
    assert one is not None
    assert (one.cells, one.median, one.worst) == (132, 0.0, 0.0)
    assert one.signs == (36, 36)
    assert one.orders[0] == one.orders[1] > 100


def test_a_changed_row_shows_in_differences_signs_and_orders() -> None:
    def swapped(outcome: Outcome, paper: float) -> float:
        return paper - 0.3 * (outcome.row.label == "PrivUnit2+PA")

    one = agreement(cells_of("main-mlp", swapped))
    assert one is not None
    assert one.worst == pytest.approx(0.3)
    assert one.worst_at.startswith("PrivUnit2, reshaped, ε = ")
    assert one.signs == (24, 36)
    assert one.orders[0] < one.orders[1]
    assert one.percent(one.worst) == "30.00"


def test_deviations_are_compared_as_ratios() -> None:
    entry = study("lr-std")
    empty = [Outcome(row, e, "rmse", (1.0,)) for row in entry.rows for e in row.epsilons]
    outcomes = []
    for cell in compare(entry, empty):
        std = 0.0 if cell.paper is None else 2 * (cell.paper.std or 0.0)
        mean = 1.0 if cell.paper is None else cell.paper.mean
        runs = (mean - std / 2**0.5, mean + std / 2**0.5)  # their standard deviation is std
        outcomes.append(Outcome(cell.outcome.row, cell.outcome.epsilon, "rmse", runs))
    one = agreement(compare(entry, outcomes))
    assert one is not None
    assert one.deviations == pytest.approx((2, 2, 2))
    assert one.percent(one.median) == "0.00 %"


def test_the_closest_head_and_the_spread_of_heads_are_compared() -> None:
    cells = [cell for cell in cells_of("main-mlp", lambda _, paper: paper) if cell.paper]
    entry = study("main-mlp")
    outcomes = [
        replace(o, runs=(o.mean - 0.05, o.mean + 0.01, o.mean - 0.06), heads=3)
        for o in (cell.outcome for cell in cells)
    ]
    one = agreement(compare(entry, outcomes))
    assert one is not None
    assert one.closest_head == pytest.approx((0.01, 0.01))
    assert one.median == pytest.approx(1 / 30)
    assert one.within_heads == (132, 132)
    far = agreement(compare(entry, [replace(o, runs=(0.9, 0.901, 0.902)) for o in outcomes]))
    assert far is not None
    assert far.within_heads == (0, 132)


def test_studies_without_published_numbers_have_no_agreement() -> None:
    assert agreement(cells_of("clipping", lambda _, paper: paper)) is None


def test_heads_and_noise_have_deviations_of_their_own() -> None:
    row = study("main-mlp").rows[0]
    outcome = Outcome(row, 1.0, "accuracy", (0.1, 0.3, 0.5, 0.7), heads=2)
    assert outcome.head_means == pytest.approx((0.2, 0.6))
    assert outcome.mean == pytest.approx(0.4)
    assert outcome.std == pytest.approx(0.02**0.5)
    assert outcome.spread == pytest.approx(0.08**0.5)
    assert outcome.seeds == 2
    assert Outcome(row, 1.0, "accuracy", (0.1, 0.3)).spread == 0


def test_recovery_ratios_follow_from_the_published_tables() -> None:
    levels = [f"{name} {severity}" for name in CORRUPTIONS for severity in range(1, 6)]
    ratios = published_recovery_ratios(levels)
    shown = [key for key in ratios if key[1] in levels and key[2] in RECOVERY_BUDGETS]
    assert len(shown) == 240
    plain, reshaped, clean = (
        published_number("shift-fog", label, "5", 7.5)
        for label in ("PrivUnit2", "PrivUnit2+PA", CLEAN)
    )
    assert plain is not None
    assert reshaped is not None
    assert clean is not None
    expected = (reshaped.mean - plain.mean) / (clean.mean - plain.mean)
    assert ratios["PrivUnit2", "fog 5", 7.5] == pytest.approx(expected)


def test_recovery_is_the_recovered_share_of_the_loss() -> None:
    ours = {(CLEAN, "fog 1", 1.0): 0.9}
    for plain, reshaped in PAIRS.values():
        ours |= {(plain, "fog 1", 1.0): 0.1, (reshaped, "fog 1", 1.0): 0.3}
    ratios = recovery_ratios(ours)
    assert set(ratios) == {(name, "fog 1", 1.0) for name in PAIRS}
    np.testing.assert_allclose(list(ratios.values()), 0.25)


def test_records_mark_methods_without_a_guarantee(tmp_path: Path) -> None:
    cells = cells_of("main-mlp-ours", lambda _, paper: paper + 0.01)
    table = records(study("main-mlp-ours"), cells)
    write_csv(tmp_path / "a.csv", table)
    with (tmp_path / "a.csv").open(newline="") as file:
        read = list(csv.DictReader(file))
    assert len(read) == study("main-mlp-ours").cells
    by_label = {row["mechanism"]: row for row in read}  # the last budget, 10
    below = {row["mechanism"]: row for row in read if row["epsilon"] == "7.5"}
    assert by_label["CW+PA w/o bounding"]["guarantee"] == "no guarantee"
    assert by_label["PLAN (delta=10^-5)"]["guarantee"] == "no guarantee"
    assert below["PLAN (delta=10^-5)"]["guarantee"] == "yes"
    assert below["CW+PA w/o bounding"]["guarantee"] == "no guarantee"
    assert by_label["CW+PA, bounded"]["guarantee"] == "yes"
    assert by_label["CW+PA, bounded"]["paper_mean"] == ""
    row = by_label["PrivUnit2"]
    paper = published_number("main-mlp", "PrivUnit2", "", 10.0)
    assert paper is not None
    assert float(row["paper_mean"]) == paper.mean
    assert float(row["difference"]) == pytest.approx(0.01)
    assert {"seeds", "std", "heads", "head_spread", "offaxis", "numpy"} <= set(row)
    parquet = pytest.importorskip("pyarrow.parquet")
    assert write_parquet(tmp_path / "a.parquet", table)
    assert parquet.read_table(tmp_path / "a.parquet").to_pylist() == table


def test_tables_go_between_the_marks_of_a_document(tmp_path: Path) -> None:
    path = tmp_path / "a.md"
    path.write_text("# A\n\n<!-- study main-mlp -->\nstale words\n<!-- end -->\n\ntext\n")
    made = {name: section(study(name), cells_of(name, lambda _, p: p)) for name in ("main-mlp",)}
    assert put(path, {**made, "main-lr": "not here"}) == ["main-mlp"]
    text = path.read_text()
    assert "stale words" not in text
    assert "not here" not in text
    assert text.endswith("<!-- end -->\n\ntext\n")
    assert "| PrivUnit2, plain | ours | 0.110 | 0.120 |" in text
    assert "| | paper | 0.110 | 0.120 |" in text
    assert "without bounding (**no guarantee**)" in text
    assert "PLAN, classical calibration | ours |" in text
    assert "0.165† |" in text, "of this row, the cell at ε = 10 has no guarantee"
    assert "- Holds: " in text
    assert put(path, made) == ["main-mlp"]
    assert path.read_text() == text


@pytest.mark.parametrize("name", ["lambda-max", "shift-fog", "clipping"])
def test_tables_show_every_level_and_budget(name: str) -> None:
    cells = cells_of(name, lambda _, paper: paper)
    text = section(study(name), cells)
    budgets = dict.fromkeys(cell.outcome.epsilon for cell in cells)
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert all(row.count("|") == len(budgets) + 3 for row in rows)
    assert sum(" ours |" in row for row in rows) == len(study(name).rows)
