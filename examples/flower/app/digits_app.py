"""Training with secure aggregation as a Flower app, for ``flwr run`` on real processes."""

from __future__ import annotations

import json
from pathlib import Path

from offaxis.federated import DistributedGuarantee
from offaxis.federated.flower import SecureAggregationMod, SecureAggregationStrategy

# isort: split
# After offaxis.federated.flower, so that Flower sends no statistics.
from flwr.app import Array, ArrayRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from examples.flower.task import TEST, Digits, start

CLIP = 1.0


def plan(context: Context) -> dict:
    """Return the parameters of the guarantee from the run's configuration."""
    config = context.run_config
    return {
        "epsilon": config["epsilon"],
        "delta": "1e-5",
        "rounds": int(config["rounds"]),
        "threshold": int(config["clients"]) - 1,
        "colluders": 0,
    }


mod = SecureAggregationMod(
    DistributedGuarantee(1000, "1e-5", rounds=100, threshold=2, colluders=0),
    file=lambda context: str(context.node_config["offaxis-file"]),
)
client = ClientApp()
mod.register(client)


@client.train(mods=[mod])
def train(message: Message, context: Context) -> Message:
    """Train on this node's digits."""
    clients = int(context.run_config["clients"])
    digits = Digits.load().client(int(context.node_config["partition-id"]), clients)
    weights = message.content["arrays"]["weights"].numpy()
    arrays = ArrayRecord({"weights": Array(digits.trained(weights))})
    return Message(RecordDict({"arrays": arrays}), reply_to=message)


server = ServerApp()


@server.main()
def main(grid: Grid, context: Context) -> None:
    """Run all rounds and write the result to the file named in the configuration."""
    parameters = plan(context)
    strategy = SecureAggregationStrategy(
        clients=int(context.run_config["clients"]), clip=CLIP, seconds=300, **parameters
    )
    arrays = ArrayRecord({"weights": Array(start())})
    trained = strategy.start(
        grid, initial_arrays=arrays, num_rounds=parameters["rounds"], timeout=300
    )
    outcome = {
        "accuracy": Digits.load().part(TEST).accuracy(trained.arrays["weights"].numpy()),
        "metrics": [dict(m) for m in trained.train_metrics_clientapp.values()],
        "refused": strategy.refused,
        "promise": str(strategy.roster.plan.guarantee),
    }
    result = Path(str(context.run_config["result"]))
    result.with_suffix(".part").write_text(json.dumps(outcome))
    result.with_suffix(".part").rename(result)  # atomic: readers see all or nothing
