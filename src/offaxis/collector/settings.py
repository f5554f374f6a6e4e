"""What an operator may set. Everything else is in the signed documents."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime


def now() -> datetime:
    """Return the time, in UTC."""
    return datetime.now(UTC)


@dataclass(frozen=True)
class Settings:
    """Settings of one collector process.

    Attributes
    ----------
    database : str
        ``sqlite:///FILE`` or ``postgresql://…``; several processes may share the latter.
    publisher : str, optional
        Public key whose signatures are wanted, 64 hexadecimal digits. Without it any admin
        publishes, and only devices check who signed.
    device_rate : float
        Reports a second that one device's token may send; what it asks counts as one.
    reader_rate : float
        Requests a second of any other token.
    largest_release : int
        Bytes of a release file.
    body_seconds : float
        How long a request's body may take to come.
    retry_seconds : float
        How long the collector says that it is not ready after a failure to store.
    clock : callable
        The time by which rounds open and close.
    """

    database: str = "sqlite:///collector.db"
    publisher: str | None = None
    device_rate: float = 100_000.0
    reader_rate: float = 50.0
    largest_release: int = 256 << 20
    body_seconds: float = 30.0
    retry_seconds: float = 15.0
    clock: Callable[[], datetime] = now
