"""Tables: what do reported shares of cells by classes say about the answer in each cell?"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from offaxis.decoding import CellsDecoder
from offaxis.decoding.shares import Shares
from offaxis.encoding.pairs import Asked, CellsEncoder
from offaxis.errors import InvalidInput
from offaxis.learning.moments import ExpectedAccuracy
from offaxis.learning.sums import FOLDS, PairSums
from offaxis.randomizers.symbols import SymbolForm
from offaxis.vectors import Vectors


@dataclass(frozen=True, eq=False)
class Table:
    """Estimated shares of cells by classes.

    Attributes
    ----------
    parts : list of lists of (label, weight, Shares)
        One list per fold, then that of all reports. Shares of symbols have no label and weight 1;
        with public labels they are the shares of cells among the people of each label.
    counts : (folds,) array
        Numbers of reports.
    public : (cells,) array
        Public shares of the cells.
    classes : int
    entries : array
        The entry of the table that each symbol belongs to; −1 for none.
    """

    parts: list[list[tuple[int | None, float, Shares]]]
    counts: Vectors
    public: Vectors
    classes: int
    entries: NDArray[np.int64]

    @classmethod
    def of(cls, sums: PairSums, asked: Asked, encoder: CellsEncoder) -> Table:
        """Return the table of an answer."""
        decoder, randomizer = sums.release.decoder, sums.release.randomizer
        assert isinstance(decoder, CellsDecoder)
        assert isinstance(randomizer, SymbolForm)
        names = tuple(map(str, range(randomizer.size)))
        parts = []
        for chosen in [[fold] for fold in range(FOLDS)] + [list(range(FOLDS))]:
            named, counts = sums.totals[chosen].sum(axis=0), sums.counts[chosen].sum(axis=0)
            parts.append(
                [
                    (
                        None if sums.labels is None else int(label),
                        counts[label] / counts.sum(),
                        Shares(np.rint(named[label]).astype(np.int64), randomizer, names),
                    )
                    for label in np.flatnonzero(counts)
                ]
            )
        counts = sums.counts.sum(axis=1).astype(np.float64)
        k, entries = asked.classes, np.arange(encoder.features)
        if sums.labels is None:
            place = 1 + sums.release.asked.index(asked)
            grid = _grid(encoder, place)
            entries = np.where(grid[1] < k, grid[0] * k + grid[1], -1)
        return cls(parts, counts, decoder.shares, k, entries)

    def shares(self, part: int = -1) -> Vectors:
        """Return the table (cells, classes) of a fold, or of all reports."""
        cells = len(self.public)
        table = np.zeros((cells, self.classes))
        for label, weight, found in self.parts[part]:
            if label is None:
                flat = np.zeros(table.size + 1)
                np.add.at(flat, self.entries, found.estimate)
                table += flat[:-1].reshape(table.shape)
            else:
                table[:, label] = weight * found.estimate
        return table

    def variance(self, mask: Vectors, part: int = -1) -> float:
        """Return the variance of the sum of the entries of a mask (cells, classes)."""
        total = 0.0
        for label, weight, found in self.parts[part]:
            column = mask[:, label] if label is not None else np.append(mask, 0.0)[self.entries]
            total += weight**2 * found.variance(column)
        return total

    def noise_of_rows(self) -> Vectors:
        """Return the summed variances of the entries of each row of the table, (cells,)."""
        noise = np.zeros((len(self.public), self.classes))
        single = len(self.entries) in (noise.size, len(noise))
        for label, weight, found in self.parts[-1]:
            if label is not None:
                noise[:, label] = (weight * found.standard_error) ** 2
            elif single:
                noise = (found.standard_error**2).reshape(noise.shape)
            else:
                members = (np.asarray(self.entries == entry) for entry in range(noise.size))
                flat = [found.variance(part.astype(np.float64)) for part in members]
                noise = np.array(flat).reshape(noise.shape)
        summed: Vectors = noise.sum(axis=1)
        return summed

    def probabilities(self) -> Vectors:
        """Return the probabilities of the classes in each cell, (cells, k).

        The shares of all people are shrunk towards equal ones, and each cell towards these shares,
        by the part of their distance that noise explains (James, Stein 1961).
        """
        table = self.shares()
        cells, k = table.shape
        columns = [self.variance(np.tile(np.eye(k)[j], (cells, 1))) for j in range(k)]
        everyone = table.sum(axis=0)
        overall = _shrunk(everyone, np.full(k, 1 / k), sum(columns))
        rows = table / self.public[:, None]
        noise = float((self.noise_of_rows() / self.public**2).sum())
        return projected(overall + _shrunk(rows - everyone, np.zeros(k), noise))

    def evidence(self) -> bool:
        """Return whether the named entries exceed the others by more than three deviations."""
        table = self.shares()
        named = _named(table)
        contrast = named - (1 - named) / (table.shape[1] - 1)
        return float((table * contrast).sum()) > 3 * math.sqrt(self.variance(contrast))

    def accuracy(self, level: float) -> ExpectedAccuracy:
        """Return the cross-fitted accuracy."""
        n, total, variance, used = self.counts.sum(), 0.0, 0.0, 0.0
        table = self.shares()
        for fold, count in enumerate(self.counts):
            if not 1 < count < n:
                continue
            own = self.shares(fold)
            named = _named((n * table - count * own) / (n - count))
            total += count * float((own * named).sum())
            variance += count**2 * self.variance(named, fold)
            used += count
        if not used:
            raise InvalidInput("there are too few reports to judge a model: at least ten")
        estimate = total / used
        reach = float(ndtri((1 + level) / 2)) * math.sqrt(variance) / used
        return ExpectedAccuracy(
            min(1.0, max(0.0, estimate)),
            max(0.0, estimate - reach),
            min(1.0, estimate + reach),
            "none: people whose reports were left out judge the model",
        )


def _grid(encoder: CellsEncoder, place: int) -> NDArray[np.int64]:
    """Return the cell and the answer at a place of every symbol, (2, symbols)."""
    digits = np.unravel_index(np.arange(encoder.output_dim), (encoder.features, *encoder.values))
    return np.array([digits[0], digits[place]])


def _named(table: Vectors) -> Vectors:
    """Return the mask of the largest entry of every row."""
    mask = np.zeros_like(table)
    mask[np.arange(len(table)), table.argmax(axis=1)] = 1.0
    return mask


def _shrunk(estimate: Vectors, towards: Vectors, noise: float) -> Vectors:
    """Shrink by the share of the squared distance that noise explains."""
    apart = estimate - towards
    length = float((apart * apart).sum())
    return towards + max(0.0, 1 - noise / max(length, 1e-300)) * apart


def projected(rows: Vectors) -> Vectors:
    """Return the nearest probabilities to every row."""
    ordered = -np.sort(-rows, axis=1)
    excess = (np.cumsum(ordered, axis=1) - 1) / np.arange(1, rows.shape[1] + 1)
    last = np.count_nonzero(ordered > excess, axis=1) - 1
    positive = np.maximum(rows - excess[np.arange(len(rows)), last][:, None], 0)
    nearest: Vectors = positive / positive.sum(axis=1, keepdims=True)
    return nearest
