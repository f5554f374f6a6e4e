"""Train one model plainly, with secure aggregation and with local releases in Flower.

    python -m examples.flower.environment
    .venv-flower/bin/python -m examples.flower.train

Prints a table. Every row is a real run: keys, masks, noise and reports are drawn from the operating
system's randomness, so figures vary a little from run to run.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg, Strategy

from examples.flower.runtime import simulate
from examples.flower.task import PRIVATE, PUBLIC, TEST, Digits, public_updates, start
from experiments.federated_gradients import PermutedGradients
from offaxis.federated import DirectGradient, DistributedGuarantee
from offaxis.federated.flower import (
    LocalMod,
    LocalStrategy,
    SecureAggregationMod,
    SecureAggregationStrategy,
)

CLIP = 1.0
ALMOST_NO_NOISE = 10_000
"""An ε at which noise is negligible: it shows the effect of masking alone."""
GRADIENT_STEP = 8.0

Train = Callable[[Digits, np.ndarray], np.ndarray]
"""Computes a client's answer from its digits and the model."""


@dataclass
class Setting:
    """Number of clients, rounds and dropped clients, and the guarantee."""

    clients: int = 150
    rounds: int = 6
    epsilon: float = 8.0
    delta: str = "1e-5"
    dropped: int = 0

    @property
    def samples(self) -> int:
        """Number of digits per client."""
        return (PRIVATE.stop - PRIVATE.start) // self.clients


@dataclass
class Outcome:
    """The result of a run."""

    name: str
    promise: str
    accuracy: float
    refused: int = 0
    survivors: tuple[int, ...] = ()


def node_file(folder: str) -> Callable[[Context], Path]:
    """Return the path of a node's persistent state; here it lasts for one run."""
    return lambda context: Path(folder) / str(context.node_id)


def clipped(update: np.ndarray) -> np.ndarray:
    """Clip in floating point, for the plain run; secure aggregation clips on the lattice."""
    return update * min(1.0, CLIP / max(np.linalg.norm(update), 1e-300))


def client_app(digits: Digits, setting: Setting, train: Train, mods: list) -> ClientApp:
    """Return clients that train on their digits; the first few drop out in round 2."""
    app = ClientApp()

    def drop_out(message: Message, context, call_next) -> Message:
        number = message.content["config"]["server-round"]
        if number == 2 and context.node_config["partition-id"] < setting.dropped:
            return Message(Error(0, "this client has dropped out"), reply_to=message)
        return call_next(message, context)

    @app.train(mods=[drop_out, *mods])
    def reply(message: Message, context) -> Message:
        place = context.node_config["partition-id"]
        weights = message.content["arrays"]["weights"].numpy()
        trained = train(digits.client(place, setting.clients), weights)
        name = "weights" if trained.shape == weights.shape else "gradients"
        content = RecordDict({"arrays": ArrayRecord({name: Array(trained)})})
        content["metrics"] = MetricRecord({"num-examples": setting.samples})
        return Message(content, reply_to=message)

    return app


def run(name: str, promise: str, strategy: Strategy, app: ClientApp, setting: Setting) -> Outcome:
    """Train for all rounds and test on public digits."""
    test, results = Digits.load().part(TEST), []
    server = ServerApp()

    @server.main()
    def main(grid, context) -> None:
        arrays = ArrayRecord({"weights": Array(start())})
        result = strategy.start(grid, initial_arrays=arrays, num_rounds=setting.rounds, timeout=120)
        counts = [m.get("survivors", 0) for m in result.train_metrics_clientapp.values()]
        results.append((test.accuracy(result.arrays["weights"].numpy()), tuple(counts)))

    simulate(server, app, setting.clients)
    ((accuracy, counts),) = results
    return Outcome(name, promise, accuracy, len(getattr(strategy, "refused", ())), counts)


def plain(digits: Digits, setting: Setting) -> Outcome:
    """Run Flower's federated averaging of clipped updates; the server sees each of them."""
    app = client_app(digits, setting, lambda d, w: w + clipped(d.trained(w) - w), mods=[])
    strategy = FedAvg(fraction_evaluate=0.0, min_train_nodes=2, min_available_nodes=setting.clients)
    return run("plain, clipped", "none: the server sees every update", strategy, app, setting)


def secure(digits: Digits, setting: Setting, epsilon: float, name: str) -> Outcome:
    """Run the same training with secure aggregation."""
    plan = {
        "epsilon": epsilon,
        "delta": setting.delta,
        "rounds": setting.rounds,
        "threshold": setting.clients - max(1, setting.clients // 10),
        "colluders": setting.clients // 20,
    }
    guarantee = DistributedGuarantee(**plan)
    with tempfile.TemporaryDirectory() as folder:
        mod = SecureAggregationMod(guarantee, file=node_file(folder), clip=CLIP)
        app = client_app(digits, setting, lambda d, w: d.trained(w), mods=[mod])
        mod.register(app)
        strategy = SecureAggregationStrategy(clients=setting.clients, clip=CLIP, **plan)
        return run(name, str(guarantee), strategy, app, setting)


def direct(digits: Digits, setting: Setting, epsilon: float) -> Outcome:
    """Run with clients that release their updates locally, at ε/rounds per round."""
    updates = public_updates(digits, setting.samples)
    share = Fraction(str(epsilon)) / setting.rounds
    strategy = LocalStrategy(DirectGradient.fit(updates, samples=1, epsilon=share))
    return local("local, direct", digits, setting, strategy, lambda d, w: d.trained(w))


def permuted(digits: Digits, setting: Setting, epsilon: float) -> Outcome:
    """Run with clients that release the gradients by coordinate, at ε/(170·rounds) each."""
    share = Fraction(str(epsilon)) / setting.rounds
    gradients = digits.part(PUBLIC).gradients(start())
    mechanism = PermutedGradients.fit(gradients, samples=setting.samples, epsilon=share)
    strategy = LocalStrategy(mechanism, -GRADIENT_STEP)
    return local("local, permuted", digits, setting, strategy, lambda d, w: d.gradients(w))


def local(
    name: str, digits: Digits, setting: Setting, strategy: LocalStrategy, train: Train
) -> Outcome:
    """Run training with local releases."""
    with tempfile.TemporaryDirectory() as folder:
        mod = LocalMod(strategy.mechanism, setting.rounds, ledger=node_file(folder))
        app = client_app(digits, setting, train, mods=[mod])
        return run(name, f"{mod.guarantee}, local", strategy, app, setting)


def outcomes(setting: Setting, local_epsilons: list[float], repeat: int) -> list[Outcome]:
    """Run all rows of the table."""
    digits = Digits.load()
    name = "secure aggregation"
    runs = [secure(digits, setting, setting.epsilon, name) for _ in range(repeat)]
    accuracies = [outcome.accuracy for outcome in runs]
    if repeat > 1:
        name += f" ({repeat} runs, ± {np.std(accuracies):.3f})"
    rows = [
        plain(digits, setting),
        secure(digits, setting, ALMOST_NO_NOISE, "secure aggregation, almost no noise"),
        replace(runs[0], name=name, accuracy=float(np.mean(accuracies))),
    ]
    for epsilon in local_epsilons:
        rows += [direct(digits, setting, epsilon), permuted(digits, setting, epsilon)]
    return rows


def main() -> None:
    """Parse the options, run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=Setting.clients)
    parser.add_argument("--rounds", type=int, default=Setting.rounds)
    parser.add_argument(
        "--epsilon", type=float, default=Setting.epsilon, help="of all rounds, secure aggregation"
    )
    parser.add_argument("--delta", default=Setting.delta)
    parser.add_argument("--dropped", type=int, default=0, help="clients that fail in round 2")
    parser.add_argument("--local", type=float, nargs="*", default=[8.0, 40.0], help="local ε")
    parser.add_argument(
        "--repeat", type=int, default=1, help="runs with secure aggregation; their mean is shown"
    )
    parser.add_argument("--json", action="store_true")
    options = vars(parser.parse_args())
    local_epsilons, as_json, repeat = (
        options.pop("local"),
        options.pop("json"),
        options.pop("repeat"),
    )
    rows = outcomes(Setting(**options), local_epsilons, repeat)
    if as_json:
        print(json.dumps([asdict(row) for row in rows]))
        return
    print(f"{'run':36} {'accuracy':>8}  guarantee")
    for row in rows:
        print(f"{row.name:36} {row.accuracy:8.3f}  {row.promise}")


if __name__ == "__main__":
    main()
