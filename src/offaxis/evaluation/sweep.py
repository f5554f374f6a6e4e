"""Several randomizers over several budgets and settings, plain and reshaped, on one task."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Final, NamedTuple

from offaxis.encoding.reshaping import Rank
from offaxis.evaluation.metrics import Evaluation, evaluate
from offaxis.fitting import fit
from offaxis.geometry import PublicVectors, as_task_model, measure
from offaxis.recipes import recipe
from offaxis.recipes.gathering import Shape
from offaxis.release import Release

BUDGETS: Final = (0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 7.5, 10.0)
"""The twelve budgets of the paper's tables."""

SHAPES: Final[tuple[Shape, ...]] = ("none", "jacobian")


@dataclass(frozen=True)
class Row:
    """One cell of a sweep; ``lambda_max`` is None where nothing is stretched.

    Examples
    --------
    >>> from offaxis.evaluation import Row, evaluate, sweep
    >>> rng = np.random.default_rng(0)
    >>> task, public = rng.standard_normal((3, 4)), rng.standard_normal((200, 4))
    >>> (row,) = sweep(
    ...     task, public, public, seeds=2, randomizers=["laplace"], epsilons=[4.0], shapes=["none"]
    ... )
    >>> isinstance(row, Row), row.randomizer, row.reshaping, row.epsilon, row.lambda_max
    (True, 'laplace', 'none', 4.0, None)
    """

    randomizer: str
    reshaping: str
    epsilon: float
    evaluation: Evaluation
    percentile: float
    lambda_max: float | None


class Fitted(NamedTuple):
    """The release of one cell, with its settings."""

    release: Release
    settings: dict[str, Any]

    def row(self, evaluation: Evaluation) -> Row:
        """Return the cell with its scores."""
        return Row(evaluation=evaluation, **self.settings)


def fit_cells(
    model: Any,
    public: Any,
    *,
    randomizers: Sequence[str],
    epsilons: Sequence[float] = BUDGETS,
    shapes: Sequence[Shape] = SHAPES,
    percentiles: Sequence[float] = (90.0,),
    lambda_maxes: Sequence[float] = (1000.0,),
    gauge: float | None = None,
    rank: Rank = "capped",
    delta: float = 1e-5,
) -> Iterator[Fitted]:
    """Fit every randomizer at every budget, percentile and cap, plain and reshaped.

    ``lambda_maxes``, ``gauge`` and ``rank`` concern reshaped releases alone. The geometry is
    measured once.
    """
    source = PublicVectors(public)
    geometry = measure(as_task_model(model), source)
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
            cell = {"randomizer": name, "reshaping": shape, "epsilon": epsilon}
            yield Fitted(release, cell | {"percentile": percentile, "lambda_max": cap})


def sweep(
    model: Any,
    public: Any,
    vectors: Any,
    targets: Any = None,
    *,
    seeds: int = 20,
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
    **grid: Any,
) -> list[Row]:
    """Evaluate every cell of a grid of settings, as :func:`fit_cells` takes it.

    ``progress`` is called once a repetition.

    Examples
    --------
    >>> from offaxis.evaluation import sweep
    >>> rng = np.random.default_rng(0)
    >>> task, public = rng.standard_normal((3, 4)), rng.standard_normal((200, 4))
    >>> rows = sweep(task, public, public, seeds=3, randomizers=["laplace"], epsilons=[2.0, 8.0])
    >>> [(row.reshaping, row.epsilon) for row in rows]
    [('none', 2.0), ('none', 8.0), ('jacobian', 2.0), ('jacobian', 8.0)]
    >>> rows[1].evaluation.mean("output_rmse") < rows[0].evaluation.mean("output_rmse")
    True
    """
    task = as_task_model(model)
    return [
        cell.row(
            evaluate(
                cell.release, task, vectors, targets, seeds=seeds, seed=seed, progress=progress
            )
        )
        for cell in fit_cells(task, public, **grid)
    ]
