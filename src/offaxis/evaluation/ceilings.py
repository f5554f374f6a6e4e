"""What no ε-LDP report passes, for every goal and every task.

Contract: a ceiling holds for any report of the budget, of any form and size, and whoever reads it,
for people distributed as the public vectors. For answers of one number it is tested, not proved
(:mod:`offaxis.recipes.scalar_channel`); for means it speaks of unbiased reports. It is computed
from public vectors, so an estimate on other vectors may come out a little above it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np

from offaxis.evaluation.public_side import PublicSide
from offaxis.evaluation.utility import Goal
from offaxis.geometry import Geometry
from offaxis.theory.ceiling import agreement_ceiling, answer_prior
from offaxis.theory.limits import (
    fidelity_ceiling,
    least_mean_error,
    scalar_ceiling,
    task_spectrum,
)
from offaxis.vectors import Vectors

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
