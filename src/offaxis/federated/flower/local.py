"""Local gradient releases in Flower: a mod for its clients and a strategy that averages bundles."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import closing
from functools import partial
from logging import INFO
from pathlib import Path

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid

from offaxis.errors import InvalidDocument
from offaxis.federated.flower.records import (
    TrainingOnly,
    as_vector,
    from_vector,
    log,
    make_refusal,
    make_reply,
    model_of,
    parse_reply,
    train_or_zero,
    without_errors,
)
from offaxis.federated.local import GradientMechanism, LocalClient, LocalServer
from offaxis.privacy.guarantee import Guarantee
from offaxis.privacy.ledger import Ledger, Limit
from offaxis.vectors import Vectors


class LocalMod:
    """A client mod that replaces the result of a training function by a bundle of reports.

    The training function replies with the trained arrays under the names it received (their
    difference is the update, for a mechanism with ``samples=1``), or with an ArrayRecord of one
    array ``gradients`` (samples, d). Nothing else of the reply is sent, not even an error: a client
    whose training fails releases zeros. A bundle is paid for before the client trains.

    Parameters
    ----------
    mechanism : DirectGradient or PermutedGradients
    rounds : int
        How many bundles this client may ever send; its guarantee covers all of them together.
    ledger : callable
        Returns, for a node's context, the path of its :class:`~offaxis.privacy.Ledger`. The node's
        operator chooses the path and may set further limits in the ledger. The state that Flower
        keeps ends with the run.

    Examples
    --------
    >>> from offaxis.federated.flower import LocalMod  # first: it turns telemetry off
    >>> from flwr.clientapp import ClientApp
    >>> from offaxis.federated import DirectGradient
    >>> public = np.random.default_rng(0).normal(0, 1, (50, 4))  # updates on public data
    >>> mod = LocalMod(
    ...     DirectGradient.fit(public, samples=1, epsilon=2),
    ...     rounds=5,
    ...     ledger=lambda context: context.node_config["offaxis-ledger"],
    ... )
    >>> print(mod.guarantee)
    ε = 10, pure
    >>> app = ClientApp()
    >>> @app.train(mods=[mod])
    ... def train(message, context):
    ...     ...  # reply with trained arrays, as usual
    """

    def __init__(
        self, mechanism: GradientMechanism, rounds: int, *, ledger: Callable[[Context], str | Path]
    ) -> None:
        self.mechanism, self._path = mechanism, ledger
        self.guarantee: Guarantee = LocalClient(mechanism, rounds).guarantee
        """The guarantee of all bundles of a client together."""

    def __call__(
        self, message: Message, context: Context, call_next: Callable[..., Message]
    ) -> Message:
        """Pay for a bundle, train, and send the bundle instead of the arrays."""
        try:
            model = model_of(message)
            before, names = as_vector(model), list(model)  # training may change it in place
            limit = Limit(self.guarantee.epsilon, self.guarantee.delta)
            with closing(Ledger(self._path(context), limit)) as ledger:
                release = self.mechanism.release
                ledger.spend(release.guarantee, release.hash, self.mechanism.reports)
        except Exception as error:
            return make_refusal(message, error)
        shape = (self.mechanism.samples, self.mechanism.dim)
        rows = train_or_zero(
            lambda: call_next(message, context), lambda arrays: _rows(before, names, arrays), shape
        )
        try:
            bundle = self.mechanism.report(rows)
        except Exception as error:  # no data make it fail; if some did, send no error text
            return make_refusal(message, error)
        return make_reply(message, bundle=list(bundle))


def _rows(before: Vectors, names: list[str], after: ArrayRecord) -> Vectors:
    if list(after) == ["gradients"]:
        rows: Vectors = np.asarray(after["gradients"].numpy(), dtype=np.float64)
        return rows
    if list(after) != names:
        raise InvalidDocument("reply with arrays of the same names, or with 'gradients'")
    return (as_vector(after) - before)[None]


class LocalStrategy(TrainingOnly):
    """Moves the model by ``step`` times the average of all clients' decoded bundles.

    For gradients the step is negative. Clients are not evaluated, because their metrics would be
    unprotected; use ``evaluate_fn``.

    Examples
    --------
    >>> from offaxis.federated.flower import LocalStrategy  # first: it turns telemetry off
    >>> from offaxis.federated import DirectGradient
    >>> public = np.random.default_rng(0).normal(0, 1, (50, 4))
    >>> strategy = LocalStrategy(DirectGradient.fit(public, samples=1, epsilon=2), step=0.5)

    In a server app: ``strategy.start(grid, initial_arrays=arrays, num_rounds=5)``.
    """

    def __init__(self, mechanism: GradientMechanism, step: float = 1.0) -> None:
        self.mechanism, self.step = mechanism, step

    def summary(self) -> None:
        """Log the guarantee of one bundle."""
        mechanism = self.mechanism
        log.log(INFO, "local bundles of %d reports, %s", mechanism.reports, mechanism.guarantee)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Request training from all nodes."""
        self._arrays = arrays
        config["server-round"] = server_round
        record = RecordDict({"arrays": arrays, "config": config})
        return [
            Message(record, dst_node_id=node, message_type="train") for node in grid.get_node_ids()
        ]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Decode and average the bundles, and move the model."""
        server = LocalServer(self.mechanism)
        bundles = [
            bundle
            for reply in without_errors(replies)
            if (bundle := parse_reply(reply, partial(_decodable, server), "bundle"))
        ]
        if not bundles:
            return None, None
        average = server.average(bundles).estimate
        moved = as_vector(self._arrays) + self.step * average
        return from_vector(moved, self._arrays), MetricRecord({"clients": len(bundles)})


def _decodable(server: LocalServer, bundle: list[bytes]) -> list[bytes]:
    """Return a bundle that decodes; otherwise raise the decoding error."""
    server.decode(bundle)
    return bundle
