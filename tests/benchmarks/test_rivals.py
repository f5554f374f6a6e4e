"""Rivals do the same work as we do: otherwise a race says nothing."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch
from scipy import stats

import offaxis
from benchmarks.groups import task
from benchmarks.rivals import absent, installed
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
    return measure(task.data().head, PublicVectors(task.many(50))).gram * 50


def test_every_way_to_the_gram_leads_to_it(gram: Vectors) -> None:
    head, Z = task.data().head, task.many(50)
    module, tensor = as_module(head), torch.as_tensor(Z, dtype=torch.float32)
    assert np.allclose(gram_one_by_one(head, Z), gram, rtol=1e-9)
    scale = np.abs(gram).max()
    assert np.allclose(gram_by_autograd(module, tensor), gram, atol=1e-5 * scale)
    assert np.allclose(gram_by_jacrev(module, tensor, rows=16), gram, atol=1e-5 * scale)


@pytest.mark.parametrize("name", ["laplace", "gaussian"])
@pytest.mark.parametrize("rival", ["whole batch", "one vector at a time", "torch"])
def test_simulations_have_our_law(name: str, rival: str) -> None:
    release, rng = task.release(name), np.random.default_rng(3)
    parts = linear_parts(release)
    Z = np.tile(task.many(1), (4_000, 1))
    found = {
        "whole batch": lambda: simulate(parts, Z, rng),
        "one vector at a time": lambda: simulate_one_by_one(parts, Z, rng),
        "torch": lambda: Simulation(parts)(torch.as_tensor(Z)).numpy(),
    }[rival]()
    ours = offaxis.simulate(release, Z, np.random.default_rng(4))
    # The least and the most stretched coordinate, each by a Kolmogorov–Smirnov test.
    for i in (ours.std(axis=0).argmin(), ours.std(axis=0).argmax()):
        assert stats.ks_2samp(found[:, i], ours[:, i]).pvalue > ALPHA / 2
        assert stats.ks_2samp(1.5 * found[:, i], ours[:, i]).pvalue < ALPHA  # it has power


@pytest.mark.parametrize(("name", "law"), [("laplace", stats.laplace), ("gaussian", stats.norm)])
def test_noise_has_the_scale_of_the_release(name: str, law: stats.rv_continuous) -> None:
    pytest.importorskip("opendp", reason="OpenDP comes with the extra bench")
    from benchmarks.rivals.opendp import vector_noise

    noise = noise_of(task.release(name, reshaping="none"))
    x = np.zeros(2_000)
    drawn = {"NumPy": add_noise(x, noise, np.random.default_rng(5))}
    drawn |= {who: np.array(action()) for who, action in vector_noise(x, noise).items()}
    assert len(drawn) == 3
    # OpenDP's fastest lattice may be coarse beside the law; its variance is right all the same.
    for values in drawn.values():
        spread = values.var() / law(scale=noise.scale).var()
        error = np.sqrt((law.stats(moments="k") + 2) / x.size)
        assert abs(spread - 1) < stats.norm.isf(ALPHA / 2) * error + 0.02


def test_the_floors_are_what_they_are_called() -> None:
    Z = task.many(500)
    assert np.allclose(covariance(Z), np.cov(Z.T, bias=True), atol=1e-9)
    assert np.allclose(whitening(Z).transform(Z).std(axis=0, ddof=1), 1, atol=1e-3)


def test_a_rival_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert installed("torch")
    assert "torch" not in absent()
    monkeypatch.setitem(sys.modules, "torch", None)
    assert not installed("torch")
    assert "torch" in absent()
