"""What sets there are, and which of them are here."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from offaxis.data import lhsm
from offaxis.data.cache import cache_folder
from offaxis.data.cifar10_c import CORRUPTIONS, SEVERITIES, corrupted_path
from offaxis.data.library import NAMES
from offaxis.data.sources import SOURCES
from offaxis.errors import installing


@dataclass(frozen=True)
class Entry:
    """A data set and where it stands; nothing is read, so a damaged file is not noticed here.

    Examples
    --------
    >>> from pathlib import Path
    >>> from offaxis.data import Entry, shelf
    >>> entry = shelf(Path("empty"))[0]
    >>> isinstance(entry, Entry)
    True
    >>> entry.name, entry.ready, entry.state
    ('mnist', False, 'offaxis data get mnist (11 MB)')
    """

    name: str
    about: str
    state: str
    ready: bool
    bytes: int


_ABOUT: Final = {
    "mnist": "60,000 + 10,000 handwritten digits of 28×28 (LeCun, Cortes, Burges)",
    "cifar10": "50,000 + 10,000 colour images of 32×32 in ten classes (Krizhevsky 2009)",
    "cifar10-c": "its test images under four corruptions at five severities "
    "(Hendrycks and Dietterich 2019), generated",
    "lhsm": "London household smart meters, 5,560 households × 829 days (UK Power Networks)",
    "digits": "1,797 handwritten digits of 8×8, part of scikit-learn",
}


def shelf(cache: Path | None = None) -> list[Entry]:
    """Return all data sets and their state, without reading or fetching any.

    Examples
    --------
    >>> from pathlib import Path
    >>> from offaxis.data import shelf
    >>> [entry.name for entry in shelf(Path("empty")) if entry.ready]
    ['lhsm', 'digits']
    """
    folder = cache_folder(cache)
    return [Entry(name, _ABOUT[name], *_state(name, folder)) for name in NAMES]


def _state(name: str, cache: Path) -> tuple[str, bool, int]:
    if name in SOURCES:
        path = SOURCES[name].path(cache)
        if path.exists():
            return "ready", True, path.stat().st_size
        return f"offaxis data get {name} ({SOURCES[name].packages[0].megabytes} MB)", False, 0
    if name == "cifar10-c":
        paths = [corrupted_path(cache, c, s) for c in CORRUPTIONS for s in SEVERITIES]
        here = [path.stat().st_size for path in paths if path.exists()]
        if len(here) == len(paths):
            return "ready", True, sum(here)
        return f"{len(here)} of {len(paths)} parts, others on first use", False, sum(here)
    if name == "lhsm":
        own = lhsm.own_path(cache)
        return ("own copy", True, own.stat().st_size) if own else ("bundled", True, 0)
    if importlib.util.find_spec("sklearn") is None:
        return installing("sklearn"), False, 0
    return "ready", True, 0
