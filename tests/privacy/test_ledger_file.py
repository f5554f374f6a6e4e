"""The ledger's file: what it stores holds for whoever opens it; no other file is taken for it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from fractions import Fraction

import pytest

from offaxis.errors import BudgetExceeded, InvalidInput
from offaxis.privacy.guarantee import Guarantee
from offaxis.privacy.ledger import Ledger, Limit

ONE = Guarantee(Fraction(1))


def test_stored_limits_hold_for_everybody_who_opens_the_file(tmp_path):
    path = tmp_path / "x.ledger"
    limits = (Limit("7/2", "1e-6"), Limit(2, seconds=60.5))
    Ledger.create(path, *limits).close()
    with Ledger(path) as ledger:
        assert ledger.limits == limits
        ledger.spend(ONE, "r", reports=2)
    with (
        Ledger(path, Limit(100)) as ledger,
        pytest.raises(BudgetExceeded, match=r"in any 60\.5 seconds"),
    ):
        ledger.spend(ONE, "r")
    with Ledger(path, Limit("5/2")) as ledger:
        assert ledger.limits == (Limit("5/2"), *limits)
        with pytest.raises(BudgetExceeded):
            ledger.spend(ONE, "r")
        assert ledger.spent() == (2, 0)


def test_a_ledger_is_not_made_again(tmp_path):
    path = tmp_path / "x.ledger"
    with Ledger.create(path, Limit(3)) as ledger:
        ledger.spend(ONE, "r")
    with pytest.raises(InvalidInput, match="is a ledger already"):
        Ledger.create(path, Limit(100))
    with Ledger(path) as ledger:
        assert ledger.limits == (Limit(3),)
        assert ledger.spent() == (1, 0)
    with pytest.raises(InvalidInput, match="at least one limit"):
        Ledger.create(tmp_path / "y.ledger")
    assert not (tmp_path / "y.ledger").exists()


def test_without_any_limit_a_ledger_can_be_read_but_not_spent_from(tmp_path):
    path = tmp_path / "x.ledger"
    with Ledger(path, Limit(3)) as ledger:
        ledger.spend(ONE, "r")
    with Ledger(path) as ledger:
        assert ledger.spent() == (1, 0)
        with pytest.raises(InvalidInput, match="stores no limit"):
            ledger.spend(ONE, "r")
        assert ledger.spent() == (1, 0)


def test_a_ledger_of_version_1_is_read_and_then_closed_to_its_old_readers(tmp_path):
    path = tmp_path / "x.ledger"
    with Ledger(path, Limit(3)) as ledger:
        ledger.spend(ONE, "r")
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("DROP TABLE stored_limit")
        database.execute("PRAGMA user_version = 1")
    with Ledger(path, Limit(3)) as ledger:
        assert ledger.spent() == (1, 0)
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("PRAGMA user_version").fetchone() == (2,)


def _foreign(path):
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("CREATE TABLE mine (x)")


def _newer(path):
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("PRAGMA user_version = 3")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: path.write_text("my diary " * 200), "cannot be used as a ledger"),
        (_foreign, "a database, but not a ledger"),
        (_newer, "of version 3, not 2"),
    ],
)
def test_other_files_are_no_ledgers_and_stay_as_they_are(tmp_path, make, words):
    path = tmp_path / "x.ledger"
    make(path)
    before = path.read_bytes()
    for opened in (Ledger, Ledger.create):
        with pytest.raises(InvalidInput, match=words):
            opened(path, Limit(1))
    with pytest.raises(InvalidInput, match=words):
        Ledger(path)
    assert path.read_bytes() == before


def test_a_folder_that_is_not_there_is_an_error_of_ours(tmp_path):
    with pytest.raises(InvalidInput, match="cannot open the ledger"):
        Ledger.create(tmp_path / "no" / "x.ledger", Limit(1))


def test_a_full_disk_costs_nothing_and_is_survived(tmp_path):
    with Ledger(tmp_path / "x.ledger", Limit(1000)) as ledger:
        with ledger.alone() as database:
            pages = database.execute("PRAGMA page_count").fetchone()[0]
        database.execute(f"PRAGMA max_page_count = {pages}")
        paid = []

        def spend_on():
            while True:
                ledger.spend(ONE, "r" * 500)
                paid.append(ONE)

        with pytest.raises(InvalidInput, match="disk is full"):
            spend_on()
        assert ledger.spent() == (len(paid), 0)
        database.execute("PRAGMA max_page_count = 100000")
        ledger.spend(ONE, "r")
        assert ledger.spent() == (len(paid) + 1, 0)
