"""Does the time a report takes depend on its vector? A side channel: the promise is about bytes.

The order of the calls is drawn at random, so if time does not depend on the vector, any drift of
the machine falls on both alike and the ranks of the times are a random labelling: the rank test
(Mann and Whitney 1947) keeps its false-alarm rate however noisy the machine is.
"""

from __future__ import annotations

import gc
import time

import numpy as np
from numpy.typing import NDArray
from scipy.stats import mannwhitneyu

from offaxis.audit.pairs import Pair
from offaxis.audit.result import Finding
from offaxis.release import Release

_WARM_UP = 6
LEAST = 25


def timing(
    release: Release,
    pair: Pair,
    calls: int,
    seconds: float,
    *,
    alpha: float,
    rng: np.random.Generator,
) -> Finding:
    """Time single reports of two vectors in random order and compare the two samples.

    ``calls`` of each vector, or as many as fit the seconds.
    """
    vectors = np.stack([pair.first, pair.second])
    name = f"timing-{pair.name}"
    try:
        cost = _times(release, vectors, np.arange(_WARM_UP) % 2).mean() / 1e9
        calls = max(LEAST, min(calls, int(seconds / cost / 2)))
        order = rng.permutation(np.repeat([0, 1], calls))
        taken = _times(release, vectors, order)
    except Exception as error:
        why = f"a vector gave no report but {error!r}"
        return Finding(name, "conduct", pair.words, "not run", why)
    first, second = taken[order == 0], taken[order == 1]
    p_value = float(mannwhitneyu(first, second, method="asymptotic").pvalue)
    gap = float(np.median(first) - np.median(second)) / 1e3
    result = f"medians differ by {abs(gap):.1f} µs of {np.median(taken) / 1e3:,.0f}"
    found = p_value < alpha
    return Finding(
        name,
        "conduct",
        pair.words,
        "side channel" if found else "nothing found",
        result if found else f"{abs(gap):.1f} µs, by chance",
        reports=2 * calls + _WARM_UP,
        p_value=p_value,
        alpha=alpha,
    )


def _times(
    release: Release, vectors: NDArray[np.float64], order: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return nanoseconds a call; always from the same memory, without the garbage collector."""
    buffer = vectors[0].copy()
    taken = np.empty(len(order))
    collecting = gc.isenabled()
    gc.disable()
    try:
        for call, side in enumerate(order):
            buffer[:] = vectors[side]
            started = time.perf_counter_ns()
            release.privatize(buffer)
            taken[call] = time.perf_counter_ns() - started
    finally:
        if collecting:
            gc.enable()
    return taken
