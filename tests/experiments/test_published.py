from __future__ import annotations

import pytest

from experiments.published import figure, published, tables
from offaxis.errors import InvalidInput
from offaxis.evaluation import BUDGETS


def test_all_published_numbers_are_there() -> None:
    assert len(tables()) == 15
    rows = [row for table in tables() for row in published(table)]
    assert sum(len(row.figures) for row in rows) == 3672
    assert {tuple(row.figures) for row in rows} == {BUDGETS}
    means = [found.mean for row in rows for found in row.figures.values()]
    assert min(means) > 0


def test_numbers_as_printed() -> None:
    assert figure("main-lr", "Laplace (l1)", "", 0.5) is not None
    found = figure("shift-fog", "PrivUnit2+PA", "5", 7.5)
    assert found is not None
    assert (found.mean, found.std) == (0.3483, 0.0047)
    plain = figure("main-mlp", "PrivUnit2", "", 7.5)
    assert plain is not None
    assert (plain.mean, plain.std) == (0.2933, None)


def test_what_is_not_published_is_none_and_other_tables_are_errors() -> None:
    assert figure("main-mlp", "PrivUnit2", "", 6.0) is None
    assert figure("main-mlp", "Duchi", "", 1.0) is None
    with pytest.raises(InvalidInput, match="got 'main'"):
        published("main")
