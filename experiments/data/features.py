"""The demo's bundled data: CIFAR-10 features of a ResNet-20, and a small head."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files
from typing import Final

import numpy as np
from numpy.typing import NDArray

from offaxis.geometry import Layers
from offaxis.vectors import Vectors

FILE: Final = "cifar10_features.npz"
SHA256: Final = "8a1a78d874832356f5a5d0c72973bea5f52749f33b4dac9a7935dbccd7c22317"
"""Hash of the bundled file; the README next to it lists the origin of its rows."""

CLASS_NAMES: Final = (
    "airplane",
    "automobile",
    "bird",
    "cat",
    "deer",
    "dog",
    "frog",
    "horse",
    "ship",
    "truck",
)

_DEPTH = 3


@dataclass(frozen=True, eq=False)
class DemoData:
    """Public and private vectors, and a public task.

    Attributes
    ----------
    public : (n, m) float64 array
        Features of training images, for fitting.
    vectors : (q, m) float64 array
        Features of test images under a corruption; they represent people's data.
    labels : (q,) int64 array
        True classes of ``vectors``.
    head : Layers
        The public model from features to ten logits.
    class_names : tuple of str
        Names of the classes.

    Examples
    --------
    >>> from experiments.data import DemoData, load_cifar10_features
    >>> data: DemoData = load_cifar10_features()
    >>> answers = data.head.outputs(data.vectors).argmax(axis=1)
    >>> float((answers == data.labels).mean())  # without privacy
    0.85
    """

    public: Vectors
    vectors: Vectors
    labels: NDArray[np.int64]
    head: Layers
    class_names: tuple[str, ...] = CLASS_NAMES


def load_cifar10_features() -> DemoData:
    """Read the bundled data: 8,000 public and 5,000 test vectors of dimension 64, and the head.

    Examples
    --------
    >>> from experiments.data import CLASS_NAMES, load_cifar10_features
    >>> data = load_cifar10_features()
    >>> data.public.shape, data.vectors.shape
    ((8000, 64), (5000, 64))
    >>> [CLASS_NAMES[label] for label in data.labels[:3]]
    ['cat', 'ship', 'ship']
    """
    resource = files("experiments.data").joinpath(FILE)
    with resource.open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
        head = Layers(
            [arrays[f"weight{i}"] for i in range(_DEPTH)],
            [arrays[f"bias{i}"] for i in range(_DEPTH)],
            activation="relu",
            name="cifar10-mlp-relu",
        )
        return DemoData(
            public=arrays["public"].astype(np.float64),
            vectors=arrays["vectors"].astype(np.float64),
            labels=arrays["labels"].astype(np.int64),
            head=head,
        )
