"""Secure aggregation in Flower: a client mod with four query handlers, and a strategy.

The strategy opens at most one sum per round.
"""

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
    as_vector,
    fields_of,
    from_vector,
    log,
    make_refusal,
    make_reply,
    make_request,
    model_of,
    parse_reply,
    train_or_zero,
    without_errors,
)
from offaxis.federated.masks import Consent, MaskedUpdate, Opening, Survivors, listed
from offaxis.federated.plan import DistributedGuarantee, SecureAggregationPlan
from offaxis.federated.roster import Member, Roster
from offaxis.federated.secure_client import ClientFile
from offaxis.federated.secure_server import AggregatedSum, SecureAggregationRound
from offaxis.vectors import as_integer

Handler = Callable[[Message, Context], Message]


class SecureAggregationMod:
    """A client mod for secure aggregation.

    As a mod of a training function it replaces the trained arrays by the masked update; *nothing
    else* of the reply is sent, neither metrics nor errors. A client whose training fails sends an
    update of zero: it refuses for public reasons only. It joins the first roster that satisfies
    ``limit`` and no other one after that, in this run or a later one.

    Parameters
    ----------
    limit : DistributedGuarantee
        The weakest guarantee this client accepts. A roster with a larger ε or δ, more rounds, a
        smaller threshold or a smaller tolerated number of colluders is refused.
    file : callable
        Returns, for a node's context, the path of its :class:`~offaxis.federated.ClientFile`. The
        node's operator chooses the path. The state that Flower keeps ends with the run.
    clip : float, optional
        The norm that this client expects in the roster; None accepts any.
    roster_hash : callable, optional
        Returns, for a node's context, the hash that people compared out of band. If it returns
        None, the server is trusted to send the true roster; with a false one it could learn single
        updates.
    weight : callable, optional
        Returns the public weight of this client for its context; 1 by default.

    Examples
    --------
    >>> from offaxis.federated.flower import SecureAggregationMod  # first: it turns telemetry off
    >>> from flwr.clientapp import ClientApp
    >>> from offaxis.federated import DistributedGuarantee
    >>> weakest = DistributedGuarantee(8, "1e-5", rounds=10, threshold=5, colluders=1)
    >>> mod = SecureAggregationMod(
    ...     weakest, file=lambda context: context.node_config["offaxis-file"]
    ... )
    >>> app = ClientApp()
    >>> mod.register(app)
    >>> @app.train(mods=[mod])
    ... def train(message, context):
    ...     ...  # reply with trained arrays, as usual
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
        self._path, self._expected_hash, self._weight = file, roster_hash, weight

    def register(self, app: ClientApp) -> None:
        """Add the query handlers to the app: enrol, agree to a roster, sign survivors, open."""
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
            number, roster_hash = fields_of(message, "round", "roster")
            before = as_vector(model_of(message))
            if self._file(context).roster_hash != roster_hash:
                raise RoundRefused("this round is for a roster that this client has not joined")
        except Exception as error:
            return make_refusal(message, error)
        update = train_or_zero(
            lambda: call_next(message, context),
            lambda arrays: as_vector(arrays) - before,
            before.shape,
        )
        try:
            with self._file(context).client() as client:
                masked = client.mask(number, update)
        except Exception as error:
            return make_refusal(message, error)
        return make_reply(message, name=masked.name, payload=masked.payload)

    def _file(self, context: Context) -> ClientFile:
        return ClientFile(self._path(context))

    def _enrol(self, message: Message, context: Context) -> Message:
        member = self._file(context).member(self._weight(context))
        return make_reply(
            message,
            name=member.name,
            exchange=member.exchange,
            signing=member.signing,
            weight=str(member.weight),
        )

    def _agree(self, message: Message, context: Context) -> Message:
        (document,) = fields_of(message, "document")
        roster = Roster.from_bytes(document)
        self._check_roster(roster, self._expected_hash(context))
        self._file(context).join(roster)
        return make_reply(message, roster=roster.hash)

    def _check_roster(self, roster: Roster, expected_hash: str | None) -> None:
        """Refuse a roster with a weaker guarantee than this client requires."""
        offered, limit = roster.plan.guarantee, self.limit
        if expected_hash not in (None, roster.hash):
            raise RoundRefused(f"the roster has the hash {roster.hash}, not the one agreed on")
        if self.clip not in (None, roster.plan.clip):
            raise RoundRefused(f"the roster clips to {roster.plan.clip}, not to {self.clip}")
        weaker = (
            offered.epsilon > limit.epsilon
            or offered.delta > limit.delta
            or offered.rounds > limit.rounds
            or offered.threshold < limit.threshold
            or offered.colluders < limit.colluders
        )
        if weaker:
            raise RoundRefused(f"the roster offers {offered}, but this client requires {limit}")

    def _sign(self, message: Message, context: Context) -> Message:
        number, names = fields_of(message, "round", "names")
        with self._file(context).client() as client:
            consent = client.consent(Survivors(number, tuple(names)))
        return make_reply(message, name=consent.name, signature=consent.signature)

    def _open(self, message: Message, context: Context) -> Message:
        number, names, signatures = fields_of(message, "round", "names", "signatures")
        pairs = zip(names, signatures, strict=False)
        with self._file(context).client() as client:
            opening = client.open([Consent(number, name, signature) for name, signature in pairs])
        return make_reply(
            message,
            name=opening.name,
            self_seed=opening.self_seed,
            dropped=list(opening.pair_seeds),
            pair_seeds=list(opening.pair_seeds.values()),
        )


def _guarded(handler: Handler) -> Handler:
    """Turn every error into a refusal, so that no error reveals anything to the server."""

    def guarded(message: Message, context: Context) -> Message:
        try:
            return handler(message, context)
        except Exception as error:
            return make_refusal(message, error)

    return guarded


class SecureAggregationStrategy(TrainingOnly):
    """Weighted federated averaging of updates that the server never sees individually.

    Before the first round every node enrols with its public keys and public weight, and receives
    the roster. Private keys stay on the nodes, so the same nodes form the same roster in a later
    run. In each round the survivors are announced, signed and opened; the model moves by ``step``
    times the weighted mean of the clipped updates. A round that cannot be opened leaves the model
    unchanged and is recorded in ``refused``; the next round starts afresh. Clients are not
    evaluated, because their metrics would be unprotected; evaluate on public data
    (``evaluate_fn``).

    Parameters
    ----------
    clients : int
        How many nodes to wait for.
    clip, epsilon, delta, rounds, threshold, colluders, bound
        See :class:`~offaxis.federated.SecureAggregationPlan`; the dimension is the model's.
    step : float
        Size of the server's step.
    first_round : int
        Number of the first round: larger than all that this roster used in earlier runs.
    seconds : float
        How long to wait for replies in each step of a round.

    Examples
    --------
    >>> from offaxis.federated.flower import SecureAggregationStrategy
    >>> strategy = SecureAggregationStrategy(
    ...     clients=20, clip=1.0, epsilon=8, delta="1e-5", rounds=10, threshold=15, colluders=2
    ... )
    >>> strategy.roster is None, strategy.refused  # the first round creates the roster
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
        """Log the plan."""
        log.log(INFO, "secure aggregation of %d clients, %s", self.clients, self._plan)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Enrol the nodes in the first round, and request training from all of the roster."""
        self._grid, self._arrays = grid, arrays
        roster = self.roster = self.roster or self._enrol_nodes(as_vector(arrays).size)
        number = self.first_round + server_round - 1
        self._round = SecureAggregationRound(roster, number)
        round_fields = ConfigRecord({"round": number, "roster": roster.hash})
        config["server-round"] = server_round
        record = RecordDict({"arrays": arrays, "config": config, KEY: round_fields})
        return [
            Message(record, dst_node_id=node, message_type="train") for node in self._nodes.values()
        ]

    def _request(self, kind: str, recipients: Iterable[str], **entries: Any) -> list[Message]:
        return self._send(make_request(self._nodes[name], kind, **entries) for name in recipients)

    def _send(self, requests: Iterable[Message]) -> list[Message]:
        return without_errors(self._grid.send_and_receive(list(requests), timeout=self.seconds))

    def _enrol_nodes(self, dim: int) -> Roster:
        """Wait for the nodes, collect keys, and send the roster to all of them."""
        end = time.monotonic() + self.seconds
        while len(nodes := sorted(self._grid.get_node_ids())) < self.clients:
            if time.monotonic() > end:
                raise RoundRefused(
                    f"{len(nodes)} of {self.clients} nodes are connected after {self.seconds} "
                    f"seconds; start them first"
                )
            time.sleep(0.1)
        enrolled = {
            member: reply.metadata.src_node_id
            for reply in self._send(make_request(node, ENROL) for node in nodes)
            if (member := parse_reply(reply, Member, "name", "exchange", "signing", "weight"))
        }
        plan = SecureAggregationPlan(dim=dim, **self._plan)
        roster = Roster(plan, sorted(enrolled, key=lambda member: member.name))
        self._nodes = {member.name: enrolled[member] for member in roster.members}
        agreed = self._request(AGREE, roster.names, document=roster.to_bytes())
        if len(agreed) < plan.threshold:
            raise RoundRefused(
                f"{len(agreed)} clients agree to the roster {roster.hash}, but a sum needs "
                f"{plan.threshold}; their logs state the reason"
            )
        log.log(INFO, "roster %s of %d clients, %s", roster.hash, len(enrolled), plan.guarantee)
        return roster

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Announce the survivors, collect their consents and openings, and move the model."""
        try:
            opened = self._open_sum(replies)
        except OffaxisError as error:
            self.refused.append(str(error))
            log.warning("round %d: %s", server_round, error)
            return None, MetricRecord({"refused": 1})
        moved = as_vector(self._arrays) + self.step * opened.mean
        metrics = MetricRecord({"refused": 0, "survivors": len(opened.survivors)})
        return from_vector(moved, self._arrays), metrics

    def _open_sum(self, replies: Iterable[Message]) -> AggregatedSum:
        number = self._round.round_number
        for reply in without_errors(replies):
            parse_reply(reply, self._add_update, "name", "payload")
        names = self._round.survivors().names
        consents: dict[str, bytes] = {}
        for reply in self._request(SIGN, names, round=number, names=list(names)):
            parse_reply(reply, consents.__setitem__, "name", "signature")
        missing = [name for name in names if name not in consents]
        if missing:
            raise RoundRefused(
                f"no consent from {listed(missing)} in round {number}; nothing is revealed about "
                f"any client; start a new round"
            )
        signed = {"names": list(consents), "signatures": list(consents.values())}
        entries = ("name", "self_seed", "dropped", "pair_seeds")
        for reply in self._request(OPEN, names, round=number, **signed):
            parse_reply(reply, self._add_opening, *entries)
        return self._round.result()

    def _add_update(self, name: str, payload: bytes) -> None:
        self._round.add(MaskedUpdate(self._round.round_number, name, payload))

    def _add_opening(
        self, name: str, seed: bytes, dropped: Sequence[str], seeds: Sequence[bytes]
    ) -> None:
        pairs = dict(zip(dropped, seeds, strict=True))
        self._round.add_opening(Opening(self._round.round_number, name, seed, pairs))
