"""Simulations on a device have the law of those in NumPy.

A check raises a false alarm with probability ALPHA, and rejects a broken control.
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
"""The others differ from torch only in the draws, which test_draws.py covers."""

CASES = [(name, "torch") for name in RANDOMIZERS] + [(name, "jax") for name in ON_JAX]


def randomizer(name: str, epsilon: float = 3, radius: float = 2.0) -> Any:
    delta = "1e-5" if name == "gaussian" else None
    return make(name, dim=DIM, radius=radius, epsilon=epsilon, delta=delta)


@cache
def simulated(name: str, library: str, epsilon: float = 3) -> np.ndarray:
    rows = np.tile(W, (COUNT, 1))
    if library == "numpy":
        return draw_observations(randomizer(name, epsilon), rows, np.random.default_rng(4))
    observed = draw_observations(
        randomizer(name, epsilon), device_array(library, rows), generator(library)
    )
    assert type(observed) is type(device_array(library, rows))
    return np.asarray(observed, dtype=float)


def two_sample_p_value(a: np.ndarray, b: np.ndarray) -> float:
    """Kolmogorov–Smirnov along the vector, orthogonal to it, and of the length (Bonferroni).

    Ties, which discrete observations have, only make rejections rarer.
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
def test_a_device_draws_the_same_law_as_numpy(name: str, library: str) -> None:
    on_device, in_numpy = simulated(name, library), simulated(name, "numpy")
    assert two_sample_p_value(np.round(on_device, 4), np.round(in_numpy, 4)) > ALPHA
    # Broken control: another budget.
    broken = simulated(name, library, epsilon=6)
    assert two_sample_p_value(np.round(broken, 4), np.round(in_numpy, 4)) < ALPHA


@pytest.mark.parametrize(("name", "library"), CASES)
def test_a_simulation_on_a_device_has_the_stated_mean_and_error(name: str, library: str) -> None:
    subject = randomizer(name)
    domain = subject.domain
    if isinstance(domain, Sphere):
        expected = domain.directions(W[None])[0] * subject.radius
    else:
        expected = domain.project(W[None])[0]
    observed = simulated(name, library)
    assert mean_p_value(observed, expected) > ALPHA
    assert mean_p_value(observed, expected * 1.2) < ALPHA
    if not isinstance(domain, Box):  # their error is stated at a corner of the box
        error = ((observed - expected) ** 2).sum(axis=1)
        assert mean_p_value(error, subject.expected_squared_error()) > ALPHA
        assert mean_p_value(error, subject.expected_squared_error() * 1.1) < ALPHA


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("kind", [KaryResponse, SubsetSelection])
def test_symbols_are_named_with_the_stated_probability(kind: Any, library: str) -> None:
    subject = kind(7, 2)
    own = device_array(library, np.arange(COUNT) % 7, "int32")
    observed = np.asarray(draw_observations(subject, own, generator(library)), dtype=float)
    named = observed > 0
    assert (named.sum(axis=1) == subject.named).all()
    is_own = np.eye(7, dtype=bool)[np.arange(COUNT) % 7]
    input_named = named[is_own].astype(float)
    assert mean_p_value(input_named[:, None], subject.own_chance) > ALPHA
    assert mean_p_value(input_named[:, None], kind(7, 3).own_chance) < ALPHA
    # The observation is unbiased for the symbol, which also checks the other symbols.
    for symbol in range(7):
        assert mean_p_value(observed[symbol::7], np.eye(7)[symbol]) > ALPHA
    assert mean_p_value(observed[::7], np.eye(7)[1]) < ALPHA


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
    on_device = simulate(release, device_array(library, rows), generator(library))
    in_numpy = simulate(release, np.tile(public[3], (10 * COUNT, 1)), np.random.default_rng(2))
    centre = in_numpy.mean(axis=0)
    # The centre is a mean too, of twenty times as many: false alarms are below 2 ALPHA.
    assert mean_p_value(np.asarray(on_device, dtype=float)[: COUNT // 2], centre) > ALPHA
    encoded = release.encoder.encode(public[3:4])
    unlike = next(z for z in -2 * public[3:] if (release.encoder.encode(z[None]) != encoded).any())
    far = np.tile(unlike, (COUNT, 1))
    other = simulate(release, device_array(library, far), generator(library))
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
    observed = np.asarray(
        draw_observations(randomizer(name, 20), device_array(library, rows), generator(library))
    )
    assert np.isfinite(observed).all()
    assert np.abs(observed).max() < 100
    # A zero vector has a random direction or stays zero: its mean is zero.
    assert mean_p_value(observed[::6], 0.0) > ALPHA
    assert mean_p_value(observed[::6], 0.3) < ALPHA
