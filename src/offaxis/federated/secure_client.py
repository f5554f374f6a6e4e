"""How far a client of masked sums has come: what it must never forget."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
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
from offaxis.federated.local import usable_rows
from offaxis.federated.masks import Consent, MaskedUpdate, Opening, Survivors, consent_text, listed
from offaxis.federated.plan import DistributedGuarantee
from offaxis.federated.roster import ClientKeys, Member, Roster
from offaxis.formats.strict_json import canonical_json
from offaxis.randomizers.base import Ball, onto_lattice
from offaxis.sampling.discrete_gaussian import DiscreteGaussian
from offaxis.sampling.entropy import Entropy, fresh_key
from offaxis.vectors import as_array


@dataclass(frozen=True)
class Progress:
    """What a client must remember; every step replaces it before its answer is returned."""

    roster: str
    round_number: int = -1
    stage: Literal["idle", "masked", "signed"] = "idle"
    opened: int = 0
    self_seed: str = ""
    survivors: tuple[str, ...] = ()

    def to_bytes(self) -> bytes:
        """Write it down; secret while a round is under way."""
        return canonical_json(asdict(self)).encode()


def read_progress(state: bytes, roster: Roster) -> Progress:
    """Read what :meth:`Progress.to_bytes` wrote; refuse that of another roster."""
    try:
        fields = json.loads(state)
        fields["survivors"] = tuple(fields["survivors"])
        found = Progress(**fields)
    except (ValueError, TypeError, KeyError) as error:
        raise InvalidDocument(f"this is no state of a masked client: {error}") from None
    if found.roster != roster.hash:
        raise RoundRefused(
            "this client belongs to another roster; a changed roster needs new clients, and its "
            "budget comes on top of what was spent"
        )
    return found


# ----------------------------------------------------------------------------
# A client of masked sums: masks an update, consents to one set of survivors, opens it once.

_LARGEST_NUMBER: Final = 2**53

P = ParamSpec("P")
R = TypeVar("R")


def _one_at_a_time(
    step: Callable[Concatenate[MaskedClient, P], R],
) -> Callable[Concatenate[MaskedClient, P], R]:
    """Let threads take steps of a client one after the other: two at once could sign two sets."""

    @wraps(step)
    def alone(self: MaskedClient, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with self._lock:
            if self._retired:
                raise RoundRefused(
                    f"{self.name} was lent for one step; take it from its file again"
                )
            return step(self, *args, **kwargs)

    return alone


class MaskedClient:
    """One client. Round numbers ascend, each is used once, and one set a round is consented to.

    Steps of a round: :meth:`mask`, :meth:`consent`, :meth:`open`. A step out of order, a second
    answer or a set without this client is refused, and nothing leaves. :meth:`state` must be on
    the disk *before* an answer is sent; :class:`~offaxis.federated.ClientFile` sees to that. A
    client that goes back to an older state could consent twice: it cannot be copied or pickled.

    Parameters
    ----------
    name : str
    keys : ClientKeys
    roster : Roster
        Whose hash has been compared with other clients'; it decides what is promised.
    state : bytes, optional
        What :meth:`state` returned.

    Examples
    --------
    >>> from offaxis.federated import ClientKeys, MaskedClient, MaskedRound, MaskingPlan, Roster
    >>> keys = {name: ClientKeys.generate() for name in "abc"}
    >>> plan = MaskingPlan(dim=2, clip=1, epsilon=4, delta="1e-5", rounds=1, threshold=2)
    >>> roster = Roster(plan, [keys[name].member(name) for name in "abc"])
    >>> clients = [MaskedClient(name, keys[name], roster) for name in "abc"]
    >>> round_ = MaskedRound(roster, 1)
    >>> for client in clients[:2]:  # c drops out
    ...     round_.add(client.mask(1, [0.6, 0.8]))
    >>> survivors = round_.survivors()
    >>> consents = [client.consent(survivors) for client in clients[:2]]
    >>> for client in clients[:2]:
    ...     round_.add_opening(client.open(consents))
    >>> round_.result().survivors, clients[0].opened, clients[2].opened
    (('a', 'b'), 1, 0)
    >>> again = MaskedClient("a", keys["a"], roster, state=clients[0].state())
    >>> again.mask(2, [0, 0])
    Traceback (most recent call last):
        ...
    offaxis.errors.BudgetExceeded: a has opened 1 of 1 rounds; nothing more is promised
    >>> clients[0].retire()  # two objects of one client could sign twice
    >>> print(again.guarantee)
    ε = 4, δ = 1e-05 for the sums of 1 rounds (distributed, not local; up to 0 colluders)
    """

    def __init__(
        self, name: str, keys: ClientKeys, roster: Roster, state: bytes | None = None
    ) -> None:
        self.name, self.roster, self._keys = name, roster, keys
        self._place = roster.place(name)
        own = roster.members[self._place]
        if keys.member(name, own.weight) != own:
            raise InvalidInput(f"the roster has other keys for {name}; take part with its own")
        self._progress = Progress(roster.hash) if state is None else read_progress(state, roster)
        self._secrets: dict[int, bytes] = {}
        self._lock = threading.Lock()
        self._retired = False

    def __reduce__(self) -> str:
        """Refuse to be copied or sent elsewhere: each copy would sign a set of its own."""
        raise InvalidInput("a MaskedClient cannot be copied or pickled; keep its state() instead")

    @property
    def guarantee(self) -> DistributedGuarantee:
        """What is promised about all sums this client takes part in."""
        return self.roster.plan.guarantee

    @property
    def opened(self) -> int:
        """In how many rounds this client's update was opened as part of a sum."""
        return self._progress.opened

    def retire(self) -> None:
        """Take no step any more: another object goes on where this one was."""
        with self._lock:
            self._retired = True

    def state(self) -> bytes:
        """Return all that must outlive this object; secret while a round is under way."""
        return self._progress.to_bytes()

    @_one_at_a_time
    def mask(self, round_number: int, update: Any) -> MaskedUpdate:
        """Step 1: clip, weigh, lay on the lattice, add the share of noise and all masks.

        An update that is not finite counts as zero, so that nobody learns of it.

        Raises
        ------
        RoundRefused
            If the round number is not above all earlier ones.
        BudgetExceeded
            If all rounds of the promise are spent.
        InvalidInput
            If the update is of another dimension.
        """
        plan, bits, done = self.roster.plan, self.roster.ring_bits, self._progress
        if isinstance(round_number, bool) or not isinstance(round_number, int):
            raise InvalidInput(f"a round has a whole number, got {round_number!r}")
        if not done.round_number < round_number <= _LARGEST_NUMBER:
            raise RoundRefused(
                f"{self.name} has used round {done.round_number}; round numbers ascend and are "
                f"used once, got {round_number}; start a round with a new number"
            )
        if done.opened >= plan.rounds:
            raise BudgetExceeded(
                f"{self.name} has opened {done.opened} of {plan.rounds} rounds; nothing more is "
                f"promised"
            )
        given = as_array(update, "update")
        if given.ndim != 1:
            raise InvalidInput(f"an update is one vector, got shape {given.shape}")
        vector = usable_rows(given, plan.dim, "update")
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
        """Step 2: sign the set of survivors, once a round.

        Raises
        ------
        RoundRefused
            If it is another round's, the second set of this round, without this client, or too
            small.
        """
        done, least = self._at("masked", survivors.round_number), self.roster.plan.threshold
        names = self.roster.check(survivors.names)
        if self.name not in names:
            raise RoundRefused(f"{self.name} is not among the survivors and consents to nothing")
        if len(names) < least:
            raise RoundRefused(
                f"{len(names)} clients are left in round {done.round_number}, and a sum needs "
                f"{least}; start a new round"
            )
        text = consent_text(self.roster.hash, done.round_number, names)
        self._progress = Progress(
            done.roster, done.round_number, "signed", done.opened, done.self_seed, names
        )
        return Consent(done.round_number, self.name, self._keys.signing.sign(text))

    @_one_at_a_time
    def open(self, consents: Iterable[Consent]) -> Opening:
        """Step 3: after *every* survivor's signature of the same set, reveal this round's seeds.

        Own mask, and masks with clients that dropped out; nothing between survivors.

        Raises
        ------
        RoundRefused
            If a survivor's consent is missing, or this round was opened before.
        InvalidDocument
            If a signature does not fit.
        """
        number = self._progress.round_number
        done = self._at("signed", number)
        given = {one.name: one for one in consents if one.round_number == number}
        missing = [name for name in done.survivors if name not in given]
        if missing:
            raise RoundRefused(
                f"no consent of {listed(missing)} in round {number}; nothing is revealed; "
                f"start a new round"
            )
        text = consent_text(self.roster.hash, number, done.survivors)
        for name in done.survivors:
            public = self.roster.members[self.roster.place(name)].signing
            try:
                key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(public))
                key.verify(given[name].signature, text)
            except (InvalidSignature, ValueError):
                raise InvalidDocument(
                    f"the consent of {name} is not to these survivors of round {number}; "
                    f"nothing is revealed; start a new round"
                ) from None
        dropped = [name for name in self.roster.names if name not in set(done.survivors)]
        seeds = {name: self._pair_seed(self.roster.place(name), number) for name in dropped}
        self._progress = Progress(done.roster, number, "idle", done.opened + 1)
        return Opening(number, self.name, bytes.fromhex(done.self_seed), seeds)

    def _at(self, stage: str, round_number: int) -> Progress:
        """Return the progress if this step of this round is next."""
        done = self._progress
        if done.round_number != round_number or done.stage != stage:
            raise RoundRefused(
                f"{self.name} is {done.stage} in round {done.round_number}, and was asked for a "
                f"step of round {round_number} that comes after {stage!r}; every step is taken "
                f"once, in order"
            )
        return done


# ----------------------------------------------------------------------------
# A masked client in a file: its keys, its roster and its progress, on the disk before it answers.
#
# Contract: a client takes one step at a time, whoever asks: threads, processes, a program that was
# started anew. Progress is written and flushed when the block ends in which a step was taken, and
# its answer may be sent behind that: what crashes in between costs a round, and no step is taken
# twice. A file belongs to one roster, ever. Whoever copies the file or brings an older one back
# makes two clients of one, which may sign twice.

_KIND: Final = 0x6F66_6D63
"""SQLite's mark of whose file it is."""
_WAIT: Final = 30.0
"""Seconds to wait for another step of the same client."""

Notes = dict[str, bytes]


class ClientFile:
    """One client of masked sums, kept in a file.

    Parameters
    ----------
    path : str or Path
        Made when it is first used, readable by its owner only. As secret as the keys in it.

    Examples
    --------
    >>> from offaxis.federated import ClientFile, MaskedRound, MaskingPlan, Roster
    >>> files = [ClientFile(f"{name}.client") for name in "abc"]
    >>> plan = MaskingPlan(dim=2, clip=1, epsilon=4, delta="1e-5", rounds=1, threshold=2)
    >>> roster = Roster(plan, [file.member() for file in files])  # keys are drawn here, once
    >>> for file in files:
    ...     file.join(roster)  # after its hash was compared
    >>> round_ = MaskedRound(roster, 1)
    >>> for file in files:
    ...     with file.client() as client:  # on the disk when the block ends: send behind it
    ...         masked = client.mask(1, [0.6, 0.8])
    ...     round_.add(masked)
    >>> with ClientFile("a.client").client() as again:  # another program, perhaps
    ...     consent = again.consent(round_.survivors())
    >>> consent.name == files[0].member().name, files[0].roster_hash == roster.hash
    (True, True)
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)

    def member(self, weight: Any = 1) -> Member:
        """Return the public side, for a roster; keys are drawn the first time.

        The name is the beginning of the public key, so that it says nothing about anybody.
        """
        with self._alone() as notes:
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
        with self._alone() as notes:
            return _roster(notes["roster"]).hash if "roster" in notes else None

    def join(self, roster: Roster) -> None:
        """Take part in the sums of a roster, and of no other.

        Raises
        ------
        RoundRefused
            If the client is not in it as it said it would be, or belongs to another one.
        """
        document = roster.to_bytes()
        with self._alone() as notes:
            if "keys" not in notes:
                raise RoundRefused("this client has not enrolled; member() comes first")
            keys, weight = ClientKeys.from_bytes(notes["keys"]), Fraction(notes["weight"].decode())
            if _member(keys, weight) not in roster.members:
                raise RoundRefused("the roster does not have this client with its keys and weight")
            if notes.get("roster", document) != document:
                raise RoundRefused(
                    "this client belongs to another roster already; a new roster needs a new "
                    "file, and what it promises comes on top of what was spent"
                )
            notes["roster"] = document

    @contextmanager
    def client(self) -> Iterator[MaskedClient]:
        """Lend the client for a step; no other step is taken until the block ends.

        An answer may be sent behind the block, not inside it. A step stays taken if the block then
        fails; behind it the client that was lent takes none.
        """
        with self._alone() as notes:
            if "roster" not in notes:
                raise RoundRefused("this client has agreed to no roster")
            keys = ClientKeys.from_bytes(notes["keys"])
            roster, state = _roster(notes["roster"]), notes.get("progress")
            lent = MaskedClient(_member(keys).name, keys, roster, state=state)
            try:
                yield lent
            finally:
                lent.retire()
                notes["progress"] = lent.state()

    @contextmanager
    def _alone(self) -> Iterator[Notes]:
        """Lend all notes; what was changed is on the disk when the block ends, however it ends."""
        with self._told():
            # Opened by SQLite alone: closing a file drops all locks that a process has on it.
            with suppress(FileExistsError):
                self._path.touch(mode=0o600, exist_ok=False)
            database = sqlite3.connect(self._path, timeout=_WAIT)
        with closing(database):
            with self._told():
                # EXTRA: a step that was taken stays taken, whenever the power fails.
                database.execute("PRAGMA synchronous = EXTRA")
                database.execute("BEGIN IMMEDIATE")
                _prepare(database)
                notes: Notes = dict(database.execute("SELECT name, value FROM note"))
            before = dict(notes)
            try:
                yield notes
            finally:
                changed = [item for item in notes.items() if before.get(item[0]) != item[1]]
                with self._told():
                    database.executemany("REPLACE INTO note VALUES (?, ?)", changed)
                    database.commit()

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Tell an error of the file as one of ours."""
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise InvalidInput(f"cannot use {self._path} as a client's file: {error}") from None


def _prepare(database: sqlite3.Connection) -> None:
    """Make the table in a new file; refuse a file of something else."""
    (kind,) = database.execute("PRAGMA application_id").fetchone()
    if kind == _KIND:
        return
    if kind or database.execute("SELECT 1 FROM sqlite_master").fetchone():
        raise sqlite3.DatabaseError("it is a database of something else")
    database.execute("CREATE TABLE note (name TEXT PRIMARY KEY, value BLOB NOT NULL) STRICT")
    database.execute(f"PRAGMA application_id = {_KIND}")


def _member(keys: ClientKeys, weight: Any = 1) -> Member:
    return keys.member(keys.fingerprint, weight)


@lru_cache(maxsize=4)
def _roster(document: bytes) -> Roster:
    """Read a roster; in a simulation all clients hold the same one."""
    return Roster.from_bytes(document)
