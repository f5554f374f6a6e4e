"""What ε allows, beside what was measured: a bound that nothing passes, or a line to compare with.

Contract: a bound holds on average over the noise, for whoever reads the report, and for vectors
whose answers follow the law of those it was computed from. It speaks of pure ε alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Literal

import numpy as np

from offaxis.evaluation.metrics import scores
from offaxis.evaluation.utility import Goal, PublicSide
from offaxis.geometry import Geometry, TaskModel
from offaxis.mechanisms.scalar_channel import LARGEST_EPSILON, least_rmse, refined_channel
from offaxis.privacy.guarantee import Guarantee
from offaxis.theory.ceilings import (
    agreement_ceiling,
    answer_prior,
    fidelity_ceiling,
    least_mean_error,
    reference_line,
    scalar_ceiling,
    task_spectrum,
)
from offaxis.vectors import Vectors

Kind = Literal["at most", "at least", "line"]

MEANINGS: Final[dict[Kind, str]] = {
    "at most": "a bound: from no report of this ε, of whatever form, is the model's answer guessed "
    "more often, on average over answers like these",
    "at least": "a bound: no report of this ε leaves a smaller error of the model's answer, on "
    "average over answers like these (tested, not proved)",
    "line": "a line, not a bound: how often the model's answer is right when it is sent by "
    "randomized response; a better model passes it",
}
"""Every kind of limit in a sentence."""

_MOST_ATOMS: Final = 1000
"""Distinct answers that are taken one by one; more are put into bins."""


@dataclass(frozen=True)
class Yardstick:
    """A number beside a measure, and what it is: at most, at least, or a line that bounds nothing.

    Its meaning in words is ``MEANINGS[kind]``.
    """

    kind: Kind
    value: float


def limits(
    task: TaskModel, vectors: Vectors, labels: Any, guarantee: Guarantee
) -> dict[str, Yardstick]:
    """Return what ε allows, by measure; a measure without a known limit is missing.

    agreement : the ceiling over all reports (several outputs)
    accuracy : the line of randomized response on the model's answer (labels)
    output_rmse : the least error of the model's answer (one output)

    Parameters
    ----------
    vectors : (n, m) array
        Public vectors, those that are measured: their answers are the law behind a bound.
    labels : (n,) integer array, or anything else for none
    guarantee : Guarantee
        Bounds are left out unless it is pure.
    """
    epsilon, clean = guarantee.epsilon, task.outputs(vectors)
    classes = max(clean.shape[1], 2)
    found: dict[str, Yardstick] = {}
    if labels is not None and np.asarray(labels).dtype.kind in "iu":
        right = scores(clean, clean, np.asarray(labels))["accuracy"]
        found["accuracy"] = Yardstick("line", reference_line(right, classes, epsilon))
    if not guarantee.pure:
        return found
    if clean.shape[1] > 1:
        ceiling = agreement_ceiling(answer_prior(task, vectors), epsilon)
        found["agreement"] = Yardstick("at most", ceiling.probability)
    elif epsilon <= LARGEST_EPSILON:
        found["output_rmse"] = Yardstick("at least", _least_error(clean[:, 0], epsilon))
    return found


def _least_error(answers: Vectors, epsilon: Any) -> float:
    """Return the least root mean squared error of answers like these; of many, to 1 %."""
    values, counts = np.unique(answers, return_counts=True)
    if values.size <= _MOST_ATOMS:
        return least_rmse(values, counts, epsilon)
    return refined_channel(answers, epsilon).rmse


# ----------------------------------------------------------------------------
# What no ε-LDP report passes, for every goal and every task.
#
# Contract: a ceiling holds for any report of the budget, of any form and size, and whoever reads
# it, for people distributed as the public vectors. For answers of one number it is tested, not
# proved (:mod:`offaxis.mechanisms.scalar_channel`); for means it speaks of unbiased reports. It is
# computed from public vectors, so an estimate on other vectors may come out a little above it.

_LARGEST_EPSILON: Final = 100.0
"""From here on a number can be told as well as without privacy."""

_PRECISION: Final = 1e-3


@dataclass(frozen=True, eq=False)
class Ceilings:
    """The ceilings of tasks on public vectors, at any budget.

    Attributes
    ----------
    side : PublicSide
    goal : {"answers", "fidelity", "mean"}
    people : int
        Number of people a mean is taken over.
    """

    side: PublicSide
    goal: Goal
    people: int

    def each(self, epsilon: Any) -> dict[str, float]:
        """Return the ceiling of every task alone."""
        if self.goal == "answers":
            return {name: self._answers(name, epsilon) for name in self.side.geometries}
        return {name: self._vector(found, epsilon) for name, found in self._spectra.items()}

    def __call__(self, epsilon: Any) -> float:
        """Return the ceiling of all tasks together: their weighted mean, or a lower one."""
        weights = self.side.tasks.weights
        mean = sum(weights[name] * top for name, top in self.each(epsilon).items())
        return mean if self.goal == "answers" else min(mean, self._vector(self._joint, epsilon))

    def least_epsilon(self, wanted: float, most: float) -> float | None:
        """Return the smallest budget, to 0.001, whose ceiling reaches ``wanted``.

        None if not even ``most`` does. Below it nobody reaches what is wanted.
        """
        if self(most) < wanted:
            return None
        low, high = 0.0, most
        while high - low > _PRECISION:
            middle = (low + high) / 2
            low, high = (low, middle) if self(middle) >= wanted else (middle, high)
        return low if low > 0 else high

    @cached_property
    def _known(self) -> dict[str, Vectors]:
        """Shares of the answers of every task, or its numbers."""
        models, vectors = self.side.tasks.models, self.side.vectors
        return {
            name: answer_prior(models[name], vectors) if k > 1 else models[name].outputs(vectors)
            for name, k in self.side.outputs.items()
        }

    def _answers(self, name: str, epsilon: Any) -> float:
        known = self._known[name]
        if known.ndim == 1:
            return agreement_ceiling(known, epsilon).probability
        return 1.0 if epsilon >= _LARGEST_EPSILON else scalar_ceiling(known[:, 0], epsilon)

    @cached_property
    def _spectra(self) -> dict[str, Vectors]:
        return {name: _spectrum(part) for name, part in self.side.geometries.items()}

    @cached_property
    def _joint(self) -> Vectors:
        return _spectrum(self.side.geometry)

    def _vector(self, spectrum: Vectors, epsilon: Any) -> float:
        if self.goal == "fidelity":
            return fidelity_ceiling(spectrum, epsilon)
        return -least_mean_error(spectrum, epsilon) / self.people


def _spectrum(geometry: Geometry) -> Vectors:
    """Return λ without what is but rounding."""
    found = task_spectrum(geometry.gram, geometry.covariance)
    kept: Vectors = found[found > found[0] * found.size * np.finfo(float).eps]
    return kept
