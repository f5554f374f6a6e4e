"""Seeded simulation of a release, and the error that a mean over it still has."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy.stats import beta

from offaxis.errors import InvalidInput
from offaxis.release import Release
from offaxis.vectors import Vectors

_BLOCK_ROWS: Final = 1 << 14


@dataclass(frozen=True)
class Estimate:
    """A mean over simulated reports.

    Attributes
    ----------
    mean : float
    standard_error : float
        Of the mean, over the noise; the vectors are held fixed.

    Examples
    --------
    >>> from offaxis.theory import Estimate
    >>> values = np.array([[1.0, 10.0], [3.0, 12.0], [2.0, 11.0]])  # three draws of two vectors
    >>> found = Estimate.of(values)
    >>> found.mean, round(found.standard_error, 3)
    (6.5, 0.408)
    """

    mean: float
    standard_error: float

    @classmethod
    def of(cls, values: Vectors) -> Estimate:
        """Return the mean of (draws, n) values that are independent down each column.

        The columns belong to different vectors and are not alike, so each has its own variance.
        """
        draws, n = values.shape
        error = math.sqrt(float(values.var(axis=0, ddof=1).sum()) / draws) / n
        return cls(float(values.mean()), error)


def simulated(release: Release, Z: Vectors, draws: int, seed: int) -> Iterator[Vectors]:
    """Give the decoded vectors (n, m) of one simulated report each, ``draws`` times.

    The same seed gives the same draws, so that quantities measured apart can be compared.
    """
    if draws < 2:
        raise InvalidInput(f"draws must be at least 2 to know an error, got draws={draws}")
    # Several at once: a simulation over many rows uses all cores well.
    block = max(1, _BLOCK_ROWS // len(Z))
    for start in range(0, draws, block):
        count = min(block, draws - start)
        decoded = release.simulate(np.tile(Z, (count, 1)), np.random.default_rng([seed, start]))
        yield from decoded.reshape(count, *Z.shape)


def highest_share(hits: int, trials: int, confidence: float) -> float:
    """Return an upper limit on the mean probability of independent events, from how many happened.

    Clopper and Pearson's limit. It also holds when the events' probabilities differ: for the same
    mean, the number of unlike events has the lighter lower tail (Hoeffding, 1956), at any
    confidence above 1 − 1/e.
    """
    if not 1 - 1 / math.e <= confidence < 1:
        raise InvalidInput(f"confidence must lie between 0.64 and 1, got confidence={confidence!r}")
    return 1.0 if hits == trials else float(beta.ppf(confidence, hits + 1, trials - hits))
