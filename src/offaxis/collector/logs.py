"""Logs as JSON lines that never hold what people sent.

A line names the route's template, the status, the time taken and the *name* of the token. Paths
(they hold ids), headers (tokens), bodies and messages of errors (they may quote any of these) are
never written: of an error only its type and the places in the code.
"""

from __future__ import annotations

import json
import logging
import sys
import traceback
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TextIO

LOGGER: Final = logging.getLogger("offaxis.collector")

_FRAMES: Final = 6


class JsonLines(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """Write a record; of an exception, its type and where it was."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
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


def configure(stream: TextIO = sys.stderr) -> None:
    """Send the collector's and the server's logs to one stream, as JSON lines."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines())
    for name in ("offaxis.collector", "uvicorn", "uvicorn.error"):
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
