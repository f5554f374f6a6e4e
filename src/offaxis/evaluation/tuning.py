"""How many directions to send, and how large a ball: chosen and judged on public vectors alone.

Contract: the public vectors are split at random in three. Releases are fitted to the first part and
compared on the second; the third, which had no say in the choice, tells what the chosen one is
worth. The estimate is therefore not too good, unlike the best score of the comparison. The release
that is returned is fitted to all public vectors with the chosen settings. No private vector is
looked at, so nothing here costs budget.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Final, Literal, get_args

import numpy as np

from offaxis.encoding import active_directions
from offaxis.errors import InvalidInput
from offaxis.evaluation.splits import Split
from offaxis.fitting import fit
from offaxis.geometry import Geometry, PublicVectors, TaskModel, as_task_model, measure
from offaxis.privacy.guarantee import Unit
from offaxis.recipes import recipe
from offaxis.release import Release
from offaxis.vectors import Vectors, as_integer

TuningMetric = Literal["agreement", "output_rmse"]

_EVERY_RANK: Final = 10
"""Up to here every number of directions is tried, and above only 12, 16, 24, 32, 48 …"""


@dataclass(frozen=True)
class Trial:
    """One candidate, and its score on the vectors that compare.

    ``error`` is the standard error of ``score`` over vectors.

    Examples
    --------
    >>> from offaxis.evaluation import Trial
    >>> Trial(active=2, percentile=90.0, score=0.81, error=0.02).active
    2
    """

    active: int
    percentile: float
    score: float
    error: float


@dataclass(frozen=True, eq=False)
class Tuned:
    """A release with chosen settings, and what it is worth.

    Attributes
    ----------
    release : Release
        Fitted to all public vectors.
    active, percentile
        What was chosen.
    metric : {"agreement", "output_rmse"}
        The share of unchanged answers, or the root mean squared change of the outputs.
    estimate, error : float
        The metric on public vectors that were neither fitted to nor chosen by, and its standard
        error over vectors.
    trials : tuple of Trial
        Everything that was tried, in order.

    Examples
    --------
    >>> from offaxis.evaluation import Tuned, tune
    >>> rng = np.random.default_rng(0)
    >>> task, public = rng.standard_normal((3, 4)), rng.standard_normal((200, 4))
    >>> tuned = tune(task, public, epsilon=4, ranks=[1, 2], percentiles=[90.0], seeds=1)
    >>> isinstance(tuned, Tuned), tuned.metric, len(tuned.trials)
    (True, 'agreement', 2)
    >>> tuned.release.encoder.output_dim == tuned.active
    True
    """

    release: Release
    active: int
    percentile: float
    metric: TuningMetric
    estimate: float
    error: float
    trials: tuple[Trial, ...]


def tune(
    model: Any,
    public: Any,
    *,
    epsilon: Any,
    randomizer: str = "privunit2",
    delta: Any = None,
    unit: Unit = "item",
    ranks: Sequence[int] | None = None,
    percentiles: Sequence[float] = (50.0, 70.0, 90.0),
    metric: TuningMetric | None = None,
    seeds: int = 3,
    seed: int = 0,
    statement: str = "",
    progress: Callable[[int, int], None] | None = None,
) -> Tuned:
    """Fit the optimal reshaping with the number of directions and the radius that serve best.

    Deterministic: the same public vectors and seed give the same release.

    Parameters
    ----------
    model : as in :func:`offaxis.fit`, but not a Geometry
        For a task whose answer is its largest output, ``CentredOutputs(model)``.
    public, epsilon, randomizer, delta, unit, statement
        As in :func:`offaxis.fit`; at least 50 vectors, and no codebook.
    ranks : sequence of int, optional
        Numbers of directions to try; by default all up to 10, and fewer and fewer above.
    percentiles : sequence of float
        Percentiles of the encoded norms to try as the radius.
    metric : {"agreement", "output_rmse"}, optional
        What to choose by; by default agreement, and the error of the output if there is one only.
    seeds : int
        Simulated reports a vector.
    seed : int
        Of the split and of the simulation; public.
    progress : callable, optional
        Called after every candidate with the number done and the number of all.

    Examples
    --------
    >>> from offaxis.evaluation import tune
    >>> rng = np.random.default_rng(0)
    >>> task, public = rng.standard_normal((3, 4)), rng.standard_normal((200, 4))
    >>> tuned = tune(task, public, epsilon=4, randomizer="laplace", ranks=[1, 3], seeds=1)
    >>> tuned.active in (1, 3), tuned.percentile in (50.0, 70.0, 90.0)
    (True, True)
    >>> 0 <= tuned.estimate <= 1 and tuned.error < 0.1
    True
    """
    chosen = recipe(randomizer)
    if chosen.order is None:
        raise InvalidInput(f"{randomizer!r} sends a symbol, so it has no directions to choose")
    if isinstance(model, Geometry):
        raise InvalidInput("tuning simulates the model: pass the model itself, not its geometry")
    seeds = as_integer(seeds, "seeds", 1)
    task, source = as_task_model(model), PublicVectors(public)
    split = Split(source, seed)
    first, compare, judge = split.fitted, split.part(1), split.part(2)
    geometry = measure(task, first)
    metric = _metric(metric, geometry.outputs)
    grid = _grid(ranks, percentiles, active_directions(geometry).effects.size)
    settings: dict[str, Any] = {"epsilon": epsilon, "randomizer": randomizer, "delta": delta}
    settings |= {"reshaping": "optimal", "unit": unit, "statement": statement}

    def release_of(where: Geometry, vectors: PublicVectors, trial: tuple[int, float]) -> Release:
        active, percentile = trial
        return fit(where, vectors, **settings, active=active, percentile=percentile)

    trials = []
    for index, pair in enumerate(grid):
        # The same simulated noise for all: candidates differ by their settings, less by luck.
        candidate = release_of(geometry, first, pair)
        scored = _score(candidate, task, compare, metric, seeds, [seed, 1])
        trials.append(Trial(*pair, *scored))
        if progress:
            progress(index + 1, len(grid))
    sign = -1 if metric == "agreement" else 1
    best = min(trials, key=lambda trial: (sign * trial.score, trial.active, trial.percentile))
    pair = (best.active, best.percentile)
    estimate = _score(release_of(geometry, first, pair), task, judge, metric, seeds, [seed, 2])
    whole = measure(task, source)
    # Rounding may hide a faint direction in all vectors together; then there is one less to send.
    pair = (min(best.active, active_directions(whole).effects.size), best.percentile)
    return Tuned(release_of(whole, source, pair), *pair, metric, *estimate, tuple(trials))


def _metric(metric: TuningMetric | None, outputs: int) -> TuningMetric:
    if metric is None:
        return "agreement" if outputs > 1 else "output_rmse"
    if metric not in get_args(TuningMetric):
        raise InvalidInput(f"metric must be 'agreement' or 'output_rmse', got {metric!r}")
    if metric == "agreement" and outputs < 2:
        raise InvalidInput("agreement needs a model with several outputs; use 'output_rmse'")
    return metric


def _grid(
    ranks: Sequence[int] | None, percentiles: Sequence[float], most: int
) -> list[tuple[int, float]]:
    """Return the candidates: numbers of directions that there are, and percentiles."""
    if ranks is None:
        steps = [2**e * b // 2 for e in range(3, 40) for b in (3, 4)]
        ladder = [*range(1, _EVERY_RANK + 1), *steps, most]
        ranks = sorted({rank for rank in ladder if rank <= most})
    grid = list(product(ranks, percentiles))
    if not grid:
        raise InvalidInput("ranks and percentiles must each name at least one value to try")
    return grid


def _score(
    release: Release,
    task: TaskModel,
    vectors: Vectors,
    metric: TuningMetric,
    seeds: int,
    seed: list[int],
) -> tuple[float, float]:
    """Return the metric over vectors and simulated reports, and its standard error over vectors."""
    clean = task.outputs(vectors)
    total = np.zeros(len(vectors))
    for index in range(seeds):
        simulated = release.simulate(vectors, np.random.default_rng([*seed, index]))
        outputs = task.outputs(simulated)
        if metric == "agreement":
            total += outputs.argmax(axis=1) == clean.argmax(axis=1)
        else:
            total += ((outputs - clean) ** 2).mean(axis=1)
    each = total / seeds
    mean, error = float(each.mean()), float(each.std(ddof=1) / np.sqrt(each.size))
    if metric == "agreement":
        return mean, error
    root = float(np.sqrt(mean))
    return root, error / (2 * root) if root else 0.0
