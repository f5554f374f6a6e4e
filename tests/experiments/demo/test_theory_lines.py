"""The theory's table in words: short numbers, failing conditions, violated bounds."""

from dataclasses import replace

import pytest

from experiments.demo import page
from offaxis.theory.table import CONDITIONS, TheoryRow


def test_a_violated_bound_is_reported(result):
    rows = list(result.theory.rows)
    assert page.bounds_hold(rows)
    for index, row in enumerate(rows):
        if row.condition.startswith("at most"):
            beyond = row.theory + 5 * (row.standard_error or 0.01)
            broken = [*rows[:index], replace(row, measured=beyond), *rows[index + 1 :]]
            assert not page.bounds_hold(broken)
    not_a_bound = [replace(rows[2], measured=1e9 * rows[2].theory)]
    assert page.bounds_hold(not_a_bound)


def test_a_failing_condition_is_the_note():
    row = TheoryRow(
        "root_gap", CONDITIONS["root_gap"], fails="the condition 'additive noise' fails"
    )
    shown = page.in_words(row)
    assert (shown.theory, shown.measured) == ("–", "–")
    assert shown.note == "the condition 'additive noise' fails"


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "–"), (0.0, "0"), (3.45678, "3.457"), (22584.0, "22,580"), (2.593e9, "2.6 × 10⁹")],
)
def test_numbers_are_short(value, text):
    assert page.number(value) == text
