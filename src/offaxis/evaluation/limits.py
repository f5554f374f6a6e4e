"""What ε allows, beside what was measured: a bound that nothing passes, or a line to compare with.

Contract: a bound holds on average over the noise, for whoever reads the report, and for vectors
whose answers follow the law of those it was computed from. It speaks of pure ε alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from offaxis.evaluation.metrics import scores
from offaxis.geometry import TaskModel
from offaxis.privacy.guarantee import Guarantee
from offaxis.recipes.scalar_channel import LARGEST_EPSILON, least_rmse, refined_channel
from offaxis.theory.ceiling import agreement_ceiling, answer_prior, reference_line
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
