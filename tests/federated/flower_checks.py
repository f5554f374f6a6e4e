"""Runs real apps and messages in Flower's runtime, in its environment, and prints JSON."""

from __future__ import annotations

import doctest
import json
import logging
import sys
import tempfile
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp

from examples.flower.runtime import simulate
from offaxis.errors import OffaxisError, RoundRefused
from offaxis.federated import DirectGradient, DistributedGuarantee
from offaxis.federated.flower import (
    LocalMod,
    LocalStrategy,
    SecureAggregationMod,
    SecureAggregationStrategy,
    local,
    secure,
)
from offaxis.federated.flower.records import AGREE, make_reply, make_request

NODES = 3
PLAN = {"epsilon": 10_000, "delta": "1e-5", "rounds": 2, "threshold": 2, "colluders": 0}
LIMIT = DistributedGuarantee(**PLAN)


class Panic(BaseException):
    """An error such as a library in another language may raise."""


def usual_training(weights, place):
    """Return the model moved by (0.1, 0.2, 0.3) times the client's index plus one."""
    return weights + (place + 1) * np.array([0.1, 0.2, 0.3])


def failing_training(weights, place):
    """Fail in a way that could depend on the data."""
    if place == 0:
        raise Panic("the loss diverged on patient 4711")
    return Error(0, "no data of patient 4711") if place == 1 else np.full_like(weights, np.inf)


def app_with(mod, train=usual_training) -> ClientApp:
    app = ClientApp()

    @app.train(mods=[mod])
    def reply(message, context):
        place = context.node_config["partition-id"]
        moved = train(message.content["arrays"]["w"].numpy(), place)
        if isinstance(moved, Error):
            return Message(moved, reply_to=message)
        arrays = ArrayRecord({"w": Array(moved)})
        metrics = MetricRecord({"loss": 1.25})  # must never be sent
        return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)

    if isinstance(mod, SecureAggregationMod):
        mod.register(app)
    return app


def run(strategy, app, rounds: int = 2, first: float = 0.0) -> dict:
    """Run, and return the final model, the metrics of all rounds and the contents of replies."""
    out: dict = {"held": [], "errors": []}
    server = ServerApp()

    @server.main()
    def main(grid, context):
        send_and_receive = grid.send_and_receive

        def recorded(messages, *, timeout=None):
            replies = list(send_and_receive(messages, timeout=timeout))
            for reply in replies:
                if reply.has_error():
                    out["errors"].append(reply.error.reason)
                    continue
                for key, record in reply.content.items():
                    out["held"].append([key, *sorted(record)])
            return replies

        grid.send_and_receive = recorded
        arrays = ArrayRecord({"w": Array(np.full(3, first))})
        result = strategy.start(grid, initial_arrays=arrays, num_rounds=rounds, timeout=180)
        out["model"] = result.arrays["w"].numpy().tolist() if result.arrays else None
        out["metrics"] = [dict(m) for m in result.train_metrics_clientapp.values()]

    simulate(server, app, NODES)
    out["held"] = sorted({tuple(record) for record in out["held"]})
    out["errors"] = sorted(set(out["errors"]))
    out["refused"] = getattr(strategy, "refused", [])
    return out


def strategy(**changed) -> SecureAggregationStrategy:
    return SecureAggregationStrategy(clients=NODES, clip=5.0, seconds=120, **PLAN | changed)


def path_in(folder: Path):
    return lambda context: folder / str(context.node_config["partition-id"])


class RefusesToSign(SecureAggregationMod):
    """The first node does not consent in the first round."""

    def _sign(self, message, context):
        if context.node_config["partition-id"] == 0 and message.content["offaxis"]["round"] == 1:
            raise RoundRefused("temporarily unavailable")
        return super()._sign(message, context)


class InvalidUpdate(SecureAggregationMod):
    """The first node sends an invalid update."""

    def __call__(self, message, context, call_next):
        if context.node_config["partition-id"] == 0:
            return make_reply(message, name=7, payload="text")
        return super().__call__(message, context, call_next)


class InvalidBundle(LocalMod):
    """The first two nodes send invalid bundles."""

    def __call__(self, message, context, call_next):
        if (place := context.node_config["partition-id"]) < 2:
            return make_reply(message, bundle=[b"nonsense"] if place else 7)
        return super().__call__(message, context, call_next)


class InvalidKeys(SecureAggregationMod):
    """The first node enrols with invalid keys."""

    def _enrol(self, message, context):
        if context.node_config["partition-id"] == 0:
            return make_reply(message, name="me", exchange="", signing="", weight="0")
        return super()._enrol(message, context)


class PrematureStrategy(SecureAggregationStrategy):
    """Requests agreement before any client has enrolled, with invalid documents."""

    def _enrol_nodes(self, dim):
        nodes = sorted(self._grid.get_node_ids())
        for document in (b"{}", b"\xff", "text", 7):
            self._send(make_request(node, AGREE, document=document) for node in nodes)
        return super()._enrol_nodes(dim)


def roster_error(limit: DistributedGuarantee, folder: Path, **options) -> str:
    """Return the server's error if clients do not accept its roster."""
    try:
        run(strategy(), app_with(SecureAggregationMod(limit, file=path_in(folder), **options)))
    except OffaxisError as error:
        return str(error)
    return "accepted"


def compared(folder: Path) -> list[str]:
    """Run once to obtain the roster's hash, and again with the compared hash."""
    first = roster_error(LIMIT, folder, roster_hash=lambda context: "00" * 32)
    digest = next(word for word in first.replace(",", " ").split() if len(word) == 64)
    return [first, roster_error(LIMIT, folder, roster_hash=lambda context: digest)]


def in_two_runs(folder: Path) -> list[dict]:
    """Run the two rounds of the plan, and then two more with the same clients."""
    mod = SecureAggregationMod(LIMIT, file=path_in(folder))
    return [run(strategy(first_round=first), app_with(mod)) for first in (1, 3)]


def main() -> None:
    logging.getLogger("offaxis.federated").setLevel(logging.CRITICAL)
    public = np.random.default_rng(0).normal(0, 1, (50, 3))
    mechanism = DirectGradient.fit(public, samples=1, epsilon=5)
    with tempfile.TemporaryDirectory() as home:

        def folder(name: str) -> Path:
            (Path(home) / name).mkdir()
            return Path(home) / name

        def secure_mod(name: str, kind=SecureAggregationMod, **options) -> SecureAggregationMod:
            return kind(LIMIT, file=path_in(folder(name)), **options)

        def local_mod(name: str, rounds: int, kind=LocalMod) -> LocalMod:
            return kind(mechanism, rounds=rounds, ledger=path_in(folder(name)))

        once = local_mod("local", 1)
        stricter = DistributedGuarantee(**PLAN | {"epsilon": 1})
        premature = PrematureStrategy(clients=NODES, clip=5.0, **PLAN)
        results = {
            "doctests": [
                list(doctest.testmod(module, extraglobs={"np": np})) for module in (local, secure)
            ],
            "secure": run(strategy(), app_with(secure_mod("secure", clip=5.0))),
            "refuses to sign": run(strategy(), app_with(secure_mod("unsigned", RefusesToSign))),
            "invalid update": run(strategy(), app_with(secure_mod("update", InvalidUpdate)), 1),
            "invalid keys": run(strategy(), app_with(secure_mod("keys", InvalidKeys)), 1),
            "premature": run(premature, app_with(secure_mod("premature"))),
            "stricter epsilon": roster_error(stricter, folder("stricter")),
            "compared": compared(folder("compared")),
            "two runs": in_two_runs(folder("two runs")),
            "failing": run(
                strategy(), app_with(secure_mod("failing"), failing_training), first=0.1
            ),
            "huge model": run(strategy(), app_with(secure_mod("huge")), 1, first=1e308),
            "no model": run(strategy(), app_with(secure_mod("none")), 1, first=np.nan),
            "local": run(LocalStrategy(mechanism), app_with(once)),
            "invalid bundle": run(
                LocalStrategy(mechanism), app_with(local_mod("bundle", 1, InvalidBundle)), 1
            ),
            "local again": run(LocalStrategy(mechanism), app_with(once), 1),
            "local failing": run(
                LocalStrategy(mechanism),
                app_with(local_mod("local failing", 9), failing_training),
                1,
            ),
        }
    sys.stdout.write(json.dumps(results) + "\n")


if __name__ == "__main__":
    main()
