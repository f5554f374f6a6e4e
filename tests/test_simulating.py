"""Simulations on a device have the law of those in NumPy.

Every check has a false-alarm rate of ALPHA, and catches a twin with another budget.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from scipy import stats

import offaxis
from offaxis.arrays import moved
from offaxis.decoding import LinearDecoder, posterior
from offaxis.encoding import AffineEncoder
from offaxis.encoding.network import ANSWERS
from offaxis.errors import InvalidInput
from offaxis.randomizers import KaryResponse, SubsetSelection, make
from offaxis.randomizers.domain import Ball, Box, Sphere
from tests.checks import ALPHA, mean_p_value

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


def device_array(library: str, rows: Any, dtype: str = "float32") -> Any:
    return (
        torch.tensor(rows, dtype=getattr(torch, dtype))
        if library == "torch"
        else (jnp.asarray(rows, dtype=dtype))
    )


def generator(library: str, seed: int = 5) -> Any:
    return torch.Generator().manual_seed(seed) if library == "torch" else jax.random.key(seed)


def randomizer(name: str, epsilon: float = 3, radius: float = 2.0) -> Any:
    delta = "1e-5" if name == "gaussian" else None
    return make(name, dim=DIM, radius=radius, epsilon=epsilon, delta=delta)


@cache
def simulated(name: str, library: str, epsilon: float = 3) -> np.ndarray:
    rows = np.tile(W, (COUNT, 1))
    if library == "numpy":
        return randomizer(name, epsilon).simulate(rows, np.random.default_rng(4))
    found = randomizer(name, epsilon).simulate(device_array(library, rows), generator(library))
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
    found = np.asarray(one.simulate(own, generator(library)), dtype=float)
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
    release = offaxis.fit(head, public, epsilon=4, randomizer=name)
    rows = np.tile(public[3], (COUNT, 1))
    found = release.simulate(device_array(library, rows), generator(library))
    wanted = release.simulate(np.tile(public[3], (10 * COUNT, 1)), np.random.default_rng(2))
    centre = wanted.mean(axis=0)
    # The centre is a mean itself, of twenty times as many: false alarms are below 2 ALPHA.
    assert mean_p_value(np.asarray(found, dtype=float)[: COUNT // 2], centre) > ALPHA
    other = release.simulate(device_array(library, rows * -2), generator(library))
    assert mean_p_value(np.asarray(other, dtype=float), centre) < ALPHA


def test_one_vector_is_answered_by_one(release: offaxis.Release, public: np.ndarray) -> None:
    assert release.simulate(torch.tensor(public[3]), generator("torch")).shape == (6,)


def test_a_posterior_over_codewords_runs_on_a_device(head: Any, public: np.ndarray) -> None:
    release = offaxis.fit(head, public, epsilon=2, randomizer="response")
    release = replace(release, decoder=posterior(release, public))
    vectors = torch.tensor(public)
    found = release.simulate(vectors, torch.Generator().manual_seed(0))
    assert found.dtype == torch.float64
    codewords = torch.tensor(release.decoder.codewords)
    assert (found >= codewords.amin(dim=0) - 1e-12).all()
    assert (found <= codewords.amax(dim=0) + 1e-12).all()


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64"])
def test_a_tensor_stays_what_it_is(dtype: str, release: offaxis.Release, public: Any) -> None:
    vectors = device_array("torch", public, dtype)
    first, again, other = (
        release.simulate(vectors, generator("torch", seed)) for seed in (1, 1, 2)
    )
    assert (first.dtype, first.shape) == (vectors.dtype, vectors.shape)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    wanting = vectors.float().requires_grad_()
    assert not release.simulate(wanting, generator("torch")).requires_grad


def test_large_batches_are_cut_and_keep_their_order(
    monkeypatch: pytest.MonkeyPatch, public: np.ndarray
) -> None:
    quiet = offaxis.fit(None, public, epsilon=10_000, reshaping="none", percentile=100)
    monkeypatch.setattr("offaxis.simulating._DEVICE_NUMBERS", 60)
    found = quiet.simulate(torch.tensor(public), generator("torch"))
    np.testing.assert_allclose(found, public, atol=0.2)


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
        randomizer(name, 20).simulate(device_array(library, rows), generator(library))
    )
    assert np.isfinite(found).all()
    assert np.abs(found).max() < 100
    # A zero vector is any direction, or no vector: its mean is zero.
    assert mean_p_value(found[::6], 0.0) > ALPHA
    assert mean_p_value(found[::6], 0.3) < ALPHA


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_clipping_on_a_device_is_numpy_s(dtype: str) -> None:
    rng = np.random.default_rng(3)
    top = 18 if dtype == "float32" else 300
    rows = rng.standard_normal((400, DIM)) * 10.0 ** rng.integers(-10, top, (400, 1))
    rows = rows.astype(dtype).astype(np.float64)
    for order in (1, 2):
        ball = Ball(DIM, 1.5, order)
        found = ball.project(device_array("torch", rows, dtype))
        tolerance = 1e-5 if dtype == "float32" else 1e-13
        np.testing.assert_allclose(found, ball.project(rows), rtol=tolerance, atol=1e-30)
    directions = Sphere(DIM, 1.0).project(device_array("torch", rows, dtype), None)
    np.testing.assert_allclose(directions, Sphere(DIM, 1.0).directions(rows), atol=1e-5)


def test_what_runs_in_numpy_only_says_so_and_runs_there(
    release: offaxis.Release, public: np.ndarray
) -> None:
    release = replace(release, decoder=posterior(release, public))
    vectors = torch.tensor(public)
    with pytest.raises(InvalidInput, match=r"posterior map .* NumPy only: pass rng=numpy\.random"):
        release.simulate(vectors, generator("torch"))
    assert release.simulate(vectors, np.random.default_rng(0)).dtype == torch.float64


@pytest.mark.parametrize("activation", ["identity", "relu", "tanh", "logistic", "gelu"])
def test_a_network_on_a_device_is_numpy_s(activation: str) -> None:
    rng = np.random.default_rng(8)
    weights = [rng.standard_normal(shape) for shape in ((7, 5), (3, 7))]
    network = ANSWERS[activation](weights, [rng.standard_normal(len(w)) for w in weights])
    rows = rng.standard_normal((50, 5))
    for library, dtype, atol in (("torch", "float64", 1e-12), ("jax", "float32", 1e-4)):
        there = device_array(library, rows, dtype)
        found = moved(network, there).apply(there)
        np.testing.assert_allclose(found, network.apply(rows), atol=atol)
        huge = device_array(library, rows * 1e16, dtype)
        assert np.isfinite(np.asarray(moved(network, huge).apply(huge))).all()


@pytest.mark.parametrize(
    ("vectors", "message"),
    [
        (torch.zeros(2, 5), "dimension 6, got 5"),
        (torch.zeros(0, 6), "empty"),
        (torch.full((3, 6), float("nan")), r"nan at index \(0, 0\)"),
        (torch.full((3, 6), float("-inf")), r"inf at index \(0, 0\)"),
        (torch.full((3, 6), 1e30), "too long for float32"),
        (torch.zeros(3, 6, dtype=torch.bool), "real numbers"),
        (torch.zeros(3, 6, dtype=torch.complex64), "real numbers"),
    ],
)
def test_bad_tensors_are_refused(vectors: Any, message: str, release: offaxis.Release) -> None:
    with pytest.raises(InvalidInput, match=message):
        release.simulate(vectors, generator("torch"))


def test_numbers_too_wide_for_single_precision_are_refused(public: np.ndarray) -> None:
    wide = offaxis.fit(None, public * 1e20, epsilon=1, reshaping="none")
    vectors = torch.tensor(public)
    with pytest.raises(InvalidInput, match="too narrow for radius"):
        wide.simulate(vectors.float(), generator("torch"))
    assert wide.simulate(vectors * 1e20, generator("torch")).isfinite().all()
    plain = offaxis.fit(None, public, epsilon=1, reshaping="none")
    steep = replace(
        plain,
        encoder=AffineEncoder(np.eye(6) * 1e30, np.zeros(6)),
        decoder=LinearDecoder(np.eye(6), np.zeros(6)),
    )
    with pytest.raises(InvalidInput, match="single precision"):
        steep.simulate(vectors.float(), generator("torch"))
    assert steep.simulate(vectors * 1e300, generator("torch")).isfinite().all()


def test_a_seed_never_makes_a_report(release: offaxis.Release, public: np.ndarray) -> None:
    vectors = torch.tensor(public[:3])
    for rng in (generator("torch"), generator("jax"), np.random.default_rng(0)):
        with pytest.raises(TypeError, match="Entropy"):
            release.randomizer.report(release.encoder.encode(public[:3]), rng)
    torch.manual_seed(0)
    first = release.privatize(vectors)
    torch.manual_seed(0)
    assert release.privatize(vectors) != first
