"""Releases on which the JavaScript client and Python are compared."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

import offaxis
from offaxis.decoding import CodewordDecoder
from offaxis.encoding.encoders import answer_encoder
from offaxis.randomizers import KaryResponse
from tests.fuzz import seeds

KINDS = (
    *("laplace", "privunit2", "privunitg", "response", "subset", "hashing"),
    *("memoised-response", "memoised-privunit2"),
)
SEEDS = [i for i, r in enumerate(seeds.releases()) if r.randomizer.kind in KINDS]


def answering(activation: str) -> offaxis.Release:
    """Return a release of a classifier's answer, with an ε so large that reports are exact."""
    rng = np.random.default_rng(3)
    weights = [rng.standard_normal(shape) for shape in ((9, 4), (7, 9), (5, 7))]
    biases = [rng.standard_normal(9), rng.standard_normal(7), np.zeros(5)]
    # Centred, so that several answers occur.
    usual = answer_encoder(activation)(weights, biases).apply(rng.standard_normal((500, 4)))
    encoder = answer_encoder(activation)(weights, [*biases[:2], -np.median(usual, axis=0)])
    decoder = CodewordDecoder(rng.standard_normal((5, 4)), np.full(5, 0.2))
    origin = seeds.releases()[0].provenance
    return offaxis.Release(encoder, KaryResponse(5, Fraction(100)), decoder, origin)
