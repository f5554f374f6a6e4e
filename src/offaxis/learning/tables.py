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

    def noise_of_entries(self) -> Vectors:
        """Return the variance of each entry of the table, (cells, classes)."""
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
        return np.maximum(noise, 1e-300)

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
        noise = float((self.noise_of_entries().sum(axis=1) / self.public**2).sum())
        return projected(overall + _shrunk(rows - everyone, np.zeros(k), noise))

    def evidence(self) -> bool:
        """Return whether the answers differ from equal ones by more than noise explains.

        Σ (f_cj − mean over j)²/Var f_cj has about the law χ² with cells·(k − 1) degrees of freedom,
        if all answers are equally common in every cell. Evidence is three deviations more.
        """
        table = self.shares()
        apart = table - table.mean(axis=1, keepdims=True)
        noise = self.noise_of_entries()
        freedom = apart.size - len(apart)
        return bool((apart**2 / noise).sum() > freedom + 3 * math.sqrt(2 * freedom))

    def accuracy(self, level: float) -> ExpectedAccuracy:
        """Return the cross-fitted accuracy.

        The errors of the folds are independent in cells that all folds name alike. In the others
        they may add up, and are counted as if they did.
        """
        n, table = self.counts.sum(), self.shares()
        folds = [fold for fold, count in enumerate(self.counts) if 1 < count < n]
        if not folds:
            raise InvalidInput("there are too few reports to judge a model: at least ten")
        own = {fold: self.shares(fold) for fold in folds}
        named = {
            fold: _named((n * table - self.counts[fold] * own[fold]) / (n - self.counts[fold]))
            for fold in folds
        }
        settled = np.min([named[fold] for fold in folds], axis=0)
        weights = self.counts[folds] / self.counts[folds].sum()
        estimate, variance, together = 0.0, 0.0, 0.0
        for weight, fold in zip(weights, folds, strict=True):
            estimate += weight * float((own[fold] * named[fold]).sum())
            variance += weight**2 * self.variance(settled, fold)
            together += weight * math.sqrt(self.variance(named[fold] - settled, fold))
        reach = float(ndtri((1 + level) / 2)) * (math.sqrt(variance) + together)
        return ExpectedAccuracy(
            float(np.clip(estimate, 0, 1)),
            float(np.clip(estimate - reach, 0, 1)),
            float(np.clip(estimate + reach, 0, 1)),
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
