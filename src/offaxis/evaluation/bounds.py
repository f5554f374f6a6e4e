"""What ε allows, to compare with what was measured: bounds and one reference line.

Contract: a bound holds for every report of pure ε, of any form and size, and for every reader of
it; on average over the noise and over vectors whose answers follow the law of the public vectors it
was computed from. For means it holds for unbiased reports. For people from whom the public vectors
are a sample it is a plug-in estimate that tends to allow too much (docs/theory.md). An estimate on
other vectors may come out a little above it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Literal

import numpy as np

from offaxis.evaluation.metrics import scores
from offaxis.evaluation.utility import MeasuredTasks
from offaxis.geometry import Geometry, TaskModel
from offaxis.geometry.models import answer_names
from offaxis.mechanisms.answers import check_complete
from offaxis.mechanisms.base import Goal
from offaxis.mechanisms.scalar_channel import LARGEST_EPSILON
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
from offaxis.theory.scalar_limit import least_scalar_error
from offaxis.vectors import Vectors

Kind = Literal["at most", "at least", "line"]

MEANINGS: Final[dict[Kind, str]] = {
    "at most": "a bound: no report of this ε, of any form, lets anyone guess the model's answer "
    "more often, on average over answers like these; a plug-in estimate from these vectors, which "
    "tends to be too high",
    "at least": "a bound: no report of this ε leaves a smaller error of the model's answer, on "
    "average over answers like these; a plug-in estimate from these vectors, which tends to be "
    "too low",
    "line": "a line, not a bound: the accuracy of the model's answer when it is sent by "
    "randomized response; a better model exceeds it",
}
"""The meaning of each kind in one sentence."""

_PRECISION: Final = 1e-3


# ---- Values to compare with a metric


@dataclass(frozen=True)
class ReferenceValue:
    """A value to compare with a metric: an upper bound, a lower bound, or a line, which is neither.

    ``MEANINGS[kind]`` states the meaning.
    """

    kind: Kind
    value: float


def limits(
    task: TaskModel, vectors: Vectors, labels: Any, guarantee: Guarantee
) -> dict[str, ReferenceValue]:
    """Return what ε allows, by metric; metrics without a known limit are missing.

    agreement : the ceiling over all reports (several outputs)
    accuracy : the line of randomized response on the model's answer (labels)
    output_rmse : the least error of the model's answer (one output)

    Parameters
    ----------
    vectors : (n, m) array
        The public vectors that are measured: the bounds hold for the law of their answers.
    labels : (n,) integer array, or anything else for none
    guarantee : Guarantee
        Bounds are left out unless it is pure.
    """
    epsilon, clean = guarantee.epsilon, task.outputs(vectors)
    classes = max(clean.shape[1], 2)
    values: dict[str, ReferenceValue] = {}
    if labels is not None and np.asarray(labels).dtype.kind in "iu":
        accuracy = scores(clean, clean, np.asarray(labels))["accuracy"]
        values["accuracy"] = ReferenceValue("line", reference_line(accuracy, classes, epsilon))
    if not guarantee.pure:
        return values
    if clean.shape[1] > 1:
        ceiling = agreement_ceiling(answer_prior(task, vectors), epsilon)
        values["agreement"] = ReferenceValue("at most", ceiling.probability)
    elif epsilon <= LARGEST_EPSILON:
        least = least_scalar_error(clean[:, 0], epsilon)
        values["output_rmse"] = ReferenceValue("at least", least)
    return values


# ---- Ceilings of every goal and task


@dataclass(frozen=True, eq=False)
class Ceilings:
    """Upper bounds on the utility of any ε-LDP report, for tasks on public vectors.

    For the people from whom the vectors are a sample they are plug-in estimates that tend to be too
    high (docs/theory.md).

    Attributes
    ----------
    measured : MeasuredTasks
    goal : {"answers", "vectors", "means"}
    people : int
        Number of people in a mean.
    """

    measured: MeasuredTasks
    goal: Goal
    people: int

    def by_task(self, epsilon: Any) -> dict[str, float]:
        """Return the ceiling of every task alone."""
        if self.goal == "answers":
            return {name: self._of_answers(name, epsilon) for name in self.measured.outputs}
        return {name: self._of_vectors(part, epsilon) for name, part in self._spectra.items()}

    def __call__(self, epsilon: Any) -> float:
        """Return the ceiling of all tasks: the weighted mean, or the joint one if it is lower."""
        weights = self.measured.tasks.weights
        mean = sum(weights[name] * ceiling for name, ceiling in self.by_task(epsilon).items())
        if self.goal == "answers":
            return mean
        return min(mean, self._of_vectors(self._joint_spectrum, epsilon))

    def least_epsilon(self, target: float, max_epsilon: float) -> float | None:
        """Return the smallest budget, to 0.001, whose ceiling reaches the target.

        No report of a smaller budget reaches it, for people with the law of the public vectors.
        None if the ceiling at ``max_epsilon`` is below.
        """
        if self(max_epsilon) < target:
            return None
        low, high = 0.0, max_epsilon
        while high - low > _PRECISION:
            middle = (low + high) / 2
            low, high = (low, middle) if self(middle) >= target else (middle, high)
        return low if low > 0 else high

    @cached_property
    def _answers(self) -> dict[str, Vectors]:
        """Shares of the answers of a task (k,), or its outputs (n, 1) where there is one."""
        models, vectors = self.measured.tasks.models, self.measured.vectors
        return {
            name: answer_prior(models[name], vectors) if k > 1 else models[name].outputs(vectors)
            for name, k in self.measured.outputs.items()
        }

    def check_answers(self) -> None:
        """Raise if some answer of a task occurs for no public vector."""
        for name, shares in self._answers.items():
            if shares.ndim == 1:
                check_complete(shares, answer_names(self.measured.tasks.models[name]))

    def _of_answers(self, name: str, epsilon: Any) -> float:
        answers = self._answers[name]
        if answers.ndim == 1:
            return agreement_ceiling(answers, epsilon).probability
        return scalar_ceiling(answers[:, 0], epsilon)

    @cached_property
    def _spectra(self) -> dict[str, Vectors]:
        return {name: _spectrum(part) for name, part in self.measured.geometries.items()}

    @cached_property
    def _joint_spectrum(self) -> Vectors:
        return _spectrum(self.measured.geometry)

    def _of_vectors(self, spectrum: Vectors, epsilon: Any) -> float:
        if self.goal == "vectors":
            return fidelity_ceiling(spectrum, epsilon)
        return -least_mean_error(spectrum, epsilon) / self.people


def _spectrum(geometry: Geometry) -> Vectors:
    """Return λ without the eigenvalues that are rounding errors."""
    values = task_spectrum(geometry.gram, geometry.covariance)
    significant: Vectors = values[values > values[0] * values.size * np.finfo(float).eps]
    return significant
