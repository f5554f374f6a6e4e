"""Public per-sample gradients, as the local releases look at them."""

from __future__ import annotations

from typing import Any

import numpy as np

from offaxis.errors import InvalidInput
from offaxis.vectors import Vectors, as_batch


def _groups(public: Any, samples: int) -> Vectors:
    """Cut public gradients (n, d) into clients' worth: (groups, samples, d); the rest is left."""
    rows, _ = as_batch(public, None, "public")
    groups = len(rows) // samples if isinstance(samples, int) and samples > 0 else 0
    if groups < 2:
        raise InvalidInput(
            f"public gradients must fill at least two groups of samples={samples!r}, got "
            f"{len(rows)} rows"
        )
    return rows[: groups * samples].reshape(groups, samples, -1)


def group_means(public: Any, samples: int) -> Vectors:
    """Return what clients would average: (groups, d)."""
    means: Vectors = _groups(public, samples).mean(axis=1)
    return means


def coordinate_scales(public: Any) -> Vectors:
    """Return the root mean square of every coordinate; one that is always zero gets the largest."""
    rows, _ = as_batch(public, None, "public")
    scales: Vectors = np.sqrt(np.mean(rows * rows, axis=0))
    if not scales.max() > 0:
        raise InvalidInput("public gradients are all zero; nothing can be fitted to them")
    return np.where(scales > 0, scales, scales.max())


def columns(public: Any, samples: int, scales: Vectors) -> Vectors:
    """Return public vectors of per-sample values, one a group and coordinate: (groups·d, N)."""
    rows: Vectors = (_groups(public, samples) / scales).transpose(0, 2, 1).reshape(-1, samples)
    return rows
