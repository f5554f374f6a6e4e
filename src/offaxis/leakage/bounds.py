"""What ε allows an attacker, and exact limits on what was measured.

Contract: every bound here is proved in docs/proofs.md §28, and every limit is wrong with at most
the stated probability at any number of trials. No normal approximation is made.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.optimize import brentq

from offaxis.auditing.trials import proportion_above, proportion_below
from offaxis.errors import InvalidInput
from offaxis.privacy.guarantee import exact, exact_epsilon
from offaxis.vectors import Vectors, as_integer


def guess_bound(candidates: int, epsilon: Any, delta: Any = 0) -> float:
    """Return how often anyone can guess which of N equally likely inputs a report came from.

    (e^ε + (N − 1) δ) / (e^ε + N − 1), for every (ε, δ) report, every N inputs and every guess
    (docs/proofs.md §28.1). N-ary response attains it for δ = 0.

    Parameters
    ----------
    candidates : int
        N, at least 2.
    epsilon, delta : number

    Examples
    --------
    >>> from offaxis.leakage import guess_bound
    >>> [round(guess_bound(n, epsilon=1), 3) for n in (2, 10, 100)]
    [0.731, 0.232, 0.027]
    >>> round(guess_bound(2, epsilon=1, delta=0.1), 3)
    0.758
    """
    others = as_integer(candidates, "candidates", 2) - 1
    far = math.exp(-float(exact_epsilon(epsilon)))
    failure = float(exact(delta, "delta"))
    if not 0 <= failure < 1:
        raise InvalidInput(f"delta must be at least 0 and below 1, got delta={delta!r}")
    return min(1.0, (1 + others * failure * far) / (1 + others * far))


def share_limits(hits: int, trials: int, alpha: float) -> tuple[float, float]:
    """Return limits on a probability (Clopper and Pearson), each wrong with at most ``alpha``.

    The lower one also holds as a test of "no trial succeeds with more than b": then the number of
    hits is at most that of ``trials`` events of probability b, in law.
    """
    low, high = proportion_below(hits, trials, alpha), proportion_above(hits, trials, alpha)
    return float(low), float(high)


def mean_limits(values: Vectors, largest: float, alpha: float) -> tuple[float, float]:
    """Return limits on a mean of independent values in [0, largest], each wrong with ``alpha``.

    Each is the better of two, at α/2: the Chernoff bound with relative entropy (Hoeffding 1963)
    and the empirical Bernstein bound (Maurer and Pontil 2009).
    """
    shares = np.clip(values / largest, 0.0, 1.0)
    low = largest * (1 - _highest(1 - shares, alpha / 2))
    return low, largest * _highest(shares, alpha / 2)


def _highest(shares: Vectors, alpha: float) -> float:
    """Return an upper limit on the mean of values in [0, 1], wrong with at most 2 ``alpha``."""
    n, mean = len(shares), float(shares.mean())
    log = math.log(2 / alpha)
    spread = math.sqrt(2 * float(shares.var(ddof=1)) * log / n) + 7 * log / (3 * (n - 1))

    def excess(m: float) -> float:
        entropy = mean * math.log(mean / m) if mean else 0.0
        entropy += (1 - mean) * math.log((1 - mean) / (1 - m))
        return n * entropy - math.log(1 / alpha)

    if mean >= 1:
        return 1.0
    top = 1 - 1e-15
    chernoff = float(brentq(excess, max(mean, 1e-300), top)) if excess(top) > 0 else 1.0
    return min(1.0, mean + spread, chernoff)
