"""The lines beside the figures: scores for which no report is drawn.

- "clean": without privacy.
- "line": a q + (1 − a)(1 − q)/(k − 1), what k-ary response on the head's answer gives, a the
  accuracy without privacy. A line to compare with, not a bound.
- "public mean": everybody is answered with the task's output at the public mean; nobody reports.
- "least": √(least² + clean²). ``least`` is the least error of the task's answer that any ε-LDP
  report allows, for whoever knows the law of the answers of the very sample that is measured
  (tested, not proved: :mod:`offaxis.mechanisms.scalar_channel`); ``clean`` is the error without
  privacy. A line, not a bound: the squares add up where what the forecast misses has nothing to
  do with what the report misses, and shrinking corrects a forecast that overshoots.
- "unbiased" and "sphere", for errors of means: the least that any unbiased report allows for
  vectors with the public spectrum, and the best there is for points of a sphere in as many
  dimensions (:mod:`offaxis.theory.ceilings`), divided by the number of people.
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

NoReport = Literal["clean", "line", "public mean", "least", "unbiased", "sphere"]
WITHOUT_REPORTS: Final[tuple[str, ...]] = get_args(NoReport)


def line_scores(
    source: Source, way: NoReport, epsilons: Sequence[float], seeds: int
) -> dict[float, tuple[float, ...]]:
    """Return one score a seed at every budget."""
    drawn = 1 if source.fixed else seeds
    scores = np.array([_scores(source, way, epsilons, seed) for seed in range(drawn)])
    repeated = np.repeat(scores, seeds // drawn, axis=0)
    return {e: tuple(map(float, line)) for e, line in zip(epsilons, repeated.T, strict=True)}


def _scores(source: Source, way: NoReport, epsilons: Sequence[float], seed: int) -> list[float]:
    sample, score, task = source.sample(seed), source.score, source.scoring
    count = len(sample.vectors)
    if way == "public mean":
        outputs = np.tile(task.outputs(source.geometry.mean[None]).T, (1, count))
        return [score.finish(score.add(outputs, sample.answers), count)] * len(epsilons)
    if way in ("unbiased", "sphere"):
        geometry = source.geometry
        spectrum = task_spectrum(geometry.gram, geometry.covariance)
        if way == "unbiased":
            return [least_mean_error(spectrum, epsilon) / count for epsilon in epsilons]
        return [sphere_mean_error(spectrum.size, epsilon) / count for epsilon in epsilons]
    outputs = task.outputs(sample.vectors).T
    clean = score.finish(score.add(outputs, sample.answers), count)
    if way == "line":
        return [reference_line(clean, source.geometry.outputs, epsilon) for epsilon in epsilons]
    if way == "least":
        evenly = np.ones(count)
        return [float(np.hypot(least_rmse(outputs[0], evenly, e), clean)) for e in epsilons]
    return [clean] * len(epsilons)
