"""Logs and metrics that never contain what clients sent.

Logs are JSON lines. A line has the route's template, the status, the time taken and the *name* of
the token. Paths (which contain ids), headers (tokens), bodies and error messages (which may quote
any of these) are never written; of an error, only its type and its places in the code.
"""

from __future__ import annotations

import json
import logging
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TextIO

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

LOGGER: Final = logging.getLogger("offaxis.collector")

_FRAMES: Final = 6
_DELAY: Final = 0.2
"""Seconds that a line may wait to be written together with others."""


class JsonLines(logging.Formatter):
    """Formats a record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """Format a record; of an exception, its type and its places in the code."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            # Further lines of asyncio's messages may quote an error.
            "event": record.getMessage().partition("\n")[0],
            **getattr(record, "facts", {}),
        }
        if record.exc_info and record.exc_info[1] is not None:
            line |= error_facts(record.exc_info[1])
        return json.dumps(line)


def error_facts(error: BaseException) -> dict[str, Any]:
    """Return what may be logged of an error: its type and places in the code, not its message."""
    frames = traceback.extract_tb(error.__traceback__)[-_FRAMES:]
    places = [f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames]
    return {"error": type(error).__name__, "at": places}


class BufferedHandler(logging.Handler):
    """Writes lines together, a few times per second; warnings at once, and the rest at exit.

    One system call per line would cost more than the request.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream
        self._lines: list[str] = []
        self._written = 0.0

    def emit(self, record: logging.LogRecord) -> None:
        """Buffer a line."""
        self._lines.append(self.format(record))
        due = record.created - self._written > _DELAY
        if due or record.levelno >= logging.WARNING:
            self.flush()

    def flush(self) -> None:
        """Write the buffered lines."""
        with self.lock or nullcontext():
            lines, self._lines = self._lines, []
            self._written = time.time()
            if lines:
                self._stream.write("\n".join(lines) + "\n")
                self._stream.flush()


def flush() -> None:
    """Write the buffered lines; to be called periodically."""
    for handler in LOGGER.handlers:
        handler.flush()


def configure(stream: TextIO = sys.stderr) -> None:
    """Send the collector's and the server's logs to one stream, as JSON lines."""
    handler = BufferedHandler(stream)
    handler.setFormatter(JsonLines())
    for name in ("offaxis.collector", "uvicorn", "uvicorn.error", "asyncio"):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.propagate = False
        logger.setLevel(logging.INFO)
    # Access logs contain paths, and paths contain report ids.
    logging.getLogger("uvicorn.access").disabled = True


def event(name: str, level: int = logging.INFO, **facts: Any) -> None:
    """Log one event."""
    if LOGGER.isEnabledFor(level):
        LOGGER.log(level, name, extra={"facts": facts})


# ---- Metrics

_SECONDS: Final = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10)
_ROWS: Final = (1, 4, 16, 64, 256, 1024, 4096, 16384)


class Metrics:
    """Prometheus metrics of one process, in a separate registry. No label identifies a person."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "offaxis_requests", "Requests", ("method", "route", "status"), registry=self.registry
        )
        self._seconds = Histogram(
            "offaxis_request_seconds",
            "Time to respond",
            ("method", "route"),
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.reports = Counter(
            "offaxis_reports", "Uploaded reports by outcome", ("outcome",), registry=self.registry
        )
        self._rows = Histogram(
            "offaxis_commit_rows", "Reports in a commit", buckets=_ROWS, registry=self.registry
        )
        self._commit = Histogram(
            "offaxis_commit_seconds", "Time of a commit", buckets=_SECONDS, registry=self.registry
        )
        self.failures = Counter(
            "offaxis_database_failures", "Failed database operations", registry=self.registry
        )
        self.drift = Gauge(
            "offaxis_drift_warning",
            "1 if a round's reports did not fit the public vectors when last tested",
            ("round",),
            registry=self.registry,
        )

    def watch_queue(self, waiting: Callable[[], int]) -> None:
        """Expose the number of reports that wait for the database."""
        gauge = Gauge("offaxis_waiting_reports", "Reports not committed", registry=self.registry)
        gauge.set_function(waiting)

    def request_done(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request."""
        self._requests.labels(method, route, str(status)).inc()
        self._seconds.labels(method, route).observe(seconds)

    def committed(self, rows: int, seconds: float) -> None:
        """Count a commit of reports."""
        self._rows.observe(rows)
        self._commit.observe(seconds)

    def text(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self.registry)
