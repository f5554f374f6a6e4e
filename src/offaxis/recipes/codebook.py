"""A codebook of public vectors: a report tells, noisily, which codeword is nearest.

Codewords are the means of clusters of public vectors. With a task the clusters are formed in its
metric, ‖Ω̂^{1/2}(z − z')‖: vectors that the task answers alike share a codeword. The symbol goes
through a randomizer of symbols; a single report decodes to a codeword, and a mean of reports is an
unbiased estimate of the mean of the codewords.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Final

import numpy as np
from scipy.cluster.vq import kmeans2

from offaxis.decoding import CodewordDecoder, LinearDecoder
from offaxis.encoding import ArgmaxEncoder, Frame
from offaxis.errors import InvalidInput
from offaxis.geometry.public import walk
from offaxis.geometry.spectrum import spectrum
from offaxis.randomizers import Randomizer
from offaxis.randomizers.response import KaryResponse
from offaxis.randomizers.subset import SubsetSelection
from offaxis.recipes.ingredients import Ingredients, Parts, Recipe, whole_size
from offaxis.vectors import Vectors

_USUAL: Final = 16
_MOST: Final = 4096
_LEARNT_FROM: Final = 20_000
"""Clusters are formed on so many public vectors; their means are those of all."""

_ROUNDS: Final = 50


def task_metric(gram: Vectors, covariance: Vectors, centre: Vectors) -> Frame:
    """Return coordinates in which distance is the change of the task's answer: Ω̂^{1/2}(z − c)."""
    found = spectrum(gram, covariance)
    looked_at = found.values > 0
    root = np.sqrt(found.values[looked_at])
    basis = found.basis[:, looked_at]
    return Frame(centre, (basis * root).T, basis / root)


def _clusters(given: Ingredients, count: int) -> Vectors:
    """Return the centres of clusters of encoded public vectors, without empty ones."""
    rng = np.random.default_rng(given.seed)
    sample = given.sample
    if len(sample) > _LEARNT_FROM:
        sample = sample[rng.choice(len(sample), _LEARNT_FROM, replace=False)]
    encoded = np.unique(given.frame.encoder.encode(sample), axis=0)
    if len(encoded) < 2:
        raise InvalidInput("a codebook needs public vectors that the task tells apart")
    wanted = min(count, len(encoded))
    centres, labels = kmeans2(encoded, wanted, iter=_ROUNDS, minit="++", rng=rng, missing="warn")
    found: Vectors = centres[np.unique(labels)]
    return found


def _book(given: Ingredients, centres: Vectors) -> tuple[ArgmaxEncoder, Vectors, Vectors]:
    """Return the encoder, and the mean and the share of all public vectors with each symbol."""
    while True:
        encoder = ArgmaxEncoder.nearest(given.frame, centres)
        sums, counts = np.zeros(encoder.matrix.shape), np.zeros(len(centres))
        for batch in walk(given.public, given.identity):
            symbols = encoder.encode(batch)
            np.add.at(sums, symbols, batch)
            counts += np.bincount(symbols, minlength=counts.size)
        used = counts > 0
        if used.all():
            return encoder, sums / counts[:, None], counts / counts.sum()
        centres = centres[used]  # nobody is nearest to the others, whose cells vanish with them


def codebook(make: Callable[[int, Fraction], Randomizer]) -> Recipe:
    """Return the recipe with the given randomizer of symbols."""

    def prepare(given: Ingredients) -> Parts:
        usual = given.outputs if given.outputs > 1 else _USUAL
        count = whole_size(given.size, usual, _MOST, "number of codewords")
        encoder, codewords, shares = _book(given, _clusters(given, max(count, 2)))
        randomizer = make(encoder.output_dim, given.epsilon)
        return Parts(
            encoder,
            randomizer,
            CodewordDecoder(codewords, shares),
            LinearDecoder(codewords.T, np.zeros(encoder.input_dim)),
            {"codewords": float(encoder.output_dim)},
        )

    return Recipe(prepare, order=None, size="number of codewords")


RESPONSE = codebook(KaryResponse)
SUBSET = codebook(SubsetSelection)
