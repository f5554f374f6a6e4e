"""Features of the experiments' images: computed once with the bundled weights, then cached.

``python -m experiments.features`` computes all of them. A part is a file in the data cache,
named after the hash of the weights, so features of other weights are never mixed up with these.
Whatever is finished is kept when the computation is interrupted. Needs torch only where something
must be computed; a GPU is used when there is one, and changes the last digits of float32 alone.
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
from offaxis.errors import InvalidInput

__all__ = ["load_features"]

NETWORKS: Final = {"cifar10": "resnet20", "cifar10-c": "resnet20", "mnist": "mnist-encoder"}
"""Data sets, and the network that makes vectors of their images."""


@dataclass(frozen=True, eq=False)
class Features:
    """Vectors and true classes of a part of a data set, in the order of its images.

    Attributes
    ----------
    name : str
        Data set and part, such as ``cifar10 train`` or ``cifar10-c fog 3``.
    vectors : (n, m) float32 array
        Of dimension 64 for CIFAR-10, 32 for MNIST.
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
    cache: Path | None = None,
    progress: Progress = silent,
) -> Features:
    """Return features from the cache, or compute and cache them; the images must be there.

    Parameters
    ----------
    name : {"cifar10", "cifar10-c", "mnist"}
    part : {"train", "validation", "test"}
        Of ``cifar10`` and ``mnist``. The first two are public, ``test`` is private.
    corruption, severity
        Of ``cifar10-c``: one of ``data.CORRUPTIONS``, and 1 to 5; severity 0 is the clean
        test set whatever the corruption.
    cache : Path, optional
        The cache folder, if not the usual one.
    progress : callable
        Called with what is being done, the images finished so far, and all of them.

    Raises
    ------
    InvalidInput
        If the choice is not offered, or the images have to be fetched first
        (``python -m experiments data get``).

    Examples
    --------
    ``load_features("cifar10", part="train").vectors`` is (40000, 64) once the images are there.

    >>> from pathlib import Path
    >>> from experiments.features import load_features
    >>> load_features("mnist", part="test", cache=Path("empty"))
    Traceback (most recent call last):
    offaxis.errors.InvalidInput: empty/mnist.safetensors is not there; run python -m ...
    """
    if name not in NETWORKS:
        raise InvalidInput(f"no features of {name!r}; choose one of {', '.join(NETWORKS)}")
    choice = (name, part, corruption, severity)
    if name == "cifar10-c":
        if part is not None or corruption is None or severity is None:
            raise InvalidInput("features of cifar10-c are chosen with corruption=… and severity=…")
        check_choice(corruption, severity or 1)
        label = f"cifar10-c {corruption} {severity}"
        if severity == 0:
            choice = ("cifar10", "test", None, None)
            label = "cifar10 test"
    else:
        if corruption is not None or severity is not None or part not in PARTS:
            raise InvalidInput(f"features of {name} are chosen with part=… of {', '.join(PARTS)}")
        label = f"{name} {part}"
    folder = cache_folder(None if cache is None else Path(cache))
    path = features_path(folder, label, NETWORKS[name])
    arrays = read_sealed(path)
    if arrays is None:
        arrays = _compute(choice, label, folder, progress)
        write_sealed(path, arrays)
    return Features(label, arrays["vectors"], arrays["labels"].astype(np.int64))


def features_path(cache: Path, label: str, network: str) -> Path:
    """Return where the features of a part are kept."""
    stem = label.replace(" ", "-")
    return cache / "features" / f"{stem}-{load_card(network).sha256[:16]}.safetensors"


def _compute(
    choice: tuple[str, str | None, str | None, int | None],
    label: str,
    cache: Path,
    progress: Progress,
) -> dict[str, NDArray[Any]]:
    name, part, corruption, severity = choice
    pixels: Pixels
    if name == "cifar10-c":
        images = data.load("cifar10-c", cache=cache, corruption=str(corruption), severity=severity)
        pixels, labels = images.images, images.labels
    else:
        pixels, labels = part_of(data.load(name, cache=cache), str(part))

    def told(_: str, done: int, total: int | None) -> None:
        progress(f"features of {label}", done, total)

    vectors = _embedded(NETWORKS[name], pixels, told)
    return {"vectors": vectors, "labels": labels.astype(np.uint8)}


def _embedded(network: str, pixels: Pixels, progress: Progress) -> NDArray[np.float32]:
    from experiments.models.networks import embed_digits, embed_images
    from experiments.models.training import choose_device

    net = load_model(network).to(choose_device())
    embed: Any = embed_images if network == "resnet20" else embed_digits
    vectors: NDArray[np.float32] = embed(net, pixels, progress=progress)
    return vectors


def every_choice() -> Iterator[dict[str, Any]]:
    """Yield the arguments of ``load_features`` for all parts there are."""
    for name in ("mnist", "cifar10"):
        for part in PARTS:
            yield {"name": name, "part": part}
    for corruption in CORRUPTIONS:
        for severity in SEVERITIES:
            yield {"name": "cifar10-c", "corruption": corruption, "severity": severity}


def _main() -> None:
    import sys

    def shown(label: str, done: int, total: int | None) -> None:
        sys.stderr.write(f"\r{label}: {done} of {total}   ")

    for choice in every_choice():
        found = load_features(**choice, progress=shown)
        sys.stdout.write(f"\r{found.name}: {found.vectors.shape}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    _main()
