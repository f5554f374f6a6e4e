from __future__ import annotations

import pytest

from experiments.published import published, published_number, tables
from offaxis.errors import InvalidInput
from offaxis.evaluation import BUDGETS


def test_all_published_numbers_are_read() -> None:
    assert len(tables()) == 15
    rows = [row for table in tables() for row in published(table)]
    assert sum(len(row.numbers) for row in rows) == 3672
    assert {tuple(row.numbers) for row in rows} == {BUDGETS}
    means = [number.mean for row in rows for number in row.numbers.values()]
    assert min(means) > 0


def test_numbers_are_those_in_print() -> None:
    assert published_number("main-lr", "Laplace (l1)", "", 0.5) is not None
    with_std = published_number("shift-fog", "PrivUnit2+PA", "5", 7.5)
    assert with_std is not None
    assert (with_std.mean, with_std.std) == (0.3483, 0.0047)
    plain = published_number("main-mlp", "PrivUnit2", "", 7.5)
    assert plain is not None
    assert (plain.mean, plain.std) == (0.2933, None)


def test_unpublished_numbers_are_none_and_unknown_tables_are_errors() -> None:
    assert published_number("main-mlp", "PrivUnit2", "", 6.0) is None
    assert published_number("main-mlp", "Duchi", "", 1.0) is None
    with pytest.raises(InvalidInput, match="got 'main'"):
        published("main")
