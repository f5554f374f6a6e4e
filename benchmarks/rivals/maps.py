"""The parts of a linear release, for rivals that perform the same steps in another library."""

from __future__ import annotations

from typing import Literal, NamedTuple

from offaxis.decoding import LinearDecoder
from offaxis.encoding import AffineEncoder
from offaxis.randomizers import Gaussian, Laplace
from offaxis.release import Release
from offaxis.vectors import Vectors


class Noise(NamedTuple):
    """Laplace (p = 1) or normal (p = 2) noise of a scale, on the ℓp ball of a radius."""

    order: Literal[1, 2]
    radius: float
    scale: float


class LinearParts(NamedTuple):
    """w = A (z − c) is clipped to the ball, noise is added, and z = B w + d."""

    encode: Vectors
    centre: Vectors
    noise: Noise
    decode: Vectors
    offset: Vectors


def noise_of(release: Release) -> Noise:
    """Return the noise of a Laplace or Gaussian release."""
    randomizer = release.randomizer
    assert isinstance(randomizer, Laplace | Gaussian)
    order: Literal[1, 2] = 1 if isinstance(randomizer, Laplace) else 2
    return Noise(order, randomizer.radius, float(randomizer.scale))


def linear_parts(release: Release) -> LinearParts:
    """Return the parts of a reshaped Laplace or Gaussian release."""
    encoder, decoder = release.encoder, release.decoder
    assert isinstance(encoder, AffineEncoder)
    assert isinstance(decoder, LinearDecoder)
    return LinearParts(
        encoder.matrix, encoder.centre, noise_of(release), decoder.matrix, decoder.offset
    )
