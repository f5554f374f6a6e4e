from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from experiments.catalogue import PAIRS, study
from experiments.claims import claims
from experiments.compare import ComparedCell, compare, recovery_ratios
from experiments.engine import Outcome
from experiments.methods import CLEAN
from experiments.published import published_number
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


@pytest.mark.parametrize("name", ["main-lr", "main-mlp", "ablation"])
def test_claims_hold_on_the_published_numbers(name: str) -> None:
    checked = claims(study(name), cells_of(name, lambda _, paper: paper))
    assert checked
    assert all(claim.holds for claim in checked)


def test_an_error_beyond_fifteen_per_cent_breaks_the_claim() -> None:
    def worse(outcome: Outcome, paper: float) -> float:
        far = outcome.row.label == "PrivUnit2" and outcome.epsilon == 2.0
        return paper * (1.16 if far else 1.14)

    (claim,) = claims(study("main-lr"), cells_of("main-lr", worse))
    assert not claim.holds
    assert claim.worst == "PrivUnit2, ε = 2: 16.0%"


@pytest.mark.parametrize(("shift", "gains", "order"), [(0.05, True, True), (-0.07, False, False)])
def test_gains_and_order_are_checked(shift: float, gains: bool, order: bool) -> None:
    def moved(outcome: Outcome, paper: float) -> float:
        return paper + shift * (outcome.row.label == "PrivUnit2+PA")

    checked = claims(study("main-mlp"), cells_of("main-mlp", moved))
    assert [claim.holds for claim in checked] == [gains, order]


def test_an_unnecessary_part_breaks_the_claim() -> None:
    def better(outcome: Outcome, paper: float) -> float:
        return 0.2 if outcome.row.method.ablation == "principal axes" else paper

    (claim,) = claims(study("ablation"), cells_of("ablation", better))
    assert not claim.holds
    assert "principal axes" in claim.worst


def test_recovery_is_the_recovered_share_of_the_loss() -> None:
    ours = {(CLEAN, "fog 1", 1.0): 0.9}
    for plain, reshaped in PAIRS.values():
        ours |= {(plain, "fog 1", 1.0): 0.1, (reshaped, "fog 1", 1.0): 0.3}
    ratios = recovery_ratios(ours)
    assert set(ratios) == {(name, "fog 1", 1.0) for name in PAIRS}
    np.testing.assert_allclose(list(ratios.values()), 0.25)


@pytest.mark.parametrize("gain", [0.01, -0.01])
def test_recovery_must_be_positive_everywhere(gain: float) -> None:
    entry = study("recovery")

    def score(outcome: Outcome) -> float:
        if outcome.row.label == CLEAN:
            return 0.9
        usual = outcome.row.level != "fog 3" or "Laplace" not in outcome.row.label
        return 0.2 + ("+PA" in outcome.row.label) * (0.1 if usual else gain)

    empty = [Outcome(row, e, "accuracy", (0.0,)) for row in entry.rows for e in row.epsilons]
    outcomes = [Outcome(o.row, o.epsilon, "accuracy", (score(o),)) for o in empty]
    (claim,) = claims(entry, compare(entry, outcomes))
    assert claim.holds is (gain > 0)
    assert "Laplace, fog 3" in claim.worst
    assert "20 shifts" in claim.text


def test_records_mark_methods_without_a_guarantee(tmp_path: Path) -> None:
    cells = cells_of("main-mlp", lambda _, paper: paper + 0.01)
    table = records(study("main-mlp"), cells)
    write_csv(tmp_path / "a.csv", table)
    with (tmp_path / "a.csv").open(newline="") as file:
        read = list(csv.DictReader(file))
    assert len(read) == study("main-mlp").cells
    by_label = {row["mechanism"]: row for row in read}
    assert by_label["CW+PA w/o bounding"]["guarantee"] == "no guarantee"
    assert by_label["PLAN (delta=10^-5)"]["guarantee"] == "no guarantee"
    assert by_label["CW+PA, bounded"]["guarantee"] == "yes"
    assert by_label["CW+PA, bounded"]["paper_mean"] == ""
    row = by_label["PrivUnit2"]
    paper = published_number("main-mlp", "PrivUnit2", "", 10.0)
    assert paper is not None
    assert float(row["paper_mean"]) == paper.mean
    assert float(row["difference"]) == pytest.approx(0.01)
    assert {"seeds", "std", "offaxis", "numpy"} <= set(row)
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
    assert "| PrivUnit2, plain | 0.120 / 0.120 |" in text
    assert "without bounding (**no guarantee**)" in text
    assert "- Holds: every gain" in text
    assert put(path, made) == ["main-mlp"]
    assert path.read_text() == text


@pytest.mark.parametrize("name", ["lambda-max", "shift-fog", "clipping"])
def test_tables_with_levels_show_one_budget(name: str) -> None:
    cells = cells_of(name, lambda _, paper: paper)
    text = section(study(name), cells)
    levels = list(dict.fromkeys(row.level for row in study(name).rows))
    head = next(line for line in text.splitlines() if line.startswith("| ε = 7.5"))
    assert head.count("|") == len(levels) + 2
    rows = [line for line in text.splitlines() if line.startswith("| ")][1:]
    assert all(row.count("|") == len(levels) + 2 for row in rows)
