"""The process that forks collectors: reads one JSON line per job and prints the child's id."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from typing import Any

from offaxis.collector import service
from offaxis.collector.app import serve
from offaxis.collector.service import Settings
from offaxis.collector.uploads import Writer, _resolve_all


class EarlyWriter(Writer):
    """The broken control: it acknowledges before it commits."""

    def _settle(self, group: Any) -> None:
        _resolve_all(
            [(waiting.outcomes, ["accepted"] * len(waiting.upload.ids)) for waiting in group]
        )
        time.sleep(0.02)
        super()._settle(group)


def collect(job: dict[str, Any]) -> None:
    """Run a collector."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if job["broken"] == "early":
        service.Writer = EarlyWriter  # type: ignore[misc]
    os.close(0)
    settings = Settings(job["database"], device_rate=1e7, reader_rate=1e4)
    serve(settings, "127.0.0.1", job["port"])


def main() -> None:
    """Run jobs until standard input ends."""
    # Nothing waits for the children: the system removes them when they have ended.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            try:
                collect(json.loads(line))
            finally:
                os._exit(1)
        sys.stdout.write(f"{child}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
