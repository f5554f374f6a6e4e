"""Rivals do the same work as offaxis; otherwise a race would be meaningless."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch
from scipy import stats

import offaxis
from benchmarks.groups import task
from benchmarks.rivals import installed, missing_rivals
from benchmarks.rivals.maps import linear_parts, noise_of
from benchmarks.rivals.numpy import add_noise, gram_one_by_one, simulate, simulate_one_by_one
from benchmarks.rivals.sklearn import covariance, whitening
from benchmarks.rivals.torch import Simulation, as_module, gram_by_autograd, gram_by_jacrev
from offaxis.geometry import PublicVectors, measure
from offaxis.vectors import Vectors

ALPHA = 1e-6
"""False-alarm rate of each statistical test."""


@pytest.fixture(scope="module")
def gram() -> Vectors:
    return measure(task.data().head, PublicVectors(task.vectors(50))).gram * 50


def test_all_computations_of_the_gram_agree(gram: Vectors) -> None:
    head, Z = task.data().head, task.vectors(50)
    module, tensor = as_module(head), torch.as_tensor(Z, dtype=torch.float32)
    assert np.allclose(gram_one_by_one(head, Z), gram, rtol=1e-9)
    scale = np.abs(gram).max()
    assert np.allclose(gram_by_autograd(module, tensor), gram, atol=1e-5 * scale)
    assert np.allclose(gram_by_jacrev(module, tensor, rows=16), gram, atol=1e-5 * scale)


@pytest.mark.parametrize("name", ["laplace", "gaussian"])
@pytest.mark.parametrize("rival", ["whole batch", "one vector at a time", "torch"])
def test_simulations_follow_the_law_of_the_release(name: str, rival: str) -> None:
    release, rng = task.release(name), np.random.default_rng(3)
    parts = linear_parts(release)
    Z = np.tile(task.vectors(1), (4_000, 1))
    decoded = {
        "whole batch": lambda: simulate(parts, Z, rng),
        "one vector at a time": lambda: simulate_one_by_one(parts, Z, rng),
        "torch": lambda: Simulation(parts)(torch.as_tensor(Z)).numpy(),
    }[rival]()
    ours = offaxis.simulate(release, Z, np.random.default_rng(4))
    # A Kolmogorov–Smirnov test of the least and of the most stretched coordinate.
    for i in (ours.std(axis=0).argmin(), ours.std(axis=0).argmax()):
        assert stats.ks_2samp(decoded[:, i], ours[:, i]).pvalue > ALPHA / 2
        assert stats.ks_2samp(1.5 * decoded[:, i], ours[:, i]).pvalue < ALPHA  # the test has power


@pytest.mark.parametrize(("name", "law"), [("laplace", stats.laplace), ("gaussian", stats.norm)])
def test_noise_has_the_scale_of_the_release(name: str, law: stats.rv_continuous) -> None:
    pytest.importorskip("opendp", reason="OpenDP is part of the extra bench")
    from benchmarks.rivals.opendp import vector_noise

    noise = noise_of(task.release(name, reshaping="none"))
    x = np.zeros(2_000)
    noises = {"NumPy": add_noise(x, noise, np.random.default_rng(5))}
    noises |= {who: np.array(action()) for who, action in vector_noise(x, noise).items()}
    assert len(noises) == 3
    # OpenDP's fastest lattice may be coarse compared with the law; its variance is still right.
    for values in noises.values():
        ratio = values.var() / law(scale=noise.scale).var()
        error = np.sqrt((law.stats(moments="k") + 2) / x.size)
        assert abs(ratio - 1) < stats.norm.isf(ALPHA / 2) * error + 0.02


def test_the_lower_bounds_compute_a_covariance_and_a_whitening() -> None:
    Z = task.vectors(500)
    assert np.allclose(covariance(Z), np.cov(Z.T, bias=True), atol=1e-9)
    assert np.allclose(whitening(Z).transform(Z).std(axis=0, ddof=1), 1, atol=1e-3)


def test_a_rival_that_is_not_installed_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert installed("torch")
    assert "torch" not in missing_rivals()
    monkeypatch.setitem(sys.modules, "torch", None)
    assert not installed("torch")
    assert "torch" in missing_rivals()
