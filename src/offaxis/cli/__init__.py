"""The ``offaxis`` command: one file a command, what they read and what they show beside them."""

from __future__ import annotations

import signal
import sys
from typing import Any, NoReturn


def _stop(signum: int, frame: Any) -> NoReturn:
    """Leave through the usual clean-up, so that a killed run takes its temporary files with it."""
    sys.exit(128 + signum)


def main() -> None:
    """Run the command line."""
    from offaxis.cli.app import app

    signal.signal(signal.SIGTERM, _stop)
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show ε gets a question mark, not a crash.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    app()
