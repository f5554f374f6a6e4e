"""A client in a file: a step that was taken stays taken, for every later caller."""

from __future__ import annotations

import copy
import pickle
import sqlite3
import stat
import subprocess
import sys
import threading
from contextlib import nullcontext, suppress
from functools import partial
from typing import Any

import numpy as np
import pytest

from offaxis.errors import BudgetExceeded, InvalidInput, OffaxisError, RoundRefused
from offaxis.federated import (
    ClientFile,
    Consent,
    Roster,
    SecureAggregationClient,
    SecureAggregationPlan,
    SecureAggregationRound,
    Survivors,
    secure_client,
)
from tests.federated.rounds import at_once, clients_of, roster_of, run, steps_of

ONES = np.ones(3)


def plan(**changes) -> SecureAggregationPlan:
    base = {"dim": 3, "clip": 2.0, "epsilon": 4, "delta": "1e-5", "rounds": 1, "threshold": 2}
    return SecureAggregationPlan(**base | changes)


@pytest.fixture
def files(tmp_path) -> dict[str, ClientFile]:
    """Three clients by name, all in one roster."""
    files = [ClientFile(tmp_path / f"{place}.client") for place in range(3)]
    roster = Roster(plan(), [file.member() for file in files])
    for file in files:
        file.join(roster)
    return {file.member().name: file for file in files}


def try_to_sign(file: ClientFile, names: tuple[str, ...]) -> Consent | None:
    try:
        with file.client() as client:
            return client.consent(Survivors(1, names))
    except RoundRefused:
        return None


def test_a_round_of_files_that_are_reopened_for_every_step(files, tmp_path):
    roster = Roster(plan(), [file.member() for file in files.values()])
    round_ = SecureAggregationRound(roster, 1)
    paths = dict(zip(files, sorted(tmp_path.glob("*.client")), strict=True))
    for name in files:
        with ClientFile(paths[name]).client() as client:
            sent = client.mask(1, ONES)
        round_.add(sent)
    survivors = round_.survivors()
    consents = [try_to_sign(ClientFile(paths[name]), survivors.names) for name in files]
    for name in files:
        with ClientFile(paths[name]).client() as client:
            opening = client.open(consents)
        round_.add_opening(opening)
    assert set(round_.result().survivors) == set(files)
    # The only round of the plan is spent, for every program that opens the file.
    with pytest.raises(BudgetExceeded), ClientFile(paths[name]).client() as client:
        client.mask(2, ONES)


def test_concurrent_threads_and_files_sign_only_one_set(files, tmp_path):
    names = tuple(files)
    for file in files.values():
        with file.client() as client:
            client.mask(1, ONES)
    (first, *_), path = files.values(), next(iter(sorted(tmp_path.glob("*.client"))))
    sets = [names, names[:2]]
    consents = at_once(
        *(lambda names=names: try_to_sign(ClientFile(path), names) for names in sets * 3)
    )
    assert sum(consent is not None for consent in consents) == 1
    assert try_to_sign(first, names) is None


class Hesitant(SecureAggregationClient):
    """Waits between the check and the signature until another thread has checked, too."""

    def _at(self, stage, round_number):
        done = super()._at(stage, round_number)
        with suppress(threading.BrokenBarrierError):
            self.meeting.wait()
        return done


def signatures(lock: Any, patience: float, dim: int) -> int:
    """Return how many sets two concurrent threads get signed, by a client of its own dimension."""
    client = clients_of(roster_of([1, 1, 1], dim=dim, threshold=2), Hesitant)["a"]
    client._lock, client.meeting = lock, threading.Barrier(2, timeout=patience)
    client.mask(1, np.ones(dim))

    def sign(*names: str) -> int:
        with suppress(RoundRefused):
            return len({client.consent(Survivors(1, names))})
        return 0

    return sum(at_once(partial(sign, "a", "b", "c"), partial(sign, "a", "b")))


def test_two_threads_get_one_set_signed_and_a_broken_control_without_a_lock_signs_two(monkeypatch):
    assert signatures(threading.Lock(), patience=0.2, dim=3) == 1
    # Without the lock, only one of the two steps is claimed; without that, too, both are answered.
    assert signatures(nullcontext(), patience=60, dim=4) == 1
    monkeypatch.setattr(secure_client, "claim", lambda *_: None)
    assert signatures(nullcontext(), patience=60, dim=5) == 2


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_client_cannot_be_copied(duplicate):
    client = clients_of(roster_of([1, 1], dim=3, threshold=2))["a"]
    with pytest.raises(InvalidInput, match="cannot be copied"):
        duplicate(client)


def fail(_: Any) -> None:
    raise ZeroDivisionError


def test_a_step_stays_taken_when_the_block_fails(files):
    """Its answer may already have been sent."""
    file = next(iter(files.values()))
    with pytest.raises(ZeroDivisionError), file.client() as client:
        fail(client.mask(1, ONES))
    with pytest.raises(RoundRefused, match="used round 1"), file.client() as client:
        client.mask(1, ONES)


def test_a_client_takes_no_step_after_its_block(files):
    file = next(iter(files.values()))
    with file.client() as client:
        client.mask(1, ONES)
    for step in (lambda: client.mask(2, ONES), lambda: client.consent(Survivors(1, tuple(files)))):
        with pytest.raises(RoundRefused, match="has expired; reopen the ClientFile"):
            step()


def test_a_process_that_dies_before_its_step_is_written_has_not_taken_it(files, tmp_path):
    path = next(iter(sorted(tmp_path.glob("*.client"))))
    for line, used in (("os._exit(0)", False), ("pass\nos._exit(0)", True)):
        program = (
            "import os, sys\nfrom offaxis.federated import ClientFile\n"
            "with ClientFile(sys.argv[1]).client() as client:\n"
            f"    client.mask(1, [1, 1, 1])\n    {line}"
        )
        subprocess.run([sys.executable, "-c", program, str(path)], check=True)
        with ClientFile(path).client() as client:
            assert (b'"round_number":1' in client.state()) is used


def test_a_file_has_one_roster_one_weight_and_one_set_of_keys(files, tmp_path):
    file = next(iter(files.values()))
    members = [other.member() for other in files.values()]
    with pytest.raises(RoundRefused, match="another roster"):
        file.join(Roster(plan(epsilon=5), members))
    file.join(Roster(plan(), members))
    assert file.roster_hash == Roster(plan(), members).hash
    with pytest.raises(RoundRefused, match="joined with the weight 1"):
        file.member(weight=2)
    fresh = ClientFile(tmp_path / "fresh.client")
    with pytest.raises(RoundRefused, match="not enrolled"):
        fresh.join(Roster(plan(), members))
    assert fresh.member(weight=3).name == fresh.member(weight=2).name
    with pytest.raises(RoundRefused, match="does not list this client"):
        fresh.join(Roster(plan(), [*members, fresh.member(weight=3)][:3]))
    member = fresh.member(weight=2)
    assert fresh.roster_hash is None
    with pytest.raises(RoundRefused, match="has not joined a roster"), fresh.client():
        pass
    fresh.join(Roster(plan(), [*members, member]))


def test_files_of_other_applications_are_not_modified(tmp_path):
    other = tmp_path / "other.db"
    with sqlite3.connect(other) as database:
        database.execute("CREATE TABLE payment (id INTEGER)")
    database.close()
    text = tmp_path / "notes.txt"
    text.write_text("not a database, but long enough to be mistaken for one" * 20)
    for path in (other, text, tmp_path / "missing" / "a.client"):
        before = path.read_bytes() if path.exists() else None
        with pytest.raises(OffaxisError, match="cannot use"):
            ClientFile(path).member()
        assert (path.read_bytes() if path.exists() else None) == before


def test_only_the_owner_can_read_the_file(files, tmp_path):
    for path in tmp_path.glob("*.client"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("update", [[1, 2, np.nan], [np.inf, 0, 0], [-np.inf, np.nan, 1]])
def test_an_update_that_is_not_finite_is_masked_as_zero(update):
    """The server cannot distinguish it from any other update: it sees noise and masks."""
    roster = roster_of([1, 2, 1], dim=3, threshold=2)
    clients = clients_of(roster)
    updates = {"a": update, "b": ONES, "c": -2 * ONES}
    opened, _, _ = run(roster, clients, updates)
    noise = sum(client.noise for client in clients.values())
    others = steps_of(roster, "b", ONES) + steps_of(roster, "c", -2 * ONES)
    assert (opened.integers == others + noise).all()


@pytest.mark.parametrize("value", [1e308, 1.7e308, -1.7e308, 5e-324])
def test_a_client_answers_for_every_finite_update(value):
    client = clients_of(roster_of([1, 1], dim=3, threshold=2))["a"]
    assert client.mask(1, [value, value, -value]).name == "a"
