"""Cells of the space, one a symbol: how many public vectors lie in each, and their sum."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from offaxis.encoding import Encoder
from offaxis.geometry.folding import Through
from offaxis.geometry.public import fold_again
from offaxis.recipes.ingredients import Ingredients
from offaxis.vectors import Vectors


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
        """Take in symbols and the vectors that have them."""
        symbols, batch = coded
        np.add.at(self.sums, symbols, batch)
        self.counts += np.bincount(symbols, minlength=self.counts.size)

    def merge(self, other: CellSums) -> None:
        """Take in what another one has seen."""
        self.sums += other.sums
        self.counts += other.counts


def _coded(encoder: Encoder, batch: Vectors) -> tuple[NDArray[Any], Vectors]:
    return encoder.encode(batch), batch


def _empty(encoder: Encoder) -> Through[CellSums]:
    return Through(partial(_coded, encoder), CellSums(encoder.output_dim, encoder.input_dim))


def cells(given: Ingredients, encoder: Encoder) -> CellSums:
    """Return the cells of an encoder over all public vectors."""
    return fold_again(given.public, given.identity, partial(_empty, encoder)).into
