"""The same steps in torch, on the CPU or a GPU, as its users would write them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.func import functional_call, jacrev, vmap

from benchmarks.rivals.maps import LinearParts
from offaxis.geometry import Layers
from offaxis.vectors import Vectors

_ACTIVATIONS = {"relu": torch.nn.ReLU, "gelu": torch.nn.GELU, "tanh": torch.nn.Tanh}


def synchronized(action: Callable[..., Any], device: str, *arguments: Any) -> Callable[[], None]:
    """Return an action that ends when the device has finished, not when the work is queued."""

    def run() -> None:
        action(*arguments)
        if device == "cuda":
            torch.cuda.synchronize()

    return run


class Simulation:
    """A linear release on a device, in float64."""

    def __init__(self, parts: LinearParts, device: str = "cpu") -> None:
        def tensor(array: Vectors) -> torch.Tensor:
            return torch.tensor(array, dtype=torch.float64, device=device)

        self._noise = parts.noise
        self._encode, self._decode = tensor(parts.encode), tensor(parts.decode)
        self._centre, self._offset = tensor(parts.centre), tensor(parts.offset)
        self._rng = torch.Generator(device=device).manual_seed(0)

    def __call__(self, Z: torch.Tensor) -> torch.Tensor:
        """Pass a batch through the release."""
        order, radius, scale = self._noise
        W = (Z - self._centre) @ self._encode.T
        norms = torch.linalg.vector_norm(W, ord=order, dim=1, keepdim=True)
        W = W * (radius / norms.clamp(min=1e-300)).clamp(max=1.0)
        noise = torch.empty_like(W)
        if order == 2:
            noise.normal_(0.0, scale, generator=self._rng)
        else:
            # The difference of two exponentials; torch has no Laplace sampler with a generator.
            noise.exponential_(1.0, generator=self._rng)
            noise -= torch.empty_like(W).exponential_(1.0, generator=self._rng)
            noise *= scale
        decoded: torch.Tensor = (W + noise) @ self._decode.T + self._offset
        return decoded


def as_module(model: Layers, device: str = "cpu") -> torch.nn.Module:
    """Return the same network as a torch module, in float32."""
    layers: list[torch.nn.Module] = []
    for w, b in zip(model.weights, model.biases, strict=True):
        linear = torch.nn.Linear(w.shape[1], w.shape[0])
        with torch.no_grad():
            linear.weight.copy_(torch.as_tensor(np.array(w)))
            linear.bias.copy_(torch.as_tensor(np.array(b)))
        layers += [linear, _ACTIVATIONS[model.activation]()]
    return torch.nn.Sequential(*layers[:-1]).to(device).eval()


def gram_by_autograd(module: torch.nn.Module, Z: torch.Tensor) -> Vectors:
    """Return Σ JᵀJ with one call of autograd per vector and output."""
    total = torch.zeros(Z.shape[1], Z.shape[1], dtype=torch.float64, device=Z.device)
    for row in Z:
        z = row.clone().requires_grad_(True)
        out = module(z[None])[0]
        rows = torch.stack([torch.autograd.grad(o, z, retain_graph=True)[0] for o in out])
        total += (rows.T @ rows).double()
    result: Vectors = total.cpu().numpy()
    return result


def gram_by_jacrev(module: torch.nn.Module, Z: torch.Tensor, rows: int = 4096) -> Vectors:
    """Return Σ JᵀJ from ``vmap(jacrev)``, in batches of ``rows``."""
    state = {name: p.detach() for name, p in module.named_parameters()}

    def outputs(z: torch.Tensor) -> torch.Tensor:
        row: torch.Tensor = functional_call(module, state, (z[None],))[0]
        return row

    total = torch.zeros(Z.shape[1], Z.shape[1], dtype=torch.float64, device=Z.device)
    for part in torch.split(Z, rows):
        stacked = vmap(jacrev(outputs))(part).reshape(-1, Z.shape[1]).double()
        total += stacked.T @ stacked
    result: Vectors = total.cpu().numpy()
    return result
