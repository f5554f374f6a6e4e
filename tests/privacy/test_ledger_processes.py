"""A ledger across processes: forks, kills, backups and files that were moved lose no payment."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from fractions import Fraction
from pathlib import Path

import pytest

from offaxis.errors import BudgetExceeded, InvalidInput
from offaxis.privacy import ledger as ledger_module
from offaxis.privacy.guarantee import Guarantee
from offaxis.privacy.ledger import Ledger, Limit
from tests.forks import in_child

ONE = Guarantee(Fraction(1))
PROGRAM = """
import os, signal, sys
from offaxis.privacy import Guarantee, Ledger, Limit
path, one = sys.argv[1], Guarantee(1)
"""


def program(text: str, path: Path, *, status: int = 0) -> str:
    """Run a program with a path; return what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM + text, str(path)], capture_output=True, text=True
    )
    assert done.returncode == status, done.stderr
    return done.stdout


def pay(path: Path, reports: int = 1) -> None:
    with Ledger(path) as ledger:
        ledger.spend(ONE, "r", reports=reports)


def paid(path: Path) -> int:
    with Ledger(path) as ledger:
        return int(ledger.spent()[0])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "x.ledger"
    Ledger.create(path, Limit(100)).close()
    return path


# ---- fork


def test_a_forked_child_can_neither_pay_nor_read_with_the_ledger_of_its_parent(path):
    with Ledger(path) as ledger:
        outcomes = in_child(
            lambda: ledger.spend(ONE, "r"),
            lambda: ledger.record(ONE, "r"),
            lambda: ledger.alone().__enter__(),
            ledger.spent,
            ledger.costs,
            ledger.balances,
            ledger.by_release,
            lambda: ledger.has_paid_for("r"),
            lambda: ledger.study(""),
            lambda: ledger.secret(bytes(32)),
        )
        assert len(outcomes) == 10
        for outcome in outcomes:
            assert outcome.startswith("InvalidInput: this Ledger was made in process ")
            assert "open the file anew, with Ledger(path)" in outcome
        assert in_child(ledger.close) == ["answered"], "leaving a block is no error"
        ledger.spend(ONE, "r")
        assert ledger.spent() == (Fraction(1), Fraction(0))


def test_what_a_child_pays_after_its_parent_has_closed_is_not_lost(path):
    """As by a daemon that detaches: under a log in a file that was deleted, it was."""
    ledger = Ledger(path)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.read(reader, 1)  # until the parent has closed, and another program has looked
        done = 0
        for pay_once in (lambda: ledger.spend(ONE, "r", reports=10), lambda: pay(path, 5)):
            try:
                pay_once()
                done += 1
            except InvalidInput:
                pass
        os._exit(done)
    ledger.close()
    assert program("print(Ledger(path).spent()[0])", path) == "0\n"
    os.write(writer, b".")
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 1, "only the ledger that the child opened pays"
    assert paid(path) == 5


def test_workers_that_open_the_file_themselves_never_overspend(path):
    """As servers that open it once before they fork, and again in each worker."""
    before = Ledger(path)
    workers = []
    for _ in range(2):
        child = os.fork()
        if child == 0:
            with Ledger(path, Limit(40)) as ledger:
                try:
                    while True:
                        ledger.spend(ONE, "r")
                except BudgetExceeded:
                    os._exit(0)
        workers.append(child)
    for child in workers:
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert before.spent() == (Fraction(40), Fraction(0))
    before.close()


def test_a_fork_inside_a_transaction_leaves_it_to_the_parent(path):
    """The child neither commits it, nor deletes its journal when it closes or ends."""
    text = """
ledger = Ledger(path)
with ledger.alone() as database:
    ledger.charge(one, "r")
    database.execute("CREATE TABLE large (x)")
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == int(sys.argv[2]), status
        assert os.path.exists(path + "-journal")
        assert ledger.spent()[0] == 1
    elif sys.argv[2] == "3":
        ledger.close()
        sys.exit(3)
assert child, "the child is refused at the end of the block"
print(ledger.spent()[0])
"""
    for ending in ("1", "3"):
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM + text, str(path), ending],
            capture_output=True,
            text=True,
        )
        # With the error of the child, which ends with 1, in stderr.
        assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr
        assert ("is used in process" in done.stderr) == (ending == "1")
        assert paid(path) == 1
        with closing(sqlite3.connect(path)) as database, database:
            database.execute("DROP TABLE large")
            database.execute("DELETE FROM payment")


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_ledger_cannot_be_copied(path, duplicate):
    with Ledger(path) as ledger, pytest.raises(InvalidInput, match="cannot be copied or pickled"):
        duplicate(ledger)


# ---- Other readers of the file


def test_a_backup_in_the_same_process_does_not_split_the_history(path):
    """Closing the file drops SQLite's locks of the process, which then took itself for alone."""
    with Ledger(path) as ledger:
        path.open("rb").close()
        assert program("print(Ledger(path).spent()[0])", path) == "0\n"
        ledger.spend(ONE, "r", reports=3)
        program("Ledger(path).spend(one, 'r')", path)
        assert ledger.spent() == (Fraction(4), Fraction(0))
        ledger.spend(ONE, "r")
    assert paid(path) == 5


def test_a_backup_inside_a_transaction_lets_nobody_else_pay(path, monkeypatch):
    monkeypatch.setattr(ledger_module, "_WAIT", 0.2)
    with Ledger(path) as ledger:
        with ledger.alone():
            ledger.charge(ONE, "r")
            path.read_bytes()
            (outcome,) = in_child(lambda: pay(path))
            assert "is in use by another thread or process" in outcome
        assert ledger.spent() == (Fraction(1), Fraction(0))


def test_a_read_sees_no_half_of_a_payment(path, monkeypatch):
    """It waits for the transaction, also if the file was read in the meantime."""
    monkeypatch.setattr(ledger_module, "_WAIT", 0.2)
    with Ledger(path) as ledger, Ledger(path) as other, ledger.alone():
        ledger.charge(ONE, "r")
        path.read_bytes()
        with pytest.raises(InvalidInput, match="is in use by another thread or process"):
            other.spent()


# ---- The lock file


def test_the_lock_is_beside_the_file_and_private(path, tmp_path):
    link = tmp_path / "elsewhere" / "link.ledger"
    link.parent.mkdir()
    link.symlink_to(path)
    with Ledger(link) as ledger:
        ledger.spend(ONE, "r")
    assert sorted(part.name for part in tmp_path.iterdir()) == [
        "elsewhere",
        "x.ledger",
        "x.ledger.lock",
    ]
    assert list(link.parent.iterdir()) == [link]
    assert (tmp_path / "x.ledger.lock").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_a_lock_that_is_a_link_is_refused(path, tmp_path, link):
    """The superuser would give the owner of the ledger what the link names."""
    other = tmp_path / "other"
    other.write_text("somebody else's")
    other.chmod(0o644)
    lock = tmp_path / "x.ledger.lock"
    lock.unlink()
    link(other, lock)
    with pytest.raises(InvalidInput, match="cannot use"):
        Ledger(path)
    assert other.stat().st_mode & 0o777 == 0o644
    assert other.read_text() == "somebody else's"
    lock.unlink()
    (tmp_path / "x.ledger-journal").symlink_to(other)
    with pytest.raises(InvalidInput, match="cannot be used"):
        Ledger(path)
    assert other.stat().st_mode & 0o777 == 0o644


def test_a_ledger_with_two_names_is_refused(path, tmp_path):
    """Each name has a journal of its own, so payments of a killed process would be lost."""
    with Ledger(path) as ledger:
        os.link(path, tmp_path / "second")
        for call in (lambda: ledger.spend(ONE, "r"), lambda: Ledger(tmp_path / "second")):
            with pytest.raises(InvalidInput, match="has another name"):
                call()
        (tmp_path / "second").unlink()
        ledger.spend(ONE, "r")
    assert paid(path) == 1


def test_a_process_killed_inside_a_transaction_holds_nobody_up(path):
    text = "ledger = Ledger(path)\nwith ledger.alone():\n    ledger.charge(one, 'r')\n    "
    program(text + "os.kill(os.getpid(), signal.SIGKILL)", path, status=-signal.SIGKILL)
    began = time.monotonic()
    pay(path)
    assert time.monotonic() - began < 10
    assert paid(path) == 1, "what was not committed was rolled back"


def test_a_child_of_a_killed_process_holds_nobody_up(path):
    """A child that was forked inside a transaction has a copy of the open lock file."""
    text = """
ledger = Ledger(path)
with ledger.alone():
    if os.fork() == 0:
        os.close(1)
        os.close(2)
        signal.pause()
    os.kill(os.getpid(), signal.SIGKILL)
"""
    child = subprocess.Popen(
        [sys.executable, "-c", PROGRAM + text, str(path)], start_new_session=True
    )
    try:
        assert child.wait(timeout=60) == -signal.SIGKILL
        began = time.monotonic()
        pay(path)
        assert time.monotonic() - began < 10
    finally:
        os.killpg(child.pid, signal.SIGKILL)


def test_two_threads_and_two_processes_pay_one_at_a_time(path):
    def spend() -> None:
        with Ledger(path) as ledger:
            for _ in range(10):
                ledger.spend(ONE, "r")

    text = "ledger = Ledger(path)\nfor _ in range(10): ledger.spend(one, 'r')"
    command = [sys.executable, "-c", PROGRAM + text, str(path)]
    processes = [subprocess.Popen(command) for _ in range(2)]
    threads = [threading.Thread(target=spend) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [process.wait(timeout=120) for process in processes] == [0, 0]
    assert paid(path) == 40


# ---- Moved, replaced and damaged files


def test_a_file_that_is_moved_after_a_kill_has_all_payments(tmp_path):
    """Nothing is left behind in a log beside it."""
    path = tmp_path / "x.ledger"
    text = """
ledger = Ledger(path, Limit(10))
for _ in range(7): ledger.spend(one, "r")
os.kill(os.getpid(), signal.SIGKILL)
"""
    program(text, path, status=-signal.SIGKILL)
    (tmp_path / "new").mkdir()
    moved = path.rename(tmp_path / "new" / "x.ledger")
    with Ledger(moved, Limit(10)) as ledger:
        assert ledger.spent() == (Fraction(7), Fraction(0))
        with pytest.raises(BudgetExceeded):
            ledger.spend(ONE, "r", reports=4)


def test_a_committed_payment_is_durable(path):
    """A journal that is deleted on commit, and whose deletion is on disk, too (EXTRA)."""
    with Ledger(path) as ledger, ledger.alone() as database:
        assert database.execute("PRAGMA journal_mode").fetchone() == ("delete",)
        assert database.execute("PRAGMA synchronous").fetchone() == (3,)


def test_a_database_without_tables_is_not_taken_for_a_new_ledger(tmp_path):
    """What an older version left that was killed, if its write-ahead log is not moved with it."""
    path = tmp_path / "x.ledger"
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA journal_mode = WAL")
    before = path.read_bytes()
    assert len(before) == 4096
    for opening in (Ledger, Ledger.create):
        with pytest.raises(InvalidInput, match=r"without tables.*x\.ledger-wal"):
            opening(path, Limit(2))
    assert path.read_bytes() == before
    path.write_bytes(b"")
    Ledger(path, Limit(2)).close()


def older_ledger(path: Path, *, version: int = 3) -> sqlite3.Connection:
    """Write a ledger as version 3 did, and leave it open: its payments are in the log only."""
    Ledger.create(path, Limit(10)).close()
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("DROP TABLE study_of_items")
    database.execute("CREATE TABLE pending_wipe (id INTEGER) STRICT")
    database.execute(f"PRAGMA user_version = {version}")
    database.execute("PRAGMA journal_mode = WAL")
    database.execute(
        "INSERT INTO payment (paid_at, release, epsilon, delta, reports) "
        "VALUES (1.0, 'r', '1', '0', 7)"
    )
    return database


def test_a_ledger_with_a_write_ahead_log_is_migrated(tmp_path):
    path, killed = tmp_path / "x.ledger", tmp_path / "killed"
    killed.mkdir()
    open_elsewhere = older_ledger(path)
    for part in tmp_path.glob("x.ledger*"):  # as after a kill: the log was not checkpointed
        shutil.copyfile(part, killed / part.name)
    open_elsewhere.close()
    with Ledger(killed / "x.ledger") as ledger:
        assert ledger.spent() == (Fraction(7), Fraction(0))
        assert {part.name for part in killed.iterdir()} == {"x.ledger", "x.ledger.lock"}
        modes = {part.stat().st_mode & 0o777 for part in killed.iterdir()}
        assert modes == {0o600}
        with pytest.raises(BudgetExceeded):
            ledger.spend(ONE, "r", reports=4)
    with closing(sqlite3.connect(killed / "x.ledger")) as database:
        assert database.execute("PRAGMA journal_mode").fetchone() == ("delete",)
        assert database.execute("PRAGMA user_version").fetchone() == (4,)


def test_an_older_program_that_is_running_is_named(tmp_path, monkeypatch):
    """It would go on writing to the log."""
    monkeypatch.setattr(ledger_module, "_WAIT", 0.2)
    path = tmp_path / "x.ledger"
    running = older_ledger(path)
    with pytest.raises(InvalidInput, match="ledger of an earlier version of offaxis; close"):
        Ledger(path)
    running.close()
    assert paid(path) == 7


@pytest.mark.parametrize("change", ["moved", "deleted", "replaced"])
def test_a_file_that_was_taken_away_while_it_was_open_is_refused(path, tmp_path, change):
    backup = tmp_path / "backup"
    shutil.copyfile(path, backup)
    ledger = Ledger(path)
    ledger.spend(ONE, "r")
    steps: dict[str, Callable[[], object]] = {
        "moved": lambda: path.rename(tmp_path / "moved"),
        "deleted": path.unlink,
        "replaced": lambda: backup.replace(path),
    }
    steps[change]()
    for call in (lambda: ledger.spend(ONE, "r"), ledger.spent):
        with pytest.raises(InvalidInput, match="was moved, deleted or replaced while"):
            call()
    if change == "moved":
        (tmp_path / "moved").rename(path)
        assert ledger.spent() == (Fraction(1), Fraction(0)), "the file itself is back"
    ledger.close()


def test_a_program_may_change_its_folder(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with Ledger(path.name) as ledger:
        monkeypatch.chdir("/")
        ledger.spend(ONE, "r")
        assert ledger.spent() == (Fraction(1), Fraction(0))


def test_a_collected_ledger_holds_no_lock(path):
    Ledger(path)
    gc.collect()
    pay(path)
