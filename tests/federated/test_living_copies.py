"""A client lives once: not in a forked process, not from an older state, not from a copied file."""

from __future__ import annotations

import copy
import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

from offaxis import files
from offaxis.errors import InvalidInput, RoundRefused
from offaxis.federated import (
    ClientFile,
    ClientKeys,
    Roster,
    SecureAggregationClient,
    SecureAggregationPlan,
    Survivors,
    confinement,
    secure_client,
)
from tests.federated.rounds import KEYS, clients_of, roster_of, run
from tests.forks import in_child

ONES = np.ones(3)
ALL, SOME = Survivors(1, ("a", "b", "c")), Survivors(1, ("a", "b"))


def masked_client() -> SecureAggregationClient:
    client = clients_of(roster_of([1, 1, 1], dim=3, threshold=2))["a"]
    client.mask(1, ONES)
    return client


# ---- fork


def test_a_forked_process_gets_no_step_state_or_key_of_a_client():
    client, keys = masked_client(), KEYS["a"]
    roster = client.roster
    outcomes = in_child(
        lambda: client.consent(SOME),
        lambda: client.mask(2, ONES),
        lambda: client.open([]),
        client.state,
        lambda: keys.signing,
        lambda: keys.exchange,
        keys.to_bytes,
        lambda: SecureAggregationClient("a", keys, roster).mask(3, ONES),
    )
    for outcome in outcomes:
        assert outcome.startswith("RoundRefused: ")
    for outcome in outcomes[:-1]:
        assert "reopen the ClientFile in this process" in outcome
    assert in_child(lambda: keys.member("a"), lambda: client.opened) == ["answered", "answered"]
    assert client.consent(ALL).name == "a"


def test_without_the_check_parent_and_child_sign_two_sets(monkeypatch):
    """Broken control: the same fork, when every process counts as the one that made the object."""
    monkeypatch.setattr(confinement.Confined, "check_process", lambda self: None)
    client = masked_client()
    assert in_child(lambda: client.consent(SOME)) == ["answered"]
    assert client.consent(ALL).name == "a"


def test_a_fork_that_was_not_counted_and_a_reused_process_id_are_noticed(monkeypatch):
    client = masked_client()
    monkeypatch.setattr(files, "_forks", files._forks + 1)
    with pytest.raises(RoundRefused, match="reopen the ClientFile"):
        client.consent(ALL)
    monkeypatch.undo()
    monkeypatch.setattr(files.os, "getpid", lambda: 1)
    with pytest.raises(RoundRefused, match="used in process 1"):
        client.consent(ALL)


def test_a_child_does_not_wait_for_a_lock_that_a_thread_of_the_parent_held():
    client = masked_client()
    with client._lock:
        outcomes = in_child(lambda: client.consent(SOME), client.retire)
    assert outcomes[0].startswith("RoundRefused")
    assert outcomes[1] == "answered"


class Forking(SecureAggregationClient):
    """Forks between the check and the signature, as a signal handler could."""

    def _at(self, stage: str, round_number: int):
        done = super()._at(stage, round_number)
        self.child = os.fork()
        return done


def test_a_fork_inside_a_step_answers_only_once():
    client = clients_of(roster_of([1, 1, 1], dim=3, threshold=2), Forking)["a"]
    client.mask(1, ONES)
    parent, status = os.getpid(), 1
    try:
        client.consent(ALL)
    except RoundRefused:
        status = 0
    finally:
        if os.getpid() != parent:
            os._exit(status)
    assert status == 1, "the parent is answered"
    assert os.waitstatus_to_exitcode(os.waitpid(client.child, 0)[1]) == 0, "the child is refused"


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps])
def test_clients_and_keys_cannot_be_copied(duplicate):
    for secret in (masked_client(), KEYS["a"]):
        with pytest.raises(InvalidInput, match="cannot be copied or pickled"):
            duplicate(secret)


# ---- fork, with a file


@pytest.fixture
def file(tmp_path) -> ClientFile:
    """The first of three clients in files, with its update of round 1 masked."""
    files = [ClientFile(tmp_path / f"{place}.client") for place in range(3)]
    plan = SecureAggregationPlan(dim=3, clip=2, epsilon=4, delta="1e-5", rounds=3, threshold=2)
    roster = Roster(plan, [each.member() for each in files])
    for each in files:
        each.join(roster)
    with files[0].client() as client:
        client.mask(1, ONES)
        file_names = roster.names
    files[0].names = file_names
    return files[0]


def sign(file: ClientFile, count: int) -> None:
    with file.client() as client:
        client.consent(Survivors(1, file.names[:count]))


def test_a_block_that_was_open_at_a_fork_signs_and_writes_only_in_the_parent(file, tmp_path):
    reader, writer = os.pipe()
    block = file.client()
    client = block.__enter__()
    child = os.fork()
    if child == 0:
        outcomes = []
        for step in (
            lambda: client.consent(Survivors(1, file.names[:2])),
            lambda: block.__exit__(None, None, None),
        ):
            try:
                step()
                outcomes.append("answered")
            except BaseException as error:
                outcomes.append(str(error))
        os.write(writer, json.dumps(outcomes).encode())
        os._exit(0)
    os.waitpid(child, 0)
    first, second = json.loads(os.read(reader, 10_000))
    os.close(reader)
    os.close(writer)
    assert "reopen the ClientFile in this process" in first
    assert "reopen the ClientFile in this process" in second
    client.consent(Survivors(1, file.names))
    block.__exit__(None, None, None)
    # The parent's step is on disk; a child that opens the file itself sees it.
    (outcome,) = in_child(lambda: sign(file, 2))
    assert "every step is taken once" in outcome
    with file.client() as reopened:
        assert b'"signed"' in reopened.state()


def test_a_child_that_opens_the_file_itself_takes_the_step(file):
    assert in_child(lambda: sign(file, 2)) == ["answered"]
    with pytest.raises(RoundRefused, match="every step is taken once"):
        sign(file, 3)


def test_a_child_killed_inside_its_block_leaves_the_file_usable(file):
    def die() -> None:
        with file.client() as client:
            client.consent(Survivors(1, file.names[:2]))
            os.kill(os.getpid(), signal.SIGKILL)

    child = os.fork()
    if child == 0:
        die()
    os.waitpid(child, 0)
    sign(file, 3)


def test_reading_the_file_inside_a_block_lets_nobody_else_take_a_step(file, tmp_path, monkeypatch):
    """SQLite's locks are those of the process: closing the file drops them."""
    monkeypatch.setattr(secure_client, "_WAIT", 0.2)
    with file.client() as client:
        (tmp_path / "0.client").read_bytes()  # a backup, a checksum
        (outcome,) = in_child(lambda: sign(file, 2))
        assert "is in use by another thread or process" in outcome
        client.consent(Survivors(1, file.names))
    with pytest.raises(RoundRefused, match="every step is taken once"):
        sign(file, 2)


def test_a_step_that_was_taken_meanwhile_is_noticed(file, tmp_path, monkeypatch):
    """Without the lock, as on a file system that has none, the count beside the file tells."""
    monkeypatch.setattr(ClientFile, "_alone", lambda _: nullcontext())
    block = file.client()
    client = block.__enter__()
    (tmp_path / "0.client").read_bytes()
    program = (
        "import sys; from contextlib import nullcontext; "
        "from offaxis.federated import ClientFile, Survivors; "
        "ClientFile._alone = lambda _: nullcontext(); file = ClientFile(sys.argv[1])\n"
        "with file.client() as client: client.consent(Survivors(1, tuple(sys.argv[2:])))"
    )
    path = str(tmp_path / "0.client")
    subprocess.run([sys.executable, "-c", program, path, *file.names[:2]], check=True)
    client.consent(Survivors(1, file.names))
    with pytest.raises(RoundRefused, match="may have signed since"):
        block.__exit__(None, None, None)


# ---- Older states


def test_an_older_state_is_noticed_in_the_same_process():
    client = masked_client()
    roster, masked = client.roster, client.state()
    second = SecureAggregationClient("a", KEYS["a"], roster, state=masked)
    client.consent(ALL)
    with pytest.raises(RoundRefused, match=r"an older state could sign twice"):
        second.consent(SOME)
    for state in (masked, None):
        with pytest.raises(RoundRefused, match=r"latest state\(\), or reopen the ClientFile"):
            SecureAggregationClient("a", KEYS["a"], roster, state=state)
    restored = SecureAggregationClient("a", KEYS["a"], roster, state=client.state())
    with pytest.raises(RoundRefused, match="every step is taken once"):
        restored.consent(SOME)


def test_older_states_after_a_round_would_regain_budget():
    roster = roster_of([1, 1, 1], dim=3, threshold=2, rounds=1)
    clients = clients_of(roster)
    fresh = clients["a"].state()
    run(roster, clients, dict.fromkeys("abc", ONES))
    with pytest.raises(RoundRefused, match="has gone on to round 1"):
        SecureAggregationClient("a", KEYS["a"], roster, state=fresh)
    # Broken control: another process does not know, as docs/federated.md says.
    confinement._latest.clear()
    SecureAggregationClient("a", KEYS["a"], roster, state=fresh).mask(2, ONES)


# ---- Copied and restored files


def kept(path: Path) -> Path:
    copy_ = path.with_name("backup")
    shutil.copyfile(path, copy_)
    return copy_


@pytest.mark.parametrize("restore", [shutil.copyfile, shutil.move])
def test_a_file_restored_from_a_backup_is_refused(file, tmp_path, restore, monkeypatch):
    path = tmp_path / "0.client"
    backup = kept(path)
    sign(file, 3)
    restore(backup, path)
    monkeypatch.setattr(confinement, "_latest", {})  # as in a program that was restarted
    with pytest.raises(RoundRefused, match=r"restored from a backup.*enrol with a new file"):
        sign(file, 2)


def test_a_copied_file_is_refused(file, tmp_path, monkeypatch):
    elsewhere = tmp_path / "elsewhere.client"
    shutil.copyfile(tmp_path / "0.client", elsewhere)
    monkeypatch.setattr(confinement, "_latest", {})
    with pytest.raises(RoundRefused, match="was copied"), ClientFile(elsewhere).client():
        pass


def test_a_file_that_was_copied_before_its_first_answer_is_refused(tmp_path):
    """As in an image of a machine that was made right after it joined."""
    files = [ClientFile(tmp_path / f"{place}.client") for place in range(3)]
    plan = SecureAggregationPlan(dim=3, clip=2, epsilon=4, delta="1e-5", rounds=3, threshold=2)
    roster = Roster(plan, [each.member() for each in files])
    files[0].join(roster)
    shutil.copyfile(tmp_path / "0.client", tmp_path / "copy.client")
    with (
        pytest.raises(RoundRefused, match="was copied"),
        ClientFile(tmp_path / "copy.client").client(),
    ):
        pass
    # Another client at its place, which leaves a count of its own.
    backup = kept(tmp_path / "0.client")
    (tmp_path / "0.client").unlink()
    files[0].member()
    shutil.copyfile(backup, tmp_path / "0.client")
    with pytest.raises(RoundRefused, match="was copied"), files[0].client():
        pass


def test_a_restored_folder_is_not_noticed(file, tmp_path, monkeypatch):
    """What docs/federated.md names as undetectable stays true, or the page must change."""
    backup = tmp_path / "backup"
    backup.mkdir()
    for name in ("0.client", "0.client.steps"):
        shutil.copyfile(tmp_path / name, backup / name)
    sign(file, 3)
    for name in ("0.client", "0.client.steps"):
        shutil.copyfile(backup / name, tmp_path / name)
    monkeypatch.setattr(confinement, "_latest", {})
    sign(file, 2)


def test_a_crash_before_the_steps_are_recorded_costs_nothing(file, tmp_path, monkeypatch):
    steps = tmp_path / "0.client.steps"
    before = steps.read_text()
    sign(file, 3)
    steps.write_text(before)  # as if the program had died between the two writes
    with file.client() as client:
        client.mask(2, ONES)
    assert int(steps.read_text().split()[1]) == int(before.split()[1]) + 2


def test_a_file_of_an_earlier_version_and_a_new_client_at_an_old_path_are_accepted(tmp_path):
    path = tmp_path / "a.client"
    first = ClientFile(path).member().name
    path.unlink()
    assert ClientFile(path).member().name != first
    (tmp_path / "a.client.steps").unlink()
    assert ClientFile(path).member().name != first
    assert ClientKeys.generate().fingerprint not in (tmp_path / "a.client").name
