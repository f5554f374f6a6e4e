"""Torch modules as tasks: both modes agree, and the module is restored after every call."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch
from torch import nn

from offaxis.errors import InvalidInput, UnsupportedModel
from offaxis.geometry import CentredOutputs, PublicVectors, as_task_model, measure, torch_model
from offaxis.geometry.jacobian import GramRule, HostSums
from offaxis.geometry.torch_model import TorchModel


def module() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(6, 8), nn.BatchNorm1d(8), nn.GELU(), nn.Dropout(0.5), nn.Linear(8, 3)
    )


@pytest.fixture
def Z() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((40, 6))


def one_by_one(model: nn.Module, Z: np.ndarray) -> np.ndarray:
    """Return Jacobians the slow way: one backward pass per sample and output."""
    model.eval()
    rows = []
    for z in torch.as_tensor(Z, dtype=torch.float32):
        z = z.clone().requires_grad_(True)
        out = model(z[None])[0]
        rows.append(torch.stack([torch.autograd.grad(o, z, retain_graph=True)[0] for o in out]))
    return torch.stack(rows).numpy()


@pytest.mark.parametrize("mode", ["reverse", "forward"])
def test_both_modes_give_the_jacobians(Z, mode):
    task = TorchModel(module())
    task._mode = mode
    expected = one_by_one(module(), Z)
    assert np.allclose(task.jacobians(Z), expected, atol=1e-5)
    assert np.allclose(task.gram(Z), np.einsum("nkm,nkl->ml", expected, expected), rtol=1e-4)


def test_a_mode_is_chosen_by_timing(Z):
    task = TorchModel(module())
    assert task.mode is None
    task.gram(Z)
    assert task.mode in ("reverse", "forward")


def test_the_faster_mode_is_used_whatever_the_shape(Z, monkeypatch):
    task = TorchModel(module())
    seconds = {task._reverse: 2.0, task._forward: 1.0}
    monkeypatch.setattr(torch_model, "_time", lambda differentiate, z: seconds[differentiate])
    task.gram(Z)
    assert task.mode == "forward"


def test_the_module_is_left_unchanged(Z):
    model = module().train()
    model[1].eval()
    before = [part.training for part in model.modules()]
    state = {k: v.clone() for k, v in model.state_dict().items()}
    task = as_task_model(model)
    task.gram(Z)
    task.outputs(Z)
    assert [part.training for part in model.modules()] == before
    assert all(torch.equal(state[k], v) for k, v in model.state_dict().items())
    assert all(p.grad is None and p.requires_grad for p in model.parameters())


def test_the_mode_of_the_module_is_restored_after_an_error(Z):
    class Failing(nn.Module):
        def forward(self, z):
            raise RuntimeError("boom")

    model = Failing().train()
    with pytest.raises(InvalidInput, match="dimension 6: boom"):
        TorchModel(model).outputs(Z)
    assert model.training


def test_dropout_is_off_and_batch_statistics_are_frozen(Z):
    task = as_task_model(module().train())
    assert np.array_equal(task.outputs(Z), task.outputs(Z))


def test_float64_models_stay_float64(Z):
    task = TorchModel(module().double())
    assert np.allclose(task.jacobians(Z), one_by_one(module(), Z), atol=1e-5)
    assert task.jacobians(Z).dtype == np.float64


@pytest.mark.parametrize("output", [lambda z: z.sum(), lambda z: z[:2], lambda z: z[None], tuple])
def test_a_model_that_does_not_return_one_row_per_vector_is_an_error(Z, output):
    class Odd(nn.Module):
        def forward(self, z):
            return output(z)

    with pytest.raises(InvalidInput, match="one row per vector"):
        TorchModel(Odd()).gram(Z)


def test_the_error_for_an_opaque_model_suggests_finite_differences(Z):
    class Detour(torch.autograd.Function):
        @staticmethod
        def forward(ctx, z):
            return z * 2

        @staticmethod
        def backward(ctx, grad):
            return grad * 2

    class Opaque(nn.Module):
        def forward(self, z):
            return Detour.apply(z)

    with pytest.raises(UnsupportedModel, match="FiniteDifferences"):
        TorchModel(Opaque()).gram(Z)


def test_the_identity_depends_on_the_weights():
    model = module()
    before = TorchModel(model).identity()
    assert before == TorchModel(module()).identity()
    first = model[0]
    assert isinstance(first, nn.Linear)
    with torch.no_grad():
        first.weight[0, 0] += 1
    assert TorchModel(model).identity() != before


@pytest.mark.parametrize("probes", [None, 2])
@pytest.mark.parametrize("centred", [False, True])
def test_sums_on_a_device_equal_those_on_the_host(Z, probes, centred):
    model = TorchModel(module(), less_mean=centred)
    model._mode = "reverse"
    rule = GramRule(model, 6, 3, probes)
    device, host = model.sums(rule), HostSums(rule)
    for part in np.array_split(Z + 100, 3):
        device.add(part)
        host.add(part)
    unpickled = pickle.loads(pickle.dumps(device))
    assert isinstance(unpickled, HostSums)
    device.merge(unpickled)  # everything twice
    for sums in (unpickled, device.to_host()):
        assert np.allclose(sums.gram.mean(), host.gram.mean(), rtol=1e-12)
        assert np.allclose(sums.moments.mean, host.moments.mean, rtol=1e-12)
        assert np.allclose(sums.moments.covariance, host.moments.covariance, rtol=1e-8)
    assert device.to_host().gram.count == 2 * unpickled.gram.count == 80


def test_measuring_sums_on_the_accelerator_of_the_model(Z, monkeypatch):
    monkeypatch.setattr(TorchModel, "accelerated", True)
    for task in (TorchModel(module()), CentredOutputs(module())):
        geometry = measure(task, PublicVectors(Z))
        J = task.jacobians(Z)
        assert np.allclose(geometry.gram, np.einsum("nkm,nkl->ml", J, J) / len(Z), rtol=1e-5)
        assert np.allclose(geometry.covariance, np.cov(Z.T, bias=True))
