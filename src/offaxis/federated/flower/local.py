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
    answer,
    answered,
    as_vector,
    from_vector,
    learnt,
    log,
    made_of,
    model_of,
    refusal,
)
from offaxis.federated.local import GradientRelease, LocalClient, LocalServer
from offaxis.privacy.guarantee import Guarantee
from offaxis.privacy.ledger import Ledger, Limit
from offaxis.vectors import Vectors


class LocalClientSide:
    """A mod that turns what a training function returns into a bundle of reports.

    The training function replies either with trained arrays of the names it was sent (their
    difference is the update, for a recipe of one sample), or with an ArrayRecord of one array
    ``gradients`` (samples, d). Nothing else of the reply leaves, no errors either: a client whose
    training fails releases zeros. A bundle is paid for before the client trains.

    Parameters
    ----------
    recipe : DirectGradient or PermutedGradients
    rounds : int
        How many bundles this client sends, ever; its promise is that of all together.
    ledger : callable
        Where this node keeps its :class:`~offaxis.privacy.Ledger`, from its context: a path that
        the node's operator chooses, with limits of its own if they like. What Flower itself keeps
        ends with the run.

    Examples
    --------
    >>> from offaxis.federated.flower import LocalClientSide  # first: it turns telemetry off
    >>> from flwr.clientapp import ClientApp
    >>> from offaxis.federated import DirectGradient
    >>> public = np.random.default_rng(0).normal(0, 1, (50, 4))  # updates on public data
    >>> recipe = DirectGradient.fit(public, samples=1, epsilon=2)
    >>> where = lambda context: context.node_config["offaxis-ledger"]
    >>> side = LocalClientSide(recipe, rounds=5, ledger=where)
    >>> print(side.guarantee)
    ε = 10, pure
    >>> app = ClientApp()
    >>> @app.train(mods=[side])
    ... def train(message, context):
    ...     ...  # reply with trained arrays, as always
    """

    def __init__(
        self, recipe: GradientRelease, rounds: int, *, ledger: Callable[[Context], str | Path]
    ) -> None:
        self.recipe, self._path = recipe, ledger
        self.guarantee: Guarantee = LocalClient(recipe, rounds).guarantee
        """What all bundles of a client promise together."""

    def __call__(
        self, message: Message, context: Context, call_next: Callable[..., Message]
    ) -> Message:
        """Pay, train, and send a bundle instead of the arrays."""
        try:
            model = model_of(message)
            before, names = as_vector(model), list(model)  # training may change it in place
            limit = Limit(self.guarantee.epsilon, self.guarantee.delta)
            with closing(Ledger(self._path(context), limit)) as ledger:
                release = self.recipe.release
                ledger.spend(release.guarantee, release.hash, self.recipe.reports)
        except Exception as error:
            return refusal(message, error)
        shape = (self.recipe.samples, self.recipe.dim)
        rows = learnt(
            lambda: call_next(message, context), lambda arrays: _rows(before, names, arrays), shape
        )
        try:
            bundle = self.recipe.report(rows)
        except Exception as error:  # no numbers make it fail; if some did, no text may leave
            return refusal(message, error)
        return answer(message, bundle=list(bundle))


def _rows(before: Vectors, names: list[str], after: ArrayRecord) -> Vectors:
    if list(after) == ["gradients"]:
        rows: Vectors = np.asarray(after["gradients"].numpy(), dtype=np.float64)
        return rows
    if list(after) != names:
        raise InvalidDocument("reply with the arrays' own names, or with 'gradients'")
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
    >>> strategy.step
    0.5

    ``strategy.start(grid, initial_arrays=arrays, num_rounds=5)`` calls these in every round:

    >>> from types import SimpleNamespace
    >>> from flwr.app import Array, ArrayRecord, ConfigRecord
    >>> strategy.summary()
    >>> arrays, grid = ArrayRecord({"w": Array(np.zeros(4))}), SimpleNamespace(get_node_ids=list)
    >>> strategy.configure_train(1, arrays, ConfigRecord(), grid)  # a message a node; none here
    []
    >>> strategy.aggregate_train(1, []), strategy.aggregate_evaluate(1, [])  # nobody answered
    ((None, None), None)
    >>> strategy.configure_evaluate(1, arrays, ConfigRecord(), grid)
    []
    """

    def __init__(self, recipe: GradientRelease, step: float = 1.0) -> None:
        self.recipe, self.step = recipe, step

    def summary(self) -> None:
        """Log what one bundle promises."""
        log.log(INFO, "local bundles of %d reports, %s each", self.recipe.reports, self.recipe)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Ask all nodes to train."""
        self._arrays = arrays
        config["server-round"] = server_round
        record = RecordDict({"arrays": arrays, "config": config})
        return [
            Message(record, dst_node_id=node, message_type="train") for node in grid.get_node_ids()
        ]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Decode, average and take a step."""
        server = LocalServer(self.recipe)
        bundles = [
            bundle
            for reply in answered(replies)
            if (bundle := made_of(reply, partial(_readable, server), "bundle"))
        ]
        if not bundles:
            return None, None
        average = server.average(bundles).estimate
        moved = as_vector(self._arrays) + self.step * average
        return from_vector(moved, self._arrays), MetricRecord({"clients": len(bundles)})


def _readable(server: LocalServer, bundle: list[bytes]) -> list[bytes]:
    """Return a bundle, or raise what decoding it raises."""
    server.decode(bundle)
    return bundle
