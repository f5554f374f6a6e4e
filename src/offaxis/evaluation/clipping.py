"""What clipping does to a mean: the part of its error that no number of reports removes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from offaxis.decoding import aggregate
from offaxis.errors import InvalidInput
from offaxis.randomizers.domain import Ball, Box, FiniteSet
from offaxis.release import Release
from offaxis.vectors import Vectors, as_batch

_NUMBERS: Final = 1 << 20


@dataclass(frozen=True, eq=False)
class ClippingBias:
    """How far clipping, or a codebook, moves the mean of vectors.

    Parameters
    ----------
    bias : array (m,)
        Mean of the clipped and decoded vectors minus the mean of the vectors.
    standard_error : array (m,)
        Of the bias, for vectors that are a sample of a larger public whole.
    share : float
        Share of the vectors that are clipped, or that are no codeword.
    count : int
        Number of vectors.

    Examples
    --------
    >>> import offaxis
    >>> from offaxis.evaluation import ClippingBias, clipping_bias
    >>> public = np.random.default_rng(0).standard_normal((200, 3))
    >>> release = offaxis.fit(None, public, epsilon=2, reshaping="none", percentile=100)
    >>> found = clipping_bias(release, public)  # a radius that holds everybody clips nobody
    >>> isinstance(found, ClippingBias), found.share, found.count
    (True, 0.0, 200)
    """

    bias: Vectors
    standard_error: Vectors
    share: float
    count: int


def clipping_bias(release: Release, vectors: Any) -> ClippingBias:
    """Estimate what means of the release's reports are off by, however many there are.

    Contract: the exact difference on the given vectors, in floating point, of encoding, clipping
    and decoding without noise; on a map of lower rank it includes what the encoder drops, and it
    leaves out the truncation to the lattice, less than a step a coordinate. For private people it
    is an estimate that is right only as far as the public vectors are distributed as theirs; do
    not subtract it as if it were known.

    Parameters
    ----------
    release : Release
        One that gives means.
    vectors : array (n, m)
        Public vectors, best not those the release was fitted on: its radius is their percentile.

    Raises
    ------
    BiasedDecoder
        If the release gives no means at all.

    Examples
    --------
    >>> import offaxis
    >>> from offaxis.evaluation import clipping_bias
    >>> rng = np.random.default_rng(0)
    >>> release = offaxis.fit(None, rng.standard_normal((500, 3)), epsilon=2, reshaping="none")
    >>> others = 1.0 + rng.standard_normal((500, 3))  # they lie elsewhere
    >>> found = clipping_bias(release, others)
    >>> round(found.share, 2), found.bias.round(1)  # means would be too close to the public one
    (0.34, array([-0.1, -0.1, -0.1]))
    """
    batch, _ = as_batch(vectors, release.input_dim)
    rows = max(1, _NUMBERS // max(release.decoder.input_dim, release.input_dim))
    clipped = 0

    def moves() -> Iterator[Vectors]:
        nonlocal clipped
        for start in range(0, len(batch), rows):
            part = batch[start : start + rows]
            kept, changed = _kept(release, part)
            clipped += changed if changed is not None else int((kept != part).any(axis=1).sum())
            yield kept - part

    found = aggregate(moves())
    return ClippingBias(
        found.estimate, found.standard_error, clipped / len(batch), int(found.count)
    )


def without_noise(release: Release, vectors: Vectors) -> Vectors:
    """Return what the mean of a vector's reports tends to, (n, m): encoded, clipped and decoded.

    For releases that give means: their randomizers are unbiased behind the clipping.
    """
    return _kept(release, vectors)[0]


def _kept(release: Release, part: Vectors) -> tuple[Vectors, int | None]:
    """Return the vectors without noise, and how many are clipped; None where there is no ball."""
    decoder, domain = release.decoder_of_means, release.randomizer.domain
    if not isinstance(domain, Ball | Box | FiniteSet):
        raise InvalidInput(
            f"a {release.randomizer.kind} randomizer does not clip, so it has no such bias"
        )
    encoded = release.encoder.encode(part)
    if isinstance(domain, FiniteSet):
        # A symbol that is told truly: what is left out is all that its cell does not say.
        return decoder.decode(np.eye(domain.size)[encoded]), None
    kept = domain.project(encoded)
    return decoder.decode(kept), int((kept != encoded).any(axis=1).sum())
