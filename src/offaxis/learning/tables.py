"""Tables: what do reported shares of cells by classes say about the answer in each cell?"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri, softmax

from offaxis.decoding import CellsDecoder
from offaxis.decoding.shares import Shares
from offaxis.encoding.pairs import Asked, CellsEncoder
from offaxis.errors import InvalidInput
from offaxis.learning.moments import LEAST_JUDGED, ExpectedAccuracy
from offaxis.learning.sums import FOLDS, PairSums
from offaxis.randomizers.symbols import SymbolForm
from offaxis.vectors import Vectors

_SIZES: Final = np.logspace(-3, 5, 81)
"""Values of τ² to choose from, relative to the largest variance."""

_ACCURACIES: Final = np.linspace(0, 1, 4001)

LEAST_ANSWERED: Final = 0.05
"""The least share of people with an answer that chances are divided by."""


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
                        Shares(
                            np.rint(named[label]).astype(np.int64),
                            randomizer,
                            names,
                            reports=counts[label],
                        ),
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
            own = found.variance(column)
            if not math.isfinite(own):
                low, high = found.randomizer.levels
                named = getattr(found.randomizer, "named", len(column))
                own = (high - low) ** 2 * named * float(column @ column) / 4
            total += weight**2 * own
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
        for label, weight, found in self.parts[-1]:
            if found.count < 2:  # one report tells no variance: that of a coin is the largest
                low, high = found.randomizer.levels
                noise[:, slice(None) if label is None else label] = (weight * (high - low) / 2) ** 2
        return np.maximum(noise, 1e-300)

    def _least(self) -> Vectors:
        """Return the variance of each entry if nobody has it: none varies less."""
        least = np.zeros((len(self.public), self.classes))
        for label, weight, found in self.parts[-1]:
            low, high = found.randomizer.levels
            column = slice(None) if label is None else label
            least[:, column] = weight**2 * -low * high / int(found.count)
        return least

    def probabilities(self) -> Vectors:
        """Return the probabilities of the classes in each cell, (cells, k).

        The posterior mean of rows that differ from the shares of all people by N(0, τ²I), and of
        these shares, which differ from equal ones likewise (:func:`_shrunk`). They are those of
        people with an answer.
        """
        answered, k = max(self.answered(), LEAST_ANSWERED), self.classes
        table = self.shares() / answered
        everyone = table.sum(axis=0)
        noise = np.maximum(self.noise_of_entries(), self._least()) / answered**2
        overall = 1 / k + _shrunk(everyone[None] - 1 / k, np.array([noise.sum() / k]))
        rows = table / self.public[:, None] - everyone
        return projected(overall + _shrunk(rows, noise.mean(axis=1) / self.public**2))

    def answered(self) -> float:
        """Return the estimated share of people with an answer; 1 if everybody has one."""
        return float(self.shares().sum()) if (self.entries < 0).any() else 1.0

    def evidence(self) -> bool:
        """Return whether the answers differ from equal ones by more than noise explains.

        Σ (f_cj − mean over j)²/Var f_cj has about the law χ² with cells·(k − 1) degrees of freedom,
        if all answers are equally common in every cell. Evidence is three deviations more.
        """
        table = self.shares()
        apart = table - table.mean(axis=1, keepdims=True)
        noise = self.noise_of_entries()
        noise = np.maximum(noise, self._least())
        freedom = apart.size - len(apart)
        if self.counts.sum() < freedom:  # the law is far from χ²
            return False
        return bool((apart**2 / noise).sum() > freedom + 3 * math.sqrt(2 * freedom))

    def accuracy(self, level: float) -> ExpectedAccuracy:
        """Return the cross-fitted accuracy.

        The errors of the folds are independent in cells that all folds name alike. In the others
        they may add up, and are counted as if they did. Where people may have no answer, it is the
        accuracy among those who have one, T/S, with the α for which T − αS may be 0 (Fieller 1954).
        """
        n, table = self.counts.sum(), self.shares()
        folds = [fold for fold, count in enumerate(self.counts) if 1 < count < n]
        if n < LEAST_JUDGED or not folds:
            raise InvalidInput(
                f"there are too few reports to judge a model: at least {LEAST_JUDGED}"
            )
        own = {fold: self.shares(fold) for fold in folds}
        named = {
            fold: _named((n * table - self.counts[fold] * own[fold]) / (n - self.counts[fold]))
            for fold in folds
        }
        settled = np.min([named[fold] for fold in folds], axis=0)
        weights = self.counts[folds] / self.counts[folds].sum()
        right, together = 0.0, 0.0
        for weight, fold in zip(weights, folds, strict=True):
            right += weight * float((own[fold] * named[fold]).sum())
            together += weight * math.sqrt(self.variance(named[fold] - settled, fold))

        def variance(share: float) -> float:
            parts = zip(weights, folds, strict=True)
            return float(sum(w**2 * self.variance(settled - share, fold) for w, fold in parts))

        z = float(ndtri((1 + level) / 2))
        if not (self.entries < 0).any():
            reach = z * (math.sqrt(variance(0.0)) + together)
            low, high = right - reach, right + reach
        else:
            answered = self.answered()
            if answered <= 0:
                raise InvalidInput("too few people have an answer to judge a model")
            # Quadratic in α, so three values tell all.
            three = np.array([0.0, 0.5, 1.0])
            spread = np.polyval(np.polyfit(three, [variance(a) for a in three], 2), _ACCURACIES)
            reaches = z * (np.sqrt(np.maximum(spread, 0)) + together)
            inside = _ACCURACIES[np.abs(right - answered * _ACCURACIES) <= reaches]
            right = right / answered
            low, high = (inside[0], inside[-1]) if inside.size else (right, right)
        return ExpectedAccuracy(
            float(np.clip(right, 0, 1)),
            float(np.clip(low, 0, 1)),
            float(np.clip(high, 0, 1)),
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


def _shrunk(rows: Vectors, variances: Vectors) -> Vectors:
    """Return posterior means of rows N(0, τ²I), seen with noise of the given variances, (n,).

    Averaged over τ, as in :func:`~offaxis.learning.moments.posterior_mean`: zero or of any size.
    """
    k = rows.shape[1]
    taus = np.append(0.0, _SIZES) * variances.max()
    total = taus[:, None] + variances
    squares = (rows * rows).sum(axis=1)
    evidence = -0.5 * (squares / total + k * np.log(total)).sum(axis=1)
    prior = np.append(0.5, np.full(len(_SIZES), 0.5 / len(_SIZES)))
    weights = softmax(evidence + np.log(prior))
    shrunk: Vectors = rows * (weights @ (taus[:, None] / total))[:, None]
    return shrunk


def projected(rows: Vectors) -> Vectors:
    """Return the nearest probabilities to every row."""
    ordered = -np.sort(-rows, axis=1)
    excess = (np.cumsum(ordered, axis=1) - 1) / np.arange(1, rows.shape[1] + 1)
    last = np.count_nonzero(ordered > excess, axis=1) - 1
    positive = np.maximum(rows - excess[np.arange(len(rows)), last][:, None], 0)
    nearest: Vectors = positive / positive.sum(axis=1, keepdims=True)
    return nearest
