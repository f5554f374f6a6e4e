"""Uploads that are retried until acknowledged: in any order, some twice, some concurrently."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final

_PATIENCE: Final = 180.0
_PAUSE: Final = 0.02
_ACCEPTED: Final = (200, 201)
_RETRY: Final = (429, 503)

Pairs = Sequence[tuple[bytes, bytes]]
"""Ids with their reports."""


class Delivery:
    """Sends parcels of reports to collectors, as devices do.

    Every parcel is sent to any of the ports, with the same bytes until it is acknowledged. One in
    ten is sent once more at some time, and one in ten over two connections at the same time.

    Attributes
    ----------
    acknowledged : dict
        Ids and reports that a collector acknowledged.
    statuses : Counter
        Number of responses by status.
    sent, unanswered : int
        Requests sent, and those without a response.
    refused : list of bytes
        Bodies of unexpected responses.
    """

    def __init__(
        self, ports: Sequence[int], round_name: str, token: str, parcels: Sequence[Pairs], seed: int
    ) -> None:
        self.acknowledged: dict[bytes, bytes] = {}
        self.statuses: Counter[int] = Counter()
        self.sent = self.unanswered = 0
        self.refused: list[bytes] = []
        self._accepted: Counter[int] = Counter()
        self._ports, self._parcels = list(ports), parcels
        self._random = random.Random(seed)
        self._requests = [_request(round_name, token, parcel) for parcel in parcels]
        self._waiting = list(range(len(parcels)))
        self._to_double = set(self._random.sample(self._waiting, len(parcels) // 10))
        self._waiting += self._random.sample(self._waiting, len(parcels) // 10)
        self._total = len(self._waiting)
        self._duplicates: list[int] = []
        self._in_flight = 0

    @property
    def done(self) -> bool:
        """Whether everything was acknowledged."""
        return not (self._waiting or self._duplicates or self._in_flight)

    @property
    def share(self) -> float:
        """Share of the parcels that is done."""
        return 1 - (len(self._waiting) + self._in_flight) / self._total

    @property
    def accepted_twice(self) -> int:
        """Number of parcels that were accepted as new more than once."""
        return sum(n > len(self._parcels[i]) for i, n in self._accepted.items())

    def run(self, connections: int, *meanwhile: Callable[[Delivery], Awaitable[None]]) -> Delivery:
        """Send everything while the given actions run."""
        asyncio.run(self._run(connections, meanwhile))
        return self

    async def _run(
        self, connections: int, meanwhile: Sequence[Callable[[Delivery], Awaitable[None]]]
    ) -> None:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(connections):
                tasks.create_task(self._send())
            for action in meanwhile:
                tasks.create_task(_await(action(self)))

    async def _send(self) -> None:
        link: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        while (link := link or await self._connected()) is not None:
            i = await self._next()
            if i is None:
                break
            self.sent += 1
            try:
                async with asyncio.timeout(_PATIENCE):
                    status, body = await _exchange(*link, self._requests[i])
                pause = self._record(i, status, body)
            except (OSError, EOFError):
                self.unanswered += 1
                self._waiting.append(i)
                link[1].close()
                link, pause = None, True
            self._in_flight -= 1
            if pause:
                await asyncio.sleep(_PAUSE)
        if link is not None:
            link[1].close()

    async def _connected(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        """Wait for a connection to any of the collectors; return None if all is done."""
        while not self.done:
            with suppress(OSError):
                port = self._random.choice(self._ports)
                return await asyncio.open_connection("127.0.0.1", port)
            await asyncio.sleep(_PAUSE)
        return None

    async def _next(self) -> int | None:
        """Wait for the next parcel to send; return None if all is done."""
        while not self._waiting and not self._duplicates:
            if not self._in_flight:
                return None
            await asyncio.sleep(_PAUSE)
        self._in_flight += 1
        if self._duplicates:
            return self._duplicates.pop()
        chosen = self._random.randrange(len(self._waiting))
        self._waiting[chosen], self._waiting[-1] = self._waiting[-1], self._waiting[chosen]
        i = self._waiting.pop()
        if i in self._to_double:
            self._to_double.remove(i)
            self._duplicates.append(i)
        return i

    def _record(self, i: int, status: int, body: bytes) -> bool:
        """Record a response; return whether to pause before the next request."""
        self.statuses[status] += 1
        parcel = self._parcels[i]
        if status in _ACCEPTED:
            outcome = json.loads(body)
            if len(parcel) == 1:
                self._accepted[i] += outcome["outcome"] == "accepted"
            else:
                self._accepted[i] += outcome["accepted"]
                if outcome["conflicts"]:
                    self.refused.append(body)
            self.acknowledged.update(parcel)
        elif status in _RETRY:
            self._waiting.append(i)
        else:
            self.refused.append(body)
        return status in _RETRY


async def _await(action: Awaitable[None]) -> None:
    await action


async def _exchange(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes
) -> tuple[int, bytes]:
    writer.write(request)
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    start = head.index(b"content-length: ") + 16
    body = await reader.readexactly(int(head[start : head.index(b"\r\n", start)]))
    return int(head[9:12]), body


def _request(round_name: str, token: str, parcel: Pairs) -> bytes:
    path = f"/v1/rounds/{round_name}/reports"
    if len(parcel) == 1:
        ((id_, body),) = parcel
        method, path, media = "PUT", f"{path}/{id_.hex()}", "application/octet-stream"
    else:
        method, media = "POST", "application/vnd.offaxis.reports"
        body = b"".join(id_ + report for id_, report in parcel)
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: collector\r\nAuthorization: Bearer {token}\r\n"
        f"Content-Type: {media}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def parcels_of(pairs: Pairs, size: int) -> list[Pairs]:
    """Divide reports into parcels."""
    return [pairs[start : start + size] for start in range(0, len(pairs), size)]


def troubles(actions: Sequence[Callable[[], object]], seed: int) -> Callable[..., Awaitable[None]]:
    """Return a task that runs all actions at random times, spread over a delivery."""
    rng = random.Random(seed)
    shares = sorted(rng.uniform(0.02, 0.9) for _ in actions)

    async def happen(delivery: Delivery) -> None:
        for share, action in zip(shares, actions, strict=True):
            while delivery.share < share:
                await asyncio.sleep(0.002)
            await asyncio.sleep(rng.uniform(0.0, 0.05))
            await asyncio.to_thread(action)

    return happen


def watching(actions: Sequence[Callable[[], object]]) -> Callable[..., Awaitable[None]]:
    """Return a task that repeats all actions until a delivery is done."""

    async def watch(delivery: Delivery) -> None:
        while not delivery.done:
            await asyncio.sleep(0.2)
            for action in actions:
                await asyncio.to_thread(action)

    return watch
