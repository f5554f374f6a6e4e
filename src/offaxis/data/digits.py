"""scikit-learn's digits: 1,797 images of 8×8 that need no download."""

from __future__ import annotations

from typing import Final

import numpy as np

from offaxis.data.sets import Images
from offaxis.errors import MissingExtra, installing

TRAIN: Final = 1437
"""The first four fifths, in the order they come in, are for training; the set has no own split."""


def load_digits() -> Images:
    """Return the digits; needs the extra ``sklearn``."""
    try:
        from sklearn import datasets
    except ImportError as error:
        raise MissingExtra(f"digits come with scikit-learn: {installing('sklearn')}") from error
    bunch = datasets.load_digits()
    images = bunch.images.astype(np.uint8)
    labels = bunch.target.astype(np.int64)
    return Images("digits", images[:TRAIN], labels[:TRAIN], images[TRAIN:], labels[TRAIN:])
