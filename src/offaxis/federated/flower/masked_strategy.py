"""The server's side of masked sums in Flower: a strategy that opens a sum a round, or nothing."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from logging import INFO
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid

from offaxis.errors import OffaxisError, RoundRefused
from offaxis.federated.flower.records import (
    AGREE,
    ENROL,
    KEY,
    OPEN,
    SIGN,
    answered,
    as_vector,
    from_vector,
    log,
    made_of,
    question,
)
from offaxis.federated.flower.training_only import TrainingOnly
from offaxis.federated.masked_server import MaskedRound, MaskedSum
from offaxis.federated.members import Member
from offaxis.federated.messages import MaskedUpdate, Opening, listed
from offaxis.federated.plan import MaskingPlan
from offaxis.federated.roster import Roster
from offaxis.vectors import as_integer


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
