"""Checks that run where Flower is: real apps, real messages, in Flower's runtime. Prints JSON."""

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
    LocalClientSide,
    LocalStrategy,
    MaskedClientSide,
    MaskedStrategy,
    local,
)
from offaxis.federated.flower import secure as masked_client
from offaxis.federated.flower import secure as masked_strategy
from offaxis.federated.flower.records import AGREE, answer, question

NODES = 3
PLAN = {"epsilon": 10_000, "delta": "1e-5", "rounds": 2, "threshold": 2, "colluders": 0}
LIMIT = DistributedGuarantee(**PLAN)


class Panic(BaseException):
    """What a library of another language may raise."""


def ordinary(weights, place):
    """Return a model moved by (1, 2, 3)/10 times the client's place plus one."""
    return weights + (place + 1) * np.array([0.1, 0.2, 0.3])


def troubled(weights, place):
    """Fail, in a way that could depend on the data."""
    if place == 0:
        raise Panic("the loss diverged on patient 4711")
    return Error(0, "no data of patient 4711") if place == 1 else np.full_like(weights, np.inf)


def app_with(mod, train=ordinary) -> ClientApp:
    app = ClientApp()

    @app.train(mods=[mod])
    def answer(message, context):
        place = context.node_config["partition-id"]
        moved = train(message.content["arrays"]["w"].numpy(), place)
        if isinstance(moved, Error):
            return Message(moved, reply_to=message)
        arrays = ArrayRecord({"w": Array(moved)})
        metrics = MetricRecord({"loss": 1.25})  # must never leave
        return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)

    if isinstance(mod, MaskedClientSide):
        mod.register(app)
    return app


def run(strategy, app, rounds: int = 2, first: float = 0.0) -> dict:
    """Run and return the model after it, the metrics of all rounds, and what replies held."""
    out: dict = {"held": [], "errors": []}
    server = ServerApp()

    @server.main()
    def main(grid, context):
        plain = grid.send_and_receive

        def watched(messages, *, timeout=None):
            replies = list(plain(messages, timeout=timeout))
            for reply in replies:
                if reply.has_error():
                    out["errors"].append(reply.error.reason)
                    continue
                for key, record in reply.content.items():
                    out["held"].append([key, *sorted(record)])
            return replies

        grid.send_and_receive = watched
        arrays = ArrayRecord({"w": Array(np.full(3, first))})
        result = strategy.start(grid, initial_arrays=arrays, num_rounds=rounds, timeout=180)
        out["model"] = result.arrays["w"].numpy().tolist() if result.arrays else None
        out["metrics"] = [dict(one) for one in result.train_metrics_clientapp.values()]

    simulate(server, app, NODES)
    out["held"] = sorted({tuple(one) for one in out["held"]})
    out["errors"] = sorted(set(out["errors"]))
    out["refused"] = getattr(strategy, "refused", [])
    return out


def strategy(**changed) -> MaskedStrategy:
    return MaskedStrategy(clients=NODES, clip=5.0, seconds=120, **PLAN | changed)


def place_of(folder: Path):
    return lambda context: folder / str(context.node_config["partition-id"])


class Shy(MaskedClientSide):
    """The first node does not consent in the first round."""

    def _sign(self, message, context):
        if context.node_config["partition-id"] == 0 and message.content["offaxis"]["round"] == 1:
            raise RoundRefused("gone for a moment")
        return super()._sign(message, context)


class Rude(MaskedClientSide):
    """The first node sends nonsense for an update."""

    def __call__(self, message, context, call_next):
        if context.node_config["partition-id"] == 0:
            return answer(message, name=7, payload="text")
        return super().__call__(message, context, call_next)


class RudeLocal(LocalClientSide):
    """The first two nodes send nonsense for a bundle."""

    def __call__(self, message, context, call_next):
        if (place := context.node_config["partition-id"]) < 2:
            return answer(message, bundle=[b"nonsense"] if place else 7)
        return super().__call__(message, context, call_next)


class Keyless(MaskedClientSide):
    """The first node enrols with nonsense."""

    def _enrol(self, message, context):
        if context.node_config["partition-id"] == 0:
            return answer(message, name="me", exchange="", signing="", weight="0")
        return super()._enrol(message, context)


class Hasty(MaskedStrategy):
    """Asks for agreement before anybody has enrolled, and with nonsense."""

    def _enrolled(self, dim):
        nodes = sorted(self._grid.get_node_ids())
        for document in (b"{}", b"\xff", "text", 7):
            self._answers(question(node, AGREE, document=document) for node in nodes)
        return super()._enrolled(dim)


def told(limit: DistributedGuarantee, folder: Path, **side) -> str:
    """Return what a server hears whose clients do not accept its roster."""
    try:
        run(strategy(), app_with(MaskedClientSide(limit, file=place_of(folder), **side)))
    except OffaxisError as error:
        return str(error)
    return "accepted"


def compared(folder: Path) -> list[str]:
    """Run once to learn the roster's hash, and again with the hash that people have compared."""
    first = told(LIMIT, folder, roster_hash=lambda context: "00" * 32)
    digest = next(word for word in first.replace(",", " ").split() if len(word) == 64)
    return [first, told(LIMIT, folder, roster_hash=lambda context: digest)]


def in_two_runs(folder: Path) -> list[dict]:
    """Run the two rounds of a promise, and then two more with the same clients."""
    side = MaskedClientSide(LIMIT, file=place_of(folder))
    return [run(strategy(first_round=first), app_with(side)) for first in (1, 3)]


def main() -> None:
    logging.getLogger("offaxis.federated").setLevel(logging.CRITICAL)
    public = np.random.default_rng(0).normal(0, 1, (50, 3))
    recipe = DirectGradient.fit(public, samples=1, epsilon=5)
    with tempfile.TemporaryDirectory() as home:

        def folder(name: str) -> Path:
            (Path(home) / name).mkdir()
            return Path(home) / name

        def masked(name: str, kind=MaskedClientSide, **changes) -> MaskedClientSide:
            return kind(LIMIT, file=place_of(folder(name)), **changes)

        once = LocalClientSide(recipe, rounds=1, ledger=place_of(folder("local")))
        rude = RudeLocal(recipe, rounds=1, ledger=place_of(folder("local rude")))
        stricter = DistributedGuarantee(**PLAN | {"epsilon": 1})
        troubles = LocalClientSide(recipe, rounds=9, ledger=place_of(folder("local troubles")))
        found = {
            "doctests": [
                list(doctest.testmod(module, extraglobs={"np": np}))
                for module in (local, masked_client, masked_strategy)
            ],
            "masked": run(strategy(), app_with(masked("masked", clip=5.0))),
            "shy": run(strategy(), app_with(masked("shy", Shy))),
            "rude": run(strategy(), app_with(masked("rude", Rude)), 1),
            "keyless": run(strategy(), app_with(masked("keyless", Keyless)), 1),
            "hasty": run(Hasty(clients=NODES, clip=5.0, **PLAN), app_with(masked("hasty"))),
            "stricter epsilon": told(stricter, folder("stricter")),
            "compared": compared(folder("compared")),
            "two runs": in_two_runs(folder("two runs")),
            "troubled": run(strategy(), app_with(masked("troubled"), troubled), first=0.1),
            "huge model": run(strategy(), app_with(masked("huge")), 1, first=1e308),
            "no model": run(strategy(), app_with(masked("none")), 1, first=np.nan),
            "local": run(LocalStrategy(recipe), app_with(once)),
            "local rude": run(LocalStrategy(recipe), app_with(rude), 1),
            "local again": run(LocalStrategy(recipe), app_with(once), 1),
            "local troubled": run(LocalStrategy(recipe), app_with(troubles, troubled), 1),
        }
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
