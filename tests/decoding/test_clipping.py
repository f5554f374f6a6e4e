"""Intervals of means include the bias of clipping, under a stated bound on the vectors."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import offaxis
from offaxis.decoding import Aggregate, LinearDecoder, aggregate
from offaxis.encoding import Encoder
from offaxis.errors import BiasedDecoder, InvalidInput
from offaxis.evaluation.metrics import without_noise
from offaxis.geometry import Layers
from offaxis.randomizers.base import Box
from offaxis.vectors import row_norms
from tests.checks import ALPHA

RNG = np.random.default_rng(0)
PUBLIC = RNG.standard_normal((2000, 4)) @ np.diag([2.0, 1.0, 1.0, 0.5]) + 3.0
WEIGHT = RNG.standard_normal((2, 4))
HEAD = Layers.linear(WEIGHT, -3.0 * WEIGHT.sum(axis=1))
SETTINGS: list[dict[str, Any]] = [
    {"goal": "means"},
    {"mechanism": "laplace"},
    {"mechanism": "laplace", "reshaping": "none"},
    {"mechanism": "gaussian", "delta": "1e-5"},
    {"mechanism": "spherical-laplace", "reshaping": "centre"},
    {"mechanism": "duchi"},
    {"mechanism": "piecewise", "reshaping": "centre"},
    {"mechanism": "hybrid"},
    {"mechanism": "projunit-mean"},
]


def fitted(**settings: Any) -> offaxis.Release:
    return offaxis.fit(HEAD, PUBLIC, epsilon=4, **settings)


def largest_length(release: offaxis.Release, vectors: np.ndarray) -> float:
    """Return the length of the longest encoded vector, as a multiple of the radius."""
    domain: Any = release.randomizer.domain
    encoder: Encoder = release.encoder
    encoded = encoder.encode(vectors)
    sizes = np.abs(encoded) if isinstance(domain, Box) else row_norms(encoded, domain.order)
    return max(1.0, float(sizes.max()) / domain.radius)


@pytest.fixture(scope="module", params=range(len(SETTINGS)))
def release(request: pytest.FixtureRequest) -> offaxis.Release:
    return fitted(**SETTINGS[request.param])


def aggregate_of(release: offaxis.Release, vectors: np.ndarray, groups: Any = None) -> Aggregate:
    reports = release.privatize(vectors)
    assert isinstance(reports, list)
    return release.aggregate(reports, groups=groups)


@given(scale=st.floats(0.1, 30), shift=st.floats(-20, 20), seed=st.integers(0, 2**32 - 1))
def test_the_bound_contains_the_bias_of_any_population(release, scale, shift, seed):
    """The bias is known exactly without noise; the broken control ignores clipping."""
    people = np.random.default_rng(seed).standard_normal((50, 4)) * scale + 3.0 + shift
    largest = largest_length(release, people)
    bias = np.abs((without_noise(release, people) - people).mean(axis=0))
    known = release.known_error
    assert (bias <= (largest - 1) * known.radius + known.rounding + 1e-9).all()


def test_the_bound_is_reached(release):
    """A population at one point, in the worst direction of a coordinate, has the bound as bias."""
    domain: Any = release.randomizer.domain
    matrix = getattr(release.unbiased_decoder, "matrix", np.eye(4))
    row, largest = matrix[0], 3.0
    if isinstance(domain, Box):
        worst = np.sign(row)
    else:
        worst = np.eye(4)[np.abs(row).argmax()] if domain.order == 1 else row / np.linalg.norm(row)
    encoded = largest * domain.radius * worst[None]
    decoder = release.unbiased_decoder
    moved = decoder.decode(encoded) - decoder.decode(domain.project(encoded))
    bound = (largest - 1) * release.known_error.radius[0]
    assert abs(moved[0, 0]) == pytest.approx(bound)


def test_rounding_of_exact_reports_is_within_its_bound():
    """The mean of a point between two lattice steps is off by less than one; noise at ε = 200.

    A false alarm has probability ALPHA.
    """
    release = offaxis.fit(
        None, PUBLIC, epsilon=200, mechanism="laplace", reshaping="centre", percentile=100
    )
    step = release.randomizer.resolution  # type: ignore[attr-defined]
    point = PUBLIC.mean(axis=0) + 1000.9 * step
    means = aggregate_of(release, np.tile(point, (4000, 1)))
    off, error = np.abs(means.estimate - point), means.standard_error
    assert (off <= release.known_error.rounding + stats.norm.isf(ALPHA / 8) * error).all()
    assert release.known_error.rounding == pytest.approx(step)


def test_a_mean_of_clipped_vectors_has_no_interval_without_a_bound(release):
    means = aggregate_of(release, PUBLIC[:100])
    with pytest.raises(BiasedDecoder, match="largest=1"):
        means.interval(0.95)
    low, high = means.interval(0.95, largest=1)
    wider = means.interval(0.95, largest=2)
    np.testing.assert_allclose(high - wider[1], -release.known_error.radius)
    np.testing.assert_allclose(low - wider[0], release.known_error.radius)
    for wrong in (0.5, float("nan"), "two"):
        with pytest.raises(InvalidInput, match="largest"):
            means.interval(0.95, largest=wrong)  # type: ignore[arg-type]


def test_rows_that_are_not_reports_take_no_bound():
    means = aggregate([PUBLIC])
    assert (means.interval()[0] < means.estimate).all()
    with pytest.raises(InvalidInput, match="not clipped"):
        means.interval(largest=1)


def test_groups_keep_the_bound():
    release = fitted(goal="means")
    groups = ["north", "south"] * 50
    means = aggregate_of(release, PUBLIC[:100], groups)
    with pytest.raises(BiasedDecoder):
        means.of("north").interval()
    together, alone = means.interval(largest=1), means.of("south").interval(largest=1)
    np.testing.assert_allclose(together[0][1], alone[0])


@pytest.mark.parametrize("population", ["like", "moved", "scaled"])
def test_intervals_cover_for_every_population(population):
    """Coverage over 400 rounds of 200 people, and a broken control that ignores clipping.

    A false alarm has probability ALPHA.
    """
    release = fitted(mechanism="laplace", percentile=50)
    people = {
        "like": PUBLIC,
        "moved": PUBLIC + 12 * np.eye(4)[0],
        "scaled": 3.0 + 6 * (PUBLIC - 3.0),
    }[population]
    rng = np.random.default_rng(1)
    largest, rounds = largest_length(release, people), 400
    clipped, truth = without_noise(release, people).mean(axis=0), people.mean(axis=0)
    hits = np.zeros(3)
    for _ in range(rounds):
        drawn = people[rng.integers(0, len(people), 2000)]
        means = aggregate([offaxis.simulate(release, drawn, rng)])
        means = Aggregate(
            means.estimate,
            means.standard_error,
            means.count,
            means.effective_count,
            known_error=release.known_error,
        )
        for index, (bound, value) in enumerate(((1, clipped), (largest, truth), (1, truth))):
            low, high = means.interval(0.95, largest=bound)
            hits[index] += low[0] <= value[0] <= high[0]
    assert stats.binomtest(int(hits[0]), rounds, 0.95).pvalue > ALPHA
    assert stats.binom.cdf(hits[1], rounds, 0.95) > ALPHA
    if population == "moved":
        assert stats.binom.cdf(hits[2], rounds, 0.95) < ALPHA


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"goal": "vectors"},
        {"mechanism": "subset", "size": 8},
        {"mechanism": "laplace", "reshaping": "optimal"},
        {"mechanism": "privunit2"},
    ],
)
def test_releases_whose_means_have_an_unknown_bias_have_no_means(settings):
    """Each used to give means with intervals that covered the truth far too rarely."""
    release = fitted(**settings)
    reports = [bytes(release.privatize(vector)) for vector in PUBLIC[:20]]  # type: ignore[arg-type]
    assert not release.supports_mean
    for method in (release.aggregate, release.decode_mean):
        with pytest.raises(BiasedDecoder, match=r"shares\(\)|goal='means'"):
            method(reports)


@pytest.mark.parametrize(
    "settings",
    [
        {"mechanism": "coordinatewise-laplace"},
        {"mechanism": "coordinatewise-gaussian", "delta": "1e-5"},
        # Padding to a power of two makes the decoder square, although a direction is left out.
        {"mechanism": "instance-optimal", "delta": "1e-5", "reshaping": "optimal"},
    ],
)
def test_maps_that_are_not_inverted_have_no_means(settings):
    """They used to have intervals with ``largest=1`` that missed the mean in every round."""
    task = Layers.linear(np.eye(4)[:3])
    assert not offaxis.fit(task, PUBLIC, epsilon=4, **settings).supports_mean
    settings = {name: value for name, value in settings.items() if name != "reshaping"}
    whole = offaxis.fit(Layers.linear(np.eye(4)), PUBLIC, epsilon=4, **settings)
    assert whole.supports_mean == (settings["mechanism"] == "instance-optimal")


def test_a_mean_decoder_that_does_not_invert_the_encoder_gives_no_means(tmp_path):
    release = fitted(goal="means")
    wrong = replace(release, mean_decoder=LinearDecoder(np.eye(4) / 2, np.full(4, 7.0)))
    wrong.save(tmp_path / "wrong.release")
    loaded = offaxis.load(tmp_path / "wrong.release")
    assert release.supports_mean
    assert not loaded.supports_mean


def test_equal_reports_do_not_make_an_interval_a_point():
    """In one dimension at ε = 8, fifty reports of people at the boundary are usually equal.

    A false alarm has probability ALPHA; the standard error alone would give a point.
    """
    public = np.linspace(-1, 1, 101)[:, None]
    boundary: list[dict[str, Any]] = [
        {"goal": "means"},
        {"mechanism": "duchi", "reshaping": "centre", "percentile": 100},
    ]
    for settings in boundary:
        release = offaxis.fit(None, public, epsilon=8, **settings)
        hits, points = 0, 0
        for _ in range(100):
            means = aggregate_of(release, np.ones((50, 1)))
            low, high = means.interval(0.95, largest=1)
            hits += bool(low[0] <= 1 <= high[0])
            points += bool(means.standard_error[0] < 1e-9)
        assert stats.binom.cdf(hits, 100, 0.95) > ALPHA
        assert points > 50


def test_few_reports_of_a_coordinate_have_a_wide_interval():
    """Each report carries one of 64 coordinates: fifty reports say next to nothing about one."""
    public = np.random.default_rng(2).uniform(-1, 1, (500, 64))
    release = offaxis.fit(None, public, epsilon=1, mechanism="piecewise", reshaping="none")
    assert release.known_error.reported_share == 1 / 64
    low, high = aggregate_of(release, public[:50]).interval(0.95, largest=1)
    assert np.isinf(high - low).all()
    low, high = aggregate_of(release, np.tile(public, (20, 1))).interval(0.95, largest=1)
    assert np.isfinite(high - low).all()


@pytest.mark.parametrize(
    "name", ["privunit2-mean", "privunitg-mean", "projunit-mean", "duchi", "piecewise", "hybrid"]
)
def test_rare_reports_that_were_not_seen_are_counted(name):
    """At ε = 8, fifty reports near the boundary seldom contain one of the rare far values.

    Coverage used to be 25 %. A false alarm has probability ALPHA.
    """
    public = np.linspace(-1, 1, 101)[:, None]
    settings = {"mechanism": name, "reshaping": "centre", "percentile": 100}
    release = offaxis.fit(None, public, epsilon=8, **settings)
    known, rng = release.known_error, np.random.default_rng(0)
    for position in (0.5, 0.989):
        hits = 0
        for _ in range(200):
            drawn = offaxis.simulate(release, np.full((50, 1), position), rng)
            low, high = replace(aggregate([drawn]), known_error=known).interval(0.95, largest=1)
            hits += bool(low[0] <= position <= high[0])
        assert stats.binom.cdf(hits, 200, 0.95) > ALPHA


def test_many_reports_or_dimensions_need_no_such_addition():
    public = np.random.default_rng(2).uniform(-1, 1, (500, 8))
    wide = offaxis.fit(None, public, epsilon=8, goal="means").known_error
    assert wide.rare == 1
    few = offaxis.fit(None, public[:, :1], epsilon=2, goal="means")
    means = aggregate([offaxis.simulate(few, np.tile(public[:, :1], (4, 1)), RNG)])
    low, high = replace(means, known_error=few.known_error).interval(0.95, largest=1)
    plain = means.interval(0.95)
    np.testing.assert_allclose(high - low, plain[1] - plain[0] + 2 * few.known_error.rounding)
