"""Tokens and roles.

A token is 256 random bits. The database holds its SHA-256 and a name; who reads the database cannot
use it. Tokens are looked up by that hash, so how long a look takes says nothing about a token. They
are for an application or a person at the collector's side, not one for each device: all of them are
kept in memory.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from typing import Final, Literal

from starlette.requests import Request

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
