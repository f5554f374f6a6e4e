"""Adapter for torch modules as public tasks: Jacobians of a whole batch in a few vectorised calls.

Contract: the module is put into eval mode for every call and restored exactly afterwards. On a CUDA
device, Gram and moments are summed there, so that only batches of vectors are transferred.

Reverse mode pulls all k outputs back at once, forward mode pushes all m directions. Which one is
faster depends on the model, so both are timed on the first batch.
"""

from __future__ import annotations

import hashlib
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch.func import jvp, vjp, vmap

from offaxis.errors import InvalidInput, UnsupportedModel
from offaxis.geometry.jacobian import GramAndMoments, GramRule, HostSums, PartialGram, probes_of
from offaxis.geometry.layers import Layers
from offaxis.geometry.models import ModelIdentity, check_finite_outputs, gram_of
from offaxis.geometry.public import PublicMoments
from offaxis.vectors import Vectors

Mode = Literal["reverse", "forward"]

_TRIAL_ROWS = 64

_LOCK = threading.RLock()

_TRIAL_NUMBERS = 1 << 24
"""Forward mode pushes m directions of m numbers per vector: keep its trial within 64 MiB."""


class TorchModel:
    """Adapter for a ``torch.nn.Module`` that maps (n, m) to (n, k).

    Parameters
    ----------
    module : torch.nn.Module
    less_mean : bool
        Whether to subtract the mean of the outputs from each of them.
    """

    def __init__(self, module: torch.nn.Module, *, less_mean: bool = False) -> None:
        self._module = module
        self._less_mean = less_mean
        reference = next(iter([*module.parameters(), *module.buffers()]), torch.zeros(0))
        self._device = reference.device
        self._dtype = reference.dtype if reference.dtype.is_floating_point else torch.float32
        self._mode: Mode | None = None

    @property
    def input_dim(self) -> None:
        """None: unknown before the first call."""
        return

    @property
    def mode(self) -> Mode | None:
        """The faster differentiation mode; None before it was timed."""
        return self._mode

    def identity(self) -> ModelIdentity:
        """Hash the names, shapes and values of all parameters and buffers."""
        digest = hashlib.sha256()
        for name, tensor in sorted(self._module.state_dict().items()):
            array = tensor.detach().cpu().to(torch.float64).numpy()
            digest.update(f"{name}{array.shape}".encode())
            digest.update(np.ascontiguousarray(array, dtype="<f8").tobytes())
        return ModelIdentity("torch", type(self._module).__name__, digest.hexdigest())

    def _tensor(self, Z: Vectors) -> torch.Tensor:
        return torch.tensor(Z, dtype=self._dtype, device=self._device)

    def _call(self, z: torch.Tensor) -> torch.Tensor:
        out = self._module(z)
        if not isinstance(out, torch.Tensor) or out.ndim not in (1, 2) or len(out) != len(z):
            shape = tuple(out.shape) if isinstance(out, torch.Tensor) else type(out).__name__
            raise InvalidInput(
                f"the model must return one row per vector, (n, k) for an input (n, m); "
                f"for {len(z)} vectors it returned {shape}"
            )
        out = out[:, None] if out.ndim == 1 else out
        return out - out.mean(dim=1, keepdim=True) if self._less_mean else out

    def outputs(self, Z: Vectors) -> Vectors:
        """Return the module's outputs, (n, k)."""
        with evaluating(self._module):
            try:
                out = self._call(self._tensor(Z))
            except (RuntimeError, AssertionError) as error:
                # A wrong dimension surfaces as whatever the first layer raises.
                reason = str(error).strip().splitlines() or [type(error).__name__]
                raise InvalidInput(
                    f"the model failed on vectors of dimension {Z.shape[1]}: {reason[0]}; "
                    f"check that it takes vectors of this dimension"
                ) from error
        result: Vectors = out.cpu().to(torch.float64).numpy()
        return check_finite_outputs(result, type(self._module).__name__)

    def _reverse(self, z: torch.Tensor) -> torch.Tensor:
        """Return all Jacobians as (k, n, m): one pull-back per output, vectorised."""
        out, pullback = vjp(self._call, z)[:2]
        k = out.shape[1]
        seeds = torch.eye(k, dtype=out.dtype, device=out.device)[:, None, :].expand(k, *out.shape)
        jacobians: torch.Tensor = vmap(lambda seed: pullback(seed)[0])(seeds)
        return jacobians

    def _forward(self, z: torch.Tensor) -> torch.Tensor:
        """Return all Jacobians as (k, n, m): one push-forward per input direction, vectorised."""
        m = z.shape[1]
        seeds = torch.eye(m, dtype=z.dtype, device=z.device)[:, None, :].expand(m, *z.shape)
        columns: torch.Tensor = vmap(lambda seed: jvp(self._call, (z,), (seed,))[1])(seeds)
        return columns.permute(2, 1, 0)

    def _differentiate(self, z: torch.Tensor) -> torch.Tensor:
        if self._mode is None:
            rows = max(1, min(_TRIAL_ROWS, _TRIAL_NUMBERS // z.shape[1] ** 2))
            self._mode = self._faster_mode(z[:rows])
        return self._reverse(z) if self._mode == "reverse" else self._forward(z)

    def _faster_mode(self, z: torch.Tensor) -> Mode:
        seconds: dict[Mode, float] = {}
        failures: list[str] = []
        modes: dict[Mode, Callable[[torch.Tensor], torch.Tensor]] = {
            "reverse": self._reverse,
            "forward": self._forward,
        }
        for mode, differentiate in modes.items():
            try:
                differentiate(z)  # warm up
                seconds[mode] = min(_time(differentiate, z) for _ in range(3))
            except InvalidInput:
                raise
            except (RuntimeError, NotImplementedError) as error:
                failures.append(f"{mode}: {error}".splitlines()[0])
        if not seconds:
            raise UnsupportedModel(
                f"torch cannot differentiate {type(self._module).__name__} over a batch "
                f"({'; '.join(failures)}); wrap it as offaxis.geometry.FiniteDifferences(function)"
            )
        # The modes round differently: a near tie must not change a fit from run to run.
        reverse, forward = (seconds.get(mode, math.inf) for mode in ("reverse", "forward"))
        return "forward" if forward < 0.7 * reverse else "reverse"

    def jacobians(self, Z: Vectors) -> Vectors:
        """Return the Jacobian of the outputs at every vector, (n, k, m)."""
        with evaluating(self._module):
            stacked = self._differentiate(self._tensor(Z)).permute(1, 0, 2)
            result: Vectors = stacked.cpu().to(torch.float64).numpy()
        return result

    def gram(self, Z: Vectors) -> Vectors:
        """Return Σ JᵀJ over the batch, accumulated in float64 on the model's device."""
        result: Vectors = self.gram_tensor(Z).cpu().numpy()
        return result

    def gram_tensor(self, Z: Vectors, probes: Iterable[NDArray[Any]] | None = None) -> torch.Tensor:
        """Return Σ JᵀJ over the batch, or its sketch if probes are given, on the model's device."""
        with evaluating(self._module):
            z = self._tensor(Z)
            if probes is None:
                return _gram_of(self._differentiate(z))
            total = torch.zeros(z.shape[1], z.shape[1], dtype=torch.float64, device=z.device)
            for probe in probes:
                total += _gram_of(self._vjp_tensor(z, self._tensor(probe)))
            return total

    def vjp(self, Z: Vectors, G: Vectors) -> Vectors:
        """Return J_iᵀ g_i for every vector: one backward pass for the batch."""
        with evaluating(self._module):
            gradients = self._vjp_tensor(self._tensor(Z), self._tensor(G))
            result: Vectors = gradients.cpu().to(torch.float64).numpy()
        return result

    def _vjp_tensor(self, z: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
        with torch.enable_grad():
            z = z.requires_grad_(True)
            out = self._call(z)
            if not out.requires_grad:  # the module ignores its input
                return torch.zeros_like(z)
            (gradients,) = torch.autograd.grad(out, z, g, allow_unused=True)
        return torch.zeros_like(z) if gradients is None else gradients

    @property
    def accelerated(self) -> bool:
        """Whether the module is on a CUDA device."""
        return self._device.type == "cuda"

    def sums(self, rule: GramRule) -> TorchSums:
        """Return an accumulator of Gram and moments on the module's device."""
        return TorchSums(self, rule, self._device)

    def centred(self) -> TorchModel:
        """Return the same model with the mean subtracted from its outputs."""
        return TorchModel(self._module, less_mean=True)

    def numbers_per_vector(self, dim: int, outputs: int) -> int:
        """Return k·m, the size of the Jacobian."""
        return outputs * dim

    def as_layers(self) -> Layers | None:
        """Return the module as layers with the same answers, or None.

        Works for modules whose forward pass is a chain of linear maps, common activations, dropout,
        BatchNorm1d, LayerNorm and reshaping, with at most 8 layers after consecutive affine maps
        are composed. A final softmax is left out. A module that ends with a sigmoid of one number
        becomes a network with two outputs.
        """
        from offaxis.geometry.torch_layers import read_layers

        plain = TorchModel(self._module)
        with evaluating(self._module):
            return read_layers(self._module, plain.outputs, self._dtype)


@contextmanager
def evaluating(module: torch.nn.Module) -> Iterator[None]:
    """Put a module into eval mode, without gradients, and restore the mode of every submodule."""
    with _LOCK:  # threads would restore each other's modes
        training = [(part, part.training) for part in module.modules()]
        with suppress(NotImplementedError):  # an exported program is frozen in its mode
            module.eval()
        try:
            with torch.no_grad():
                yield
        finally:
            for part, flag in training:
                part.training = flag


def _time(differentiate: Callable[[torch.Tensor], Any], z: torch.Tensor) -> float:
    """Return the seconds that one differentiation takes."""
    start = time.perf_counter()
    differentiate(z)
    if z.is_cuda:
        torch.cuda.synchronize(z.device)
    return time.perf_counter() - start


def _gram_of(jacobians: torch.Tensor) -> torch.Tensor:
    """Return Σ JᵀJ for Jacobians, or rows of them, in float64 on their device."""
    if not jacobians.is_cuda:
        # NumPy detects that AᵀA is symmetric and does half the work.
        return torch.from_numpy(gram_of(jacobians.numpy()))
    rows = jacobians.reshape(-1, jacobians.shape[-1]).to(torch.float64)
    return rows.T @ rows


# ---- Sums on the device


class GramOnDevice(Protocol):
    """A model whose Gram stays on its device."""

    def gram_tensor(self, Z: Vectors, probes: Any = None) -> torch.Tensor:
        """Return Σ JᵀJ over the batch, or its sketch if probes are given."""
        ...


class TorchSums:
    """The sums of :class:`~offaxis.geometry.jacobian.HostSums`, in float64 on a device.

    It is pickled as :class:`~offaxis.geometry.jacobian.HostSums`.
    """

    def __init__(self, model: GramOnDevice, rule: GramRule, device: torch.device) -> None:
        self._model, self._rule, self._device = model, rule, device
        self._host = HostSums(rule)
        self._reset()

    def _reset(self) -> None:
        m = self._rule.dim
        zeros = torch.zeros(m, m, dtype=torch.float64, device=self._device)
        self._high, self._low, self._products = zeros, zeros.clone(), zeros.clone()
        self._origin: torch.Tensor | None = None
        self._sum = zeros[0].clone()
        self._count = 0

    def add(self, batch: Vectors) -> None:
        """Add one batch."""
        z = torch.from_numpy(batch).to(self._device)
        if self._origin is None:
            self._origin = z[0].clone()
        moved = z - self._origin
        self._sum += moved.sum(dim=0)
        self._products.addmm_(moved.T, moved)
        self._add_gram(self._model.gram_tensor(batch, self._probes(batch)))
        self._count += len(batch)

    def _probes(self, batch: Vectors) -> Any:
        rule = self._rule
        return None if rule.probes is None else probes_of(batch, rule.outputs, rule.probes)

    def _add_gram(self, gram: torch.Tensor) -> None:
        """Add without loss, like :class:`~offaxis.geometry.jacobian.PartialGram`."""
        total = self._high + gram
        part = total - self._high
        rest = self._low + ((self._high - (total - part)) + (gram - part))
        self._high = total + rest
        self._low = rest - (self._high - total)

    def merge(self, other: GramAndMoments) -> None:
        """Add the sums of another accumulator."""
        self._host.merge(other)

    def to_host(self) -> HostSums:
        """Move the sums to host memory, and start from zero on the device."""
        if self._origin is not None:
            moved = HostSums(self._rule)
            moved.gram = PartialGram(_array(self._high), _array(self._low), self._count)
            moved.moments = PublicMoments.of(
                self._count, *map(_array, (self._origin, self._sum, self._products))
            )
            self._host.merge(moved)
            self._reset()
        return self._host

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the sums in host memory."""
        return _unpickle, (self.to_host(),)


def _unpickle(sums: HostSums) -> HostSums:
    return sums


def _array(tensor: torch.Tensor) -> NDArray[Any]:
    result: NDArray[Any] = tensor.cpu().numpy()
    return result
