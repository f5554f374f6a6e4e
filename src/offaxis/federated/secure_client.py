"""The client of a secure aggregation, and the file that keeps it.

A client masks its update, consents to one set of survivors and opens it once
(:class:`SecureAggregationClient`). What it must never forget is its :class:`Progress`.
:class:`ClientFile` keeps keys, roster and progress on disk and writes them before an answer is
sent.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from dataclasses import asdict, dataclass
from fractions import Fraction
from functools import lru_cache, wraps
from pathlib import Path
from typing import Any, Concatenate, Final, Literal, ParamSpec, TypeVar

import numpy as np
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from numpy.typing import NDArray

from offaxis.errors import BudgetExceeded, InvalidDocument, InvalidInput, RoundRefused
from offaxis.federated import masks
from offaxis.federated.confinement import Confined, Position, claim
from offaxis.federated.local import usable_rows
from offaxis.federated.masks import Consent, MaskedUpdate, Opening, Survivors, consent_text, listed
from offaxis.federated.plan import DistributedGuarantee
from offaxis.federated.roster import ClientKeys, Member, Roster
from offaxis.files import current_process, exclusive, replacing
from offaxis.formats.strict_json import canonical_json
from offaxis.randomizers.base import Ball, onto_lattice
from offaxis.sampling.discrete_gaussian import DiscreteGaussian
from offaxis.sampling.entropy import Entropy, fresh_key
from offaxis.vectors import as_array

_LARGEST_ROUND_NUMBER: Final = 2**53

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class Progress:
    """What a client must remember; every step replaces it before its answer is returned."""

    roster: str
    round_number: int = -1
    stage: Literal["idle", "masked", "signed"] = "idle"
    opened: int = 0
    self_seed: str = ""
    survivors: tuple[str, ...] = ()

    @property
    def position(self) -> Position:
        """The round and the step in it; every step increases it."""
        return self.round_number, ("masked", "signed", "idle").index(self.stage)

    def to_bytes(self) -> bytes:
        """Write the progress; it is secret while a round is in progress."""
        return canonical_json(asdict(self)).encode()

    @classmethod
    def from_bytes(cls, state: bytes, roster: Roster) -> Progress:
        """Read the bytes that :meth:`to_bytes` wrote; raise for another roster's."""
        try:
            fields = json.loads(state)
            fields["survivors"] = tuple(fields["survivors"])
            progress = cls(**fields)
        except (ValueError, TypeError, KeyError) as error:
            raise InvalidDocument(
                f"this is not the state of a secure aggregation client: {error}"
            ) from None
        if progress.roster != roster.hash:
            raise RoundRefused(
                "this client belongs to another roster; a changed roster needs new clients, and "
                "its budget adds to what was spent"
            )
        return progress


def _one_at_a_time(
    step: Callable[Concatenate[SecureAggregationClient, P], R],
) -> Callable[Concatenate[SecureAggregationClient, P], R]:
    """Serialize the steps of a client across threads: two at once could sign two sets.

    An answer is returned only in the process of the client, and only if no other object of the
    client has taken a step since.
    """

    @wraps(step)
    def locked(self: SecureAggregationClient, /, *args: P.args, **kwargs: P.kwargs) -> R:
        # Before the lock: a thread that held it at a fork does not exist in the child.
        self.check_process()
        with self._lock:
            if self._retired:
                raise RoundRefused(f"this handle of {self.name} has expired; reopen the ClientFile")
            before = self._progress
            answer = step(self, *args, **kwargs)
            try:
                self.check_process()  # again: a signal handler may fork inside the step
                claim(self._identity, self.name, before.position, self._progress.position)
            except RoundRefused:
                self._progress = before
                raise
            return answer

    return locked


class SecureAggregationClient(Confined):
    """One client. Round numbers increase, each is used once, with one consent per round.

    The steps of a round are :meth:`mask`, :meth:`consent` and :meth:`open`. A step out of order, a
    second answer and a set without this client raise an error, and nothing is sent. :meth:`state`
    must be on disk *before* an answer is sent; :class:`~offaxis.federated.ClientFile` ensures
    that. A client restored to an older state could consent twice. So it cannot be copied or
    pickled, a forked process cannot use it, and a state that is older than the client's last step
    in this process is an error. An older state in *another* process is not noticed.

    Parameters
    ----------
    name : str
    keys : ClientKeys
    roster : Roster
        Decides the guarantee. Compare its hash with other clients first.
    state : bytes, optional
        The result of :meth:`state` of an earlier object.

    Examples
    --------
    >>> from offaxis.federated import (
    ...     ClientKeys, Roster, SecureAggregationClient, SecureAggregationPlan,
    ...     SecureAggregationRound,
    ... )
    >>> keys = {name: ClientKeys.generate() for name in "abc"}
    >>> plan = SecureAggregationPlan(
    ...     dim=2, clip=1, epsilon=4, delta="1e-5", rounds=1, threshold=2
    ... )
    >>> roster = Roster(plan, [keys[name].member(name) for name in "abc"])
    >>> clients = [SecureAggregationClient(name, keys[name], roster) for name in "abc"]
    >>> round_ = SecureAggregationRound(roster, 1)  # the server
    >>> for client in clients[:2]:  # c drops out
    ...     round_.add(client.mask(1, [0.6, 0.8]))
    >>> survivors = round_.survivors()
    >>> consents = [client.consent(survivors) for client in clients[:2]]
    >>> for client in clients[:2]:
    ...     round_.add_opening(client.open(consents))
    >>> round_.result().survivors
    ('a', 'b')

    The state outlives the program, and so does the spent budget:

    >>> restored = SecureAggregationClient("a", keys["a"], roster, state=clients[0].state())
    >>> restored.mask(2, [0, 0])
    Traceback (most recent call last):
        ...
    offaxis.errors.BudgetExceeded: a has opened 1 of 1 rounds; the budget is spent
    """

    def __init__(
        self, name: str, keys: ClientKeys, roster: Roster, state: bytes | None = None
    ) -> None:
        super().__init__()
        self.name, self.roster, self._keys = name, roster, keys
        self._place = roster.place(name)
        member = roster.members[self._place]
        if keys.member(name, member.weight) != member:
            raise InvalidInput(
                f"the roster has other keys for {name}; use the keys that it enrolled with"
            )
        self._progress = (
            Progress(roster.hash) if state is None else Progress.from_bytes(state, roster)
        )
        self._identity = (member.signing, roster.hash)
        claim(self._identity, name, self._progress.position, self._progress.position)
        self._secrets: dict[int, bytes] = {}
        self._lock = threading.Lock()
        self._retired = False

    @property
    def guarantee(self) -> DistributedGuarantee:
        """The guarantee of all sums that this client takes part in."""
        return self.roster.plan.guarantee

    @property
    def opened(self) -> int:
        """In how many rounds this client's update was opened as part of a sum."""
        return self._progress.opened

    def retire(self) -> None:
        """Take no further step: another object continues in its place."""
        if self._process == current_process():
            with self._lock:
                self._retired = True
        else:
            self._retired = True

    def state(self) -> bytes:
        """Return all that must outlive this object; secret while a round is in progress."""
        self.check_process()
        return self._progress.to_bytes()

    @_one_at_a_time
    def mask(self, round_number: int, update: Any) -> MaskedUpdate:
        """Step 1: clip, weight, place on the lattice, add the share of noise and all masks.

        An update that is not finite counts as zero, so that the server cannot notice it.

        Raises
        ------
        RoundRefused
            If the round number is not above all earlier ones.
        BudgetExceeded
            If all rounds of the guarantee are spent.
        InvalidInput
            If the update has another dimension.
        """
        plan, bits, done = self.roster.plan, self.roster.ring_bits, self._progress
        if isinstance(round_number, bool) or not isinstance(round_number, int):
            raise InvalidInput(f"round_number must be an integer, got {round_number!r}")
        if not done.round_number < round_number <= _LARGEST_ROUND_NUMBER:
            raise RoundRefused(
                f"{self.name} has used round {done.round_number}; round numbers increase and are "
                f"used once, got {round_number}; start a round with a new number"
            )
        if done.opened >= plan.rounds:
            raise BudgetExceeded(
                f"{self.name} has opened {done.opened} of {plan.rounds} rounds; the budget is spent"
            )
        array = as_array(update, "update")
        if array.ndim != 1:
            raise InvalidInput(f"an update is one vector, got shape {array.shape}")
        vector = usable_rows(array, plan.dim, "update")
        # Drawn before the update is clipped, and without looking at it.
        noise, seed = self._noise(Entropy()), fresh_key()
        with np.errstate(all="ignore"):
            ball = Ball(plan.dim, plan.clip, 2)
            steps = onto_lattice(vector, ball, self.roster.bounds[self._place])[0]
        masked = masks.to_ring(steps + noise, bits) + masks.expand(seed, plan.dim, bits)
        for place in range(len(self.roster.members)):
            if place != self._place:
                mask = masks.expand(self._pair_seed(place, round_number), plan.dim, bits)
                masked = masked + mask if self._place < place else masked - mask
        self._progress = Progress(
            done.roster, round_number, "masked", done.opened, self_seed=seed.hex()
        )
        payload = masks.pack(masks.reduce(masked, bits), bits)
        return MaskedUpdate(round_number, self.name, payload)

    def _noise(self, entropy: Entropy) -> NDArray[np.int64]:
        """Draw this client's share of the noise."""
        plan = self.roster.plan
        return DiscreteGaussian(plan.share_variance).draw(plan.dim, entropy)

    def _pair_seed(self, place: int, round_number: int) -> bytes:
        member = self.roster.members[place]
        if place not in self._secrets:
            self._secrets[place] = masks.shared_secret(
                self._keys.exchange, member.exchange, member.name
            )
        low, high = sorted((place, self._place))
        names = (self.roster.names[low], self.roster.names[high])
        return masks.pair_seed(self._secrets[place], self.roster.hash, round_number, names)

    @_one_at_a_time
    def consent(self, survivors: Survivors) -> Consent:
        """Step 2: sign the set of survivors, once per round.

        Raises
        ------
        RoundRefused
            If the set is of another round, is the second set of this round, does not include this
            client, or is too small.
        """
        done, threshold = self._at("masked", survivors.round_number), self.roster.plan.threshold
        names = self.roster.check(survivors.names)
        if self.name not in names:
            raise RoundRefused(f"{self.name} is not among the survivors and does not consent")
        if len(names) < threshold:
            raise RoundRefused(
                f"{len(names)} clients are left in round {done.round_number}, but a sum needs "
                f"{threshold}; start a new round"
            )
        text = consent_text(self.roster.hash, done.round_number, names)
        self._progress = Progress(
            done.roster, done.round_number, "signed", done.opened, done.self_seed, names
        )
        return Consent(done.round_number, self.name, self._keys.signing.sign(text))

    @_one_at_a_time
    def open(self, consents: Iterable[Consent]) -> Opening:
        """Step 3: after *every* survivor has signed the same set, reveal seeds of this round.

        These are the seed of the client's own mask and the seeds that it shares with dropped
        clients. No seed shared by two survivors is revealed.

        Raises
        ------
        RoundRefused
            If a survivor's consent is missing, or this round was opened before.
        InvalidDocument
            If a signature is not valid.
        """
        number = self._progress.round_number
        done = self._at("signed", number)
        received = {consent.name: consent for consent in consents if consent.round_number == number}
        missing = [name for name in done.survivors if name not in received]
        if missing:
            raise RoundRefused(
                f"no consent from {listed(missing)} in round {number}; nothing is revealed; "
                f"start a new round"
            )
        text = consent_text(self.roster.hash, number, done.survivors)
        for name in done.survivors:
            public = self.roster.members[self.roster.place(name)].signing
            try:
                key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(public))
                key.verify(received[name].signature, text)
            except (InvalidSignature, ValueError):
                raise InvalidDocument(
                    f"the consent of {name} is not for these survivors of round {number}; "
                    f"nothing is revealed; start a new round"
                ) from None
        dropped = [name for name in self.roster.names if name not in set(done.survivors)]
        seeds = {name: self._pair_seed(self.roster.place(name), number) for name in dropped}
        self._progress = Progress(done.roster, number, "idle", done.opened + 1)
        return Opening(number, self.name, bytes.fromhex(done.self_seed), seeds)

    def _at(self, stage: str, round_number: int) -> Progress:
        """Return the progress if the step after ``stage`` of this round is next."""
        done = self._progress
        if done.round_number != round_number or done.stage != stage:
            raise RoundRefused(
                f"{self.name} is {done.stage!r} in round {done.round_number}, but the requested "
                f"step of round {round_number} follows {stage!r}; every step is taken once, in "
                f"order"
            )
        return done


# ---- A client in a file

_KIND: Final = 0x6F66_6D63
"""SQLite's application id of a client file."""
_WAIT: Final = 30.0
"""Seconds to wait for another step of the same client."""

Notes = dict[str, bytes]


class ClientFile:
    """One client of a secure aggregation, kept in a file.

    A client takes one step at a time across threads, processes and restarts. Progress is written
    and flushed at the end of the block in which a step was taken; its answer may be sent after
    that. A crash in between costs a round, but no step is ever taken twice. A file belongs to one
    roster forever. A block that was open at a ``fork`` is of no use in the child, which opens the
    file again.

    Copying the file or restoring an older one makes two clients of one, which may sign twice. The
    number of changes is therefore also kept beside it, in ``<path>.steps``: a file that is older
    than that, or that has joined a roster and is without it, is an error. Whoever restores or
    copies both is not noticed, nor is a restored machine.

    Parameters
    ----------
    path : str or Path
        Created on first use, readable only by its owner. It is as secret as the keys in it.

    Examples
    --------
    >>> from offaxis.federated import (
    ...     ClientFile, Roster, SecureAggregationPlan, SecureAggregationRound,
    ... )
    >>> files = [ClientFile(f"{name}.client") for name in "abc"]
    >>> plan = SecureAggregationPlan(
    ...     dim=2, clip=1, epsilon=4, delta="1e-5", rounds=1, threshold=2
    ... )
    >>> roster = Roster(plan, [file.member() for file in files])  # keys are drawn here, once
    >>> for file in files:
    ...     file.join(roster)  # after comparing its hash
    >>> round_ = SecureAggregationRound(roster, 1)
    >>> for file in files:
    ...     with file.client() as client:  # on disk when the block ends
    ...         masked = client.mask(1, [0.6, 0.8])
    ...     round_.add(masked)  # so send the answer after the block
    >>> with ClientFile("a.client").client() as client:  # possibly in another program
    ...     consent = client.consent(round_.survivors())
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._beside = self._path.with_name(f"{self._path.name}.steps")

    def member(self, weight: Any = 1) -> Member:
        """Return the public part, for a roster; keys are drawn on the first call.

        The name is the beginning of the public key, so it reveals nothing about a person.
        """
        with self._locked() as notes:
            keys = ClientKeys.from_bytes(notes.setdefault("keys", ClientKeys.generate().to_bytes()))
            member = _member(keys, weight)
            if "roster" not in notes:
                notes["weight"] = str(member.weight).encode()
            elif notes["weight"].decode() != str(member.weight):
                raise RoundRefused(f"this client joined with the weight {notes['weight'].decode()}")
        return member

    @property
    def roster_hash(self) -> str | None:
        """The hash of the roster that this client has joined, if any."""
        with self._locked() as notes:
            return _roster(notes["roster"]).hash if "roster" in notes else None

    def join(self, roster: Roster) -> None:
        """Join a roster. A client joins only one, ever.

        Raises
        ------
        RoundRefused
            If the roster does not list the client as it enrolled, or it has joined another one.
        """
        document = roster.to_bytes()
        with self._locked() as notes:
            if "keys" not in notes:
                raise RoundRefused("this client has not enrolled; call member() first")
            keys, weight = ClientKeys.from_bytes(notes["keys"]), Fraction(notes["weight"].decode())
            if _member(keys, weight) not in roster.members:
                raise RoundRefused("the roster does not list this client with its keys and weight")
            if notes.get("roster", document) != document:
                raise RoundRefused(
                    "this client has already joined another roster; a new roster needs a new "
                    "file, and its budget adds to what was spent"
                )
            notes["roster"] = document

    @contextmanager
    def client(self) -> Iterator[SecureAggregationClient]:
        """Open the client for one step; no other step is taken until the block ends.

        Send an answer after the block, not inside it. A step stays taken if the block then fails.
        The client that the block received takes no step after it.
        """
        with self._locked() as notes:
            if "roster" not in notes:
                raise RoundRefused("this client has not joined a roster; call join() first")
            keys = ClientKeys.from_bytes(notes["keys"])
            roster, state = _roster(notes["roster"]), notes.get("progress")
            client = SecureAggregationClient(_member(keys).name, keys, roster, state=state)
            try:
                yield client
            finally:
                client.retire()
                notes["progress"] = client.state()

    @contextmanager
    def _locked(self) -> Iterator[Notes]:
        """Give exclusive access to all notes; changes are on disk however the block ends."""
        process = current_process()
        with ExitStack() as stack:
            stack.enter_context(self._alone())
            with self._file_errors():
                with suppress(FileExistsError):
                    self._path.touch(mode=0o600, exist_ok=False)
                database = sqlite3.connect(self._path, timeout=_WAIT)
            stack.enter_context(closing(database))
            with self._file_errors():
                # EXTRA: a step that was taken stays taken, whenever the power fails.
                database.execute("PRAGMA synchronous = EXTRA")
                database.execute("BEGIN IMMEDIATE")
                _prepare(database)
                notes: Notes = dict(database.execute("SELECT name, value FROM note"))
                self._check_steps(notes)
            before = dict(notes)
            try:
                yield notes
            finally:
                if process != current_process():
                    # Nothing is written: the transaction is the parent's.
                    raise RoundRefused(
                        f"{self._path} was opened before a fork; reopen the ClientFile in this "
                        f"process"
                    )
                changed = {name: note for name, note in notes.items() if before.get(name) != note}
                if changed:
                    self._check_steps(before)  # again: nobody else may have taken a step since
                    changed["steps"] = b"%d" % (int(notes.get("steps", b"0")) + 1)
                with self._file_errors():
                    database.executemany("REPLACE INTO note VALUES (?, ?)", changed.items())
                    database.commit()
                    if changed:
                        self._record_steps(database)

    def _alone(self) -> AbstractContextManager[None]:
        """Hold the lock of the file for a block."""
        return exclusive(self._path.resolve(), _WAIT)

    def _check_steps(self, notes: Notes) -> None:
        """Raise RoundRefused for a file that was copied or restored, as far as it shows.

        The number beside the file is written after each change, so it is never ahead of the file
        that it belongs to. After a crash it may be behind, or missing after the first change. A new
        client may replace an old one.
        """
        if "steps" not in notes:  # a new file, or one of an earlier version
            return
        text = self._beside.read_text() if self._beside.exists() else ""
        owner, _, steps = text.partition(" ")
        if owner == ClientKeys.from_bytes(notes["keys"]).fingerprint and steps.isdecimal():
            copied = int(steps) > int(notes["steps"])
        else:
            copied = int(notes["steps"]) > 1
        if copied:
            raise RoundRefused(
                f"{self._path} is not the file whose steps are counted in {self._beside.name}: it "
                f"was copied, or restored from a backup, and its client may have signed since. "
                f"Delete it, and enrol with a new file in a new roster"
            )

    def _record_steps(self, database: sqlite3.Connection) -> None:
        """Write the number of changes beside the file, under the lock of the file."""
        database.execute("BEGIN IMMEDIATE")
        notes: Notes = dict(database.execute("SELECT name, value FROM note"))
        name = ClientKeys.from_bytes(notes["keys"]).fingerprint
        with replacing(self._beside) as file:
            file.write(f"{name} {notes['steps'].decode()}".encode())
        database.rollback()

    @contextmanager
    def _file_errors(self) -> Iterator[None]:
        """Raise errors of the file as InvalidInput."""
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise InvalidInput(f"cannot use {self._path} as a client file: {error}") from None


def _prepare(database: sqlite3.Connection) -> None:
    """Create the table in a new file; raise for another application's file."""
    (kind,) = database.execute("PRAGMA application_id").fetchone()
    if kind == _KIND:
        return
    if kind or database.execute("SELECT 1 FROM sqlite_master").fetchone():
        raise sqlite3.DatabaseError("it is a database of another application")
    database.execute("CREATE TABLE note (name TEXT PRIMARY KEY, value BLOB NOT NULL) STRICT")
    database.execute(f"PRAGMA application_id = {_KIND}")


def _member(keys: ClientKeys, weight: Any = 1) -> Member:
    return keys.member(keys.fingerprint, weight)


@lru_cache(maxsize=4)
def _roster(document: bytes) -> Roster:
    """Read a roster; cached, because in a simulation all clients hold the same one."""
    return Roster.from_bytes(document)
