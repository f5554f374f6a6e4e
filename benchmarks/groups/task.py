"""The task of the benchmarks: the bundled features and their head, and releases fitted to them."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from experiments.data import load_cifar10_features
from experiments.data.features import DemoData
from offaxis.fitting import fit
from offaxis.mechanisms import find_mechanism
from offaxis.release import Release
from offaxis.vectors import Vectors

EPSILON = 5


@cache
def data() -> DemoData:
    """Return the bundled vectors of dimension 64 and the public model."""
    return load_cifar10_features()


def vectors(rows: int) -> Vectors:
    """Return this many test vectors; the bundled ones are repeated."""
    return np.resize(data().vectors, (rows, data().vectors.shape[1]))


@cache
def release(mechanism: str, **settings: Any) -> Release:
    """Fit a release to the bundled task."""
    delta = 1e-5 if find_mechanism(mechanism).needs_delta else None
    return fit(
        data().head,
        data().public,
        epsilon=EPSILON,
        mechanism=mechanism,
        delta=delta,
        **settings,
    )


def plain_laplace(dim: int) -> Release:
    """Return a Laplace release of any dimension, without reshaping."""
    public = np.random.default_rng(1).standard_normal((50, dim))
    return fit(None, public, epsilon=EPSILON, reshaping="none", mechanism="laplace")
