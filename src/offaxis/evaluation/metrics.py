"""Metrics of a release on public vectors with known answers: single runs, sweeps, clipping bias.

Nothing here protects the vectors it is given.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from offaxis.client.sequences import first_reports
from offaxis.decoding import aggregate
from offaxis.encoding.reshaping import Reshaping, as_reshaping
from offaxis.errors import InvalidInput
from offaxis.fitting import fit
from offaxis.geometry import PublicVectors, TaskModel, as_task_model, measure
from offaxis.mechanisms import find_mechanism
from offaxis.randomizers.base import Ball, Box
from offaxis.randomizers.memoised import Memoised
from offaxis.release import Release
from offaxis.simulation import simulate
from offaxis.vectors import Vectors, as_batch, as_integer


@dataclass
class Tally:
    """Sums over vectors, from which metrics follow; sums over parts can be merged.

    Attributes
    ----------
    vectors, numbers : int
        Number of vectors, and of outputs of all of them together.
    changed : float
        Squared change of the outputs.
    same, right : int or None
        Vectors whose answer is unchanged (None for one output), and whose answer is their label
        (None without labels).
    missed : float or None
        Squared error against real targets; None without them.
    """

    vectors: int
    numbers: int
    changed: float
    same: int | None = None
    right: int | None = None
    missed: float | None = None

    @classmethod
    def of(cls, outputs: Vectors, clean: Vectors, targets: NDArray[Any] | None) -> Tally:
        """Compare outputs with the clean outputs, and with labels or real targets if given."""
        tally = cls(len(outputs), outputs.size, float(((outputs - clean) ** 2).sum()))
        if clean.shape[1] > 1:
            tally.same = int((outputs.argmax(1) == clean.argmax(1)).sum())
        if targets is not None and targets.dtype.kind in "iu":
            answer = outputs.argmax(1) if outputs.shape[1] > 1 else (outputs[:, 0] > 0).astype(int)
            tally.right = int((answer == targets).sum())
        elif targets is not None:
            tally.missed = float(((outputs - targets.reshape(outputs.shape)) ** 2).sum())
        return tally

    def merge(self, other: Tally) -> None:
        """Add the sums over other vectors."""
        self.vectors += other.vectors
        self.numbers += other.numbers
        self.changed += other.changed
        self.same = _sum(self.same, other.same)
        self.right = _sum(self.right, other.right)
        self.missed = _sum(self.missed, other.missed)

    def scores(self) -> dict[str, float]:
        """Return the metrics.

        accuracy : share of vectors whose largest output is their label (integer targets)
        agreement : share of vectors whose answer is the same as without privacy (several outputs)
        rmse : root mean squared error against the targets (real targets)
        output_rmse : root mean squared change of the outputs caused by the release
        """
        metrics = {"output_rmse": math.sqrt(self.changed / self.numbers)}
        if self.same is not None:
            metrics["agreement"] = self.same / self.vectors
        if self.right is not None:
            metrics["accuracy"] = self.right / self.vectors
        if self.missed is not None:
            metrics["rmse"] = math.sqrt(self.missed / self.numbers)
        return metrics


def _sum(a: Any, b: Any) -> Any:
    return None if a is None or b is None else a + b


# ---- Evaluation of one release


@dataclass(frozen=True, repr=False)
class Evaluation:
    """Scores of a release over several independent repetitions.

    Attributes
    ----------
    clean : dict
        The scores without any privacy.
    runs : dict
        Metric → array with one score per repetition.

    Examples
    --------
    >>> import offaxis
    >>> from offaxis.evaluation import evaluate
    >>> rng = np.random.default_rng(0)
    >>> task, public = rng.standard_normal((3, 4)), rng.standard_normal((200, 4))
    >>> release = offaxis.fit(task, public, epsilon=8, mechanism="laplace")
    >>> evaluation = evaluate(release, task, public, seeds=4)
    >>> evaluation.runs["agreement"].shape, evaluation.clean["agreement"]
    ((4,), 1.0)
    >>> evaluation.mean("agreement") > 1 / 3, evaluation.std("agreement") < 0.1
    (True, True)
    """

    clean: dict[str, float]
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


def scores(outputs: Vectors, clean: Vectors, targets: NDArray[Any] | None) -> dict[str, float]:
    """Return the metrics of outputs against the clean outputs, and labels or targets if given."""
    return Tally.of(outputs, clean, targets).scores()


def check_targets(targets: Any, clean: Vectors) -> NDArray[Any] | None:
    """Return labels or real targets as an array; raise InvalidInput if they do not fit."""
    if targets is None:
        return None
    array = np.asarray(targets)
    if array.dtype.kind not in "iuf" or len(array) != len(clean):
        raise InvalidInput(
            f"targets must be {len(clean)} class numbers or real values, one per vector, "
            f"got {array.shape} of dtype {array.dtype}"
        )
    if array.dtype.kind in "iu":
        classes = max(clean.shape[1], 2)
        if array.ndim != 1 or array.min() < 0 or array.max() >= classes:
            raise InvalidInput(
                f"labels must be integers 0 … {classes - 1}, one per vector, got values "
                f"{array.min()} … {array.max()} of shape {array.shape}"
            )
    elif array.size != clean.size:
        raise InvalidInput(
            f"real targets must have one value per output, {clean.size} in all, got {array.size}; "
            f"class labels must be integers, not {array.dtype}"
        )
    return array


def evaluate(
    release: Release,
    model: Any,
    vectors: Any,
    targets: Any = None,
    *,
    seeds: int = 20,
    seed: int = 0,
    exact: bool = False,
    progress: Callable[[int], None] | None = None,
) -> Evaluation:
    """Measure how well a task works on the decoded reports of a release.

    Parameters
    ----------
    vectors : array (n, m)
        Public vectors: nothing here protects them.
    targets : integer labels (n,), or real targets (n,) or (n, k), optional
    seeds : int
        Number of independent repetitions.
    seed : int
        Seed of the simulation; exact reports take none.
    exact : bool
        Draw and decode real reports instead of simulating them.
    progress : callable, optional
        Called with 1 after every repetition.

    Examples
    --------
    >>> import offaxis
    >>> from offaxis.evaluation import evaluate
    >>> rng = np.random.default_rng(0)
    >>> task, public = rng.standard_normal((3, 4)), rng.standard_normal((200, 4))
    >>> release = offaxis.fit(task, public, epsilon=8, mechanism="laplace")
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
    expected = check_targets(targets, clean)
    runs = []
    for index in range(seeds):
        if exact:
            decoded = release.decode(_exact_reports(release, batch))
        else:
            decoded = simulate(release, batch, np.random.default_rng([seed, index]))
        runs.append(scores(task.outputs(decoded), clean, expected))
        if progress:
            progress(1)
    return Evaluation(
        scores(clean, clean, expected),
        {metric: np.array([run[metric] for run in runs]) for metric in runs[0]},
    )


# ---- Sweeps over mechanisms, budgets and settings

BUDGETS: Final = (0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 7.5, 10.0)
"""The twelve budgets of the paper's tables."""


@dataclass(frozen=True)
class SweepCell:
    """One cell of a sweep: its settings and their evaluation.

    Examples
    --------
    >>> from offaxis.evaluation import sweep
    >>> rng = np.random.default_rng(0)
    >>> task, public = rng.standard_normal((3, 4)), rng.standard_normal((200, 4))
    >>> grid = {"mechanisms": ["laplace"], "epsilons": [4.0], "reshapings": ["none"]}
    >>> (cell,) = sweep(task, public, public, seeds=2, **grid)
    >>> cell.mechanism, cell.reshaping.name, cell.epsilon
    ('laplace', 'none', 4.0)
    """

    mechanism: str
    reshaping: Reshaping
    epsilon: float
    percentile: float
    evaluation: Evaluation


class FittedCell(NamedTuple):
    """A fitted release of a sweep, with its settings."""

    release: Release
    settings: dict[str, Any]

    def scored(self, evaluation: Evaluation) -> SweepCell:
        """Return the cell with its scores."""
        return SweepCell(evaluation=evaluation, **self.settings)


def _exact_reports(release: Release, batch: Vectors) -> list[bytes]:
    """Return real reports: of sequences, the first of each."""
    if isinstance(release.randomizer, Memoised):
        return first_reports(release, batch)[0]
    reports = release.privatize(batch)
    assert isinstance(reports, list), "a batch gives a list"
    return reports


def fit_cells(
    model: Any,
    public: Any,
    *,
    mechanisms: Sequence[str],
    epsilons: Sequence[float] = BUDGETS,
    reshapings: Sequence[str | Reshaping] = ("none", "jacobian"),
    percentiles: Sequence[float] = (90.0,),
    delta: float = 1e-5,
) -> Iterator[FittedCell]:
    """Fit every mechanism at every budget, reshaping and percentile; the geometry is shared."""
    source = PublicVectors(public)
    geometry = measure(as_task_model(model), source)
    for name, shape, epsilon, percentile in product(mechanisms, reshapings, epsilons, percentiles):
        release = fit(
            geometry,
            source,
            epsilon=epsilon,
            mechanism=name,
            delta=delta if find_mechanism(name).needs_delta else None,
            reshaping=shape,
            percentile=percentile,
        )
        cell = {"mechanism": name, "reshaping": as_reshaping(shape), "epsilon": epsilon}
        yield FittedCell(release, cell | {"percentile": percentile})


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
) -> list[SweepCell]:
    """Evaluate every mechanism at every budget, reshaping and percentile of a grid.

    Parameters
    ----------
    model, public
        What releases are fitted to, as in :func:`offaxis.fit`.
    vectors, targets, seeds, seed, progress
        What they are evaluated on, as in :func:`evaluate`.
    **grid
        ``mechanisms``, and optionally ``epsilons`` (default :data:`BUDGETS`), ``reshapings``
        ("none" and "jacobian"), ``percentiles`` (90) and ``delta`` (1e-5).

    Examples
    --------
    >>> from offaxis.evaluation import sweep
    >>> rng = np.random.default_rng(0)
    >>> task, public = rng.standard_normal((3, 4)), rng.standard_normal((200, 4))
    >>> cells = sweep(task, public, public, seeds=3, mechanisms=["laplace"], epsilons=[2.0, 8.0])
    >>> [(cell.reshaping.name, cell.epsilon) for cell in cells]
    [('none', 2.0), ('none', 8.0), ('jacobian', 2.0), ('jacobian', 8.0)]
    >>> cells[1].evaluation.mean("output_rmse") < cells[0].evaluation.mean("output_rmse")
    True
    """
    task = as_task_model(model)
    return [
        cell.scored(
            evaluate(
                cell.release, task, vectors, targets, seeds=seeds, seed=seed, progress=progress
            )
        )
        for cell in fit_cells(task, public, **grid)
    ]


# ---- Clipping bias: the error of a mean that no number of reports removes

_NUMBERS: Final = 1 << 20


@dataclass(frozen=True, eq=False)
class ClippingBias:
    """How far clipping, or a codebook, moves the mean of vectors.

    Attributes
    ----------
    bias : array (m,)
        Mean of the clipped and decoded vectors minus the mean of the vectors.
    standard_error : array (m,)
        Of the bias, if the vectors are a sample of a larger public population.
    share : float
        Share of the vectors that are clipped, or that are not codewords.
    count : int
        Number of vectors.

    Examples
    --------
    >>> import offaxis
    >>> from offaxis.evaluation import clipping_bias
    >>> public = np.random.default_rng(0).standard_normal((200, 3))
    >>> release = offaxis.fit(
    ...     None, public, epsilon=2, reshaping="none", percentile=100, mechanism="laplace"
    ... )
    >>> clipping = clipping_bias(release, public)  # the radius covers every vector
    >>> clipping.share, clipping.count
    (0.0, 200)
    """

    bias: Vectors
    standard_error: Vectors
    share: float
    count: int


def clipping_bias(release: Release, vectors: Any) -> ClippingBias:
    """Estimate the bias of means of a release's reports, which stays however many there are.

    Contract: on the given vectors, the mean change by encoding, clipping and decoding without
    noise, exact up to floating point. It leaves out the truncation to the lattice, less than one
    step per coordinate. For private vectors
    it is an estimate, good only as far as they are distributed as the public ones; do not subtract
    it as if it were known.

    Parameters
    ----------
    release : Release
        A release that supports means.
    vectors : array (n, m)
        Public vectors, preferably not those the release was fitted to, because its radius is a
        percentile of these.

    Raises
    ------
    BiasedDecoder
        If the release does not support means.

    Examples
    --------
    >>> import offaxis
    >>> from offaxis.evaluation import clipping_bias
    >>> rng = np.random.default_rng(0)
    >>> release = offaxis.fit(
    ...     None, rng.standard_normal((500, 3)), epsilon=2, reshaping="none", mechanism="laplace"
    ... )
    >>> shifted = 1.0 + rng.standard_normal((500, 3))
    >>> clipping = clipping_bias(release, shifted)
    >>> round(clipping.share, 2), clipping.bias.round(1)  # pulled towards the public mean
    (0.34, array([-0.1, -0.1, -0.1]))
    """
    batch, _ = as_batch(vectors, release.input_dim)
    rows = max(1, _NUMBERS // max(release.decoder.input_dim, release.input_dim))
    clipped = 0

    def moves() -> Iterator[Vectors]:
        nonlocal clipped
        for start in range(0, len(batch), rows):
            part = batch[start : start + rows]
            kept, changed = _kept(release, part)
            clipped += changed
            yield kept - part

    mean = aggregate(moves())
    return ClippingBias(mean.estimate, mean.standard_error, clipped / len(batch), int(mean.count))


def without_noise(release: Release, vectors: Vectors) -> Vectors:
    """Return the limit of the mean of each vector's reports, (n, m): encoded, clipped and decoded.

    For releases that support means: their randomizers are unbiased after clipping.
    """
    return _kept(release, vectors)[0]


def _kept(release: Release, part: Vectors) -> tuple[Vectors, int]:
    """Return the vectors without noise, and how many are clipped."""
    decoder, domain = release.unbiased_decoder, release.randomizer.domain
    if not isinstance(domain, Ball | Box):
        raise InvalidInput(
            f"a {release.randomizer.kind} randomizer does not clip, so it has no clipping bias"
        )
    encoded = release.encoder.encode(part)
    kept = domain.project(encoded)
    return decoder.decode(kept), int((kept != encoded).any(axis=1).sum())
