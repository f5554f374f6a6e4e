"""From counts to statements that hold with a stated probability.

Contract: every function here is exact for independent reports, whatever their law. No normal or χ²
approximation is made, so a stated false-alarm rate is kept at every sample size.

If an event happens with probability p on reports of one vector and q on reports of another, a
release that keeps (ε, δ) has p <= e^ε q + δ. With p_lo <= p and q_hi >= q, each wrong with
probability at most α/2 (Clopper and Pearson 1934), ε is at least ln((p_lo − δ)/q_hi) with
probability 1 − α.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainccinv, betaincinv, ndtri
from scipy.stats import hypergeom

Levels = NDArray[np.float64]


def proportion_below(hits: Any, trials: Any, alpha: float) -> Levels:
    """Return p_lo with Pr[p_lo > p] <= alpha for every p (one-sided Clopper–Pearson)."""
    k, n = np.asarray(hits, dtype=np.float64), np.asarray(trials, dtype=np.float64)
    low: Levels = np.where(k == 0, 0.0, betaincinv(np.maximum(k, 1), n - k + 1, alpha))
    return low


def proportion_above(hits: Any, trials: Any, alpha: float) -> Levels:
    """Return p_hi with Pr[p_hi < p] <= alpha for every p (one-sided Clopper–Pearson)."""
    k, n = np.asarray(hits, dtype=np.float64), np.asarray(trials, dtype=np.float64)
    high: Levels = np.where(k == n, 1.0, betainccinv(k + 1, np.maximum(n - k, 1), alpha))
    return high


def epsilon_below(
    hits: Any, trials: Any, other_hits: Any, other_trials: Any, *, delta: float, alpha: float
) -> Levels:
    """Return a lower bound on ε that is wrong with probability at most ``alpha``.

    Parameters
    ----------
    hits, trials
        How often the event happened on reports of the vector it speaks for.
    other_hits, other_trials
        The same on reports of the other vector.
    delta : float
        The δ that is promised.

    Returns
    -------
    array
        May be negative, and is −∞ where δ alone explains the event.
    """
    surplus = proportion_below(hits, trials, alpha / 2) - delta
    against = proportion_above(other_hits, other_trials, alpha / 2)
    bound: Levels = np.where(
        surplus > 0, np.log(np.maximum(surplus, 1e-300)) - np.log(against), -math.inf
    )
    return bound


def shift_below(
    hits: Any, trials: Any, other_hits: Any, other_trials: Any, *, alpha: float
) -> Levels:
    """Return a lower bound on the distance between two normal laws, in standard deviations.

    If reports of the two vectors, seen through one statistic, follow N(h, 1) and N(0, 1), then any
    event has Φ⁻¹(p) − Φ⁻¹(q) <= h; Gaussian noise keeps that for every statistic whatsoever. The
    bound is wrong with probability at most ``alpha``.
    """
    low = ndtri(proportion_below(hits, trials, alpha / 2))
    high = ndtri(proportion_above(other_hits, other_trials, alpha / 2))
    with np.errstate(invalid="ignore"):
        return np.asarray(np.nan_to_num(low - high, nan=-math.inf, neginf=-math.inf))


def difference(hits: Any, trials: Any, other_hits: Any, other_trials: Any) -> Levels:
    """Return how much more frequent the event is here than there, in standard errors.

    For choosing events only; what is said about them comes from :func:`same_proportion`.
    """
    p, q = np.asarray(hits) / max(1, trials), np.asarray(other_hits) / max(1, other_trials)
    both = (np.asarray(hits) + other_hits) / max(1, trials + other_trials)
    error = np.sqrt(both * (1 - both) * (1 / max(1, trials) + 1 / max(1, other_trials)))
    gap: Levels = (p - q) / np.maximum(error, 1e-300)
    return gap


def resolution(trials: int, *, delta: float, alpha: float) -> float:
    """Return the largest bound that ``trials`` reports a vector can show: all against none."""
    return float(epsilon_below(trials, trials, 0, trials, delta=delta, alpha=alpha))


def trials_needed(epsilon: float, *, delta: float, alpha: float) -> int | None:
    """Return the fewest reports a vector whose resolution exceeds ε; None beyond 2**62."""
    if resolution(1 << 62, delta=delta, alpha=alpha) <= epsilon:
        return None
    low, high = 0, 1
    while resolution(high, delta=delta, alpha=alpha) <= epsilon:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        if resolution(middle, delta=delta, alpha=alpha) <= epsilon:
            low = middle
        else:
            high = middle
    return high


def same_proportion(hits: int, trials: int, other_hits: int, other_trials: int) -> float:
    """Return the p-value of "the event is no more frequent here than there" (Fisher, one-sided)."""
    total, good = trials + other_trials, hits + other_hits
    return float(hypergeom.sf(hits - 1, total, good, trials))
