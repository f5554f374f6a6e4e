from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch
from torch import nn

from offaxis.errors import InvalidInput, UnsupportedModel
from offaxis.geometry import CentredOutputs, PublicVectors, as_task_model, measure
from offaxis.geometry.jacobian import GramRule, HostSums
from offaxis.geometry.torch_model import TorchModel


def module() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(6, 8), nn.BatchNorm1d(8), nn.GELU(), nn.Dropout(0.5), nn.Linear(8, 3)
    )


@pytest.fixture
def Z() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((40, 6))


def one_by_one(model: nn.Module, Z: np.ndarray) -> np.ndarray:
    """The slow way: one backward pass a sample and output."""
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


def test_a_mode_is_chosen_by_measurement(Z):
    task = TorchModel(module())
    assert task.mode is None
    task.gram(Z)
    assert task.mode in ("reverse", "forward")


def test_the_cheaper_mode_is_taken_whatever_the_shape_says(Z, monkeypatch):
    task = TorchModel(module())
    seconds = {task._reverse: 2.0, task._forward: 1.0}
    monkeypatch.setattr(task, "_seconds", lambda way, z: seconds[way])
    task.gram(Z)
    assert task.mode == "forward"


def test_the_module_is_given_back_as_it_was(Z):
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


def test_it_is_given_back_even_after_an_error(Z):
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
def test_a_model_that_does_not_return_one_row_a_vector_is_refused(Z, output):
    class Odd(nn.Module):
        def forward(self, z):
            return output(z)

    with pytest.raises(InvalidInput, match="one row a vector"):
        TorchModel(Odd()).gram(Z)


def test_a_model_torch_cannot_differentiate_points_to_finite_differences(Z):
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


def test_identity_follows_the_weights():
    model = module()
    before = TorchModel(model).identity()
    assert before == TorchModel(module()).identity()
    with torch.no_grad():
        model[0].weight[0, 0] += 1
    assert TorchModel(model).identity() != before


@pytest.mark.parametrize("probes", [None, 2])
@pytest.mark.parametrize("centred", [False, True])
def test_sums_on_a_device_are_those_at_home(Z, probes, centred):
    model = TorchModel(module(), less_mean=centred)
    model._mode = "reverse"
    rule = GramRule(model, 6, 3, probes)
    there, here = model.sums(rule), HostSums(rule)
    for part in np.array_split(Z + 100, 3):
        there.add(part)
        here.add(part)
    back = pickle.loads(pickle.dumps(there))
    assert isinstance(back, HostSums)
    there.merge(back)  # everything twice
    for sums in (back, there.to_host()):
        assert np.allclose(sums.gram.mean(), here.gram.mean(), rtol=1e-12)
        assert np.allclose(sums.moments.mean, here.moments.mean, rtol=1e-12)
        assert np.allclose(sums.moments.covariance, here.moments.covariance, rtol=1e-8)
    assert there.to_host().gram.count == 2 * back.gram.count == 80


def test_measuring_sums_beside_a_model_on_an_accelerator(Z, monkeypatch):
    monkeypatch.setattr(TorchModel, "accelerated", True)
    for task in (TorchModel(module()), CentredOutputs(module())):
        found = measure(task, PublicVectors(Z))
        J = task.jacobians(Z)
        assert np.allclose(found.gram, np.einsum("nkm,nkl->ml", J, J) / len(Z), rtol=1e-5)
        assert np.allclose(found.covariance, np.cov(Z.T, bias=True))
