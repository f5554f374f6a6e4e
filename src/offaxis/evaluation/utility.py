"""What a release is worth for a goal, on public vectors it was not fitted to."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import numpy as np

from offaxis.geometry import TaskModel
from offaxis.release import Release
from offaxis.vectors import Vectors

Goal = Literal["answers", "fidelity", "mean"]
"""The model's answer of each vector; the vector itself in the task's metric; a mean over people."""

_REPETITIONS: Final = 4


@dataclass(frozen=True)
class Utility:
    """A score, larger is better, with its standard error over vectors.

    answers : share of reports with the model's own answer, or the share of the answer's variance
    that is explained where there is one output.
    fidelity : share of the variance explained in the task's metric, 1 − E‖ẑ − z‖²_Ω / E‖z − μ‖²_Ω.
    mean : minus the expected squared error of a mean over people, in the task's metric, as a share
    of E‖z − μ‖²_Ω.
    """

    score: float
    error: float

    def interval(self, deviations: float = 2.0) -> tuple[float, float]:
        """Return the score less and plus so many standard errors."""
        return self.score - deviations * self.error, self.score + deviations * self.error


@dataclass(frozen=True, eq=False)
class Judge:
    """Scores releases on held-out public vectors.

    Attributes
    ----------
    task : TaskModel
    gram : (m, m) array
        Ω̂ of the task on public vectors.
    mean : (m,) array
        The public mean.
    goal : {"answers", "fidelity", "mean"}
    people : int
        Number of people a mean is taken over.
    """

    task: TaskModel
    gram: Vectors
    mean: Vectors
    goal: Goal
    people: int = 1

    def __call__(self, release: Release, vectors: Vectors, seed: int = 0) -> Utility:
        """Simulate reports of the vectors and score what a receiver makes of them."""
        if self.goal == "mean":
            return self._mean(release, vectors, seed)
        repeated = np.tile(vectors, (_REPETITIONS, 1))
        decoded = release.simulate(repeated, np.random.default_rng([seed, len(vectors)]))
        if self.goal == "fidelity":
            lost = self._squared(decoded - repeated)
            return self._explained(lost, self._squared(repeated - self.mean))
        clean, answered = self.task.outputs(vectors), self.task.outputs(decoded)
        if clean.shape[1] == 1:
            lost = (answered - np.tile(clean, (_REPETITIONS, 1)))[:, 0] ** 2
            usual = self.task.outputs(self.mean[None])[0, 0]
            return self._explained(lost, np.tile((clean[:, 0] - usual) ** 2, _REPETITIONS))
        same = answered.argmax(axis=1) == np.tile(clean.argmax(axis=1), _REPETITIONS)
        per_vector = same.reshape(_REPETITIONS, -1).mean(axis=0)
        return Utility(float(per_vector.mean()), _standard_error(per_vector))

    def _squared(self, moves: Vectors) -> Vectors:
        squared: Vectors = np.einsum("ij,ij->i", moves @ self.gram, moves)
        return squared

    def _explained(self, lost: Vectors, spread: Vectors) -> Utility:
        """Return 1 − mean(lost)/mean(spread), with the error of the ratio."""
        lost, spread = (part.reshape(_REPETITIONS, -1).mean(axis=0) for part in (lost, spread))
        ratio = lost.mean() / spread.mean()
        error = _standard_error(lost - ratio * spread) / spread.mean()
        return Utility(float(1 - ratio), float(error))

    def _mean(self, release: Release, vectors: Vectors, seed: int) -> Utility:
        """Return minus (squared bias + variance / people), in the task's metric."""
        means: Any = replace(release, decoder=release.decoder_of_means, mean_decoder=None)
        rounds = [
            means.simulate(vectors, np.random.default_rng([seed, index])) - vectors
            for index in range(_REPETITIONS)
        ]
        moves = np.stack(rounds)
        centre = moves.mean(axis=0)
        variance = self._squared((moves - centre).reshape(-1, vectors.shape[1]))
        variance = variance.reshape(_REPETITIONS, -1).sum(axis=0) / (_REPETITIONS - 1)
        bias = moves.mean(axis=(0, 1))
        # The square of an estimated bias is too large by its own variance.
        noise = variance.mean() / (_REPETITIONS * len(vectors))
        squared_bias = max(0.0, float(bias @ self.gram @ bias) - noise)
        spread = float(self._squared(vectors - self.mean).mean())
        error = _standard_error(variance) / self.people / spread
        return Utility(-(squared_bias + float(variance.mean()) / self.people) / spread, error)


def _standard_error(values: Vectors) -> float:
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0
