"""Train the same model unmasked, masked and with local releases, in Flower, and print a table.

    python -m examples.flower.environment
    .venv-flower/bin/python -m examples.flower.train

Every row is a real run: keys, masks, noise and reports are drawn from the operating system, so
figures vary a little from run to run.
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
from experiments.permuted_gradients import PermutedGradients
from offaxis.federated import DirectGradient, DistributedGuarantee
from offaxis.federated.flower import (
    LocalClientSide,
    LocalStrategy,
    MaskedClientSide,
    MaskedStrategy,
)

CLIP = 1.0
NEXT_TO_NOTHING = 10_000
"""An ε at which noise does not matter: what masking alone does to training."""
GRADIENT_STEP = 8.0


Answer = Callable[[Digits, np.ndarray], np.ndarray]
"""What a client makes of its digits and the model."""


@dataclass
class Setting:
    """How many clients, rounds and drop-outs, and at which promise."""

    clients: int = 150
    rounds: int = 6
    epsilon: float = 8.0
    delta: str = "1e-5"
    dropped: int = 0

    @property
    def each(self) -> int:
        """Digits on a client."""
        return (PRIVATE.stop - PRIVATE.start) // self.clients


@dataclass
class Outcome:
    """What a run gave."""

    name: str
    promise: str
    accuracy: float
    refused: int = 0
    survivors: tuple[int, ...] = ()


def own_file(folder: str) -> Callable[[Context], Path]:
    """Return where a node keeps what it must not forget; here for one run."""
    return lambda context: Path(folder) / str(context.node_id)


def clipped(update: np.ndarray) -> np.ndarray:
    """Clip in floating point, for the unmasked run; masked clients clip on the lattice."""
    return update * min(1.0, CLIP / max(np.linalg.norm(update), 1e-300))


def client_app(digits: Digits, setting: Setting, answer: Answer, mods: list) -> ClientApp:
    """Return clients that train on their own digits; the first few are gone in round 2."""
    app = ClientApp()

    def gone(message: Message, context, call_next) -> Message:
        number = message.content["config"]["server-round"]
        if number == 2 and context.node_config["partition-id"] < setting.dropped:
            return Message(Error(0, "this client has gone"), reply_to=message)
        return call_next(message, context)

    @app.train(mods=[gone, *mods])
    def train(message: Message, context) -> Message:
        place = context.node_config["partition-id"]
        weights = message.content["arrays"]["weights"].numpy()
        made = answer(digits.client(place, setting.clients), weights)
        name = "weights" if made.shape == weights.shape else "gradients"
        content = RecordDict({"arrays": ArrayRecord({name: Array(made)})})
        content["metrics"] = MetricRecord({"num-examples": setting.each})
        return Message(content, reply_to=message)

    return app


def run(name: str, promise: str, strategy: Strategy, app: ClientApp, setting: Setting) -> Outcome:
    """Train for all rounds and test on public digits."""
    test, found = Digits.load().part(TEST), []
    server = ServerApp()

    @server.main()
    def main(grid, context) -> None:
        arrays = ArrayRecord({"weights": Array(start())})
        result = strategy.start(grid, initial_arrays=arrays, num_rounds=setting.rounds, timeout=120)
        counts = [m.get("survivors", 0) for m in result.train_metrics_clientapp.values()]
        found.append((test.accuracy(result.arrays["weights"].numpy()), tuple(counts)))

    simulate(server, app, setting.clients)
    ((accuracy, counts),) = found
    return Outcome(name, promise, accuracy, len(getattr(strategy, "refused", ())), counts)


def unmasked(digits: Digits, setting: Setting) -> Outcome:
    """Flower's own federated averaging of clipped updates; the server sees each of them."""
    app = client_app(digits, setting, lambda own, w: w + clipped(own.trained(w) - w), mods=[])
    strategy = FedAvg(fraction_evaluate=0.0, min_train_nodes=2, min_available_nodes=setting.clients)
    return run("unmasked, clipped", "none: the server sees every update", strategy, app, setting)


def masked(digits: Digits, setting: Setting, epsilon: float, name: str) -> Outcome:
    """The same updates in masked sums."""
    plan = {
        "epsilon": epsilon,
        "delta": setting.delta,
        "rounds": setting.rounds,
        "threshold": setting.clients - max(1, setting.clients // 10),
        "colluders": setting.clients // 20,
    }
    promise = DistributedGuarantee(**plan)
    with tempfile.TemporaryDirectory() as folder:
        side = MaskedClientSide(promise, file=own_file(folder), clip=CLIP)
        app = client_app(digits, setting, lambda own, w: own.trained(w), mods=[side])
        side.register(app)
        strategy = MaskedStrategy(clients=setting.clients, clip=CLIP, **plan)
        return run(name, str(promise), strategy, app, setting)


def direct(digits: Digits, setting: Setting, epsilon: float) -> Outcome:
    """Every client releases its update itself, at ε/rounds a round."""
    updates = public_updates(digits, setting.each)
    share = Fraction(str(epsilon)) / setting.rounds
    recipe = DirectGradient.fit(updates, samples=1, epsilon=share)
    strategy = LocalStrategy(recipe)
    return local("local, direct", digits, setting, strategy, lambda own, w: own.trained(w))


def permuted(digits: Digits, setting: Setting, epsilon: float) -> Outcome:
    """Every client releases each coordinate's per-sample gradients, at ε/(170·rounds) each."""
    share = Fraction(str(epsilon)) / setting.rounds
    gradients = digits.part(PUBLIC).gradients(start())
    recipe = PermutedGradients.fit(gradients, samples=setting.each, epsilon=share)
    strategy = LocalStrategy(recipe, -GRADIENT_STEP)
    return local("local, permuted", digits, setting, strategy, lambda own, w: own.gradients(w))


def local(
    name: str, digits: Digits, setting: Setting, strategy: LocalStrategy, answer: Answer
) -> Outcome:
    """Train with local releases."""
    with tempfile.TemporaryDirectory() as folder:
        side = LocalClientSide(strategy.recipe, setting.rounds, ledger=own_file(folder))
        app = client_app(digits, setting, answer, mods=[side])
        return run(name, f"{side.guarantee}, local", strategy, app, setting)


def outcomes(setting: Setting, locally: list[float], repeat: int) -> list[Outcome]:
    """Run all rows."""
    digits = Digits.load()
    runs = [masked(digits, setting, setting.epsilon, "masked") for _ in range(repeat)]
    accuracies = [one.accuracy for one in runs]
    name = f"masked ({repeat} runs, ± {np.std(accuracies):.3f})" if repeat > 1 else "masked"
    found = [
        unmasked(digits, setting),
        masked(digits, setting, NEXT_TO_NOTHING, "masked, next to no noise"),
        replace(runs[0], name=name, accuracy=float(np.mean(accuracies))),
    ]
    for epsilon in locally:
        found += [direct(digits, setting, epsilon), permuted(digits, setting, epsilon)]
    return found


def main() -> None:
    """Read the options, run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=Setting.clients)
    parser.add_argument("--rounds", type=int, default=Setting.rounds)
    parser.add_argument(
        "--epsilon", type=float, default=Setting.epsilon, help="of all rounds, masked"
    )
    parser.add_argument("--delta", default=Setting.delta)
    parser.add_argument("--dropped", type=int, default=0, help="clients that fail in round 2")
    parser.add_argument("--local", type=float, nargs="*", default=[8.0, 40.0], help="local ε")
    parser.add_argument("--repeat", type=int, default=1, help="masked runs; their mean is shown")
    parser.add_argument("--json", action="store_true")
    given = vars(parser.parse_args())
    locally, as_json, repeat = given.pop("local"), given.pop("json"), given.pop("repeat")
    found = outcomes(Setting(**given), locally, repeat)
    if as_json:
        print(json.dumps([asdict(outcome) for outcome in found]))
        return
    print(f"{'run':28} {'accuracy':>8}  promise")
    for one in found:
        print(f"{one.name:28} {one.accuracy:8.3f}  {one.promise}")


if __name__ == "__main__":
    main()
