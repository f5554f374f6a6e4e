"""The metrics of the studies: scores that add up over blocks of vectors.

Contract: the score of a sample is ``finish`` of the sum of ``add`` over its blocks, however it is
divided. Outputs have vectors along the last axis, (k, n).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from offaxis.vectors import Vectors

Metric = Literal["accuracy", "rmse", "explained", "mean error"]

LARGER_IS_BETTER: Final[dict[Metric, bool]] = {
    "accuracy": True,
    "rmse": False,
    "explained": True,
    "mean error": False,
}


class Score(Protocol):
    """One metric.

    Attributes
    ----------
    of_means : bool
        Whether it scores a mean over people, which the release decodes with its mean decoder.
    """

    of_means: ClassVar[bool]

    @property
    def size(self) -> int:
        """The number of sums it keeps."""
        ...

    def add(self, outputs: Vectors, answers: NDArray[Any]) -> Vectors:
        """Return the contribution of a block, (size,)."""
        ...

    def finish(self, total: Vectors, count: int) -> float:
        """Return the score of ``count`` vectors from their sum."""
        ...


@dataclass(frozen=True)
class Accuracy:
    """The share of vectors whose largest output, the first of equal ones, is the answer (n,)."""

    of_means: ClassVar[bool] = False
    size: ClassVar[int] = 1

    def add(self, outputs: Vectors, answers: NDArray[Any]) -> Vectors:
        """Count right answers."""
        top = outputs.max(axis=0)
        if np.count_nonzero(outputs == top) > top.size:  # a tie
            right = outputs.argmax(axis=0) == answers
        else:
            right = outputs[answers, np.arange(top.size)] == top
        return np.array([float(np.count_nonzero(right))])

    def finish(self, total: Vectors, count: int) -> float:
        """Return the share."""
        return float(total[0] / count)


@dataclass(frozen=True)
class Rmse:
    """The root mean squared difference of the one output and the answers (n,)."""

    of_means: ClassVar[bool] = False
    size: ClassVar[int] = 1

    def add(self, outputs: Vectors, answers: NDArray[Any]) -> Vectors:
        """Add up squared differences."""
        gaps = outputs[0] - answers
        return np.array([float(gaps @ gaps)])

    def finish(self, total: Vectors, count: int) -> float:
        """Return the root of their mean."""
        return float(np.sqrt(total[0] / count))


@dataclass(frozen=True, eq=False)
class Explained:
    """The share of the outputs' variance that is kept, 1 − Σ‖T(ẑ) − T(z)‖² / Σ‖T(z) − T(μ)‖².

    Answers are the outputs T(z) of the vectors themselves, (n, k). For T = Ω^{1/2} it is the
    fidelity of the vectors in the task's metric.

    Attributes
    ----------
    at_mean : (k,) array
        T(μ), the outputs at the public mean.
    """

    of_means: ClassVar[bool] = False
    size: ClassVar[int] = 2

    at_mean: Vectors

    def add(self, outputs: Vectors, answers: NDArray[Any]) -> Vectors:
        """Add up the squared error and the spread."""
        lost, spread = outputs - answers.T, answers - self.at_mean
        return np.array([np.vdot(lost, lost), np.vdot(spread, spread)])

    def finish(self, total: Vectors, count: int) -> float:
        """Return 1 minus the share of the spread that is lost."""
        return float(1 - total[0] / total[1])


@dataclass(frozen=True, eq=False)
class MeanError:
    """The error of a mean, ‖mean of T(ẑ) − mean of T(z)‖² / E‖T(z) − T(μ)‖², for an affine T.

    Answers and ``at_mean`` as in :class:`Explained`.
    """

    of_means: ClassVar[bool] = True

    at_mean: Vectors

    @property
    def size(self) -> int:
        """The coordinates of the summed difference, and the spread."""
        return self.at_mean.size + 1

    def add(self, outputs: Vectors, answers: NDArray[Any]) -> Vectors:
        """Add up differences, which may cancel, and the spread."""
        spread = answers - self.at_mean
        return np.append((outputs - answers.T).sum(axis=1), np.vdot(spread, spread))

    def finish(self, total: Vectors, count: int) -> float:
        """Return the squared length of the mean difference, as a share of the spread."""
        gap = total[:-1] / count
        return float(gap @ gap / (total[-1] / count))


def score_for(metric: Metric, at_mean: Vectors) -> Score:
    """Return a score by its name; ``at_mean`` are the outputs at the public mean, (k,)."""
    match metric:
        case "accuracy":
            return Accuracy()
        case "rmse":
            return Rmse()
        case "explained":
            return Explained(at_mean)
        case "mean error":
            return MeanError(at_mean)
