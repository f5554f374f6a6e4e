"""The process that forks collectors: one JSON line an order, answered with the process's number."""

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
from offaxis.collector.uploads import Writer, _answer


class Early(Writer):
    """The broken twin: it answers before its commit."""

    def _settle(self, group: Any) -> None:
        _answer([(one.answer, ["accepted"] * len(one.upload.ids)) for one in group])
        time.sleep(0.02)
        super()._settle(group)


def collect(order: dict[str, Any]) -> None:
    """Be a collector."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if order["twin"] == "early":
        service.Writer = Early  # type: ignore[misc]
    os.close(0)
    settings = Settings(order["database"], device_rate=1e7, reader_rate=1e4)
    serve(settings, "127.0.0.1", order["port"])


def main() -> None:
    """Carry out orders until there are none."""
    # Nobody waits for the children: the system takes them away when they are dead.
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
