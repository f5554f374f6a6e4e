"""The client's side of masked sums in Flower: a mod for training and three small answers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from logging import INFO
from pathlib import Path
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid

from offaxis.errors import OffaxisError, RoundRefused
from offaxis.federated.flower.records import (
    AGREE,
    ENROL,
    KEY,
    OPEN,
    SIGN,
    TrainingOnly,
    answer,
    answered,
    as_vector,
    fields_of,
    from_vector,
    learnt,
    log,
    made_of,
    model_of,
    question,
    refusal,
)
from offaxis.federated.masks import Consent, MaskedUpdate, Opening, Survivors, listed
from offaxis.federated.plan import DistributedGuarantee, MaskingPlan
from offaxis.federated.roster import Member, Roster
from offaxis.federated.secure_client import ClientFile
from offaxis.federated.secure_server import MaskedRound, MaskedSum
from offaxis.vectors import as_integer

Handler = Callable[[Message, Context], Message]


class MaskedClientSide:
    """What a Flower client needs to take part in masked sums.

    As a mod of a training function it replaces the trained arrays by the masked update; *nothing
    else* of the reply leaves, no metrics and no errors. A client whose training fails sends an
    update of zero: it refuses for public reasons only. It takes the first roster that keeps
    ``limit`` and no other afterwards, in this run or a later one.

    Parameters
    ----------
    limit : DistributedGuarantee
        The weakest promise this client accepts: a roster with a larger ε or δ, more rounds, a
        smaller threshold or fewer colluders allowed for is refused.
    file : callable
        Where this node keeps its :class:`~offaxis.federated.ClientFile`, from its context: a path
        that the node's operator chooses. What Flower itself keeps ends with the run.
    clip : float, optional
        The norm that this client expects in the roster; None takes any.
    roster_hash : callable, optional
        The hash that people compared out of band, from the context. Where it gives None the
        server is trusted to tell the roster truly, and with a false one it learns single updates.
    weight : callable, optional
        Public weight of this client, from its context; 1 if left out.

    Examples
    --------
    >>> from offaxis.federated.flower import MaskedClientSide  # first: it turns telemetry off
    >>> from flwr.clientapp import ClientApp
    >>> from offaxis.federated import DistributedGuarantee
    >>> weakest = DistributedGuarantee(8, "1e-5", rounds=10, threshold=5, colluders=1)
    >>> side = MaskedClientSide(weakest, file=lambda context: context.node_config["offaxis-file"])
    >>> app = ClientApp()
    >>> side.register(app)
    >>> @app.train(mods=[side])
    ... def train(message, context):
    ...     ...  # reply with trained arrays, as always
    """

    def __init__(
        self,
        limit: DistributedGuarantee,
        *,
        file: Callable[[Context], str | Path],
        clip: float | None = None,
        roster_hash: Callable[[Context], str | None] = lambda context: None,
        weight: Callable[[Context], Any] = lambda context: 1,
    ) -> None:
        self.limit, self.clip = limit, clip
        self._path, self._agreed, self._weight = file, roster_hash, weight

    def register(self, app: ClientApp) -> None:
        """Add the answers to the app: enrol, agree to a roster, sign the survivors, open."""
        handlers: dict[str, Handler] = {
            ENROL: self._enrol,
            AGREE: self._agree,
            SIGN: self._sign,
            OPEN: self._open,
        }
        for kind, handler in handlers.items():
            app.query(kind.split(".")[1])(_guarded(handler))

    def __call__(
        self, message: Message, context: Context, call_next: Callable[..., Message]
    ) -> Message:
        """Train, and send the masked update instead of the arrays."""
        try:
            number, digest = fields_of(message, "round", "roster")
            before = as_vector(model_of(message))
            if self._file(context).roster_hash != digest:
                raise RoundRefused("this round is for a roster that this client has not joined")
        except Exception as error:
            return refusal(message, error)
        update = learnt(
            lambda: call_next(message, context),
            lambda arrays: as_vector(arrays) - before,
            before.shape,
        )
        try:
            with self._file(context).client() as client:
                sent = client.mask(number, update)
        except Exception as error:
            return refusal(message, error)
        return answer(message, name=sent.name, payload=sent.payload)

    def _file(self, context: Context) -> ClientFile:
        return ClientFile(self._path(context))

    def _enrol(self, message: Message, context: Context) -> Message:
        own = self._file(context).member(self._weight(context))
        return answer(
            message,
            name=own.name,
            exchange=own.exchange,
            signing=own.signing,
            weight=str(own.weight),
        )

    def _agree(self, message: Message, context: Context) -> Message:
        (document,) = fields_of(message, "document")
        roster = Roster.from_bytes(document)
        self._check(roster, self._agreed(context))
        self._file(context).join(roster)
        return answer(message, roster=roster.hash)

    def _check(self, roster: Roster, agreed: str | None) -> None:
        """Refuse a roster that promises less than this client asks for."""
        given, limit = roster.plan.guarantee, self.limit
        if agreed not in (None, roster.hash):
            raise RoundRefused(f"the roster has the hash {roster.hash}, not the one agreed on")
        if self.clip not in (None, roster.plan.clip):
            raise RoundRefused(f"the roster clips to {roster.plan.clip}, not to {self.clip}")
        weaker = (
            given.epsilon > limit.epsilon
            or given.delta > limit.delta
            or given.rounds > limit.rounds
            or given.threshold < limit.threshold
            or given.colluders < limit.colluders
        )
        if weaker:
            raise RoundRefused(f"the roster promises {given}, and this client asks for {limit}")

    def _sign(self, message: Message, context: Context) -> Message:
        number, names = fields_of(message, "round", "names")
        with self._file(context).client() as client:
            consent = client.consent(Survivors(number, tuple(names)))
        return answer(message, name=consent.name, signature=consent.signature)

    def _open(self, message: Message, context: Context) -> Message:
        number, names, signatures = fields_of(message, "round", "names", "signatures")
        pairs = zip(names, signatures, strict=False)
        with self._file(context).client() as client:
            opening = client.open([Consent(number, name, signature) for name, signature in pairs])
        return answer(
            message,
            name=opening.name,
            self_seed=opening.self_seed,
            dropped=list(opening.pair_seeds),
            pair_seeds=list(opening.pair_seeds.values()),
        )


def _guarded(handler: Handler) -> Handler:
    """Refuse whatever goes wrong: no message of a server ends in an error that tells something."""

    def guarded(message: Message, context: Context) -> Message:
        try:
            return handler(message, context)
        except Exception as error:
            return refusal(message, error)

    return guarded


# ----------------------------------------------------------------------------
# The server's side of masked sums in Flower: a strategy that opens a sum a round, or nothing.


class MaskedStrategy(TrainingOnly):
    """Weighted federated averaging of updates that nobody sees.

    Before the first round every node enrols with its keys and public weight, and is sent the
    roster. Keys stay with the nodes, so the same nodes make the same roster in a later run. In
    each round survivors are announced, signed and opened; the model moves by
    ``step`` times the weighted mean of the clipped updates. A round that cannot be opened
    leaves the model as it is and is told in ``refused``; the next one starts afresh. Clients are
    not evaluated, because their metrics would be unprotected; evaluate on public data
    (``evaluate_fn``).

    Parameters
    ----------
    clients : int
        How many nodes to wait for.
    clip, epsilon, delta, rounds, threshold, colluders, bound
        As in :class:`~offaxis.federated.MaskingPlan`; the dimension is the model's.
    step : float
        Size of the server's step.
    first_round : int
        The number of the first round: above all that this roster has used in earlier runs.
    seconds : float
        How long to wait for answers in each of the small steps.

    Examples
    --------
    >>> from offaxis.federated.flower import MaskedStrategy
    >>> strategy = MaskedStrategy(
    ...     clients=20, clip=1.0, epsilon=8, delta="1e-5", rounds=10, threshold=15, colluders=2
    ... )
    >>> strategy.roster is None, strategy.refused  # the roster comes with the first round
    (True, [])

    In a server app: ``strategy.start(grid, initial_arrays=arrays, num_rounds=10)``.
    """

    def __init__(
        self,
        *,
        clients: int,
        step: float = 1.0,
        first_round: int = 1,
        seconds: float = 600.0,
        **plan: Any,
    ) -> None:
        self.clients, self.step, self.seconds, self._plan = clients, step, seconds, plan
        self.first_round = as_integer(first_round, "first_round", 1)
        self.roster: Roster | None = None
        self.refused: list[str] = []
        self._nodes: dict[str, int] = {}

    def summary(self) -> None:
        """Log what is promised."""
        log.log(INFO, "masked sums of %d clients, %s", self.clients, self._plan)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Enrol the nodes if it is the first round, and ask all of the roster to train."""
        self._grid, self._arrays = grid, arrays
        roster = self.roster = self.roster or self._enrolled(as_vector(arrays).size)
        number = self.first_round + server_round - 1
        self._round = MaskedRound(roster, number)
        own = ConfigRecord({"round": number, "roster": roster.hash})
        config["server-round"] = server_round
        record = RecordDict({"arrays": arrays, "config": config, KEY: own})
        return [
            Message(record, dst_node_id=node, message_type="train") for node in self._nodes.values()
        ]

    def _ask(self, kind: str, whom: Iterable[str], **entries: Any) -> list[Message]:
        return self._answers(question(self._nodes[name], kind, **entries) for name in whom)

    def _answers(self, questions: Iterable[Message]) -> list[Message]:
        return answered(self._grid.send_and_receive(list(questions), timeout=self.seconds))

    def _enrolled(self, dim: int) -> Roster:
        """Wait for the nodes, collect keys, and send the roster to all of them."""
        end = time.monotonic() + self.seconds
        while len(nodes := sorted(self._grid.get_node_ids())) < self.clients:
            if time.monotonic() > end:
                raise RoundRefused(
                    f"{len(nodes)} of {self.clients} nodes are here after {self.seconds} seconds; "
                    f"start them first"
                )
            time.sleep(0.1)
        enrolled = {
            member: reply.metadata.src_node_id
            for reply in self._answers(question(node, ENROL) for node in nodes)
            if (member := made_of(reply, Member, "name", "exchange", "signing", "weight"))
        }
        plan = MaskingPlan(dim=dim, **self._plan)
        roster = Roster(plan, sorted(enrolled, key=lambda member: member.name))
        self._nodes = {member.name: enrolled[member] for member in roster.members}
        agreed = self._ask(AGREE, roster.names, document=roster.to_bytes())
        if len(agreed) < plan.threshold:
            raise RoundRefused(
                f"{len(agreed)} clients agree to the roster {roster.hash}, and a sum needs "
                f"{plan.threshold}; their logs say why"
            )
        log.log(INFO, "roster %s of %d clients, %s", roster.hash, len(enrolled), plan.guarantee)
        return roster

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Announce the survivors, collect their consents and openings, and take a step."""
        try:
            opened = self._opened(replies)
        except OffaxisError as error:
            self.refused.append(str(error))
            log.warning("round %d: %s", server_round, error)
            return None, MetricRecord({"refused": 1})
        moved = as_vector(self._arrays) + self.step * opened.mean
        metrics = MetricRecord({"refused": 0, "survivors": len(opened.survivors)})
        return from_vector(moved, self._arrays), metrics

    def _opened(self, replies: Iterable[Message]) -> MaskedSum:
        number = self._round.round_number
        for reply in answered(replies):
            made_of(
                reply, lambda *sent: self._round.add(MaskedUpdate(number, *sent)), "name", "payload"
            )
        names = self._round.survivors().names
        consents: dict[str, bytes] = {}
        for reply in self._ask(SIGN, names, round=number, names=list(names)):
            made_of(reply, consents.__setitem__, "name", "signature")
        missing = [name for name in names if name not in consents]
        if missing:
            raise RoundRefused(
                f"no consent of {listed(missing)} in round {number}; nothing is learnt of "
                f"anybody; start a new round"
            )
        signed = {"names": list(consents), "signatures": list(consents.values())}
        entries = ("name", "self_seed", "dropped", "pair_seeds")
        for reply in self._ask(OPEN, names, round=number, **signed):
            made_of(reply, self._add_opening, *entries)
        return self._round.result()

    def _add_opening(
        self, name: str, seed: bytes, dropped: Sequence[str], seeds: Sequence[bytes]
    ) -> None:
        pairs = dict(zip(dropped, seeds, strict=True))
        self._round.add_opening(Opening(self._round.round_number, name, seed, pairs))
