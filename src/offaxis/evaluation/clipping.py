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
    """
    decoder, domain = release.decoder_of_means, release.randomizer.domain
    if not isinstance(domain, Ball | Box | FiniteSet):
        raise InvalidInput(
            f"a {release.randomizer.kind} randomizer does not clip, so it has no such bias"
        )
    batch, _ = as_batch(vectors, release.input_dim)
    rows = max(1, _NUMBERS // max(decoder.input_dim, decoder.output_dim))
    clipped = 0

    def moves() -> Iterator[Vectors]:
        nonlocal clipped
        for start in range(0, len(batch), rows):
            part = batch[start : start + rows]
            encoded = release.encoder.encode(part)
            if isinstance(domain, FiniteSet):
                # A symbol that is told truly: what is left out is all that its cell does not say.
                move = decoder.decode(np.eye(domain.size)[encoded]) - part
                clipped += int(move.any(axis=1).sum())
            else:
                kept = domain.project(encoded)
                move = decoder.decode(kept) - part
                clipped += int((kept != encoded).any(axis=1).sum())
            yield move

    found = aggregate(moves())
    return ClippingBias(
        found.estimate, found.standard_error, clipped / len(batch), int(found.count)
    )
