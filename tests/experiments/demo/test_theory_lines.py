"""The theory's table in plain words: short numbers, conditions that fail, bounds that break."""

from dataclasses import replace

import pytest

from experiments.demo import page as theory_lines
from offaxis.theory.table import CONDITIONS, TheoryRow


def test_a_broken_bound_is_called_out(result):
    rows = list(result.theory.rows)
    assert theory_lines.bounds_hold(rows)
    for index, row in enumerate(rows):
        if row.condition.startswith("at most"):
            beyond = row.theory + 5 * (row.standard_error or 0.01)
            broken = [*rows[:index], replace(row, measured=beyond), *rows[index + 1 :]]
            assert not theory_lines.bounds_hold(broken)
    not_a_bound = [replace(rows[2], measured=1e9 * rows[2].theory)]
    assert theory_lines.bounds_hold(not_a_bound)


def test_a_condition_that_fails_stands_where_it_would_hold():
    row = TheoryRow(
        "root_gap", CONDITIONS["root_gap"], fails="the condition 'additive noise' fails"
    )
    shown = theory_lines.line(row)
    assert (shown.theory, shown.measured) == ("–", "–")
    assert shown.note == "the condition 'additive noise' fails"


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "–"), (0.0, "0"), (3.45678, "3.457"), (22584.0, "22,580"), (2.593e9, "2.6 × 10⁹")],
)
def test_numbers_are_short(value, text):
    assert theory_lines.number(value) == text
