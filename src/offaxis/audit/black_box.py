"""An attack that knows nothing but reports: a classifier on bytes, bits and observations.

It sees what a collector sees. What the observations are is public (``read``), how they came about
is not used. Needs scikit-learn, the extra ``sklearn``.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from offaxis.audit.events import Aim, Scores
from offaxis.audit.trial import SIDES
from offaxis.errors import installing
from offaxis.randomizers import Randomizer
from offaxis.vectors import Vectors

MISSING: Final = f"needs scikit-learn, which is not installed; run: {installing('sklearn')}"

_LEARN: Final = 10_000
"""Reports of each vector to learn from, at most."""

_OCTETS: Final = 1 << 26
_FEATURES: Final = 24
"""Columns of each kind that are looked at closely: those whose means differ most."""

_BLOCK: Final = 128
"""Bytes whose bits are spread out at a time."""

_threadpools = cache(ThreadpoolController)

Octets = NDArray[np.uint8]


def available() -> bool:
    """Whether scikit-learn is installed."""
    return find_spec("sklearn") is not None


def _one_thread() -> Any:
    """Keep the trees on their own core: both sides are scored at the same time already."""
    return _threadpools().limit(limits=1, user_api="openmp")


class Classifier:
    """Gradient-boosted trees on the columns of a report that differ most between two vectors.

    Parameters
    ----------
    randomizer : Randomizer
        Only its reader is used.
    seed : int
        Of the trees.
    """

    learns = True
    aim: Aim = "epsilon"

    def __init__(self, randomizer: Randomizer, seed: int) -> None:
        self._randomizer = randomizer
        self._seed = seed
        self._rows = min(_LEARN, max(64, _OCTETS // randomizer.payload_size))
        self._learned: tuple[list[bytes], list[bytes]] = ([], [])
        self._columns: tuple[NDArray[np.intp], ...] = ()
        self._model: Any = None

    def learn(self, side: int, payloads: list[bytes]) -> None:
        """Keep reports until there are enough."""
        room = self._rows - len(self._learned[side])
        self._learned[side].extend(payloads[:room])

    def settle(self) -> None:
        """Choose the columns and fit the trees."""
        from sklearn.ensemble import HistGradientBoostingClassifier

        views = [self._view(self._learned[side]) for side in SIDES]
        (observed, octets), (other_observed, other_octets) = views
        self._columns = (
            _largest(_gaps(observed, other_observed)),
            _largest(_gaps(octets, other_octets)),
            _largest(_bit_gaps(octets, other_octets)),
        )
        features = np.concatenate([self._features(*view) for view in views])
        labels = np.repeat([1, 0], [len(learned) for learned in self._learned])
        trees = HistGradientBoostingClassifier(
            max_iter=40, max_leaf_nodes=16, early_stopping=False, random_state=self._seed
        )
        with _one_thread():
            self._model = trees.fit(features, labels)
        self._learned = ([], [])

    def scores(self, payloads: list[bytes]) -> Scores:
        """Return the log odds of the first vector."""
        features = self._features(*self._view(payloads))
        with _one_thread():
            scores: Scores = self._model.decision_function(features)
        return scores

    def _view(self, payloads: list[bytes]) -> tuple[Vectors, Octets]:
        octets = np.frombuffer(b"".join(payloads), dtype=np.uint8).reshape(len(payloads), -1)
        observed = np.asarray(self._randomizer.read(payloads), dtype=np.float64)
        return observed.reshape(len(payloads), -1), octets

    def _features(self, observed: Vectors, octets: Octets) -> Vectors:
        numbers, whole, bits = self._columns
        single = octets[:, bits // 8] >> (7 - bits % 8).astype(np.uint8) & 1
        return np.concatenate([observed[:, numbers], octets[:, whole], single], axis=1)


def _gaps(first: NDArray[Any], second: NDArray[Any]) -> Vectors:
    """Return |difference of means| in standard errors, column by column."""
    with np.errstate(all="ignore"):
        a, b = first.astype(np.float64), second.astype(np.float64)
        error = np.sqrt(a.var(axis=0) / len(a) + b.var(axis=0) / len(b))
        difference = np.abs(a.mean(axis=0) - b.mean(axis=0))
        gaps: Vectors = np.where(difference > 0, difference / error, 0.0)
    return gaps


def _bit_gaps(first: Octets, second: Octets) -> Vectors:
    """Return the gaps of all bits, in the order of ``numpy.unpackbits``."""
    parts = [
        _gaps(*(np.unpackbits(side[:, start : start + _BLOCK], axis=1) for side in (first, second)))
        for start in range(0, first.shape[1], _BLOCK)
    ]
    return np.concatenate(parts)


def _largest(gaps: Vectors) -> NDArray[np.intp]:
    return np.argsort(-np.nan_to_num(gaps, nan=0.0), kind="stable")[:_FEATURES]
