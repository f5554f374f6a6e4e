"""A load generator: one process uploads over many connections, as fast as a collector accepts.

It uses bare asyncio protocols, so that it costs little compared with the collector.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator

import uvloop


class _Connection(asyncio.Protocol):
    """Sends the next request when the previous one was answered."""

    def __init__(self, requests: Iterator[bytes], load: Load) -> None:
        self._requests, self._load = requests, load
        self._buffer = b""
        self._sent = 0.0
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._next()

    def _next(self) -> None:
        request = next(self._requests, None)
        if request is None:
            self._transport.close()
            return
        self._sent = time.perf_counter()
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head = self._buffer.find(b"\r\n\r\n")
        if head < 0:
            return
        mark = self._buffer.lower().find(b"content-length: ", 0, head)
        length = int(self._buffer[mark + 16 : self._buffer.find(b"\r\n", mark)])
        if len(self._buffer) < head + 4 + length:
            return
        self._load.seconds.append(time.perf_counter() - self._sent)
        self._load.statuses[int(self._buffer[9:12])] += 1
        self._buffer = self._buffer[head + 4 + length :]
        self._next()

    def connection_lost(self, error: Exception | None) -> None:
        if not self.done.done():
            self.done.set_result(None)


class Load:
    """The responses: the count of each status, and the time of each response."""

    def __init__(self) -> None:
        self.statuses: Counter[int] = Counter()
        self.seconds: list[float] = []
        self.wall = 0.0

    def run(self, port: int, requests: Iterator[bytes], connections: int) -> Load:
        """Send all requests over this many connections."""
        uvloop.run(self._run(port, requests, connections))
        return self

    async def _run(self, port: int, requests: Iterator[bytes], connections: int) -> None:
        loop = asyncio.get_running_loop()
        began = time.perf_counter()
        opened = [
            await loop.create_connection(lambda: _Connection(requests, self), "127.0.0.1", port)
            for _ in range(connections)
        ]
        await asyncio.gather(*(protocol.done for _, protocol in opened))
        self.wall = time.perf_counter() - began


def request(method: str, path: str, token: str, body: bytes, media: str) -> bytes:
    """Return the bytes of a request on a persistent connection."""
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: collector\r\nAuthorization: Bearer {token}\r\n"
        f"Content-Type: {media}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body
