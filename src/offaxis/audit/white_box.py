"""Attacks that know the code: the likelihood of the very bytes under each of two vectors.

By Neyman and Pearson no other statistic of one report tells two vectors apart better.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from offaxis.audit.events import Aim, Count, Scores, choose
from offaxis.audit.forms import says_gaussian
from offaxis.audit.front_end import size
from offaxis.audit.hostile import hostile
from offaxis.audit.trial import SIDES, Draw
from offaxis.errors import InvalidReport
from offaxis.randomizers import Randomizer
from offaxis.sampling.entropy import Entropy
from offaxis.vectors import Vectors

_CANDIDATES: Final = 3000
_FARTHEST: Final = 200
_PILOT: Final = 10_000
_TRIED: Final = 8
"""Pairs of a form that are tried on reports, at most."""


@dataclass(frozen=True, eq=False)
class LikelihoodRatio:
    """log Pr[payload | first] − log Pr[payload | second], for two encodings, (1, r) or (1,)."""

    randomizer: Randomizer
    first: Vectors
    second: Vectors
    aim: Aim = "epsilon"

    learns = False

    def learn(self, side: int, payloads: list[bytes]) -> None:
        """Learn nothing: the code is known."""

    def settle(self) -> None:
        """Decide nothing."""

    def scores(self, payloads: list[bytes]) -> Scores:
        """Return the log-likelihood ratio of every payload."""
        shape = (len(payloads), *self.first.shape[1:])
        with np.errstate(all="ignore"):
            first, second = (
                self.randomizer.log_likelihood(payloads, np.broadcast_to(w, shape))
                for w in (self.first, self.second)
            )
            ratio = first - second
        # Impossible under both says nothing.
        return np.nan_to_num(ratio, nan=0.0, posinf=np.inf, neginf=-np.inf)


def from_randomizer(randomizer: Randomizer, first: Vectors, second: Vectors) -> Draw:
    """Return a source of payloads of two encodings, without a release around them."""
    both = (first, second)

    def draw(side: int, count: int) -> list[bytes]:
        return randomizer.report(np.repeat(both[side], count, axis=0), Entropy())

    return draw


@dataclass(frozen=True, eq=False)
class Spread:
    """Two encoded vectors (1, r) of a form, and how far apart their integers before the noise lie.

    ``distance`` is in the norm of the guarantee and in lattice steps.
    """

    form: Randomizer
    first: Vectors
    second: Vectors
    distance: float
    allowed: int


def widest_spread(
    forms: list[Randomizer], rng: np.random.Generator, *, delta: float, alpha: float
) -> Spread:
    """Return hostile vectors whose reports tell them apart best, of all forms.

    Far apart in the norm of the guarantee is not all that counts: a distance spread over many
    coordinates is harder to see. So the pairs that no other pair beats in both respects are tried
    on a few reports each, and the best one is taken.
    """
    shortlist = [spread for form in forms for spread in _farthest(form, rng)]
    shown = [_pilot(spread, delta, alpha) for spread in shortlist]
    return shortlist[int(np.argmax(shown))]


def _farthest(form: Any, rng: np.random.Generator) -> list[Spread]:
    W, order = hostile(form.domain, form.bound, _CANDIDATES, rng), form.domain.order
    with np.errstate(all="ignore"):
        points, places = np.unique(form.integers(W), axis=0, return_index=True)
    return [
        Spread(
            form,
            W[places[[i]]],
            W[places[[j]]],
            float(size((points[i] - points[j]).tolist(), order) ** (1 / order)),
            2 * form.bound,
        )
        for i, j in _front(points, order)[:_TRIED]
    ]


def _front(points: NDArray[np.int64], order: int) -> list[tuple[int, int]]:
    """Return the pairs that no other pair beats in both distance and largest difference."""
    norms = np.linalg.norm(points, ord=order, axis=1)
    # Large entries first among equals: those pairs are easiest to see.
    far = np.lexsort((-np.abs(points).max(axis=1), -norms))[:_FARTHEST]
    gaps = points[far][:, None, :] - points[far][None, :, :]
    distance = np.linalg.norm(gaps, ord=order, axis=2)
    peak = np.abs(gaps).max(axis=2)
    pairs: list[tuple[int, int]] = []
    tallest = -1
    for flat in np.lexsort((-peak.ravel(), -distance.ravel())):
        i, j = divmod(int(flat), len(far))
        if peak[i, j] > tallest:
            tallest = peak[i, j]
            pairs.append((int(far[i]), int(far[j])))
    return pairs


def _pilot(spread: Spread, delta: float, alpha: float) -> float:
    """Return the bound that a few reports of two vectors suggest, on ε or on Gaussian noise."""
    form, vectors = spread.form, (spread.first, spread.second)
    attack = LikelihoodRatio(form, *vectors, aim="shift" if says_gaussian(form) else "epsilon")
    draw = from_randomizer(form, *vectors)
    try:
        first, second = (attack.scores(draw(side, _PILOT)) for side in SIDES)
    except InvalidReport:
        return -math.inf
    event, _ = choose(first, second, attack.aim, delta=delta, alpha=alpha)
    count = Count(event, event.hits(first), _PILOT, event.hits(second), _PILOT)
    return count.shift(alpha) if attack.aim == "shift" else count.epsilon(delta, alpha)
