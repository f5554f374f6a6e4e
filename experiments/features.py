"""Features of the experiments' images: computed once with the bundled weights, then cached.

``python -m experiments.features`` computes all of them. Each part is a file in the data cache whose
name includes the hash of the weights, so features of different weights are never mixed up. Finished
parts are kept if the computation is interrupted. torch is needed only to compute features; a GPU is
used if available, and changes only the last digits of float32.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from experiments import data
from experiments.data.cache import Progress, cache_folder, read_sealed, silent, write_sealed
from experiments.data.cifar10 import CORRUPTIONS, SEVERITIES, check_choice
from experiments.data.sets import Labels, Pixels
from experiments.models import load_card, load_model
from experiments.models.heads import PARTS, part_of
from experiments.models.weights import CIFAR_ENCODERS, network_of, reference_heads
from offaxis.errors import InvalidInput

__all__ = ["load_features"]

NETWORKS: Final = {"cifar10": "resnet20", "cifar10-c": "resnet20", "mnist": "mnist-encoder"}
"""Data set → the network that computes the features of its images."""


@dataclass(frozen=True, eq=False)
class Features:
    """Vectors and true classes of a part of a data set, in the order of its images.

    Attributes
    ----------
    name : str
        Data set and part, such as ``cifar10 train`` or ``cifar10-c fog 3``.
    vectors : (n, m) float32 array
        Dimension 64 for CIFAR-10, 32 for MNIST.
    labels : (n,) int64 array
        Class numbers.
    """

    name: str
    vectors: NDArray[np.float32] = field(repr=False)
    labels: Labels = field(repr=False)


def load_features(
    name: str,
    *,
    part: str | None = None,
    corruption: str | None = None,
    severity: int | None = None,
    network: str | None = None,
    cache: Path | None = None,
    progress: Progress = silent,
) -> Features:
    """Return features from the cache, or compute and cache them from the images in the cache.

    Parameters
    ----------
    name : {"cifar10", "cifar10-c", "mnist"}
    part : {"train", "validation", "test"}
        For ``cifar10`` and ``mnist``. The first two are public, ``test`` is private.
    corruption, severity
        For ``cifar10-c``: one of ``data.CORRUPTIONS``, and 1 to 5; severity 0 is the clean
        test set for every corruption.
    network : str, optional
        The network that computes the features, if not the default one of the data set. Networks of
        the reference recipe have its split into train and validation, too.
    cache : Path, optional
        The cache folder, if not the default one.
    progress : callable
        Called with a label, the number of images finished so far, and their total.

    Raises
    ------
    InvalidInput
        If the arguments select no part, or the images are missing
        (``python -m experiments data get`` fetches them).

    Examples
    --------
    ``load_features("cifar10", part="train").vectors`` is (40000, 64) if the images are cached.

    >>> from pathlib import Path
    >>> from experiments.features import load_features
    >>> load_features("mnist", part="test", cache=Path("empty"))
    Traceback (most recent call last):
    offaxis.errors.InvalidInput: empty/mnist.safetensors is missing; run python -m ...
    """
    if name not in NETWORKS:
        raise InvalidInput(f"{name!r} has no features; choose one of {', '.join(NETWORKS)}")
    choice = (name, part, corruption, severity)
    if name == "cifar10-c":
        if part is not None or corruption is None or severity is None:
            raise InvalidInput(
                "features of cifar10-c need corruption=… and severity=…, and no part"
            )
        check_choice(corruption, severity or 1)
        label = f"cifar10-c {corruption} {severity}"
        if severity == 0:
            choice = ("cifar10", "test", None, None)
            label = "cifar10 test"
    else:
        if corruption is not None or severity is not None or part not in PARTS:
            raise InvalidInput(
                f"features of {name} need part=…, one of {', '.join(PARTS)}, and nothing else"
            )
        label = f"{name} {part}"
    folder = cache_folder(None if cache is None else Path(cache))
    by = network or NETWORKS[name]
    path = features_path(folder, label, by)
    arrays = read_sealed(path)
    if arrays is None:
        arrays = _compute(choice, label, by, folder, progress)
        write_sealed(path, arrays)
    return Features(label, arrays["vectors"], arrays["labels"].astype(np.int64))


def features_path(cache: Path, label: str, network: str) -> Path:
    """Return the path of the features of a part."""
    stem = label.replace(" ", "-")
    return cache / "features" / f"{stem}-{load_card(network).sha256[:16]}.safetensors"


def _compute(
    choice: tuple[str, str | None, str | None, int | None],
    label: str,
    network: str,
    cache: Path,
    progress: Progress,
) -> dict[str, NDArray[Any]]:
    name, part, corruption, severity = choice
    pixels: Pixels
    if name == "cifar10-c":
        images = data.load("cifar10-c", cache=cache, corruption=str(corruption), severity=severity)
        pixels, labels = images.images, images.labels
    else:
        reference = network.startswith("published/")
        pixels, labels = part_of(data.load(name, cache=cache), str(part), reference=reference)

    def report(_: str, done: int, total: int | None) -> None:
        progress(f"features of {label}", done, total)

    vectors = _embed(network, pixels, report)
    return {"vectors": vectors, "labels": labels.astype(np.uint8)}


def _embed(network: str, pixels: Pixels, progress: Progress) -> NDArray[np.float32]:
    from experiments.models.networks import embed_digits, embed_images
    from experiments.models.training import choose_device

    net = load_model(network).to(choose_device())
    embed: Any = embed_images if "resnet20" in network else embed_digits
    vectors: NDArray[np.float32] = embed(net, pixels, progress=progress)
    return vectors


def every_choice() -> Iterator[dict[str, Any]]:
    """Yield the arguments of ``load_features`` for every part and network."""
    digits = (
        NETWORKS["mnist"],
        *(network_of("mnist", head) for head in reference_heads()["mnist"]),
    )
    for network in digits:
        for part in PARTS:
            yield {"name": "mnist", "part": part, "network": network}
    for network in (NETWORKS["cifar10"], *CIFAR_ENCODERS):
        for part in PARTS:
            yield {"name": "cifar10", "part": part, "network": network}
        for corruption in CORRUPTIONS:
            for severity in SEVERITIES:
                shift = {"corruption": corruption, "severity": severity}
                yield {"name": "cifar10-c", **shift, "network": network}


def _main() -> None:
    import sys

    def show(label: str, done: int, total: int | None) -> None:
        sys.stderr.write(f"\r{label}: {done} of {total}   ")

    for choice in every_choice():
        features = load_features(**choice, progress=show)
        sys.stdout.write(f"\r{features.name} by {choice['network']}: {features.vectors.shape}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    _main()
