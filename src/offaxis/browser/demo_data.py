"""Where the live demo's data are; ``python -m benchmarks.demo_data`` makes them.

For every budget two releases, the paper's plain mechanism and the recommended one; what a publisher
attaches to those of the rounds; a head, example digits, and the vectors of a crowd.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Final

KINDS: Final = ("plain", "recommended")
EPSILONS: Final = tuple(half / 2 for half in range(1, 21))
EPSILON: Final = 3.0
"""Budget of a report in the rounds."""


def data_folder() -> Path:
    """Return where the data are."""
    return Path(str(files("offaxis") / "browser" / "demo" / "data"))


def release_file(kind: str, epsilon: float) -> str:
    """Return the name of the release of a kind."""
    return f"{kind}-{epsilon:g}.release"


def attached_file(kind: str, fact: str) -> str:
    """Return the name of what is attached to a round's release: a profile, audit, or curve.

    The curve is the task's, and the same for all of its releases.
    """
    return "curve.json" if fact == "curve" else f"{kind}-{fact}.json"
