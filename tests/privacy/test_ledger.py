"""The ledger: limits hold, payments survive kills, and every report is paid for exactly once."""

from __future__ import annotations

import hmac
import os
import random
import signal
import sqlite3
import time
from fractions import Fraction
from multiprocessing import get_context

import pytest

from offaxis.errors import BudgetExceeded, InvalidInput
from offaxis.privacy import ledger as ledger_module
from offaxis.privacy.composition import Cost, filtered_epsilon
from offaxis.privacy.guarantee import Guarantee
from offaxis.privacy.ledger import Balance, Ledger, Limit, Spent

ONE = Guarantee(Fraction(1))
PER_MILLION = Fraction(1, 10**6)


def test_a_limit_is_enforced_to_the_last_report(tmp_path):
    with Ledger(tmp_path / "x.ledger", Limit(3)) as ledger:
        for _ in range(3):
            ledger.spend(ONE, "r")
        with pytest.raises(BudgetExceeded, match="ε = 3 in all"):
            ledger.spend(Guarantee(Fraction(1, 10**6)), "r")
        assert ledger.spent() == (Fraction(3), Fraction(0))


def test_payments_are_stored_in_the_file(tmp_path):
    path = tmp_path / "x.ledger"
    with Ledger(path, Limit(3)) as ledger:
        ledger.spend(ONE, "r", reports=2)
    with Ledger(path, Limit(3)) as ledger:
        ledger.spend(ONE, "other")
        with pytest.raises(BudgetExceeded):
            ledger.spend(ONE, "r")


def test_every_limit_must_hold(tmp_path):
    with Ledger(tmp_path / "x.ledger", Limit(100), Limit(2, seconds=3600)) as ledger:
        ledger.spend(ONE, "r", reports=2)
        with pytest.raises(BudgetExceeded, match="in any 1 hour;"):
            ledger.spend(ONE, "r")


def test_a_limit_per_period_frees_its_budget_later(tmp_path, monkeypatch):
    with Ledger(tmp_path / "x.ledger", Limit(3), Limit(1, seconds=60)) as ledger:
        now = time.time()
        for step in range(3):
            monkeypatch.setattr(time, "time", lambda step=step: now + 61 * step)
            ledger.spend(ONE, "r")
            with pytest.raises(BudgetExceeded):
                ledger.spend(ONE, "r")
        monkeypatch.setattr(time, "time", lambda: now + 10_000)
        with pytest.raises(BudgetExceeded, match="in all"):
            ledger.spend(ONE, "r")


def test_a_clock_set_back_frees_nothing(tmp_path, monkeypatch):
    with Ledger(tmp_path / "x.ledger", Limit(1, seconds=60)) as ledger:
        ledger.spend(ONE, "r")
        monkeypatch.setattr(time, "time", lambda: 1000.0)
        with pytest.raises(BudgetExceeded):
            ledger.spend(ONE, "r")


def test_many_small_budgets_are_counted_by_the_filter(tmp_path):
    small = Guarantee(Fraction(1, 10))
    with Ledger(tmp_path / "x.ledger", Limit(13, "1e-6", slack="1e-6")) as ledger:
        ledger.spend(small, "r", reports=400)
        with pytest.raises(BudgetExceeded):
            ledger.spend(small, "r", reports=400)
        assert ledger.spent()[0] == 40


def test_a_refused_payment_leaves_no_trace(tmp_path):
    with Ledger(tmp_path / "x.ledger", Limit(1)) as ledger:
        with pytest.raises(BudgetExceeded):
            ledger.spend(Guarantee(Fraction(2)), "r")
        assert ledger.spent() == (Fraction(0), Fraction(0))
        ledger.spend(ONE, "r")


@pytest.mark.parametrize(
    "make",
    [
        lambda path: Ledger(path),
        lambda path: Limit(0),
        lambda path: Limit(1, 2),
        lambda path: Limit(1, seconds=0),
    ],
)
def test_a_ledger_without_a_valid_limit_is_an_error(tmp_path, make):
    with pytest.raises(InvalidInput):
        make(tmp_path / "x.ledger")


def test_payments_are_summed_by_release_and_by_period(tmp_path, monkeypatch):
    limit = Limit(10, seconds=60)
    with Ledger.create(tmp_path / "x.ledger", Limit(100), limit) as ledger:
        for at, (release, reports) in enumerate([("b", 2), ("a", 1), ("b", 3)]):
            monkeypatch.setattr(time, "time", lambda at=at: 1000.0 + 50 * at)
            ledger.spend(ONE, release, reports=reports)
        assert ledger.by_release() == [
            Spent("b", Cost(1, reports=5), 1000.0, 1100.0),
            Spent("a", Cost(1, reports=1), 1050.0, 1050.0),
        ]
        assert ledger.within(limit) == [Cost(1, reports=4)]
        assert ledger.within(Limit(100)) == [Cost(1, reports=6)]


def test_the_balance_under_a_pure_limit_is_the_exact_sum(tmp_path):
    limit = Limit("7/2")
    with Ledger(tmp_path / "x.ledger", limit) as ledger:
        assert ledger.balances() == [Balance(limit, Fraction(0), Fraction(0), None, limit.epsilon)]
        ledger.spend(Guarantee(Fraction(1, 3)), "r", reports=3)
        ledger.spend(ONE, "other")
        [balance] = ledger.balances()
        assert balance == Balance(limit, Fraction(2), Fraction(0), None, Fraction(3, 2))
        ledger.spend(Guarantee(balance.left), "r")
        assert ledger.balances()[0].left == 0


def test_the_balance_under_a_limit_with_slack_uses_the_smaller_total(tmp_path):
    limit = Limit(45, PER_MILLION, slack=PER_MILLION)
    costs = [Cost(Fraction(1, 10), reports=400)]
    with Ledger(tmp_path / "x.ledger", limit) as ledger:
        ledger.spend(Guarantee(Fraction(1, 10)), "r", reports=400)
        [balance] = ledger.balances()
    assert (balance.epsilon, balance.delta) == (Fraction(40), Fraction(0))
    assert balance.filtered == filtered_epsilon(costs, PER_MILLION)
    assert balance.filtered is not None
    assert 8 < balance.filtered < 13
    assert limit.admits([*costs, Cost(balance.left)])
    assert not limit.admits([*costs, Cost(balance.left + Fraction(1, 10**6))])
    assert balance.left < 45 - balance.filtered, "a report counts by its square, not in addition"


def test_the_balance_without_slack_is_the_exact_sum(tmp_path):
    limit = Limit(45, PER_MILLION)
    with Ledger(tmp_path / "x.ledger", limit) as ledger:
        ledger.spend(Guarantee(Fraction(1, 10)), "r", reports=400)
        assert ledger.balances() == [Balance(limit, Fraction(40), Fraction(0), None, Fraction(5))]


def test_each_limit_has_a_balance_over_its_period(tmp_path, monkeypatch):
    lifetime, hourly = Limit(10), Limit(2, seconds=3600)
    with Ledger(tmp_path / "x.ledger", lifetime, hourly) as ledger:
        for at in (1000.0, 5000.0):
            monkeypatch.setattr(time, "time", lambda at=at: at)
            ledger.spend(ONE, "r")
        balances = ledger.balances()
    assert [balance.limit for balance in balances] == [lifetime, hourly]
    assert [balance.epsilon for balance in balances] == [2, 1]
    assert [balance.left for balance in balances] == [8, 1]


def test_nothing_is_left_under_a_limit_that_is_already_exceeded(tmp_path):
    path = tmp_path / "x.ledger"
    with Ledger(path, Limit(10, "1e-5")) as ledger:
        ledger.spend(Guarantee(Fraction(2), PER_MILLION), "r", reports=2)
    stricter = (Limit(3), Limit(10), Limit(10, PER_MILLION), Limit(10, "2e-6", slack="1e-6"))
    with Ledger(path, *stricter) as ledger:
        balances = ledger.balances()
    assert [balance.left for balance in balances] == [0, 0, 0, 0]
    totals = {(balance.epsilon, balance.delta) for balance in balances}
    assert totals == {(Fraction(4), 2 * PER_MILLION)}
    assert [balance.filtered is None for balance in balances] == [True, True, True, False]


@pytest.mark.parametrize(
    ("costs", "left"),
    [
        ([Cost(4)], 4),
        ([Cost(9)], 0),
        ([Cost(4, "2e-6")], 0),  # the slack is not for the δ of reports
        ([Cost(4, "1e-6")], 4),
        ([], 8),
    ],
)
def test_what_is_left_is_the_largest_report_that_is_admitted(costs, left):
    limit = Limit(8, 2 * PER_MILLION, slack=PER_MILLION)
    assert limit.left(costs) == pytest.approx(left, abs=1e-6)
    assert limit.left(costs) == 0 or limit.admits([*costs, Cost(limit.left(costs))])


def test_what_was_spent_elsewhere_is_recorded_within_the_limits_or_not(tmp_path):
    with Ledger(tmp_path / "x.ledger", Limit(8)) as ledger:
        ledger.spend(Guarantee(Fraction(7)), "r")
        ledger.record(Guarantee(Fraction(3)), "r")
        assert ledger.spent() == (Fraction(10), Fraction(0))
        assert ledger.balances()[0].left == 0
        with pytest.raises(BudgetExceeded):
            ledger.spend(Guarantee(Fraction(1, 10)), "r")
        with pytest.raises(InvalidInput, match="reports must be an integer"):
            ledger.record(ONE, "r", reports=0)


def test_a_payment_outside_a_transaction_is_an_error(tmp_path):
    with (
        Ledger(tmp_path / "x.ledger", Limit(8)) as ledger,
        pytest.raises(InvalidInput, match=r"inside alone\(\)"),
    ):
        ledger.charge(ONE, "r")


def test_a_ledger_is_readable_by_its_owner_only(tmp_path):
    before = os.umask(0)
    try:
        with Ledger.create(tmp_path / "x.ledger", Limit(3)) as ledger, ledger.alone():
            ledger.charge(ONE, "r")
            modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    finally:
        os.umask(before)
    assert len(modes) == 3, "the lock stays, the journal exists during a transaction"
    assert set(modes.values()) == {0o600}


def test_a_file_that_others_could_read_is_made_private(tmp_path):
    """Also behind a link, and what SQLite keeps beside the file."""
    (tmp_path / "folder").mkdir()
    path, link = tmp_path / "folder" / "x.ledger", tmp_path / "link.ledger"
    path.touch(0o644)
    link.symlink_to(path)
    path.chmod(0o644)
    with Ledger(link, Limit(3)) as ledger:
        ledger.spend(ONE, "r")
        assert {part.stat().st_mode & 0o777 for part in path.parent.iterdir()} == {0o600}
        for part in path.parent.iterdir():
            part.chmod(0o644)
        Ledger(link).close()
        assert {part.stat().st_mode & 0o777 for part in path.parent.iterdir()} == {0o600}


@pytest.mark.parametrize("path", ["", ":memory:"])
def test_a_ledger_that_forgets_is_refused(path):
    with pytest.raises(InvalidInput, match="needs a file"):
        Ledger(path, Limit(3))


def test_reserved_payments_are_in_no_period(tmp_path, monkeypatch):
    """Their time is before every period, but a clock may be at 1970, and a period long."""
    for now in (1.0, 1e9):
        monkeypatch.setattr(time, "time", lambda now=now: now)
        with Ledger(tmp_path / f"{now}", Limit(8), Limit(2, seconds=1e12)) as ledger:
            with ledger.alone():
                ledger.charge(ONE, "r", reserved=3)
            assert [balance.epsilon for balance in ledger.balances()] == [4, 1]
            ledger.spend(ONE, "other")


def _older_ledger(path, secret: bytes, vector: bytes) -> bytes:
    """Write a ledger as version 2 did; return the keyed hash of a vector in it."""
    database = sqlite3.connect(path)
    database.executescript("""
        CREATE TABLE payment (
            id INTEGER PRIMARY KEY, paid_at REAL NOT NULL, release TEXT NOT NULL,
            epsilon TEXT NOT NULL, delta TEXT NOT NULL, reports INTEGER NOT NULL
        ) STRICT;
        CREATE TABLE kept (
            release TEXT NOT NULL, key BLOB NOT NULL, report BLOB NOT NULL,
            PRIMARY KEY (release, key)
        ) STRICT;
        CREATE TABLE secret (key BLOB NOT NULL) STRICT;
        CREATE TABLE stored_limit (
            id INTEGER PRIMARY KEY, epsilon TEXT NOT NULL, delta TEXT NOT NULL, seconds REAL
        ) STRICT;
        INSERT INTO payment VALUES (1, 1000.0, 'r', '2', '0', 1);
        INSERT INTO stored_limit VALUES (1, '3', '1/1000000', NULL);
        PRAGMA user_version = 2;
    """)
    key = hmac.digest(secret, vector, "sha256")
    database.execute("INSERT INTO secret VALUES (?)", (secret,))
    database.execute("INSERT INTO kept VALUES ('r', ?, ?)", (key, b"a report"))
    database.commit()
    database.close()
    path.chmod(0o644)
    return key


def test_opening_an_older_ledger_removes_what_would_confirm_a_guess(tmp_path):
    """A table found kept reports by a keyed hash of the vector, with its key beside it."""
    path = tmp_path / "x.ledger"
    key = _older_ledger(path, bytes(range(32)), b"a vector that few could be")
    assert key in path.read_bytes()
    with Ledger(path) as ledger:
        assert ledger.spent() == (Fraction(2), Fraction(0))
        assert ledger.limits == (Limit(3, PER_MILLION),)
        with pytest.raises(BudgetExceeded):
            ledger.spend(Guarantee(2), "r")
        stored = b"".join(part.read_bytes() for part in tmp_path.iterdir())
    assert key not in stored
    assert b"a report" not in stored
    assert path.stat().st_mode & 0o777 == 0o600


def test_nothing_of_an_upgraded_ledger_is_readable_to_others(tmp_path):
    path = tmp_path / "x.ledger"
    _older_ledger(path, bytes(32), b"a vector")
    with Ledger(path) as ledger, ledger.alone():
        ledger.charge(Guarantee("1/2"), "r")
        modes = {part.name: part.stat().st_mode & 0o777 for part in tmp_path.iterdir()}
    assert len(modes) == 3
    assert set(modes.values()) == {0o600}


def test_an_older_ledger_is_opened_as_soon_as_no_other_process_reads(tmp_path, monkeypatch):
    """A reader of its write-ahead log would keep the hashes in it."""
    monkeypatch.setattr(ledger_module, "_WAIT", 0.2)
    path = tmp_path / "x.ledger"
    key = _older_ledger(path, bytes(range(32)), b"a vector that few could be")
    reader = sqlite3.connect(path, isolation_level=None)
    reader.execute("PRAGMA journal_mode = WAL")
    reader.execute("BEGIN")
    reader.execute("SELECT * FROM payment").fetchall()
    with pytest.raises(InvalidInput, match="open in another program"):
        Ledger(path)
    reader.close()
    with Ledger(path):
        stored = b"".join(part.read_bytes() for part in tmp_path.iterdir())
    assert key not in stored


def test_a_charge_is_committed_or_rolled_back_with_its_transaction(tmp_path):
    with Ledger(tmp_path / "x.ledger", Limit(3)) as ledger:
        with ledger.alone() as database:
            ledger.charge(ONE, "r")
            database.execute("CREATE TABLE beside (x)")

        def fail(reports):
            with ledger.alone() as database:
                database.execute("INSERT INTO beside VALUES (1)")
                ledger.charge(ONE, "r", reports)
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            fail(reports=1)
        with pytest.raises(BudgetExceeded):
            fail(reports=100)
        with ledger.alone() as database:
            assert database.execute("SELECT COUNT(*) FROM beside").fetchone() == (0,)
        assert ledger.spent() == (Fraction(1), Fraction(0))


def _race(path, results):
    with Ledger(path, Limit(50)) as ledger:
        paid = 0
        try:
            while True:
                ledger.spend(ONE, "r")
                paid += 1
        except BudgetExceeded:
            results.put(paid)


def test_processes_that_share_a_ledger_never_overspend(tmp_path):
    context = get_context("fork")
    results = context.Queue()
    workers = [
        context.Process(target=_race, args=(tmp_path / "x.ledger", results)) for _ in range(4)
    ]
    for worker in workers:
        worker.start()
    paid = sum(results.get(timeout=180) for _ in workers)
    for worker in workers:
        worker.join()
    assert paid == 50


def _send(ledger_path, sent_path):
    """Run a device that pays, then sends: one byte per report, written without buffering."""
    with Ledger(ledger_path, Limit(10_000)) as ledger:
        sent = os.open(sent_path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        while True:
            ledger.spend(ONE, "r")
            os.write(sent, b".")


def kill_at_random(folder, kills: int, seed: int) -> tuple[int, int]:
    """Kill a sending device repeatedly; return the numbers of reports paid for and sent."""
    rng = random.Random(seed)
    ledger_path, sent_path = folder / "x.ledger", folder / "sent"
    context = get_context("fork")
    for _ in range(kills):
        device = context.Process(target=_send, args=(ledger_path, sent_path), daemon=True)
        device.start()
        time.sleep(rng.uniform(0.0, 0.03))
        assert device.pid is not None
        os.kill(device.pid, signal.SIGKILL)
        device.join()
    with Ledger(ledger_path, Limit(10_000)) as ledger:
        paid = sum(cost.reports for cost in ledger.costs())
    return paid, sent_path.stat().st_size if sent_path.exists() else 0


def test_a_killed_device_never_spends_less_than_it_sent(tmp_path):
    """Sized for CI; benchmarks/kills.py runs a thousand kills."""
    kills = sent = 0
    # On a busy machine few devices live long enough to send; then more are started.
    while sent <= 20 and kills < 1200:
        paid, sent = kill_at_random(tmp_path, 60, seed=kills)
        kills += 60
        assert sent <= paid <= sent + kills
    assert sent > 20, "the devices must have lived long enough to send"
