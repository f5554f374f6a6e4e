"""A codebook of public vectors: a report tells, noisily, in which of k cells a vector lies.

Cells are those of ``partition.py``: they lose least under k-ary response, in the task's metric
‖Ω̂^{1/2}(z − z')‖ where there is a task, so that vectors which the task answers alike share one.
Codewords are the means of the public vectors of a cell. The symbol goes through a randomizer of
symbols; a single report decodes to a codeword, and a mean of reports is an unbiased estimate of the
mean of the codewords.

Without a size, the number of cells is the one whose reports keep most of the vector at this budget.
Subset selection takes the same cells: with equal masses and sets of d it keeps
d (k − d) k E² / ((k − 1)(d E + k)²) Σ_j ‖s_j‖², E = e^ε − 1, which for a k that suits response is
as a rule largest at d = 1, where both are the same. It is for histograms over many symbols: give a
size.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Final

import numpy as np

from offaxis.decoding import CodewordDecoder, LinearDecoder
from offaxis.encoding import ArgmaxEncoder, Frame
from offaxis.errors import InvalidInput
from offaxis.geometry.spectrum import spectrum
from offaxis.randomizers import Randomizer
from offaxis.randomizers.response import KaryResponse
from offaxis.randomizers.subset import SubsetSelection
from offaxis.recipes.cells import cells
from offaxis.recipes.ingredients import Ingredients, Parts, Recipe
from offaxis.recipes.partition import partition
from offaxis.vectors import Vectors, as_integer

_MOST: Final = 4096


def task_metric(gram: Vectors, covariance: Vectors, centre: Vectors) -> Frame:
    """Return coordinates in which distance is the change of the task's answer: Ω̂^{1/2}(z − c)."""
    found = spectrum(gram, covariance)
    looked_at = found.values > 0
    root = np.sqrt(found.values[looked_at])
    basis = found.basis[:, looked_at]
    return Frame(centre, (basis * root).T, basis / root)


def _points(given: Ingredients, size: int | None) -> Vectors:
    """Return a point a cell, in the coordinates of the frame."""
    encoded = given.frame.encoder.encode(given.sample)
    points = partition(encoded, float(given.epsilon), size, given.seed)
    if len(points) < 2:
        raise InvalidInput("a codebook needs public vectors that the task tells apart")
    return points


def _book(given: Ingredients, points: Vectors) -> tuple[ArgmaxEncoder, Vectors, Vectors]:
    """Return the encoder, and the mean and the share of all public vectors with each symbol."""
    while True:
        encoder = ArgmaxEncoder.nearest(given.frame, points)
        found = cells(given, encoder)
        sums, counts = found.sums, found.counts
        used = counts > 0
        if used.all():
            return encoder, sums / counts[:, None], counts / counts.sum()
        points = points[used]  # nobody is nearest to the others, whose cells vanish with them


def codebook(make: Callable[[int, Fraction], Randomizer]) -> Recipe:
    """Return the recipe with the given randomizer of symbols."""

    def prepare(given: Ingredients) -> Parts:
        size = given.size
        if size is not None:
            size = max(2, as_integer(size, "size", 1, _MOST, meaning="number of codewords"))
        encoder, codewords, shares = _book(given, _points(given, size))
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
