"""Checks that run where Flower is: real apps, real messages, in Flower's runtime. Prints JSON."""

from __future__ import annotations

import doctest
import json
import logging
import sys

import numpy as np
from examples.flower.runtime import simulate
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.supercore import telemetry

from offaxis.errors import OffaxisError, RoundRefused
from offaxis.federated import DirectGradient, DistributedGuarantee
from offaxis.federated.flower import (
    LocalClientSide,
    LocalStrategy,
    MaskedClientSide,
    MaskedStrategy,
    local,
    masked_client,
    masked_strategy,
)

NODES = 3
PLAN = {"epsilon": 10_000, "delta": "1e-5", "rounds": 2, "threshold": 2, "colluders": 0}


def app_with(mod) -> ClientApp:
    """Return clients whose update is (1, 2, 3)/10 times their place plus one."""
    app = ClientApp()

    @app.train(mods=[mod])
    def train(message, context):
        push = (context.node_config["partition-id"] + 1) * np.array([0.1, 0.2, 0.3])
        arrays = ArrayRecord({"w": Array(message.content["arrays"]["w"].numpy() + push)})
        metrics = MetricRecord({"loss": 1.25})  # must never leave
        return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)

    if isinstance(mod, MaskedClientSide):
        mod.register(app)
    return app


def run(strategy, app, rounds: int = 2) -> dict:
    """Run and return the model after it, the metrics of all rounds, and what replies held."""
    out: dict = {"held": []}
    server = ServerApp()

    @server.main()
    def main(grid, context):
        plain = grid.send_and_receive

        def watched(messages, *, timeout=None):
            replies = list(plain(messages, timeout=timeout))
            for reply in replies:
                if not reply.has_error():
                    for key, record in reply.content.items():
                        out["held"].append([key, *sorted(record)])
            return replies

        grid.send_and_receive = watched
        arrays = ArrayRecord({"w": Array(np.zeros(3))})
        result = strategy.start(grid, initial_arrays=arrays, num_rounds=rounds, timeout=180)
        out["model"] = result.arrays["w"].numpy().tolist() if result.arrays else None
        out["metrics"] = [dict(one) for one in result.train_metrics_clientapp.values()]

    simulate(server, app, NODES)
    out["held"] = sorted({tuple(one) for one in out["held"]})
    out["refused"] = getattr(strategy, "refused", [])
    return out


def strategy(**changed) -> MaskedStrategy:
    return MaskedStrategy(clients=NODES, clip=5.0, seconds=120, **PLAN | changed)


class Shy(MaskedClientSide):
    """The first node does not consent in the first round."""

    def _consent(self, message, context):
        if context.node_config["partition-id"] == 0 and message.content["offaxis"]["round"] == 1:
            raise RoundRefused("gone for a moment")
        return super()._consent(message, context)


def refused(limit: dict, **side) -> str:
    """Return what a server hears whose clients do not accept its roster."""
    try:
        run(strategy(), app_with(MaskedClientSide(DistributedGuarantee(**PLAN | limit), **side)))
    except OffaxisError as error:
        return str(error)
    return "accepted"


def main() -> None:
    logging.getLogger("offaxis.federated").setLevel(logging.ERROR)
    limit = DistributedGuarantee(**PLAN)
    public = np.random.default_rng(0).normal(0, 1, (50, 3))
    recipe = DirectGradient.fit(public, samples=1, epsilon=5)
    found = {
        "telemetry": telemetry.FLWR_TELEMETRY_ENABLED,
        "doctests": [
            list(doctest.testmod(module, extraglobs={"np": np}))
            for module in (local, masked_client, masked_strategy)
        ],
        "masked": run(strategy(), app_with(MaskedClientSide(limit, clip=5.0))),
        "shy": run(strategy(), app_with(Shy(limit))),
        "stricter epsilon": refused({"epsilon": 1}),
        "other roster": refused({}, roster_hash="00" * 32),
        "local": run(LocalStrategy(recipe), app_with(LocalClientSide(recipe, rounds=1))),
    }
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
