"""Gram and moments summed on a torch device, beside the model: one batch of vectors goes there."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from numpy.typing import NDArray

from offaxis.geometry.folding import PublicMoments
from offaxis.geometry.gram import GramAndMoments, GramRule, HostSums, PartialGram
from offaxis.geometry.probes import probes_of
from offaxis.vectors import Vectors


class GramOnDevice(Protocol):
    """A model whose Gram stays on its device."""

    def gram_tensor(self, Z: Vectors, probes: Any = None) -> torch.Tensor:
        """Return Σ JᵀJ over the batch, or its sketch by probes."""
        ...


class TorchSums:
    """What :class:`~offaxis.geometry.gram.HostSums` sums, in float64 on a device.

    Pickled, it comes home.
    """

    def __init__(self, model: GramOnDevice, rule: GramRule, device: torch.device) -> None:
        self._model, self._rule, self._device = model, rule, device
        self._home = HostSums(rule)
        self._start()

    def _start(self) -> None:
        m = self._rule.dim
        zeros = torch.zeros(m, m, dtype=torch.float64, device=self._device)
        self._high, self._low, self._products = zeros, zeros.clone(), zeros.clone()
        self._origin: torch.Tensor | None = None
        self._sum = zeros[0].clone()
        self._count = 0

    def add(self, batch: Vectors) -> None:
        """Take in one batch."""
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
        """Add without loss, as :class:`~offaxis.geometry.PartialGram` does."""
        total = self._high + gram
        part = total - self._high
        rest = self._low + ((self._high - (total - part)) + (gram - part))
        self._high = total + rest
        self._low = rest - (self._high - total)

    def merge(self, other: GramAndMoments) -> None:
        """Take in what another one has seen."""
        self._home.merge(other)

    def home(self) -> HostSums:
        """Bring the sums to the memory of this machine, and start anew on the device."""
        if self._origin is not None:
            here = HostSums(self._rule)
            here.gram = PartialGram(_array(self._high), _array(self._low), self._count)
            here.moments = PublicMoments.of(
                self._count, *map(_array, (self._origin, self._sum, self._products))
            )
            self._home.merge(here)
            self._start()
        return self._home

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the sums, as they are at home."""
        return _same, (self.home(),)


def _same(sums: HostSums) -> HostSums:
    return sums


def _array(tensor: torch.Tensor) -> NDArray[Any]:
    result: NDArray[Any] = tensor.cpu().numpy()
    return result
