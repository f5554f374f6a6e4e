"""The image-level corollary: its guarantee on the composed map, and what breaks it."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy.special import betaincinv

import offaxis
from offaxis.errors import InvalidInput
from offaxis.theory import FeatureExtraction, image_level_guarantee
from tests.checks import ALPHA

EPSILON = 2
REPORTS = 20_000

DARK, BRIGHT = np.full((4, 4), -50.0), np.full((4, 4), 50.0)
"""Images far outside the public ones: clipping puts their vectors on opposite ends of the ball."""

View = Callable[[np.ndarray], np.ndarray]
"""What an observer sees of an image, many times: one number per observation."""


def extract(images):
    """A fixed public extractor: the mean brightness, one image at a time."""
    return np.reshape(images, (len(images), 16)).mean(axis=1, keepdims=True)


@pytest.fixture(scope="module")
def examples() -> list[np.ndarray]:
    return list(np.random.default_rng(5).random((200, 4, 4)))


@pytest.fixture(scope="module")
def release(examples) -> offaxis.Release:
    return offaxis.fit(np.eye(1), extract(examples), epsilon=EPSILON, mechanism="laplace")


def on_client(function=extract) -> FeatureExtraction:
    return FeatureExtraction(function, fitted_on="public", runs_on="client")


def lowest_epsilon(view: View) -> float:
    """A lower confidence limit on the ε of a view, for two images; wrong with probability ALPHA.

    An observer guesses "bright" beyond a threshold. The threshold with the best limit on the first
    half of the observations is used on the second. Limits on log(p/q) by Clopper and Pearson, at
    ALPHA/2 for each probability.
    """
    dark, bright = view(DARK), view(BRIGHT)
    half = len(dark) // 2
    grid = np.quantile(np.concatenate([dark[:half], bright[:half]]), np.linspace(0.01, 0.99, 99))
    best = max(
        grid, key=lambda threshold: _limit(dark[:half] > threshold, bright[:half] > threshold)
    )
    return _limit(dark[half:] > best, bright[half:] > best)


def _limit(alarms: np.ndarray, hits: np.ndarray) -> float:
    n, misses, found = len(hits), int(alarms.sum()), int(hits.sum())
    lowest = betaincinv(found, n - found + 1, ALPHA / 2) if found else 0.0
    highest = betaincinv(misses + 1, n - misses, 1 - ALPHA / 2) if misses < n else 1.0
    return math.log(lowest / highest) if lowest else -math.inf


def reports_of(release: offaxis.Release) -> View:
    """The decoded reports of the composed map."""

    def view(image: np.ndarray) -> np.ndarray:
        reports = release.privatize(np.repeat(extract([image]), REPORTS, axis=0))
        return release.decode(reports)[:, 0]

    return view


def test_the_composed_map_has_the_guarantee_of_the_release(release, examples):
    guarantee = image_level_guarantee(release, on_client(), examples[:10])
    assert guarantee.epsilon == release.guarantee.epsilon == EPSILON
    assert (guarantee.delta, guarantee.unit) == (release.guarantee.delta, release.guarantee.unit)
    assert set(release.guarantee.assumptions) < set(guarantee.assumptions)
    assert any("runs on the client" in text for text in guarantee.assumptions)
    assert any("fitted on public data only" in text for text in guarantee.assumptions)


def test_an_approximate_guarantee_and_the_unit_carry_over(examples):
    settings = {"epsilon": 3, "delta": "1e-6", "mechanism": "gaussian", "unit": "user"}
    release = offaxis.fit(np.eye(1), extract(examples), **settings)
    guarantee = image_level_guarantee(release, on_client(), examples[:10])
    assert (guarantee.epsilon, guarantee.delta, guarantee.unit) == (
        3,
        release.guarantee.delta,
        "user",
    )


def test_no_two_images_are_told_apart_better_than_the_guarantee_allows(release, examples):
    """Real reports of the two extreme images. False alarm: ALPHA.

    The limit is near ε for the worst pair of images; half of the noise is a broken control.
    """
    assert 1.5 < lowest_epsilon(reports_of(release)) <= EPSILON
    half_the_noise = offaxis.fit(
        np.eye(1), extract(examples), epsilon=2 * EPSILON, mechanism="laplace"
    )
    assert lowest_epsilon(reports_of(half_the_noise)) > EPSILON


def test_an_extractor_fitted_on_the_private_image_reveals_it(release):
    """Its published centre is the image itself: the view violates ε, and the statement is refused.

    All reports are still (ε, 0) for vectors. What breaks the guarantee is the extractor.
    """

    def published(image: np.ndarray) -> np.ndarray:
        return np.full(REPORTS, image.mean())  # everyone knows the extractor's parameters

    assert lowest_epsilon(published) > EPSILON
    fitted = FeatureExtraction(extract, fitted_on="private", runs_on="client")
    with pytest.raises(InvalidInput, match="'fixed public extractor' fails"):
        image_level_guarantee(release, fitted, [DARK, BRIGHT])


def test_a_server_that_extracts_the_vector_has_seen_the_image(release):
    def seen_by_the_server(image: np.ndarray) -> np.ndarray:
        return np.full(REPORTS, extract([image])[0, 0])

    assert lowest_epsilon(seen_by_the_server) > EPSILON
    remote = FeatureExtraction(extract, fitted_on="public", runs_on="server")
    with pytest.raises(InvalidInput, match=r"'extracted on the client' fails.*vector only"):
        image_level_guarantee(release, remote, [DARK, BRIGHT])


def test_an_extractor_that_mixes_images_is_rejected(release, examples):
    """Batch normalisation in training mode: the vector of one image carries the others."""

    def normalised(images):
        rows = extract(images)
        return rows - rows.mean(axis=0)

    with pytest.raises(InvalidInput, match=r"'one image, one vector' fails.*evaluation mode"):
        image_level_guarantee(release, on_client(normalised), examples[:10])


def test_a_random_extractor_is_rejected(release, examples):
    rng = np.random.default_rng(6)

    def augmented(images):
        return extract(images) + rng.normal(size=(len(images), 1))

    with pytest.raises(InvalidInput, match="'deterministic extractor' fails"):
        image_level_guarantee(release, on_client(augmented), examples[:10])


@pytest.mark.parametrize(
    "broken", [lambda x: np.tile(extract(x), 2), lambda x: extract(x) * np.nan]
)
def test_vectors_that_do_not_fit_the_release_are_rejected(release, examples, broken):
    with pytest.raises(InvalidInput, match="'vectors of the release' fails"):
        image_level_guarantee(release, on_client(broken), examples[:10])


def test_wrong_declarations_are_rejected(release):
    with pytest.raises(InvalidInput, match="fitted_on='both'"):
        FeatureExtraction(extract, fitted_on="both", runs_on="client")
    with pytest.raises(InvalidInput, match="runs_on"):
        FeatureExtraction(extract, fitted_on="public", runs_on="edge")
    with pytest.raises(InvalidInput, match="at least two"):
        image_level_guarantee(release, on_client(), [DARK])
