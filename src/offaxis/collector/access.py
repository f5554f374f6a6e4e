"""Tokens and roles.

A token is 256 random bits. The database holds its SHA-256 and a name; who reads the database cannot
use it. Tokens are looked up by that hash, so how long a look takes says nothing about a token. They
are for an application or a person at the collector's side, not one for each device: all of them are
kept in memory.
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
"""Lets scanners of leaked secrets recognise one."""

_SCHEME: Final = b"bearer "
_LONGEST: Final = 200


@dataclass(frozen=True)
class Token:
    """What is known of a valid token."""

    id: int
    name: str
    role: Role


Tokens = dict[bytes, Token]
"""Valid tokens by SHA-256."""


def new_token() -> str:
    """Return a fresh token."""
    return _PREFIX + secrets.token_urlsafe(32)


def token_hash(token: bytes) -> bytes:
    """Return what is stored of a token."""
    return hashlib.sha256(token).digest()


def authenticate(request: Request, known: Tokens, *roles: Role) -> Token:
    """Return the request's token if it is valid and has one of the roles; no roles: any."""
    token = known.get(token_hash(_presented(request)))
    if token is None:
        raise Problem(
            "unknown-token", "send Authorization: Bearer TOKEN", {"www-authenticate": "Bearer"}
        )
    request.scope["offaxis.token"] = token.name
    if roles and token.role not in roles:
        raise Problem("forbidden", f"this needs the role {' or '.join(roles)}, not {token.role}")
    return token


def _presented(request: Request) -> bytes:
    for name, value in request.scope["headers"]:
        if name == b"authorization" and value[: len(_SCHEME)].lower() == _SCHEME:
            token: bytes = value[len(_SCHEME) :].strip()
            return token if len(token) <= _LONGEST else b""
    return b""


# ----------------------------------------------------------------------------
# How much one token may ask for, and how large a body may be.

_BURST: Final = 2.0
"""Seconds' worth that may come at once."""

LARGEST_JSON: Final = 65_536
LARGEST_PROFILE: Final = 64 << 20
MOST_REPORTS: Final = 10_000
"""In one batch."""


class Buckets:
    """A token bucket for each token: so much a second, and twice as much at once."""

    def __init__(self, rate: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._most = max(rate * _BURST, 1.0)
        self._clock = clock
        self._left: dict[int, tuple[float, float]] = {}

    def take(self, token: int, count: int = 1) -> None:
        """Take from a token's bucket, or refuse with the time to wait.

        A count beyond the whole bucket is let through when the bucket is full, and owed.
        """
        now = self._clock()
        left, then = self._left.get(token, (self._most, now))
        left = min(self._most, left + (now - then) * self._rate)
        wanted = min(count, self._most)
        if left < wanted:
            self._left[token] = (left, now)
            wait = math.ceil((wanted - left) / self._rate)
            raise Problem(
                "too-many", f"send again in {wait} s", {"retry-after": str(min(wait, 3600))}
            )
        self._left[token] = (left - count, now)


async def read_body(request: Request, most: int, seconds: float) -> bytes:
    """Read a body as far as it may be long; what is longer is not read to its end."""
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
    # The rest of the body is on its way: the connection cannot be used again.
    return Problem("too-large", f"at most {most} bytes", {"connection": "close"})
