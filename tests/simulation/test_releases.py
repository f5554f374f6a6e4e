"""A release simulated on a device agrees with NumPy; what a device cannot do is rejected."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import offaxis
from offaxis.decoding import LinearDecoder, PosteriorCodewordDecoder
from offaxis.encoding import AffineEncoder
from offaxis.encoding.encoders import ANSWERS
from offaxis.errors import InvalidInput
from offaxis.mechanisms import posterior
from offaxis.randomizers.base import Ball, Sphere
from offaxis.simulation import simulate
from offaxis.simulation.randomizers import unit_directions
from offaxis.vectors import moved
from tests.device_arrays import device_array, generator

DIM = 5


def test_one_vector_gives_one_vector(release: offaxis.Release, public: np.ndarray) -> None:
    assert simulate(release, torch.tensor(public[3]), generator("torch")).shape == (6,)


def test_a_posterior_over_codewords_runs_on_a_device(head: Any, public: np.ndarray) -> None:
    release = offaxis.fit(head, public, epsilon=2, mechanism="response")
    release = replace(release, decoder=posterior(release, public))
    vectors = torch.tensor(public)
    decoded = simulate(release, vectors, torch.Generator().manual_seed(0))
    assert decoded.dtype == torch.float64
    assert isinstance(release.decoder, PosteriorCodewordDecoder)
    codewords = torch.tensor(release.decoder.codewords)
    assert (decoded >= codewords.amin(dim=0) - 1e-12).all()
    assert (decoded <= codewords.amax(dim=0) + 1e-12).all()


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64"])
def test_a_tensor_keeps_its_dtype_shape_and_seed(
    dtype: str, release: offaxis.Release, public: Any
) -> None:
    vectors = device_array("torch", public, dtype)
    first, again, other = (
        simulate(release, vectors, generator("torch", seed)) for seed in (1, 1, 2)
    )
    assert (first.dtype, first.shape) == (vectors.dtype, vectors.shape)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    with_gradient = vectors.float().requires_grad_()
    assert not simulate(release, with_gradient, generator("torch")).requires_grad


def test_large_batches_are_chunked_and_keep_their_order(
    monkeypatch: pytest.MonkeyPatch, public: np.ndarray
) -> None:
    nearly_exact = offaxis.fit(
        None, public, epsilon=10_000, reshaping="none", percentile=100, mechanism="laplace"
    )
    monkeypatch.setattr("offaxis.simulation.releases._DEVICE_NUMBERS", 60)
    decoded = simulate(nearly_exact, torch.tensor(public), generator("torch"))
    np.testing.assert_allclose(decoded, public, atol=0.2)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_clipping_on_a_device_agrees_with_numpy(dtype: str) -> None:
    rng = np.random.default_rng(3)
    top = 18 if dtype == "float32" else 300
    rows = rng.standard_normal((400, DIM)) * 10.0 ** rng.integers(-10, top, (400, 1))
    rows = rows.astype(dtype).astype(np.float64)
    for order in (1, 2):
        ball = Ball(DIM, 1.5, order)
        projected = ball.project(device_array("torch", rows, dtype))
        tolerance = 1e-5 if dtype == "float32" else 1e-13
        np.testing.assert_allclose(projected, ball.project(rows), rtol=tolerance, atol=1e-30)
    directions = unit_directions(Sphere(DIM, 1.0), device_array("torch", rows, dtype), None)
    np.testing.assert_allclose(directions, Sphere(DIM, 1.0).directions(rows), atol=1e-5)


def test_a_map_that_runs_in_numpy_only_is_rejected_on_a_device(
    release: offaxis.Release, public: np.ndarray
) -> None:
    release = replace(release, decoder=posterior(release, public))
    vectors = torch.tensor(public)
    with pytest.raises(InvalidInput, match=r"posterior map .* NumPy only: pass rng=numpy\.random"):
        simulate(release, vectors, generator("torch"))
    assert simulate(release, vectors, np.random.default_rng(0)).dtype == torch.float64


@pytest.mark.parametrize("activation", ANSWERS)
def test_a_network_on_a_device_agrees_with_numpy(activation: str) -> None:
    rng = np.random.default_rng(8)
    weights = [rng.standard_normal(shape) for shape in ((7, 5), (3, 7))]
    network = ANSWERS[activation](weights, [rng.standard_normal(len(w)) for w in weights])
    rows = rng.standard_normal((50, 5))
    for library, dtype, atol in (("torch", "float64", 1e-12), ("jax", "float32", 1e-4)):
        on_device = device_array(library, rows, dtype)
        outputs = moved(network, on_device).apply(on_device)
        np.testing.assert_allclose(outputs, network.apply(rows), atol=atol)
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
def test_bad_tensors_are_rejected(vectors: Any, message: str, release: offaxis.Release) -> None:
    with pytest.raises(InvalidInput, match=message):
        simulate(release, vectors, generator("torch"))


def test_numbers_too_large_for_single_precision_are_rejected(public: np.ndarray) -> None:
    wide = offaxis.fit(None, public * 1e20, epsilon=1, reshaping="none", mechanism="laplace")
    vectors = torch.tensor(public)
    with pytest.raises(InvalidInput, match="too narrow for radius"):
        simulate(wide, vectors.float(), generator("torch"))
    assert simulate(wide, vectors * 1e20, generator("torch")).isfinite().all()
    plain = offaxis.fit(None, public, epsilon=1, reshaping="none", mechanism="laplace")
    steep = replace(
        plain,
        encoder=AffineEncoder(np.eye(6) * 1e30, np.zeros(6)),
        decoder=LinearDecoder(np.eye(6), np.zeros(6)),
    )
    with pytest.raises(InvalidInput, match="single precision"):
        simulate(steep, vectors.float(), generator("torch"))
    assert simulate(steep, vectors * 1e300, generator("torch")).isfinite().all()


def test_a_seed_never_makes_a_report(release: offaxis.Release, public: np.ndarray) -> None:
    vectors = torch.tensor(public[:3])
    encoded = release.encoder.encode(public[:3])
    for rng in (generator("torch"), generator("jax"), np.random.default_rng(0)):
        with pytest.raises(TypeError, match="Entropy"):
            release.randomizer.report(encoded, rng)  # type: ignore[arg-type]
    torch.manual_seed(0)
    first = release.privatize(vectors)
    torch.manual_seed(0)
    assert release.privatize(vectors) != first
