"""Codebooks of public vectors: a report is a noisy index of the cell that contains a vector.

Cells lose least under k-ary response (:func:`partition`). With a task they are cells in the task's
metric ‖Ω̂^{1/2}(z − z')‖, so that vectors with the same answer share one. Codewords are the means of
the public vectors of a cell. The symbol goes through a randomizer of symbols; a single report
decodes to a codeword. Shares of cells can be estimated without bias, means of vectors cannot.

Without a size, the number of cells is the one whose reports keep most of the vector at this budget.
Subset selection uses the same cells: with equal masses and sets of d it keeps
d (k − d) k E² / ((k − 1)(d E + k)²) Σ_j ‖s_j‖², E = e^ε − 1, which for a k that suits response is
usually largest at d = 1, where both are the same. It is meant for histograms over many symbols:
pass a size.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from offaxis.decoding import CodewordDecoder
from offaxis.encoding import ArgmaxEncoder, Encoder
from offaxis.errors import InvalidInput
from offaxis.geometry.partition import partition
from offaxis.geometry.public import Mapped, fold_again
from offaxis.mechanisms.base import Mechanism, Parts, PublicInputs
from offaxis.randomizers import Randomizer
from offaxis.randomizers.symbols import KaryResponse, SubsetSelection
from offaxis.vectors import Vectors, as_integer

_MOST: Final = 4096


def codebook(name: str, make: Callable[[int, Fraction], Randomizer]) -> Mechanism:
    """Return the codebook mechanism with the given randomizer of symbols."""

    def prepare(inputs: PublicInputs) -> Parts:
        size = inputs.size
        if size is not None:
            size = max(2, as_integer(size, "size", 1, _MOST, meaning="number of codewords"))
        encoder, codewords, shares = _codewords(inputs, _points(inputs, size))
        randomizer = make(encoder.output_dim, inputs.epsilon)
        return Parts(
            encoder,
            randomizer,
            CodewordDecoder(codewords, shares),
            settings={"codewords": float(encoder.output_dim)},
        )

    return Mechanism(
        name,
        prepare,
        order=None,
        uses_percentile=False,
        reshaping="metric",
        size="number of codewords",
    )


RESPONSE = codebook("response", KaryResponse)

SUBSET = codebook("subset", SubsetSelection)


def _points(inputs: PublicInputs, size: int | None) -> Vectors:
    """Return one point per cell, in the coordinates of the frame."""
    encoded = inputs.frame.encoder.encode(inputs.sample)
    points = partition(encoded, float(inputs.epsilon), size, inputs.seed)
    if len(points) < 2:
        raise InvalidInput("a codebook needs public vectors that the task distinguishes")
    return points


def _codewords(inputs: PublicInputs, points: Vectors) -> tuple[ArgmaxEncoder, Vectors, Vectors]:
    """Return the encoder, and the mean and the share of all public vectors with each symbol."""
    while True:
        encoder = ArgmaxEncoder.nearest(inputs.frame, points)
        cells = cell_sums(inputs, encoder)
        sums, counts = cells.sums, cells.counts
        used = counts > 0
        if used.all():
            return encoder, sums / counts[:, None], counts / counts.sum()
        points = points[used]  # no vector is nearest to the others: remove them


# ---- Cells of an encoder over the public vectors


def cell_sums(inputs: PublicInputs, encoder: Encoder) -> CellSums:
    """Return number and sum of the public vectors with each symbol of an encoder."""
    return fold_again(inputs.public, inputs.identity, partial(_empty, encoder)).into


class CellSums:
    """Number and sum of the vectors with each symbol.

    Attributes
    ----------
    counts : (k,) array
    sums : (k, m) array
    """

    def __init__(self, symbols: int, dim: int) -> None:
        self.counts = np.zeros(symbols)
        self.sums = np.zeros((symbols, dim))

    def add(self, coded: tuple[NDArray[Any], Vectors]) -> None:
        """Add vectors with their symbols."""
        symbols, batch = coded
        np.add.at(self.sums, symbols, batch)
        self.counts += np.bincount(symbols, minlength=self.counts.size)

    def merge(self, other: CellSums) -> None:
        """Add the sums of another accumulator."""
        self.sums += other.sums
        self.counts += other.counts


def _empty(encoder: Encoder) -> Mapped[CellSums]:
    return Mapped(partial(_coded, encoder), CellSums(encoder.output_dim, encoder.input_dim))


def _coded(encoder: Encoder, batch: Vectors) -> tuple[NDArray[Any], Vectors]:
    return encoder.encode(batch), batch
