"""Who may send what: tokens and roles, rate limits, and sizes of request bodies.

A token is 256 random bits. The database holds its SHA-256 and a name, so a reader of the database
cannot use it. Tokens are looked up by that hash, so the time of a lookup reveals nothing about a
token. A token belongs to an application or to a person who runs the collector, not to each device:
all of them are kept in memory.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from starlette.requests import ClientDisconnect, Request

from offaxis.collector.problems import Problem

Role = Literal["device", "analyst", "admin"]

_PREFIX: Final = "oxt_"
"""Lets scanners for leaked secrets recognise a token."""

_SCHEME: Final = b"bearer "
_LONGEST_TOKEN: Final = 200


@dataclass(frozen=True)
class Token:
    """A valid token, without its secret."""

    id: int
    name: str
    role: Role


Tokens = dict[bytes, Token]
"""Valid tokens by SHA-256."""


def new_token() -> str:
    """Return a fresh token."""
    return _PREFIX + secrets.token_urlsafe(32)


def token_hash(token: bytes) -> bytes:
    """Return the hash under which a token is stored."""
    return hashlib.sha256(token).digest()


def authenticate(request: Request, tokens: Tokens, *roles: Role) -> Token:
    """Return the request's token if it is valid and has one of the roles (any, if none given)."""
    token = tokens.get(token_hash(_bearer_token(request)))
    if token is None:
        raise Problem(
            "unknown-token", "send Authorization: Bearer TOKEN", {"www-authenticate": "Bearer"}
        )
    request.scope["offaxis.token"] = token.name
    if roles and token.role not in roles:
        raise Problem("forbidden", f"requires the role {' or '.join(roles)}, not {token.role}")
    return token


def _bearer_token(request: Request) -> bytes:
    for name, value in request.scope["headers"]:
        if name == b"authorization" and value[: len(_SCHEME)].lower() == _SCHEME:
            token: bytes = value[len(_SCHEME) :].strip()
            return token if len(token) <= _LONGEST_TOKEN else b""
    return b""


# ---- Rates and sizes

_BURST: Final = 2.0
"""Capacity of a bucket, in seconds of its rate."""

LARGEST_JSON: Final = 65_536
LARGEST_PROFILE: Final = 64 << 20
MOST_REPORTS: Final = 10_000
"""Reports in one batch."""


class Buckets:
    """A token bucket per token: ``rate`` per second, and bursts of two seconds' worth."""

    def __init__(self, rate: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._capacity = max(rate * _BURST, 1.0)
        self._clock = clock
        self._left: dict[int, tuple[float, float]] = {}

    def take(self, token: int, count: int = 1) -> None:
        """Take from a token's bucket, or raise a problem that states how long to wait.

        A count above the capacity passes when the bucket is full; the rest is owed.
        """
        now = self._clock()
        left, then = self._left.get(token, (self._capacity, now))
        left = min(self._capacity, left + (now - then) * self._rate)
        needed = min(count, self._capacity)
        if left < needed:
            self._left[token] = (left, now)
            wait = math.ceil((needed - left) / self._rate)
            raise Problem("too-many", f"retry in {wait} s", {"retry-after": str(min(wait, 3600))})
        self._left[token] = (left - count, now)


async def read_body(request: Request, most: int, seconds: float) -> bytes:
    """Read a body of at most ``most`` bytes; stop reading a longer one."""
    announced = request.headers.get("content-length", "0")
    if announced.isascii() and announced.isdigit() and int(announced[:20]) > most:
        raise _too_large(most)
    parts, size, more = [], 0, True
    try:
        async with asyncio.timeout(seconds):
            while more:
                message = await request.receive()
                if message["type"] != "http.request":
                    raise ClientDisconnect
                parts.append(message.get("body", b""))
                more = message.get("more_body", False)
                size += len(parts[-1])
                if size > most:
                    raise _too_large(most)
    except TimeoutError:
        raise Problem("timeout", "send the body faster", {"connection": "close"}) from None
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _too_large(most: int) -> Problem:
    # The rest of the body is still arriving: the connection cannot be reused.
    return Problem("too-large", f"the limit is {most} bytes", {"connection": "close"})
