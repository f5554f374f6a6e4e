"""The sketched Gram: unbiased, reproducible, and as accurate as its bound."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import offaxis
from offaxis.errors import InvalidInput
from offaxis.geometry import (
    CentredOutputs,
    FiniteDifferences,
    Layers,
    MultiTask,
    PublicVectors,
    as_task_model,
    jacobian,
    measure,
)
from offaxis.geometry.jacobian import probes_of, signs, sketched_gram

from .test_public import InParts


def network(sizes: tuple[int, ...], activation: str = "tanh") -> Layers:
    rng = np.random.default_rng(len(sizes))
    weights = [rng.standard_normal((o, i)) / np.sqrt(i) for i, o in pairwise(sizes)]
    return Layers(weights, [rng.standard_normal(o) for o in sizes[1:]], activation)


def module() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.GELU(), nn.Linear(8, 9)).double()


MODELS = {
    "linear": network((6, 9)),
    "one hidden layer": network((6, 8, 9)),
    "deep": network((6, 8, 7, 9)),
    "torch": as_task_model(module()),
    "differences": FiniteDifferences(network((6, 8, 9)).outputs),
    "centred layers": CentredOutputs(network((6, 8, 9))),
    "centred torch": CentredOutputs(module()),
    "centred differences": CentredOutputs(FiniteDifferences(network((6, 8, 9)).outputs)),
    "several tasks": MultiTask(
        {"a": network((6, 8, 5)), "b": as_task_model(np.eye(6)[:4])}, {"a": 0.3, "b": 2.0}
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_vjp_is_the_jacobian_transposed_times_its_row(name, public):
    model, Z = MODELS[name], public[:40]
    G = np.random.default_rng(1).standard_normal((40, 9))
    expected = np.einsum("nk,nkm->nm", G, model.jacobians(Z))
    assert np.allclose(model.vjp(Z, G), expected, atol=1e-6)


@pytest.mark.parametrize("name", MODELS)
def test_as_many_probes_as_outputs_give_the_exact_gram(name, public):
    model, Z = MODELS[name], public[:40]
    J = model.jacobians(Z)
    exact = np.einsum("nkm,nkl->ml", J, J)
    assert np.allclose(model.gram(Z), exact, rtol=1e-6, atol=1e-6)
    assert np.allclose(sketched_gram(model, Z, 9, 9), exact, rtol=1e-6, atol=1e-6)
    assert not np.allclose(sketched_gram(model, Z, 9, 2), exact, rtol=1e-3)


def test_a_module_that_ignores_its_input_has_a_zero_vjp(public):
    class Constant(nn.Module):
        def forward(self, z):
            return torch.ones(len(z), 2)

    assert not as_task_model(Constant()).vjp(public[:5], np.ones((5, 2))).any()


def test_a_vjp_leaves_the_module_unchanged(public):
    model = module().train()
    as_task_model(model).vjp(public[:5], np.ones((5, 9)))
    assert model.training
    assert all(weight.grad is None for weight in model.parameters())


def test_signs_are_a_fair_coin_for_every_pair_of_outputs():
    """Means of products within 5 deviations: a false alarm in fewer than one of 400 runs."""
    rng = np.random.default_rng(2)
    Z = rng.standard_normal((20_000, 5)).astype(np.float32)
    coins = signs(Z, 70).astype(np.float64)
    products = coins.T @ coins / len(Z)
    off = products[~np.eye(70, dtype=bool)]
    assert np.abs(off).max() < 5 / np.sqrt(len(Z))
    assert np.abs(coins.mean(axis=0)).max() < 5 / np.sqrt(len(Z))
    neighbours = (coins[1:] * coins[:-1]).mean(axis=0)
    assert np.abs(neighbours).max() < 5 / np.sqrt(len(Z))
    # The broken control: signs from a coordinate's lowest bit, which is zero for float32.
    broken = 1 - 2 * (Z.astype(np.float64).view(np.uint64) & np.uint64(1)).astype(np.int8)
    assert np.abs((broken[:, 0] * broken[:, 1]).mean()) > 5 / np.sqrt(len(Z))


@pytest.mark.parametrize("place", range(5))
def test_any_bit_of_a_vector_changes_its_signs(place):
    z = np.random.default_rng(3).standard_normal(5)
    moved = z.copy()
    moved[place] = np.nextafter(z[place], 9)
    changed = (signs(z[None], 4096) != signs(moved[None], 4096)).mean()
    assert abs(changed - 0.5) < 5 * 0.5 / 64  # five deviations of 4,096 coins


@given(st.integers(1, 20), st.integers(1, 25))
def test_probes_cover_every_output_once(outputs, probes):
    Z = np.arange(12.0).reshape(3, 4)
    total = sum(np.abs(probe) for probe in probes_of(Z, outputs, probes))
    assert np.array_equal(total, np.ones((3, outputs)))


@pytest.mark.parametrize("probes", [1, 3])
def test_the_sketch_is_unbiased_and_has_the_variance_of_its_bound(probes):
    """Along fixed directions, against the variance of docs/high-dimension.md: 5 deviations."""
    model, rng = network((6, 8, 9)), np.random.default_rng(4)
    u = rng.standard_normal(6)
    errors, broken, bounds = [], [], []
    same_probes = np.stack([probe[0] for probe in probes_of(np.ones((1, 1)), 9, probes)])
    for _ in range(400):
        Z = rng.standard_normal((50, 6))
        slopes = model.jacobians(Z) @ u
        squares = slopes**2
        errors.append(u @ sketched_gram(model, Z, 9, probes) @ u - squares.sum())
        broken.append(((slopes @ same_probes.T) ** 2).sum() - squares.sum())
        strata = [squares[:, j::probes] for j in range(probes)]
        bounds.append(sum(2 * (s.sum(axis=1) ** 2 - (s**2).sum(axis=1)).sum() for s in strata))
    ratio = np.array(errors) / np.sqrt(bounds)
    assert abs(ratio.mean()) < 5 / np.sqrt(400)
    assert abs(ratio.var() - 1) < 0.5
    # The broken control: the same signs for every vector do not average out.
    assert abs((np.array(broken) / np.sqrt(bounds)).mean()) > 5 / np.sqrt(400)


@pytest.mark.parametrize("name", ["deep", "torch"])
def test_neither_batches_nor_parts_change_a_sketch(name, public):
    model = MODELS[name]
    whole = measure(model, PublicVectors(public), probes=2)
    pieces = measure(model, PublicVectors(lambda: iter(np.array_split(public, 9))), probes=2)
    parts = measure(model, InParts(public), probes=2) if name == "deep" else pieces
    assert whole.probes == parts.probes == 2
    assert np.allclose(whole.gram, pieces.gram, rtol=1e-12)
    assert np.allclose(whole.gram, parts.gram, rtol=1e-12)
    assert not np.allclose(whole.gram, measure(model, PublicVectors(public)).gram, rtol=1e-6)


def test_wide_outputs_are_sketched_and_the_release_records_it(monkeypatch, public, tmp_path):
    monkeypatch.setattr(jacobian, "EXACT_NUMBERS", 71)
    small, wide = network((6, 8, 7, 8)), network((6, 8, 7, 9))
    release = offaxis.fit(
        wide, public, epsilon=1, reshaping=offaxis.Optimal(rank=2), mechanism="laplace"
    )
    release.save(tmp_path / "a.release")
    assert offaxis.load(tmp_path / "a.release").provenance.settings["probes"] == 4
    assert (
        "probes"
        not in offaxis.fit(small, public, epsilon=1, mechanism="laplace").provenance.settings
    )
    assert measure(network((6, 8, 900)), PublicVectors(public)).probes is None


@pytest.mark.parametrize("probes", [0, -1, 1.5, True, "2"])
def test_a_bad_number_of_probes_is_an_error(probes, public, head):
    with pytest.raises(InvalidInput, match="probes"):
        measure(head, PublicVectors(public), probes=probes)
