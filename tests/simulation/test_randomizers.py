"""Simulations on a device have the law of those in NumPy.

Every check has a false-alarm rate of ALPHA, and catches a twin with another budget.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from scipy import stats

import offaxis
from offaxis.randomizers import KaryResponse, SubsetSelection, make
from offaxis.randomizers.base import Box, Sphere
from offaxis.simulation import draw_observations, simulate
from tests.checks import ALPHA, mean_p_value
from tests.device_arrays import device_array, generator

DIM = 5
COUNT = 20_000
W = np.array([1.0, -0.5, 0.25, 2.0, 0.0])
LIBRARIES = ("torch", "jax")
RANDOMIZERS = (
    "laplace",
    "gaussian",
    "spherical-laplace",
    "privunit2",
    "privunitg",
    "privunitg-sphere",
    "privunit2-mean",
    "privunitg-mean",
    "projunit",
    "projunit-mean",
    "duchi",
    "piecewise",
    "hybrid",
)
ON_JAX = ("laplace", "spherical-laplace", "privunit2-mean", "privunitg", "projunit")
"""The rest differs from torch in nothing but the draws, which have tests of their own."""

CASES = [(name, "torch") for name in RANDOMIZERS] + [(name, "jax") for name in ON_JAX]


def randomizer(name: str, epsilon: float = 3, radius: float = 2.0) -> Any:
    delta = "1e-5" if name == "gaussian" else None
    return make(name, dim=DIM, radius=radius, epsilon=epsilon, delta=delta)


@cache
def simulated(name: str, library: str, epsilon: float = 3) -> np.ndarray:
    rows = np.tile(W, (COUNT, 1))
    if library == "numpy":
        return draw_observations(randomizer(name, epsilon), rows, np.random.default_rng(4))
    found = draw_observations(
        randomizer(name, epsilon), device_array(library, rows), generator(library)
    )
    assert type(found) is type(device_array(library, rows))
    return np.asarray(found, dtype=float)


def two_sample_p_value(a: np.ndarray, b: np.ndarray) -> float:
    """Kolmogorov–Smirnov along the vector, across it, and of the length (Bonferroni).

    Ties, as discrete observations have, only make it rarer to reject.
    """
    along, across = W / np.linalg.norm(W), np.array([0.5, 1.0, 0.0, 0.0, 0.0])
    values = [
        stats.ks_2samp(x, y, method="asymp").pvalue
        for x, y in (
            (a @ along, b @ along),
            (a @ across, b @ across),
            (np.linalg.norm(a, axis=1), np.linalg.norm(b, axis=1)),
        )
    ]
    return min(1.0, 3 * min(values))


@pytest.mark.parametrize(("name", "library"), CASES)
def test_a_device_draws_the_law_of_numpy(name: str, library: str) -> None:
    there, here = simulated(name, library), simulated(name, "numpy")
    assert two_sample_p_value(np.round(there, 4), np.round(here, 4)) > ALPHA
    twin = simulated(name, library, epsilon=6)
    assert two_sample_p_value(np.round(twin, 4), np.round(here, 4)) < ALPHA


@pytest.mark.parametrize(("name", "library"), CASES)
def test_a_device_has_the_mean_and_the_error_in_closed_form(name: str, library: str) -> None:
    one = randomizer(name)
    boundary = isinstance(one.domain, Sphere)
    clipped = W[None] if boundary else one.domain.project(W[None])
    wanted = one.domain.directions(W[None])[0] * one.radius if boundary else clipped[0]
    found = simulated(name, library)
    assert mean_p_value(found, wanted) > ALPHA
    assert mean_p_value(found, wanted * 1.2) < ALPHA
    if not isinstance(one.domain, Box):  # their error is declared at a corner of the box
        error = ((found - wanted) ** 2).sum(axis=1)
        assert mean_p_value(error, one.expected_squared_error()) > ALPHA
        assert mean_p_value(error, one.expected_squared_error() * 1.1) < ALPHA


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("law", [KaryResponse, SubsetSelection])
def test_symbols_are_named_as_often_as_they_should(law: Any, library: str) -> None:
    one = law(7, 2)
    own = device_array(library, np.arange(COUNT) % 7, "int32")
    found = np.asarray(draw_observations(one, own, generator(library)), dtype=float)
    named = found > 0
    assert (named.sum(axis=1) == one.named).all()
    is_own = np.eye(7, dtype=bool)[np.arange(COUNT) % 7]
    truly = named[is_own].astype(float)
    assert mean_p_value(truly[:, None], one.own_chance) > ALPHA
    assert mean_p_value(truly[:, None], law(7, 3).own_chance) < ALPHA
    # The observation is unbiased for the symbol, which also checks the others.
    for symbol in range(7):
        assert mean_p_value(found[symbol::7], np.eye(7)[symbol]) > ALPHA
    assert mean_p_value(found[::7], np.eye(7)[1]) < ALPHA


@pytest.mark.parametrize(
    ("name", "library"),
    [
        ("laplace", "torch"),
        ("privunit2", "torch"),
        ("response", "torch"),
        ("coordinatewise-laplace", "torch"),
        ("class-response", "torch"),
        ("laplace", "jax"),
        ("class-response", "jax"),
    ],
)
def test_a_whole_release_runs_on_a_device(
    name: str, library: str, head: Any, public: np.ndarray
) -> None:
    release = offaxis.fit(head, public, epsilon=4, mechanism=name)
    rows = np.tile(public[3], (COUNT, 1))
    found = simulate(release, device_array(library, rows), generator(library))
    wanted = simulate(release, np.tile(public[3], (10 * COUNT, 1)), np.random.default_rng(2))
    centre = wanted.mean(axis=0)
    # The centre is a mean itself, of twenty times as many: false alarms are below 2 ALPHA.
    assert mean_p_value(np.asarray(found, dtype=float)[: COUNT // 2], centre) > ALPHA
    other = simulate(release, device_array(library, rows * -2), generator(library))
    assert mean_p_value(np.asarray(other, dtype=float), centre) < ALPHA


@pytest.mark.parametrize(
    ("name", "library"),
    [
        ("laplace", "torch"),
        ("gaussian", "torch"),
        ("privunit2", "torch"),
        ("privunitg-mean", "torch"),
        ("projunit", "torch"),
        ("laplace", "jax"),
        ("privunitg", "jax"),
    ],
)
def test_extreme_vectors_are_simulated_on_a_device(name: str, library: str) -> None:
    scales = np.resize([0.0, 1e-42, 1e-30, 1.0, 1e14, -1e18], (COUNT, 1))
    rows = np.ones((COUNT, DIM)) * scales
    found = np.asarray(
        draw_observations(randomizer(name, 20), device_array(library, rows), generator(library))
    )
    assert np.isfinite(found).all()
    assert np.abs(found).max() < 100
    # A zero vector is any direction, or no vector: its mean is zero.
    assert mean_p_value(found[::6], 0.0) > ALPHA
    assert mean_p_value(found[::6], 0.3) < ALPHA
