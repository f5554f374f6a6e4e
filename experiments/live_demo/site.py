"""The live demo's server: a collector, three rounds, and a simulated crowd.

Contract: nothing is left behind. The collector is a separate process that writes to a temporary
folder; the publisher's key and the tokens are created at start and stored nowhere. The crowd are
real devices of the Python client, each with a test digit; they verify, pay and send like any other
device.

``python -m experiments.live_demo.data`` creates the data: for every budget two releases of a
vector, the paper's plain mechanism and the recommended one, and one of a vector with its answer;
the facts attached to those of the rounds; a head, example digits, and the features and answers of
people.
"""

from __future__ import annotations

import itertools
import json
import multiprocessing
import os
import random
import signal
import socket
import sys
import tempfile
import threading
import time
from base64 import b64encode
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from numpy.typing import NDArray
from safetensors.numpy import load_file

from offaxis.client import Device
from offaxis.client.transport import Transport
from offaxis.collector.app import serve
from offaxis.collector.service import Settings
from offaxis.errors import InvalidInput, Unreachable
from offaxis.formats.documents import Round, new_key, sign_release, sign_round
from offaxis.formats.release_file import to_bytes
from offaxis.privacy.guarantee import exact_epsilon
from offaxis.privacy.ledger import Limit
from offaxis.release import Release
from offaxis.vectors import Vectors

KINDS: Final = ("plain", "recommended")
EPSILONS: Final = tuple(half / 2 for half in range(1, 21))
EPSILON: Final = 3.0
"""Budget of a report in the rounds."""

PAIRS: Final = "pairs"
"""The kind of the releases of a vector and its answer."""

PAIR_EPSILONS: Final = tuple(half / 2 for half in range(1, 9))

PAGE: Final = Path(__file__).parent / "page"
WEIGHTS: Final = Path(__file__).parents[1] / "weights"
"""The folder with the weights of the page's encoder."""

HOST: Final = "127.0.0.1"

_FACTS: Final = {"profile": "profile", "curve": "facts/curve", "audit": "facts/audit"}
_OPEN: Final = timedelta(days=1)
_START: Final = 60.0
"""Seconds after which a collector that does not answer is an error."""


def data_folder() -> Path:
    """Return the folder with the demo's data."""
    return PAGE / "data"


def release_file(kind: str, epsilon: float) -> str:
    """Return the file name of a release."""
    return f"{kind}-{epsilon:g}.release"


def digit_features() -> tuple[Vectors, NDArray[np.int64]]:
    """Return the features of the test digits, (n, 32), and their answers.

    The first of them, as many as pairs.json lists, are held out; the others are people.
    """
    tensors = load_file(data_folder() / "people.safetensors")
    return tensors["vectors"] * tensors["step"], tensors["labels"].astype(np.int64)


def held_out() -> int:
    """Return the number of test digits that are not people."""
    listed: int = json.loads((data_folder() / "pairs.json").read_text())["held_out"]
    return listed


def attached_file(kind: str, fact: str) -> str:
    """Return the file name of a fact about a round's release: a profile, audit, or curve.

    The curve belongs to the task and is the same for all of its releases.
    """
    return "curve.json" if fact == "curve" else f"{kind}-{fact}.json"


@dataclass(frozen=True)
class Site:
    """The addresses and tokens of a running demo.

    Attributes
    ----------
    page, dashboard : str
        URLs. The page's contains a device's token and the publisher's key after a ``#``, which
        browsers do not send.
    analyst : str
        A token for the dashboard.
    device : str
        A token to send reports with.
    publisher : str
        Public key of the rounds' signer.
    url : str
        The collector's URL.
    """

    page: str
    dashboard: str
    analyst: str
    device: str
    publisher: str
    url: str


@contextmanager
def demo_site(port: int) -> Iterator[Site]:
    """Run a collector with the demo's releases and open rounds, on the loopback interface only."""
    _check_free(port)
    url = f"http://{HOST}:{port}"
    key = new_key()
    publisher = key.public_key().public_bytes_raw().hex()
    # Not fork, which would copy the locks of other threads in an unknown state.
    spawning = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory(prefix="offaxis-demo-") as folder:
        receiver, sender = spawning.Pipe(duplex=False)
        process = spawning.Process(target=_collect, args=(folder, publisher, port, sender))
        process.start()
        sender.close()
        try:
            admin = Transport(url, token=_first_token(receiver))
            _wait_for(admin)
            _publish(admin, key)
            tokens = {role: _new_token(admin, role) for role in ("device", "analyst")}
            page = f"{url}/demo#publisher={publisher}&token={tokens['device']}"
            yield Site(
                page, f"{url}/dashboard", tokens["analyst"], tokens["device"], publisher, url
            )
        finally:
            process.terminate()
            process.join()
            receiver.close()


def _check_free(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            raise InvalidInput(f"port {port} is taken; choose another with --port") from None


def _collect(folder: str, publisher: str, port: int, sender: Connection) -> None:
    """Serve until terminated, or until the parent process is gone; send the first token."""
    # Ctrl-C must reach the parent process only.
    os.setpgrp()
    parent = multiprocessing.parent_process()
    assert parent is not None

    def follow() -> None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=follow, daemon=True).start()
    # The collector's log would obscure the demo's output.
    with (Path(folder) / "log").open("w", encoding="utf-8") as log:
        os.dup2(log.fileno(), sys.stderr.fileno())
    settings = Settings(
        database=f"sqlite:///{folder}/collector.db",
        publisher=publisher,
        extra_pages={"demo": PAGE, "weights": WEIGHTS},
    )
    serve(settings, HOST, port, first_token=sender.send)


def _first_token(receiver: Connection) -> str:
    try:
        token: str = receiver.recv()
    except EOFError:
        raise InvalidInput("the collector could not be started") from None
    return token


def _wait_for(collector: Transport) -> None:
    """Wait until the collector answers."""
    end = time.monotonic() + _START
    while True:
        try:
            collector.request("GET", "/v1/rounds")
            return
        except Unreachable:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


def _request(
    admin: Transport, method: str, path: str, body: bytes, signature: bytes | None = None
) -> bytes:
    headers = {} if signature is None else {"Offaxis-Signature": b64encode(signature).decode()}
    answer = admin.request(method, path, body=body, headers=headers)
    if not 200 <= answer.status < 300:
        raise InvalidInput(f"the collector refused: {answer.message}")
    return answer.body


def _new_token(admin: Transport, role: str) -> str:
    body = json.dumps({"name": f"demo {role}", "role": role}).encode()
    token: str = json.loads(_request(admin, "POST", "/v1/tokens", body))["token"]
    return token


def _publish(admin: Transport, key: Ed25519PrivateKey) -> None:
    """Publish the releases with their facts, and open a round for each."""
    now = datetime.now(UTC).replace(microsecond=0)
    for number, kind in enumerate((*KINDS, PAIRS)):
        release = Release.load(data_folder() / release_file(kind, EPSILON))
        signature = sign_release(key, release.hash)
        path = f"/v1/releases/{release.hash}"
        _request(admin, "PUT", path, to_bytes(release), signature)
        for fact, resource in _FACTS.items() if kind in KINDS else ():
            body = (data_folder() / attached_file(kind, fact)).read_bytes()
            _request(admin, "PUT", f"{path}/{resource}", body)
        round_ = Round(
            name=f"digits-{kind}",
            study="digits",
            number=number,
            release=release.hash,
            opens=now,
            closes=now + _OPEN,
        )
        signature = sign_round(key, round_)
        _request(admin, "PUT", f"/v1/rounds/{round_.name}", round_.to_bytes(), signature)


def crowd(site: Site) -> Generator[int]:
    """Let one person after another report to every round; yield their number, indefinitely."""
    vectors, answers = digit_features()
    pairs = Release.load(data_folder() / release_file(PAIRS, EPSILON))
    with tempfile.TemporaryDirectory(prefix="offaxis-crowd-") as folder:
        for person in itertools.count(1):
            own = random.randrange(held_out(), len(vectors))
            (pair,) = pairs.pairs(vectors[own : own + 1], answers[own : own + 1])
            state = Path(folder) / f"{person}.device"
            with Device(
                state,
                site.url,
                publisher=site.publisher,
                limits=[Limit(exact_epsilon(EPSILON) * (len(KINDS) + 1))],
                token=site.device,
            ) as device:
                for offer in device.rounds():
                    asked = offer.round.release == pairs.hash
                    device.report(offer.round.name, pair if asked else vectors[own])
                device.send(at_once=True)
            for file in Path(folder).iterdir():
                file.unlink()
            yield person
