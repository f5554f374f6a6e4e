"""Logs as JSON lines that never hold what people sent.

A line names the route's template, the status, the time taken and the *name* of the token. Paths
(they hold ids), headers (tokens), bodies and messages of errors (they may quote any of these) are
never written: of an error only its type and the places in the code.
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
_WAIT: Final = 0.2
"""Seconds that a line may wait for others."""


class JsonLines(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """Write a record; of an exception, its type and where it was."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            # What asyncio says in further lines may quote an error.
            "event": record.getMessage().partition("\n")[0],
            **getattr(record, "facts", {}),
        }
        if record.exc_info and record.exc_info[1] is not None:
            line |= error_facts(record.exc_info[1])
        return json.dumps(line)


def error_facts(error: BaseException) -> dict[str, Any]:
    """Return what may be said of an error: its type and where it was, never its message."""
    frames = traceback.extract_tb(error.__traceback__)[-_FRAMES:]
    places = [f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames]
    return {"error": type(error).__name__, "at": places}


class MultiTask(logging.Handler):
    """Writes lines together, a few times a second; warnings at once, and everything at the end.

    A system call for each line would cost more than the request.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream
        self._lines: list[str] = []
        self._written = 0.0

    def emit(self, record: logging.LogRecord) -> None:
        """Take a line."""
        self._lines.append(self.format(record))
        late = record.created - self._written > _WAIT
        if late or record.levelno >= logging.WARNING:
            self.flush()

    def flush(self) -> None:
        """Write what waits."""
        with self.lock or nullcontext():
            lines, self._lines = self._lines, []
            self._written = time.time()
            if lines:
                self._stream.write("\n".join(lines) + "\n")
                self._stream.flush()


def flush() -> None:
    """Write what waits; to be called now and then."""
    for handler in LOGGER.handlers:
        handler.flush()


def configure(stream: TextIO = sys.stderr) -> None:
    """Send the collector's and the server's logs to one stream, as JSON lines."""
    handler = MultiTask(stream)
    handler.setFormatter(JsonLines())
    for name in ("offaxis.collector", "uvicorn", "uvicorn.error", "asyncio"):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.propagate = False
        logger.setLevel(logging.INFO)
    # Lines of access hold paths, and paths hold ids.
    logging.getLogger("uvicorn.access").disabled = True


def event(name: str, level: int = logging.INFO, **facts: Any) -> None:
    """Write one line."""
    if LOGGER.isEnabledFor(level):
        LOGGER.log(level, name, extra={"facts": facts})


# ----------------------------------------------------------------------------
# Prometheus metrics of one process, in a registry of their own. No label names a person.

_SECONDS: Final = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10)
_ROWS: Final = (1, 4, 16, 64, 256, 1024, 4096, 16384)


class Metrics:
    """What is counted."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "offaxis_requests", "Requests", ("method", "route", "status"), registry=self.registry
        )
        self._seconds = Histogram(
            "offaxis_request_seconds",
            "Time to answer",
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
            "offaxis_database_failures", "Work the database refused", registry=self.registry
        )
        self.drift = Gauge(
            "offaxis_drift_warning",
            "1 if a round's reports do not fit the public vectors, when last asked",
            ("round",),
            registry=self.registry,
        )

    def watch_queue(self, waiting: Callable[[], int]) -> None:
        """Show how many reports wait for the database."""
        gauge = Gauge("offaxis_waiting_reports", "Reports not committed", registry=self.registry)
        gauge.set_function(waiting)

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request."""
        self._requests.labels(method, route, str(status)).inc()
        self._seconds.labels(method, route).observe(seconds)

    def committed(self, rows: int, seconds: float) -> None:
        """Count a commit of reports."""
        self._rows.observe(rows)
        self._commit.observe(seconds)

    def text(self) -> bytes:
        """Return everything in Prometheus' text format."""
        return generate_latest(self.registry)
