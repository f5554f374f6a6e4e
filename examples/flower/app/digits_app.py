"""The masked training as a Flower app, which ``flwr run`` sends to SuperLink and SuperNodes."""

from __future__ import annotations

import json
from pathlib import Path

from offaxis.federated import DistributedGuarantee
from offaxis.federated.flower import MaskedClientSide, MaskedStrategy

# isort: split
# After offaxis.federated.flower, so that Flower sends no statistics.
from flwr.app import Array, ArrayRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from examples.flower.task import TEST, Digits, start

CLIP = 1.0


def plan(context: Context) -> dict:
    """Return the promise, from the run's configuration."""
    config = context.run_config
    return {
        "epsilon": config["epsilon"],
        "delta": "1e-5",
        "rounds": int(config["rounds"]),
        "threshold": int(config["clients"]) - 1,
        "colluders": 0,
    }


side = MaskedClientSide(
    DistributedGuarantee(1000, "1e-5", rounds=100, threshold=2, colluders=0),
    file=lambda context: str(context.node_config["offaxis-file"]),
)
client = ClientApp()
side.register(client)


@client.train(mods=[side])
def train(message: Message, context: Context) -> Message:
    """Train on this node's digits."""
    clients = int(context.run_config["clients"])
    own = Digits.load().client(int(context.node_config["partition-id"]), clients)
    weights = message.content["arrays"]["weights"].numpy()
    arrays = ArrayRecord({"weights": Array(own.trained(weights))})
    return Message(RecordDict({"arrays": arrays}), reply_to=message)


server = ServerApp()


@server.main()
def main(grid: Grid, context: Context) -> None:
    """Run all rounds and write what came of it to the file named in the configuration."""
    given = plan(context)
    strategy = MaskedStrategy(
        clients=int(context.run_config["clients"]), clip=CLIP, seconds=300, **given
    )
    arrays = ArrayRecord({"weights": Array(start())})
    trained = strategy.start(grid, initial_arrays=arrays, num_rounds=given["rounds"], timeout=300)
    found = {
        "accuracy": Digits.load().part(TEST).accuracy(trained.arrays["weights"].numpy()),
        "metrics": [dict(one) for one in trained.train_metrics_clientapp.values()],
        "refused": strategy.refused,
        "promise": str(strategy.roster.plan.guarantee),
    }
    result = Path(str(context.run_config["result"]))
    result.with_suffix(".part").write_text(json.dumps(found))
    result.with_suffix(".part").rename(result)  # whoever sees it sees all of it
