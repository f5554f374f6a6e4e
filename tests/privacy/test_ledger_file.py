"""The ledger file: stored limits hold for every process; no other file is taken for a ledger."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from fractions import Fraction

import pytest

from offaxis.errors import BudgetExceeded, InvalidInput
from offaxis.privacy.guarantee import Guarantee
from offaxis.privacy.ledger import Ledger, Limit

ONE = Guarantee(Fraction(1))


def test_stored_limits_hold_for_every_process_that_opens_the_file(tmp_path):
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
        assert ledger.spent() == (Fraction(2), Fraction(0))


def test_an_existing_ledger_is_not_created_again(tmp_path):
    path = tmp_path / "x.ledger"
    with Ledger.create(path, Limit(3)) as ledger:
        ledger.spend(ONE, "r")
    with pytest.raises(InvalidInput, match="is a ledger already"):
        Ledger.create(path, Limit(100))
    with Ledger(path) as ledger:
        assert ledger.limits == (Limit(3),)
        assert ledger.spent() == (Fraction(1), Fraction(0))
    with pytest.raises(InvalidInput, match="at least one limit"):
        Ledger.create(tmp_path / "y.ledger")
    assert not (tmp_path / "y.ledger").exists()


def test_without_any_limit_a_ledger_can_be_read_but_not_spent_from(tmp_path):
    path = tmp_path / "x.ledger"
    with Ledger(path, Limit(3)) as ledger:
        ledger.spend(ONE, "r")
    with Ledger(path) as ledger:
        assert ledger.spent() == (Fraction(1), Fraction(0))
        with pytest.raises(InvalidInput, match="stores no limit"):
            ledger.spend(ONE, "r")
        assert ledger.spent() == (Fraction(1), Fraction(0))


def test_a_ledger_of_version_1_is_upgraded_so_that_old_readers_refuse_it(tmp_path):
    path = tmp_path / "x.ledger"
    with Ledger(path, Limit(3)) as ledger:
        ledger.spend(ONE, "r")
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("DROP TABLE stored_limit")
        database.execute("PRAGMA user_version = 1")
    with Ledger(path, Limit(3)) as ledger:
        assert ledger.spent() == (Fraction(1), Fraction(0))
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("PRAGMA user_version").fetchone() == (4,)


def _foreign(path):
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("CREATE TABLE mine (x)")


def _newer(path):
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("PRAGMA user_version = 5")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: path.write_text("my diary " * 200), "cannot be used as a ledger"),
        (_foreign, "a database, but not a ledger"),
        (_newer, "of version 5, not 4"),
    ],
)
def test_files_that_are_not_ledgers_are_refused_and_left_unchanged(tmp_path, make, words):
    path = tmp_path / "x.ledger"
    make(path)
    before = path.read_bytes()
    for opening in (Ledger, Ledger.create):
        with pytest.raises(InvalidInput, match=words):
            opening(path, Limit(1))
    with pytest.raises(InvalidInput, match=words):
        Ledger(path)
    assert path.read_bytes() == before


def test_a_missing_folder_raises_invalid_input(tmp_path):
    with pytest.raises(InvalidInput, match="cannot write"):
        Ledger.create(tmp_path / "no" / "x.ledger", Limit(1))


def test_a_full_disk_costs_nothing_and_the_ledger_recovers(tmp_path):
    with Ledger(tmp_path / "x.ledger", Limit(1000)) as ledger:
        with ledger.alone() as database:
            pages = database.execute("PRAGMA page_count").fetchone()[0]
        database.execute(f"PRAGMA max_page_count = {pages}")
        paid = []

        def spend_until_full():
            while True:
                ledger.spend(ONE, "r" * 500)
                paid.append(ONE)

        with pytest.raises(InvalidInput, match="disk is full"):
            spend_until_full()
        assert ledger.spent() == (Fraction(len(paid)), Fraction(0))
        database.execute("PRAGMA max_page_count = 100000")
        ledger.spend(ONE, "r")
        assert ledger.spent() == (Fraction(len(paid) + 1), Fraction(0))
