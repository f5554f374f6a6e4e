"""A vector that can be reported, whatever was given: the public mean for what cannot be used."""

from __future__ import annotations

from typing import Any

import numpy as np

from offaxis.release import Release
from offaxis.vectors import Vectors, as_batch, check_finite


def usable_vector(release: Release, source: Any) -> Vectors:
    """Return the vector, or the public mean; which of the two it was is known to nobody else.

    Contract: no exception of the source or of its value comes out, so that a failure cannot be
    seen. What is no error, such as an order to end the process, passes.

    Parameters
    ----------
    release : Release
    source : array (m,), or a callable that returns one
    """
    mean = release.public_mean
    try:
        value = source() if callable(source) else source
        batch, _ = as_batch(value, release.input_dim)
        # Copied, so that what is checked and what is reported is one and the same.
        vector = np.array(batch[0])
        check_finite(vector)
    except Exception:
        return mean
    return vector if len(batch) == 1 else mean
