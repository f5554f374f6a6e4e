"""The client's side of masked sums in Flower: a mod for training and three small answers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from offaxis.errors import RoundRefused
from offaxis.federated.client_file import ClientFile
from offaxis.federated.flower.records import (
    AGREE,
    ENROL,
    OPEN,
    SIGN,
    answer,
    as_vector,
    fields_of,
    learnt,
    model_of,
    refusal,
)
from offaxis.federated.guarantee import DistributedGuarantee
from offaxis.federated.messages import Consent, Survivors
from offaxis.federated.roster import Roster

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
