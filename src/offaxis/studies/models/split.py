"""Who sees which images: the split that training, geometry and evaluation all keep to.

The training set of a data set is cut 80:20 into *train* and *validation*, by a seed that is part
of the experiment and independent of the seed of a training run. Both are **public**: networks and
heads are trained on ``train``, epochs are chosen on ``validation``, and a release is fitted on
``train``. The *test* set, clean or corrupted, is **private**: it stands for what people hold, and
nothing is trained, fitted or chosen on it.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from offaxis.data import Images
from offaxis.data.sets import Labels, Pixels
from offaxis.errors import InvalidInput

PARTS: Final = ("train", "validation", "test")
PUBLIC: Final = ("train", "validation")

_SEED = 0
_TRAIN_SHARE = 0.8


def split_rows(rows: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the rows of a training set that are for training and for validation, in order."""
    shuffled = np.random.default_rng(_SEED).permutation(rows)
    cut = round(_TRAIN_SHARE * rows)
    return np.sort(shuffled[:cut]), np.sort(shuffled[cut:])


def part_of(images: Images, part: str) -> tuple[Pixels, Labels]:
    """Return the images and labels of a part; rows keep the order of the data set."""
    if part == "test":
        return images.test_images, images.test_labels
    if part not in PUBLIC:
        raise InvalidInput(f"part must be one of {', '.join(PARTS)}, got part={part!r}")
    rows = split_rows(len(images.train_labels))[PUBLIC.index(part)]
    return images.train_images[rows], images.train_labels[rows]
