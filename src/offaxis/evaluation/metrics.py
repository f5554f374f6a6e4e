"""Utility of a release on given vectors: with labels, with targets, or against the clean answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from offaxis.errors import InvalidInput
from offaxis.evaluation.tally import Scores, Tally
from offaxis.geometry import TaskModel, as_task_model
from offaxis.release import Release
from offaxis.vectors import Vectors, as_batch, as_integer


class Simulated(Protocol):
    """What can be evaluated: a release, or in a study something that only looks like one."""

    @property
    def input_dim(self) -> int:
        """Dimension m of the vectors."""
        ...

    def simulate(self, vectors: Any, rng: np.random.Generator) -> Vectors:
        """Return what a receiver would have of vectors (n, m), in seeded floating point."""
        ...


@dataclass(frozen=True, repr=False)
class Evaluation:
    """Scores of a release over several independent repetitions.

    Attributes
    ----------
    clean : dict
        The scores without any privacy.
    runs : dict
        Metric → one score a repetition.

    Examples
    --------
    >>> import offaxis
    >>> from offaxis.evaluation import Evaluation, evaluate
    >>> rng = np.random.default_rng(0)
    >>> task, public = rng.standard_normal((3, 4)), rng.standard_normal((200, 4))
    >>> release = offaxis.fit(task, public, epsilon=8)
    >>> found = evaluate(release, task, public, seeds=4)
    >>> isinstance(found, Evaluation), found.runs["agreement"].shape, found.clean["agreement"]
    (True, (4,), 1.0)
    >>> found.mean("agreement") > 1 / 3, found.std("agreement") < 0.1
    (True, True)
    """

    clean: Scores
    runs: dict[str, NDArray[np.float64]]

    def __repr__(self) -> str:
        """Return every metric as mean ± standard deviation, and its value without privacy."""
        parts = [
            f"{metric} {self.mean(metric):.4g} ± {self.std(metric):.2g} (clean {clean:.4g})"
            for metric, clean in self.clean.items()
        ]
        return f"Evaluation({', '.join(parts)})"

    def mean(self, metric: str) -> float:
        """Return the mean over repetitions."""
        return float(self.runs[metric].mean())

    def std(self, metric: str) -> float:
        """Return the standard deviation over repetitions (0 for a single one)."""
        values = self.runs[metric]
        return float(values.std(ddof=1)) if values.size > 1 else 0.0


def scores(outputs: Vectors, clean: Vectors, targets: NDArray[Any] | None) -> Scores:
    """Score outputs against the clean outputs, and against labels or targets if there are any."""
    return Tally.of(outputs, clean, targets).scores()


def check_targets(targets: Any, clean: Vectors) -> NDArray[Any] | None:
    """Return labels or real targets as an array, or refuse what does not fit the outputs."""
    if targets is None:
        return None
    array = np.asarray(targets)
    if array.dtype.kind not in "iuf" or len(array) != len(clean):
        raise InvalidInput(
            f"targets must be {len(clean)} class numbers or real values, one a vector, "
            f"got {array.shape} of dtype {array.dtype}"
        )
    if array.dtype.kind in "iu":
        classes = max(clean.shape[1], 2)
        if array.ndim != 1 or array.min() < 0 or array.max() >= classes:
            raise InvalidInput(
                f"labels must be integers 0 … {classes - 1}, one a vector, got values "
                f"{array.min()} … {array.max()} of shape {array.shape}"
            )
    elif array.size != clean.size:
        raise InvalidInput(
            f"real targets must have one value an output: {clean.size} in all, got {array.size}; "
            f"class labels must be integers, not {array.dtype}"
        )
    return array


def evaluate(
    release: Simulated,
    model: Any,
    vectors: Any,
    targets: Any = None,
    *,
    seeds: int = 20,
    seed: int = 0,
    exact: bool = False,
    progress: Callable[[int], None] | None = None,
) -> Evaluation:
    """Measure what the task keeps when vectors pass through a release.

    Parameters
    ----------
    vectors : array (n, m)
        Vectors with known answers, public ones: nothing here protects them.
    targets : integer labels (n,), or real targets (n,) or (n, k), optional
    seeds : int
        Independent repetitions.
    seed : int
        Of the simulation. It does not reach the exact path, which takes none.
    exact : bool
        Draw real reports and decode them instead of simulating; releases only.

    Examples
    --------
    >>> import offaxis
    >>> from offaxis.evaluation import evaluate
    >>> rng = np.random.default_rng(0)
    >>> task, public = rng.standard_normal((3, 4)), rng.standard_normal((200, 4))
    >>> release = offaxis.fit(task, public, epsilon=8)
    >>> labels = (public @ task.T).argmax(axis=1)
    >>> evaluate(release, task, public, labels, seeds=5)
    Evaluation(output_rmse ... (clean 0), agreement ... (clean 1), accuracy ... (clean 1))
    >>> real = evaluate(release, task, public, seeds=1, exact=True)  # reports as devices send them
    >>> real.mean("agreement") > 1 / 3
    True
    """
    seeds = as_integer(seeds, "seeds", 1)
    task: TaskModel = as_task_model(model)
    batch, _ = as_batch(vectors, release.input_dim)
    clean = task.outputs(batch)
    wanted = check_targets(targets, clean)
    runs = []
    for index in range(seeds):
        if exact:
            if not isinstance(release, Release):
                raise InvalidInput("only a release has reports; evaluate this one without exact")
            decoded = release.decode(release.privatize(batch))
        else:
            decoded = release.simulate(batch, np.random.default_rng([seed, index]))
        runs.append(scores(task.outputs(decoded), clean, wanted))
        if progress:
            progress(1)
    return Evaluation(
        scores(clean, clean, wanted),
        {metric: np.array([run[metric] for run in runs]) for metric in runs[0]},
    )
