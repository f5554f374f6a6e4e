"""Several randomizers over several budgets and settings, plain and reshaped, on one task."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Final

from offaxis.encoding.reshaping import Rank
from offaxis.evaluation.metrics import Evaluation, evaluate
from offaxis.fitting import Shape, fit
from offaxis.geometry import PublicVectors, as_task_model, measure
from offaxis.recipes import recipe

BUDGETS: Final = (0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 7.5, 10.0)
"""The twelve budgets of the paper's tables."""

SHAPES: Final[tuple[Shape, ...]] = ("none", "jacobian")


@dataclass(frozen=True)
class Row:
    """One cell of a sweep; ``lambda_max`` is None where nothing is stretched."""

    randomizer: str
    reshaping: str
    epsilon: float
    evaluation: Evaluation
    percentile: float
    lambda_max: float | None


def sweep(
    model: Any,
    public: Any,
    vectors: Any,
    targets: Any = None,
    *,
    randomizers: Sequence[str],
    epsilons: Sequence[float] = BUDGETS,
    shapes: Sequence[Shape] = SHAPES,
    percentiles: Sequence[float] = (90.0,),
    lambda_maxes: Sequence[float] = (1000.0,),
    gauge: float | None = None,
    rank: Rank = "capped",
    delta: float = 1e-5,
    seeds: int = 20,
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
) -> list[Row]:
    """Evaluate every randomizer at every budget, percentile and cap, plain and reshaped.

    ``lambda_maxes``, ``gauge`` and ``rank`` concern reshaped releases alone. The geometry is
    measured once. ``progress`` is called once a repetition.
    """
    source = PublicVectors(public)
    task = as_task_model(model)
    geometry = measure(task, source)
    rows = []
    for name, shape, epsilon, percentile in product(randomizers, shapes, epsilons, percentiles):
        for cap in lambda_maxes if shape == "jacobian" else (None,):
            stretching: dict[str, Any] = {"lambda_max": cap, "gauge": gauge, "rank": rank}
            release = fit(
                geometry,
                source,
                epsilon=epsilon,
                randomizer=name,
                delta=delta if recipe(name).needs_delta else None,
                reshaping=shape,
                percentile=percentile,
                **({} if cap is None else stretching),
            )
            result = evaluate(
                release, task, vectors, targets, seeds=seeds, seed=seed, progress=progress
            )
            rows.append(Row(name, shape, epsilon, result, percentile, cap))
    return rows
