"""Uploads that are sent until they are answered: in any order, some of them twice, some at once."""

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
_TAKEN: Final = (200, 201)
_LATER: Final = (429, 503)

Pairs = Sequence[tuple[bytes, bytes]]
"""Ids with their reports."""


class Delivery:
    """Sends parcels of reports to collectors, as devices do.

    Every parcel is sent to any of the ports, and the same bytes again until it is answered. One in
    ten is sent once more at some time, and one in ten by two connections at the same time.

    Attributes
    ----------
    acknowledged : dict
        Ids with their reports that a collector said it has.
    statuses : Counter
        How often each status came.
    sent, unanswered : int
        Requests that were sent, and those of them that were not answered.
    refused : list of bytes
        Answers that should not have come.
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
        self._at_once: list[int] = []
        self._flying = 0

    @property
    def done(self) -> bool:
        """Whether everything was answered."""
        return not (self._waiting or self._at_once or self._flying)

    @property
    def share(self) -> float:
        """How much of all is done."""
        return 1 - (len(self._waiting) + self._flying) / self._total

    @property
    def accepted_twice(self) -> int:
        """How many parcels were called new more often than once."""
        return sum(n > len(self._parcels[at]) for at, n in self._accepted.items())

    def run(self, connections: int, *meanwhile: Callable[[Delivery], Awaitable[None]]) -> Delivery:
        """Send everything, while something else happens."""
        asyncio.run(self._run(connections, meanwhile))
        return self

    async def _run(
        self, connections: int, meanwhile: Sequence[Callable[[Delivery], Awaitable[None]]]
    ) -> None:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(connections):
                tasks.create_task(self._send())
            for other in meanwhile:
                tasks.create_task(_awaited(other(self)))

    async def _send(self) -> None:
        link: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        while (link := link or await self._connected()) is not None:
            at = await self._next()
            if at is None:
                break
            self.sent += 1
            try:
                async with asyncio.timeout(_PATIENCE):
                    status, body = await _exchange(*link, self._requests[at])
                pause = self._answered(at, status, body)
            except (OSError, EOFError):
                self.unanswered += 1
                self._waiting.append(at)
                link[1].close()
                link, pause = None, True
            self._flying -= 1
            if pause:
                await asyncio.sleep(_PAUSE)
        if link is not None:
            link[1].close()

    async def _connected(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        """Return a connection to any of the collectors, once there is one; None if all is done."""
        while not self.done:
            with suppress(OSError):
                port = self._random.choice(self._ports)
                return await asyncio.open_connection("127.0.0.1", port)
            await asyncio.sleep(_PAUSE)
        return None

    async def _next(self) -> int | None:
        """Return what to send next, once there is something; None if all is done."""
        while not self._waiting and not self._at_once:
            if not self._flying:
                return None
            await asyncio.sleep(_PAUSE)
        self._flying += 1
        if self._at_once:
            return self._at_once.pop()
        place = self._random.randrange(len(self._waiting))
        self._waiting[place], self._waiting[-1] = self._waiting[-1], self._waiting[place]
        at = self._waiting.pop()
        if at in self._to_double:
            self._to_double.remove(at)
            self._at_once.append(at)
        return at

    def _answered(self, at: int, status: int, body: bytes) -> bool:
        """Note an answer; say whether the collector wants a pause."""
        self.statuses[status] += 1
        parcel = self._parcels[at]
        if status in _TAKEN:
            found = json.loads(body)
            if len(parcel) == 1:
                self._accepted[at] += found["outcome"] == "accepted"
            else:
                self._accepted[at] += found["accepted"]
                if found["conflicts"]:
                    self.refused.append(body)
            self.acknowledged.update(parcel)
        elif status in _LATER:
            self._waiting.append(at)
        else:
            self.refused.append(body)
        return status in _LATER


async def _awaited(other: Awaitable[None]) -> None:
    await other


async def _exchange(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes
) -> tuple[int, bytes]:
    writer.write(request)
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    mark = head.index(b"content-length: ") + 16
    body = await reader.readexactly(int(head[mark : head.index(b"\r\n", mark)]))
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
    """Cut reports into parcels."""
    return [pairs[start : start + size] for start in range(0, len(pairs), size)]


def troubles(actions: Sequence[Callable[[], object]], seed: int) -> Callable[..., Awaitable[None]]:
    """Return something that does all actions, at random times spread over a delivery."""
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
    """Return something that does all actions again and again until a delivery is done."""

    async def watch(delivery: Delivery) -> None:
        while not delivery.done:
            await asyncio.sleep(0.2)
            for action in actions:
                await asyncio.to_thread(action)

    return watch
