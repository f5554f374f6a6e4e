"""The ``offaxis`` command: one module per command."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from typing import Any, NoReturn


def _stop(signum: int, frame: Any) -> NoReturn:
    """Exit through the usual clean-up, so that a terminated run removes its temporary files."""
    sys.exit(128 + signum)


def run(app: Callable[[], Any]) -> None:
    """Run an application with clean-up on SIGTERM, on a terminal with any encoding."""
    signal.signal(signal.SIGTERM, _stop)
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show ε shows a question mark instead of failing.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    app()


def main() -> None:
    """Run the ``offaxis`` command."""
    from offaxis.cli.app import app

    run(app)
