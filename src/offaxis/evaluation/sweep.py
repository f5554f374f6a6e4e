"""Several randomizers over several budgets, plain and reshaped, on one task."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from offaxis.evaluation.metrics import Evaluation, evaluate
from offaxis.fitting import Shape, fit
from offaxis.geometry import PublicVectors, as_task_model, measure

BUDGETS: Final = (0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 7.5, 10.0)
"""The twelve budgets of the paper's tables."""

SHAPES: Final[tuple[Shape, ...]] = ("none", "jacobian")


@dataclass(frozen=True)
class Row:
    """One cell of a sweep."""

    randomizer: str
    reshaping: str
    epsilon: float
    evaluation: Evaluation


def sweep(
    model: Any,
    public: Any,
    vectors: Any,
    targets: Any = None,
    *,
    randomizers: Sequence[str],
    epsilons: Sequence[float] = BUDGETS,
    shapes: Sequence[Shape] = SHAPES,
    delta: float = 1e-5,
    seeds: int = 20,
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
    **settings: Any,
) -> list[Row]:
    """Evaluate every randomizer at every budget, plain and reshaped.

    ``settings`` go to :func:`offaxis.fit` for the reshaped releases. The geometry is measured
    once. ``progress`` is called once a repetition.
    """
    source = PublicVectors(public)
    task = as_task_model(model)
    geometry = measure(task, source)
    rows = []
    for name in randomizers:
        for shape in shapes:
            for epsilon in epsilons:
                release = fit(
                    geometry,
                    source,
                    epsilon=epsilon,
                    randomizer=name,
                    delta=delta if name == "gaussian" else None,
                    reshaping=shape,
                    **(settings if shape == "jacobian" else {}),
                )
                result = evaluate(
                    release, task, vectors, targets, seeds=seeds, seed=seed, progress=progress
                )
                rows.append(Row(name, shape, epsilon, result))
    return rows
