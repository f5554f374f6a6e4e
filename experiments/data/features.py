"""CIFAR-10 features of a ResNet-20 with a small head: the demo's public and private side."""

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
"""Of the bundled file; the README beside it says which rows were taken from where."""

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
    """A public side, a private side, and the public task between them.

    Attributes
    ----------
    public : (n, m) float64 array
        Features of training images; all that fitting may see.
    vectors : (q, m) float64 array
        Features of test images under a corruption; they stand for what people hold.
    labels : (q,) int64 array
        True classes of ``vectors``.
    head : Layers
        The public model from features to ten logits.
    class_names : tuple of str
        What the classes are called.

    Examples
    --------
    >>> from experiments.data import DemoData, load_cifar10_features
    >>> data = load_cifar10_features()
    >>> isinstance(data, DemoData)
    True
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
    """Read the bundled slice: 8,000 public and 5,000 test vectors of dimension 64, and the head.

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
