"""What a model keeps of its answers, as sums over vectors that can be taken in parts and merged."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from offaxis.decoding import aggregate
from offaxis.encoding.reshaping import Reshaping, as_reshaping
from offaxis.errors import InvalidInput
from offaxis.fitting import fit
from offaxis.geometry import PublicVectors, TaskModel, as_task_model, measure
from offaxis.mechanisms import find_mechanism
from offaxis.randomizers.base import Ball, Box, FiniteSet
from offaxis.release import Release
from offaxis.simulation import simulate
from offaxis.vectors import Vectors, as_batch, as_integer

Scores = dict[str, float]


@dataclass
class Tally:
    """Sums over vectors; what was not asked for stays None.

    Attributes
    ----------
    vectors, numbers : int
        How many vectors, and how many outputs of all of them.
    changed : float
        Squared change of the outputs.
    same, right : int or None
        Vectors with an unchanged answer, and with their label.
    missed : float or None
        Squared error against the targets.
    """

    vectors: int
    numbers: int
    changed: float
    same: int | None = None
    right: int | None = None
    missed: float | None = None

    @classmethod
    def of(cls, outputs: Vectors, clean: Vectors, targets: NDArray[Any] | None) -> Tally:
        """Compare outputs with clean ones, and with labels or real targets if there are any."""
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

    def scores(self) -> Scores:
        """Return the metrics.

        accuracy : share of vectors whose largest output is their label (integer targets)
        agreement : share of vectors with the same answer as without privacy (several outputs)
        rmse : root mean squared error against the targets (real targets)
        output_rmse : root mean squared change of the outputs caused by the release
        """
        found = {"output_rmse": math.sqrt(self.changed / self.numbers)}
        if self.same is not None:
            found["agreement"] = self.same / self.vectors
        if self.right is not None:
            found["accuracy"] = self.right / self.vectors
        if self.missed is not None:
            found["rmse"] = math.sqrt(self.missed / self.numbers)
        return found


def _sum(one: Any, other: Any) -> Any:
    return None if one is None or other is None else one + other


# ----------------------------------------------------------------------------
# Utility of a release on given vectors: with labels, with targets, or against the clean answer.


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
        Draw real reports and decode them instead of simulating.

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
            decoded = release.decode(release.privatize(batch))
        else:
            decoded = simulate(release, batch, np.random.default_rng([seed, index]))
        runs.append(scores(task.outputs(decoded), clean, wanted))
        if progress:
            progress(1)
    return Evaluation(
        scores(clean, clean, wanted),
        {metric: np.array([run[metric] for run in runs]) for metric in runs[0]},
    )


# ----------------------------------------------------------------------------
# Several mechanisms over several budgets and settings on one task.

BUDGETS: Final = (0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 7.5, 10.0)
"""The twelve budgets of the paper's tables."""


@dataclass(frozen=True)
class SweepCell:
    """One cell of a sweep.

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
    """The release of one cell, with its settings."""

    release: Release
    settings: dict[str, Any]

    def scored(self, evaluation: Evaluation) -> SweepCell:
        """Return the cell with its scores."""
        return SweepCell(evaluation=evaluation, **self.settings)


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
    """Evaluate every cell of a grid of settings, as :func:`fit_cells` takes it.

    ``progress`` is called once per repetition.

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


# ----------------------------------------------------------------------------
# What clipping does to a mean: the part of its error that no number of reports removes.

_NUMBERS: Final = 1 << 20


@dataclass(frozen=True, eq=False)
class ClippingBias:
    """How far clipping, or a codebook, moves the mean of vectors.

    Parameters
    ----------
    bias : array (m,)
        Mean of the clipped and decoded vectors minus the mean of the vectors.
    standard_error : array (m,)
        Of the bias, for vectors that are a sample of a larger public whole.
    share : float
        Share of the vectors that are clipped, or that are no codeword.
    count : int
        Number of vectors.

    Examples
    --------
    >>> import offaxis
    >>> from offaxis.evaluation import ClippingBias, clipping_bias
    >>> public = np.random.default_rng(0).standard_normal((200, 3))
    >>> release = offaxis.fit(None, public, epsilon=2, reshaping="none", percentile=100)
    >>> found = clipping_bias(release, public)  # a radius that holds everybody clips nobody
    >>> isinstance(found, ClippingBias), found.share, found.count
    (True, 0.0, 200)
    """

    bias: Vectors
    standard_error: Vectors
    share: float
    count: int


def clipping_bias(release: Release, vectors: Any) -> ClippingBias:
    """Estimate what means of the release's reports are off by, however many there are.

    Contract: the exact difference on the given vectors, in floating point, of encoding, clipping
    and decoding without noise; on a map of lower rank it includes what the encoder drops, and it
    leaves out the truncation to the lattice, less than a step a coordinate. For private people it
    is an estimate that is right only as far as the public vectors are distributed as theirs; do
    not subtract it as if it were known.

    Parameters
    ----------
    release : Release
        One that gives means.
    vectors : array (n, m)
        Public vectors, best not those the release was fitted on: its radius is their percentile.

    Raises
    ------
    BiasedDecoder
        If the release gives no means at all.

    Examples
    --------
    >>> import offaxis
    >>> from offaxis.evaluation import clipping_bias
    >>> rng = np.random.default_rng(0)
    >>> release = offaxis.fit(None, rng.standard_normal((500, 3)), epsilon=2, reshaping="none")
    >>> others = 1.0 + rng.standard_normal((500, 3))  # they lie elsewhere
    >>> found = clipping_bias(release, others)
    >>> round(found.share, 2), found.bias.round(1)  # means would be too close to the public one
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
            clipped += changed if changed is not None else int((kept != part).any(axis=1).sum())
            yield kept - part

    found = aggregate(moves())
    return ClippingBias(
        found.estimate, found.standard_error, clipped / len(batch), int(found.count)
    )


def without_noise(release: Release, vectors: Vectors) -> Vectors:
    """Return what the mean of a vector's reports tends to, (n, m): encoded, clipped and decoded.

    For releases that give means: their randomizers are unbiased behind the clipping.
    """
    return _kept(release, vectors)[0]


def _kept(release: Release, part: Vectors) -> tuple[Vectors, int | None]:
    """Return the vectors without noise, and how many are clipped; None where there is no ball."""
    decoder, domain = release.unbiased_decoder, release.randomizer.domain
    if not isinstance(domain, Ball | Box | FiniteSet):
        raise InvalidInput(
            f"a {release.randomizer.kind} randomizer does not clip, so it has no such bias"
        )
    encoded = release.encoder.encode(part)
    if isinstance(domain, FiniteSet):
        # A symbol that is told truly: what is left out is all that its cell does not say.
        return decoder.decode(np.eye(domain.size)[encoded]), None
    kept = domain.project(encoded)
    return decoder.decode(kept), int((kept != encoded).any(axis=1).sum())
