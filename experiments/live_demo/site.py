"""The live demo with everything around it: a collector, rounds, and a simulated crowd.

Contract: nothing outlives it. The collector is a process of its own that writes to a temporary
folder; the publisher's key and the tokens are made at start and kept nowhere. The crowd are real
devices of the Python client, each with a test vector, that verify, pay and send as anybody's would.

The data are made by ``python -m experiments.live_demo.data``: for every budget two releases, the
paper's plain mechanism and the recommended one; what a publisher attaches to those of the rounds; a
head, example digits, and the vectors of a crowd.
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

KINDS: Final = ("plain", "recommended")
EPSILONS: Final = tuple(half / 2 for half in range(1, 21))
PAGE: Final = Path(__file__).parent / "page"
WEIGHTS: Final = Path(__file__).parents[1] / "weights"
"""The page, and the weights of the encoder that it runs."""

EPSILON: Final = 3.0
"""Budget of a report in the rounds."""


def data_folder() -> Path:
    """Return where the data are."""
    return PAGE / "data"


def release_file(kind: str, epsilon: float) -> str:
    """Return the name of the release of a kind."""
    return f"{kind}-{epsilon:g}.release"


def attached_file(kind: str, fact: str) -> str:
    """Return the name of what is attached to a round's release: a profile, audit, or curve.

    The curve is the task's, and the same for all of its releases.
    """
    return "curve.json" if fact == "curve" else f"{kind}-{fact}.json"


HOST: Final = "127.0.0.1"

_FACTS: Final = {"profile": "profile", "curve": "facts/curve", "audit": "facts/audit"}
_OPEN: Final = timedelta(days=1)
_START: Final = 60.0
"""Seconds until a collector that does not answer is given up."""


@dataclass(frozen=True)
class Site:
    """Where a running demo is.

    Attributes
    ----------
    page, dashboard : str
        Addresses. The page's holds a device's token and the publisher's key behind a ``#``, which
        browsers keep to themselves.
    analyst : str
        A token for the dashboard.
    device : str
        A token to send reports with.
    publisher : str
        Public key of whoever signed the rounds.
    url : str
        The collector.
    """

    page: str
    dashboard: str
    analyst: str
    device: str
    publisher: str
    url: str


@contextmanager
def demo_site(port: int) -> Iterator[Site]:
    """Run a collector with the demo's releases and open rounds, on this machine alone."""
    _check_free(port)
    url = f"http://{HOST}:{port}"
    key = new_key()
    publisher = key.public_key().public_bytes_raw().hex()
    # A fresh interpreter: a fork would copy threads' locks in whatever state they are.
    fresh = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory(prefix="offaxis-demo-") as folder:
        here, there = fresh.Pipe(duplex=False)
        process = fresh.Process(target=_collect, args=(folder, publisher, port, there))
        process.start()
        there.close()
        try:
            admin = Transport(url, token=_first_token(here))
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
            here.close()


def _check_free(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            raise InvalidInput(f"port {port} is taken; choose another with --port") from None


def _collect(folder: str, publisher: str, port: int, told: Connection) -> None:
    """Serve in a process of its own until asked to stop, or until the one that asked is gone."""
    # Ctrl-C is for the process that started this one.
    os.setpgrp()
    parent = multiprocessing.parent_process()
    assert parent is not None

    def follow() -> None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=follow, daemon=True).start()
    # Its log is not for whoever looks at the demo.
    with (Path(folder) / "log").open("w", encoding="utf-8") as log:
        os.dup2(log.fileno(), sys.stderr.fileno())
    settings = Settings(
        database=f"sqlite:///{folder}/collector.db",
        publisher=publisher,
        extra_pages={"demo": PAGE, "weights": WEIGHTS},
    )
    serve(settings, HOST, port, first_token=told.send)


def _first_token(told: Connection) -> str:
    try:
        token: str = told.recv()
    except EOFError:
        raise InvalidInput("the collector could not be started") from None
    return token


def _wait_for(collector: Transport) -> None:
    end = time.monotonic() + _START
    while True:
        try:
            collector.ask("GET", "/v1/rounds")
            return
        except Unreachable:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


def _asked(
    admin: Transport, method: str, path: str, body: bytes, signature: bytes | None = None
) -> bytes:
    headers = {} if signature is None else {"Offaxis-Signature": b64encode(signature).decode()}
    answer = admin.ask(method, path, body=body, headers=headers)
    if not 200 <= answer.status < 300:
        raise InvalidInput(f"the collector refused: {answer.words}")
    return answer.body


def _new_token(admin: Transport, role: str) -> str:
    body = json.dumps({"name": f"demo {role}", "role": role}).encode()
    token: str = json.loads(_asked(admin, "POST", "/v1/tokens", body))["token"]
    return token


def _publish(admin: Transport, key: Ed25519PrivateKey) -> None:
    """Publish both releases with what is known of them, and open a round for each."""
    now = datetime.now(UTC).replace(microsecond=0)
    for number, kind in enumerate(KINDS):
        release = Release.load(data_folder() / release_file(kind, EPSILON))
        signature = sign_release(key, release.hash)
        where = f"/v1/releases/{release.hash}"
        _asked(admin, "PUT", where, to_bytes(release), signature)
        for fact, place in _FACTS.items():
            body = (data_folder() / attached_file(kind, fact)).read_bytes()
            _asked(admin, "PUT", f"{where}/{place}", body)
        round_ = Round(
            name=f"digits-{kind}",
            study="digits",
            number=number,
            release=release.hash,
            opens=now,
            closes=now + _OPEN,
        )
        signature = sign_round(key, round_)
        _asked(admin, "PUT", f"/v1/rounds/{round_.name}", round_.to_bytes(), signature)


def crowd(site: Site) -> Generator[int]:
    """Let one person after the other report to every round; yield how many did, for ever."""
    vectors = load_file(data_folder() / "crowd.safetensors")["vectors"].astype(np.float64)
    with tempfile.TemporaryDirectory(prefix="offaxis-crowd-") as folder:
        for person in itertools.count(1):
            vector = vectors[random.randrange(len(vectors))]
            state = Path(folder) / f"{person}.device"
            with Device(
                state,
                site.url,
                publisher=site.publisher,
                limits=[Limit(exact_epsilon(EPSILON) * len(KINDS))],
                token=site.device,
            ) as device:
                for offer in device.rounds():
                    device.report(offer.round.name, vector)
                device.send(at_once=True)
            for file in Path(folder).iterdir():
                file.unlink()
            yield person
