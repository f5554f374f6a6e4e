"""scikit-learn's own estimator checks, on the transformer and on a twin without its noise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

import offaxis
from offaxis.integrations.sklearn import PrivateVectors, SimulatedVectors

INHERENT = {
    "check_estimators_pickle": (
        "compares transform before and after pickling, but every transform draws new noise; the "
        "noiseless twin below passes it, and test_a_pickled_transformer_keeps_its_release"
    ),
    "check_fit_idempotent": (
        "compares transform after two fits, but every transform draws new noise; the noiseless "
        "twin below passes it, and test_fitting_twice_gives_the_same_release"
    ),
}
"""Both fail for the noise alone. There is no random_state to switch it off, and must not be."""


class NoiselessRelease:
    """Encode, clip and decode without any noise: protects nobody, so it lives in this test."""

    def __init__(self, release: offaxis.Release) -> None:
        self._release = release

    def privatize(self, vectors: Any) -> np.ndarray:
        encoded = self._release.encoder.encode(np.asarray(vectors, dtype=np.float64))
        return self._release.randomizer.domain.project(encoded)

    def decode(self, clipped: np.ndarray) -> np.ndarray:
        return self._release.decoder.decode(clipped)


class NoiselessTwin(PrivateVectors):
    """The transformer as it is, around a noiseless release: every check must pass, none skip."""

    def fit(self, X: Any, y: Any = None) -> NoiselessTwin:
        super().fit(X, y)
        self.release_ = NoiselessRelease(self.release_)
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = False
        return tags


REFUSES_PROMISES = pytest.mark.filterwarnings("ignore:InvalidInput occurred during set_params")
"""set_params refuses another ε, δ or unit, which scikit-learn allows and recommends against."""


@REFUSES_PROMISES
@parametrize_with_checks(
    [PrivateVectors(epsilon=1), PrivateVectors(epsilon=5, reshaping="none")],
    expected_failed_checks=lambda estimator: INHERENT,
)
def test_the_transformer_passes_the_checks(estimator: Any, check: Any) -> None:
    check(estimator)


@REFUSES_PROMISES
@parametrize_with_checks([SimulatedVectors(PrivateVectors(epsilon=5))])
def test_the_simulation_passes_every_check(estimator: Any, check: Any) -> None:
    check(estimator)


@REFUSES_PROMISES
@parametrize_with_checks([NoiselessTwin(epsilon=1), NoiselessTwin(epsilon=1, reshaping="none")])
def test_without_its_noise_the_transformer_passes_every_check(estimator: Any, check: Any) -> None:
    check(estimator)
