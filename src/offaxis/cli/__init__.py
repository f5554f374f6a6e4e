"""The ``offaxis`` command: one module per command."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from typing import Any, NoReturn


def _stop(signum: int, frame: Any) -> NoReturn:
    """Leave through the usual clean-up, so that a killed run takes its temporary files with it."""
    sys.exit(128 + signum)


def run(app: Callable[[], Any]) -> None:
    """Run an application, in a terminal that may not show every character."""
    signal.signal(signal.SIGTERM, _stop)
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show ε gets a question mark, not a crash.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    app()


def main() -> None:
    """Run the ``offaxis`` command."""
    from offaxis.cli.app import app

    run(app)
