"""Reference lines: scores without reports, shown next to the figures of a study.

- "clean": without privacy.
- "line": a q + (1 − a)(1 − q)/(k − 1), the accuracy of k-ary response on the head's answer, with a
  the accuracy without privacy. A line for comparison, not a bound.
- "public mean": everybody is answered with the task's output at the public mean; nobody reports.
- "least": √(least² + clean²). ``least`` is the least error of the task's answer that any ε-LDP
  report allows an analyst who knows the distribution of the answers in the measured sample
  (tested, not proved: :mod:`offaxis.mechanisms.scalar_channel`); ``clean`` is the error without
  privacy. A line, not a bound: the squares add up if the error of the forecast is uncorrelated
  with that of the report, and shrinking corrects a forecast that overshoots.
- "unbiased" and "sphere", for errors of means: a lower bound on the error of any unbiased report of
  vectors with the public spectrum, and the least error of an unbiased report of a point of a sphere
  of the same dimension (:mod:`offaxis.theory.ceilings`), divided by the number of people.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, get_args

import numpy as np

from experiments.sources import Source
from offaxis.mechanisms.scalar_channel import least_rmse
from offaxis.theory.ceilings import (
    least_mean_error,
    reference_line,
    sphere_mean_error,
    task_spectrum,
)
from offaxis.vectors import Vectors

ReferenceLine = Literal["clean", "line", "public mean", "least", "unbiased", "sphere"]
_ANSWERS: Final = 400
"""The most different answers in the search for the least error."""

WITHOUT_REPORTS: Final[tuple[str, ...]] = get_args(ReferenceLine)


def line_scores(
    source: Source, kind: ReferenceLine, epsilons: Sequence[float], seeds: int
) -> dict[float, tuple[float, ...]]:
    """Return one score per seed at every budget."""
    samples = 1 if source.fixed else seeds
    scores = np.array([_scores(source, kind, epsilons, seed) for seed in range(samples)])
    by_seed = np.repeat(scores, seeds // samples, axis=0)
    return {e: tuple(map(float, runs)) for e, runs in zip(epsilons, by_seed.T, strict=True)}


def _least(answers: Vectors, epsilon: float) -> float:
    """Return the least error of answers, of which neighbours may be merged into one value.

    The variance within merged answers is added: an exact search would take minutes.
    """
    ordered = np.sort(answers)
    # Half of the groups have equal sizes, half equal widths: the tails must not be merged.
    even = np.linspace(0, ordered.size, _ANSWERS // 2, endpoint=False)[1:].astype(np.int64)
    wide = np.searchsorted(ordered, np.linspace(ordered[0], ordered[-1], _ANSWERS // 2)[1:-1])
    groups = np.split(ordered, np.setdiff1d(np.union1d(even, wide), [0, ordered.size]))
    values = np.array([group.mean() for group in groups])
    masses = np.array([group.size for group in groups], dtype=np.float64)
    within = sum(float(((g - v) ** 2).sum()) for g, v in zip(groups, values, strict=True))
    return float(np.hypot(least_rmse(values, masses, epsilon), np.sqrt(within / answers.size)))


def _scores(
    source: Source, kind: ReferenceLine, epsilons: Sequence[float], seed: int
) -> list[float]:
    sample, score, task = source.sample(seed), source.score, source.scoring
    count = len(sample.vectors)
    if kind == "public mean":
        outputs = np.tile(task.outputs(source.geometry.mean[None]).T, (1, count))
        return [score.finish(score.add(outputs, sample.answers), count)] * len(epsilons)
    if kind in ("unbiased", "sphere"):
        geometry = source.geometry
        spectrum = task_spectrum(geometry.gram, geometry.covariance)
        if kind == "unbiased":
            return [least_mean_error(spectrum, epsilon) / count for epsilon in epsilons]
        return [sphere_mean_error(spectrum.size, epsilon) / count for epsilon in epsilons]
    outputs = task.outputs(sample.vectors).T
    clean = score.finish(score.add(outputs, sample.answers), count)
    if kind == "line":
        return [reference_line(clean, source.geometry.outputs, epsilon) for epsilon in epsilons]
    if kind == "least":
        return [float(np.hypot(_least(outputs[0], epsilon), clean)) for epsilon in epsilons]
    return [clean] * len(epsilons)
