"""Secure aggregation with real Flower processes on this machine, over its network protocol.

    .venv-flower/bin/python -m examples.flower.processes --clients 3 --rounds 1

Starts a SuperLink and one SuperNode per client on loopback ports, submits ``app/`` with
``flwr run``, waits for the result and stops the processes that it started. Flower starts a process
for every message to a client, and a SuperNode polls every three seconds, so this is slow; use few
clients.
"""

from __future__ import annotations

import argparse
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TextIO

HERE = Path(__file__).resolve().parent
BIN = Path(sys.executable).parent


def free_port() -> int:
    """Return a free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def commands(clients: int, ports: list[int], home: Path) -> list[list[str]]:
    """Return the commands that start the SuperLink and the SuperNodes, one client file per node."""
    link, *nodes = ports
    commands = [["flower-superlink", "--insecure", "--host", "127.0.0.1", "--port", str(link)]]
    for place, port in zip(range(clients), nodes, strict=True):
        node = ["flower-supernode", "--insecure", "--superlink", f"127.0.0.1:{link}"]
        config = f'partition-id={place} offaxis-file="{home / f"{place}.client"}"'
        node += ["--port", str(port), "--node-config", config]
        commands.append(node)
    return commands


def submit(command: list[str], environment: dict[str, str], log: TextIO) -> bool:
    """Submit the app; return False as long as the SuperLink does not answer."""
    done = subprocess.run(command, env=environment, stdout=log, stderr=log, check=False)
    return done.returncode == 0


def run(clients: int, rounds: int, seconds: float) -> str:
    """Run the app on real processes and return its JSON result."""
    with tempfile.TemporaryDirectory() as folder:
        home, result = Path(folder), Path(folder) / "result.json"
        ports = [free_port() for _ in range(clients + 1)]
        (home / "config.toml").write_text(
            f'[superlink.loopback]\naddress = "127.0.0.1:{ports[0]}"\ninsecure = true\n'
        )
        environment = os.environ | {
            "FLWR_HOME": folder,
            "FLWR_TELEMETRY_ENABLED": "0",
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(HERE.parents[1]),
        }
        app = Path(shutil.copytree(HERE / "app", home / "app"))
        log = (home / "log.txt").open("w")
        running = []
        try:
            for command in commands(clients, ports, home):
                process = subprocess.Popen(
                    [BIN / command[0], *command[1:]], env=environment, stdout=log, stderr=log
                )
                running.append(process)
                time.sleep(1)
            config = f'clients={clients} rounds={rounds} result="{result}"'
            command = [str(BIN / "flwr"), "run", str(app), "loopback", "--run-config", config]
            end = time.monotonic() + seconds
            while not submit(command, environment, log):
                check_time(end, home)
                time.sleep(2)
            while not result.exists():
                check_time(end, home)
                time.sleep(0.5)
            return result.read_text()
        finally:
            for process in reversed(running):
                process.terminate()
            for process in running:
                process.wait(timeout=60)
            log.close()


def check_time(end: float, home: Path) -> None:
    """Exit with the end of the log when the time is over."""
    if time.monotonic() > end:
        raise SystemExit((home / "log.txt").read_text()[-3000:])


def main() -> None:
    """Parse the options and run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=600)
    options = parser.parse_args()
    print(run(options.clients, options.rounds, options.seconds))


if __name__ == "__main__":
    main()
