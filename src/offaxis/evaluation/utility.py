"""What a release is worth for a goal, on public vectors it was not fitted to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from offaxis.evaluation.clipping import without_noise
from offaxis.geometry import TaskModel
from offaxis.release import Release
from offaxis.vectors import Vectors

Goal = Literal["answers", "fidelity", "mean"]
"""The model's answer of each vector; the vector itself in the task's metric; a mean over people."""

_REPETITIONS: Final = 4
_DEVIATIONS: Final = 3.0
"""Standard errors on either side that an interval has: all but 0.3 % of estimates lie within."""


@dataclass(frozen=True)
class Utility:
    """A score, larger is better, with its standard error over vectors.

    answers : share of reports with the model's own answer, or the share of the answer's variance
    that is explained where there is one output.
    fidelity : share of the variance explained in the task's metric, 1 − E‖ẑ − z‖²_Ω / E‖z − μ‖²_Ω.
    mean : minus the expected squared error of a mean over people, in the task's metric, as a share
    of E‖z − μ‖²_Ω; people may be like either half of the public vectors.
    """

    score: float
    error: float

    def interval(self, deviations: float = _DEVIATIONS) -> tuple[float, float]:
        """Return the score less and plus so many standard errors."""
        return self.score - deviations * self.error, self.score + deviations * self.error


@dataclass(frozen=True, eq=False)
class Measured:
    """A score, and how much every vector moves it: their spread is the score's error."""

    score: float
    moves: Vectors

    @property
    def utility(self) -> Utility:
        """The score with its standard error over vectors."""
        n = len(self.moves)
        return Utility(self.score, float(self.moves.std(ddof=1) / np.sqrt(n)) if n > 1 else 0.0)


def weighted(parts: Sequence[Measured], weights: Sequence[float]) -> Measured:
    """Return the weighted mean of scores on the same vectors."""
    score = float(np.dot(weights, [part.score for part in parts]))
    moves = [weight * part.moves for weight, part in zip(weights, parts, strict=True)]
    return Measured(score, np.sum(moves, axis=0))


@dataclass(frozen=True, eq=False)
class Judge:
    """Scores releases for one task on held-out public vectors.

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
        return Panel({"": self}, {"": 1.0})(release, vectors, seed).utility

    def answers(self, vectors: Vectors, decoded: Vectors) -> Measured:
        """Score decoded vectors, some rounds of each, by the model's answers."""
        clean, answered = self.task.outputs(vectors), self.task.outputs(decoded)
        rounds = len(decoded) // len(vectors)
        if clean.shape[1] == 1:
            lost = (answered - np.tile(clean, (rounds, 1)))[:, 0] ** 2
            usual = self.task.outputs(self.mean[None])[0, 0]
            return _explained(lost, (clean[:, 0] - usual) ** 2)
        same = answered.argmax(axis=1) == np.tile(clean.argmax(axis=1), rounds)
        each = same.reshape(rounds, -1).mean(axis=0)
        return Measured(float(each.mean()), each)

    def fidelity(self, vectors: Vectors, decoded: Vectors) -> Measured:
        """Score decoded vectors, some rounds of each, by their error in the task's metric."""
        lost = self._squared(decoded - np.tile(vectors, (len(decoded) // len(vectors), 1)))
        return _explained(lost, self._squared(vectors - self.mean))

    def error_of_means(
        self, vectors: Vectors, kept: Vectors, decoded: Vectors, above: NDArray[np.bool_]
    ) -> Measured:
        """Return minus ‖bias‖² + variance / people, in the task's metric.

        ``kept`` is what reports tend to: their mean over the noise, known exactly. So the bias has
        no noise in it, and its square, which sampling makes too large rather than too small, is
        left as it is: a bias that is overlooked is all that counts when people are many.

        Who asks for a mean does not take people for the public: ``above``, (s, n), halves the
        vectors in s ways, and the squared bias is the average of those of the halves.
        """
        rounds = len(decoded) // len(vectors)
        off = kept - vectors
        noise = self._squared(decoded - np.tile(kept, (rounds, 1))).reshape(rounds, -1)
        variance = noise.mean(axis=0) + self._squared(off - off.mean(axis=0))
        squared, pull = 0.0, np.zeros_like(off)
        for half in (part for split in above for part in (split, ~split) if part.any()):
            bias = off[half].mean(axis=0)
            squared += float(bias @ self.gram @ bias) * half.mean() / len(above)
            pull[half] += self.gram @ bias / len(above)
        spread = float(self._squared(vectors - self.mean).mean())
        moves = 2 * np.einsum("ij,ij->i", off, pull) + variance / self.people
        return Measured(-(squared + float(variance.mean()) / self.people) / spread, -moves / spread)

    def _squared(self, moves: Vectors) -> Vectors:
        squared: Vectors = np.einsum("ij,ij->i", moves @ self.gram, moves)
        return squared


def _explained(lost: Vectors, spread: Vectors) -> Measured:
    """Return 1 − mean(lost)/mean(spread); lost has some rounds of every vector."""
    lost = lost.reshape(-1, len(spread)).mean(axis=0)
    scale = spread.mean()
    ratio = lost.mean() / scale
    return Measured(float(1 - ratio), (ratio * spread - lost) / scale)


@dataclass(frozen=True, eq=False)
class Verdict:
    """What the same simulated reports are worth.

    Attributes
    ----------
    utility : Utility
        For the goal, the weighted mean over tasks.
    each : mapping of Utility
        For the goal, task by task.
    answers, fidelity : Utility or None
        For both of these goals, over all tasks; None where the goal is a mean.
    """

    utility: Utility
    each: Mapping[str, Utility]
    answers: Utility | None = None
    fidelity: Utility | None = None


@dataclass(frozen=True, eq=False)
class Panel:
    """Judges of one or several tasks, all on the same simulated reports.

    Attributes
    ----------
    judges : mapping of Judge
        By task; all with the same goal.
    weights : mapping of float
        Importance of every task; the sum is one.
    directions : (s, m) array, optional
        Vectors on either side of their median along each are judged apart, for means.
    """

    judges: Mapping[str, Judge]
    weights: Mapping[str, float]
    directions: Vectors | None = None

    @property
    def goal(self) -> Goal:
        """What the judges look at."""
        return next(iter(self.judges.values())).goal

    def __call__(self, release: Release, vectors: Vectors, seed: int = 0) -> Verdict:
        """Simulate reports of the vectors, a few of each, and score them for every task."""
        weights = [self.weights[name] for name in self.judges]
        if self.goal == "mean":
            means: Any = replace(release, decoder=release.decoder_of_means, mean_decoder=None)
            kept, decoded = without_noise(release, vectors), _simulated(means, vectors, seed)
            judges, above = self.judges.values(), self._halves(vectors)
            errors = [judge.error_of_means(vectors, kept, decoded, above) for judge in judges]
            named = dict(zip(self.judges, (part.utility for part in errors), strict=True))
            return Verdict(weighted(errors, weights).utility, named)
        decoded = _simulated(release, vectors, seed)
        answers = [judge.answers(vectors, decoded) for judge in self.judges.values()]
        fidelity = [judge.fidelity(vectors, decoded) for judge in self.judges.values()]
        both = [weighted(parts, weights).utility for parts in (answers, fidelity)]
        asked = answers if self.goal == "answers" else fidelity
        each = dict(zip(self.judges, (part.utility for part in asked), strict=True))
        return Verdict(both[0] if self.goal == "answers" else both[1], each, *both)

    def _halves(self, vectors: Vectors) -> NDArray[np.bool_]:
        """Return on which side of the median vectors are, (s, n); all on one without directions."""
        if self.directions is None:
            return np.ones((1, len(vectors)), dtype=bool)
        along = self.directions @ vectors.T
        halves: NDArray[np.bool_] = along > np.median(along, axis=1, keepdims=True)
        return halves


def _simulated(release: Release, vectors: Vectors, seed: int) -> Vectors:
    """Return decoded simulated reports, a few rounds one below the other."""
    repeated = np.tile(vectors, (_REPETITIONS, 1))
    return release.simulate(repeated, np.random.default_rng([seed, len(vectors)]))
