"""What a model keeps of its answers, as sums over vectors that can be taken in parts and merged."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from offaxis.vectors import Vectors

Scores = dict[str, float]


@dataclass
class Tally:
    """Sums over vectors; what was not asked for stays None.

    Attributes
    ----------
    vectors, numbers : int
        How many vectors, and how many outputs of all of them.
    changed : float
        Squared change of the outputs.
    same, right : int or None
        Vectors with an unchanged answer, and with their label.
    missed : float or None
        Squared error against the targets.
    """

    vectors: int
    numbers: int
    changed: float
    same: int | None = None
    right: int | None = None
    missed: float | None = None

    @classmethod
    def of(cls, outputs: Vectors, clean: Vectors, targets: NDArray[Any] | None) -> Tally:
        """Compare outputs with clean ones, and with labels or real targets if there are any."""
        tally = cls(len(outputs), outputs.size, float(((outputs - clean) ** 2).sum()))
        if clean.shape[1] > 1:
            tally.same = int((outputs.argmax(1) == clean.argmax(1)).sum())
        if targets is not None and targets.dtype.kind in "iu":
            answer = outputs.argmax(1) if outputs.shape[1] > 1 else (outputs[:, 0] > 0).astype(int)
            tally.right = int((answer == targets).sum())
        elif targets is not None:
            tally.missed = float(((outputs - targets.reshape(outputs.shape)) ** 2).sum())
        return tally

    def merge(self, other: Tally) -> None:
        """Add the sums over other vectors."""
        self.vectors += other.vectors
        self.numbers += other.numbers
        self.changed += other.changed
        self.same = _sum(self.same, other.same)
        self.right = _sum(self.right, other.right)
        self.missed = _sum(self.missed, other.missed)

    def scores(self) -> Scores:
        """Return the metrics.

        accuracy : share of vectors whose largest output is their label (integer targets)
        agreement : share of vectors with the same answer as without privacy (several outputs)
        rmse : root mean squared error against the targets (real targets)
        output_rmse : root mean squared change of the outputs caused by the release
        """
        found = {"output_rmse": math.sqrt(self.changed / self.numbers)}
        if self.same is not None:
            found["agreement"] = self.same / self.vectors
        if self.right is not None:
            found["accuracy"] = self.right / self.vectors
        if self.missed is not None:
            found["rmse"] = math.sqrt(self.missed / self.numbers)
        return found


def _sum(one: Any, other: Any) -> Any:
    return None if one is None or other is None else one + other
