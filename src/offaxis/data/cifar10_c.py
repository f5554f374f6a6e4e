"""CIFAR-10-C, generated from the CIFAR-10 test images on first use: a file a severity.

Brightness and defocus blur are the published files, byte for byte (MD5 below, as published with the
set). Noise and fog are our own draws, the same on every machine (``corruptions.SEED``).
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np

from offaxis.data.cache import Arrays, fingerprint, read_arrays, write_arrays
from offaxis.data.corruptions import (
    Corrupt,
    brightness,
    defocus_blur,
    fog,
    gaussian_noise,
)
from offaxis.data.parts import Progress, silent
from offaxis.data.sets import Pixels
from offaxis.errors import InvalidInput

SEVERITIES: Final = (1, 2, 3, 4, 5)
PUBLISHED: Final = {
    "brightness": "0a81ef75e0b523c3383219c330a85d48",
    "defocus_blur": "7d1322666342a0702b1957e92f6254bc",
}
"""MD5 of the published ``.npy`` files, which hold all five severities one after the other."""

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
"""Of images and labels at severities 1 to 5."""

_MAKERS: Final[dict[str, Callable[[int], Corrupt]]] = {
    "gaussian_noise": gaussian_noise,
    "brightness": lambda severity: partial(brightness, severity=severity),
    "defocus_blur": lambda severity: partial(defocus_blur, severity=severity),
    "fog": fog,
}
CORRUPTIONS: Final = tuple(_MAKERS)

# Part of the definition of fog: its stream is used up chunk by chunk.
_CHUNK = 500


def check_choice(corruption: str, severity: int) -> None:
    """Refuse a corruption or a severity that is not offered."""
    if corruption not in CORRUPTIONS:
        raise InvalidInput(
            f"no corruption {corruption!r} in cifar10-c; choose one of {', '.join(CORRUPTIONS)}"
        )
    if severity not in SEVERITIES:
        raise InvalidInput(f"severity must be 1 to 5, got severity={severity!r}")


def corrupted_path(cache: Path, corruption: str, severity: int) -> Path:
    """Return where a corruption at a severity is kept."""
    return cache / "cifar10-c" / f"{corruption}-{severity}.safetensors"


def generate(
    test_images: Pixels, corruption: str, severity: int, progress: Progress = silent
) -> Pixels:
    """Corrupt the test images, always all of them and in the same order."""
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

    ``clean`` returns the arrays of CIFAR-10; it is called only if something must be generated.
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
    found = fingerprint(arrays)
    if found != expected:
        raise InvalidInput(
            f"{corruption} at severity {severity} came out differently here (fingerprint "
            f"{found[:16]}…); report it with your NumPy version, {np.__version__}"
        )
    write_arrays(path, arrays)
    return arrays


def published_md5(severities: list[Pixels]) -> str:
    """Return the MD5 that the published ``.npy`` file of these five severities would have."""
    file = io.BytesIO()
    np.lib.format.write_array(file, np.concatenate(severities), version=(1, 0))
    return hashlib.md5(file.getbuffer(), usedforsecurity=False).hexdigest()
