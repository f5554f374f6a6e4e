"""The client's side of masked sums in Flower: a mod for training and three small answers."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from offaxis.errors import InvalidDocument, OffaxisError, RoundRefused
from offaxis.federated.flower.records import (
    AGREE,
    CONSENT,
    ENROL,
    OPEN,
    answer,
    as_vector,
    fields_of,
    only_arrays,
    refusal,
    remembered,
)
from offaxis.federated.guarantee import DistributedGuarantee
from offaxis.federated.masked_client import MaskedClient
from offaxis.federated.members import ClientKeys
from offaxis.federated.messages import Consent, Survivors
from offaxis.federated.roster import Roster

Handler = Callable[[Message, Context], Message]


class MaskedClientSide:
    """What a Flower client needs to take part in masked sums.

    As a mod of a training function it replaces the trained arrays by the masked update; *nothing
    else* of the reply leaves, no metrics either. Keys, roster and progress live in the context
    that Flower keeps for the node. A client takes the first roster that keeps ``limit`` (or the
    one whose hash it was given) and no other afterwards.

    Parameters
    ----------
    limit : DistributedGuarantee
        The weakest promise this client accepts: a roster with a larger ε or δ, more rounds, a
        smaller threshold or fewer colluders allowed for is refused.
    clip : float, optional
        The norm that this client expects in the roster; None takes any.
    roster_hash : str, optional
        The hash that people compared out of band. Without it the server is trusted to tell the
        roster truly, and with a false one it learns single updates.
    weight : callable, optional
        Public weight of this client, from its context; 1 if left out.

    Examples
    --------
    >>> from flwr.clientapp import ClientApp
    >>> from offaxis.federated import DistributedGuarantee
    >>> from offaxis.federated.flower import MaskedClientSide
    >>> weakest = DistributedGuarantee(8, "1e-5", rounds=10, threshold=5, colluders=1)
    >>> side, app = MaskedClientSide(weakest), ClientApp()
    >>> side.register(app)
    >>> @app.train(mods=[side])
    ... def train(message, context):
    ...     ...  # reply with trained arrays, as always
    """

    def __init__(
        self,
        limit: DistributedGuarantee,
        *,
        clip: float | None = None,
        roster_hash: str | None = None,
        weight: Callable[[Context], Any] = lambda context: 1,
    ) -> None:
        self.limit, self.clip, self.roster_hash, self.weight = limit, clip, roster_hash, weight

    def register(self, app: ClientApp) -> None:
        """Add the answers to the app: enrol, agree to a roster, consent, open."""
        handlers: dict[str, Handler] = {
            ENROL: self._enrol,
            AGREE: self._agree,
            CONSENT: self._consent,
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
            before = as_vector(only_arrays(message.content))
            client = _client(context, digest)
        except OffaxisError as error:
            return refusal(message, error)
        trained = call_next(message, context)
        if trained.has_error():
            return trained
        try:
            after = as_vector(only_arrays(trained.content))
            if after.shape != before.shape:
                raise InvalidDocument("the trained arrays have other shapes than those sent")
            with np.errstate(all="ignore"):
                sent = client.mask(number, after - before)
        except OffaxisError as error:
            return refusal(message, error)
        remembered(context)["progress"] = client.state()
        return answer(message, name=sent.name, payload=sent.payload)

    def _enrol(self, message: Message, context: Context) -> Message:
        kept = remembered(context)
        if "keys" not in kept:
            kept["keys"] = ClientKeys.generate().to_bytes()
        own = _keys(context).member(_name(context), self.weight(context))
        kept["weight"] = str(own.weight)
        return answer(
            message,
            name=own.name,
            exchange=own.exchange,
            signing=own.signing,
            weight=str(own.weight),
        )

    def _agree(self, message: Message, context: Context) -> Message:
        (document,) = fields_of(message, "document")
        roster, kept = _roster(document), remembered(context)
        if kept.get("document", document) != document:
            raise RoundRefused("this client belongs to another roster already")
        self._check(roster)
        client = MaskedClient(_name(context), _keys(context), roster)
        listed = roster.members[roster.place(client.name)]
        if str(listed.weight) != kept["weight"]:
            raise RoundRefused(f"the roster gives this client the weight {listed.weight}")
        if "progress" not in kept:
            kept["document"], kept["progress"] = document, client.state()
        return answer(message, roster=roster.hash)

    def _check(self, roster: Roster) -> None:
        """Refuse a roster that promises less than this client asks for."""
        given, limit = roster.plan.guarantee, self.limit
        if self.roster_hash not in (None, roster.hash):
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

    def _consent(self, message: Message, context: Context) -> Message:
        number, names = fields_of(message, "round", "names")
        client = _client(context)
        consent = client.consent(Survivors(number, tuple(names)))
        remembered(context)["progress"] = client.state()
        return answer(message, name=consent.name, signature=consent.signature)

    def _open(self, message: Message, context: Context) -> Message:
        number, names, signatures = fields_of(message, "round", "names", "signatures")
        client = _client(context)
        pairs = zip(names, signatures, strict=False)
        opening = client.open([Consent(number, name, signature) for name, signature in pairs])
        remembered(context)["progress"] = client.state()
        return answer(
            message,
            name=opening.name,
            self_seed=opening.self_seed,
            dropped=list(opening.pair_seeds),
            pair_seeds=list(opening.pair_seeds.values()),
        )


def _guarded(handler: Handler) -> Handler:
    def guarded(message: Message, context: Context) -> Message:
        try:
            return handler(message, context)
        except OffaxisError as error:
            return refusal(message, error)

    return guarded


def _name(context: Context) -> str:
    return str(context.node_id)


def _keys(context: Context) -> ClientKeys:
    data = remembered(context)["keys"]
    assert isinstance(data, bytes)
    return ClientKeys.from_bytes(data)


@lru_cache(maxsize=4)
def _roster(document: bytes) -> Roster:
    """Read a roster; in a simulation all clients hold the same one."""
    return Roster.from_bytes(document)


def _client(context: Context, digest: str | None = None) -> MaskedClient:
    """Return the client as it was after its last answer."""
    kept = remembered(context)
    if "document" not in kept:
        raise RoundRefused("this client has agreed to no roster")
    roster = _roster(kept["document"])
    if digest not in (None, roster.hash):
        raise RoundRefused("this round is for another roster")
    return MaskedClient(_name(context), _keys(context), roster, state=kept["progress"])
