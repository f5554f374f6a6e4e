"""A torch module that replaces vectors by what their private reports say."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch._subclasses import FakeTensor
from torch.fx.experimental import proxy_tensor

from offaxis.arrays import moved, on_device
from offaxis.errors import InvalidInput, InvalidRelease
from offaxis.formats.artifact import from_bytes, to_bytes
from offaxis.release import Release
from offaxis.simulating import DECODERS


class PrivateLayer(torch.nn.Module):
    """The cut between a device and a collector, as a layer.

    **Every forward is a new release and spends the budget again**, training or not. Reports are
    drawn on the CPU, exactly, from the operating system's randomness; no torch seed reaches them.
    Only decoding runs on the layer's device.

    No gradient passes a report. An input that wants one is refused, because a silent cut would
    leave everything before the layer untrained without a word.

    **No activation checkpointing around this layer**: ``torch.utils.checkpoint`` runs a forward
    again in the backward pass, and that would be a second report. A forward in a backward pass is
    refused, as is tracing, which would make one report a constant. Put both behind the layer.

    The ``state_dict`` carries the release as the bytes of its file, read back as strictly. Loading
    never exchanges a release the layer already has: the promise given at construction stands.

    Parameters
    ----------
    release : Release, optional
        ``PrivateLayer()`` is an empty layer that takes the release it is loaded with.
    device, dtype : optional
        Of the decoder's map, as in ``torch.nn.Linear``; decoding works in this dtype.

    Examples
    --------
    >>> import torch
    >>> from offaxis import fit
    >>> from offaxis.faces.torch import PrivateLayer
    >>> release = fit(np.eye(3)[:1], np.random.default_rng(0).normal(size=(99, 3)), epsilon=4)
    >>> cut = PrivateLayer(release)
    >>> model = torch.nn.Sequential(cut, torch.nn.Linear(3, 2))
    >>> model(torch.zeros(5, 3)).shape                     # a release of five vectors
    torch.Size([5, 2])
    >>> reports = cut.privatize(torch.zeros(2, 3))         # or in two steps: bytes, then vectors
    >>> cut.decode(reports).shape, len(reports[0]) == cut.release.report_size
    (torch.Size([2, 3]), True)
    >>> print(cut)
    PrivateLayer(ε = 4, pure, unit='item', release=...)

    A layer travels in a ``state_dict``, and says what it holds; these are torch's own hooks:

    >>> empty = PrivateLayer()
    >>> empty.extra_repr()
    'empty'
    >>> empty.set_extra_state(cut.get_extra_state())       # what load_state_dict does
    >>> empty.release == cut.release, empty.forward(torch.zeros(3)).shape
    (True, torch.Size([3]))
    """

    place: torch.Tensor

    def __init__(
        self, release: Release | None = None, *, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__()
        # An empty tensor that only tells where the layer is and its dtype: .to() moves it along.
        self.register_buffer("place", torch.zeros(0, device=device, dtype=dtype), persistent=False)
        self._release = release

    @property
    def release(self) -> Release:
        """The release; an empty layer has none."""
        if self._release is None:
            raise InvalidInput("this layer is empty; use PrivateLayer(release), or load a state")
        return self._release

    # torch.compile would trace the sampler itself and could replay its noise: keep it out.
    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def forward(self, z: torch.Tensor) -> torch.Tensor:
        """Release vectors (n, m) or (m,); return the decoded ones, same device and dtype."""
        return self.decode(self.privatize(z), device=z.device, dtype=z.dtype)

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def privatize(self, z: torch.Tensor) -> bytes | list[bytes]:
        """Turn one private vector (m,) into bytes, or a batch (n, m) into a list of bytes."""
        if not isinstance(z, torch.Tensor) or not z.is_floating_point():
            kind = getattr(z, "dtype", type(z).__name__)
            raise InvalidInput(f"vectors must be a floating-point tensor, got {kind}")
        if z.dtype == torch.float16:
            raise InvalidInput("decoded noise overflows float16: pass z.float() or z.bfloat16()")
        if z.requires_grad and torch.is_grad_enabled():
            raise InvalidInput("no gradient passes a report: pass z.detach(), or use no_grad()")
        if _in_backward():
            raise InvalidInput(
                "this forward runs in a backward pass and would draw a second report; keep "
                "torch.utils.checkpoint behind the layer"
            )
        if _is_traced(z):
            raise InvalidInput("a traced layer would repeat one report forever; do not trace it")
        return self.release.privatize(z)

    def decode(
        self, reports: bytes | Iterable[bytes], *, device: Any = None, dtype: Any = None
    ) -> torch.Tensor:
        """Turn reports into vectors, on the layer's device and in its dtype unless told."""
        batch = [reports] if isinstance(reports, bytes) else reports
        decoder: Any = self.release.decoder
        decoded: Any
        if isinstance(decoder, DECODERS):
            observed = on_device(self.release.observe(batch), self.place)
            decoded = moved(decoder, self.place).decode(observed)
        else:
            decoded = on_device(self.release.decode(batch), self.place)
        there: torch.Tensor = decoded.to(device=device, dtype=dtype)
        return there[0] if isinstance(reports, bytes) else there

    def extra_repr(self) -> str:
        """Show the promise and which release makes it."""
        if self._release is None:
            return "empty"
        promise = self._release.guarantee
        return f"{promise}, unit={promise.unit!r}, release={self._release.hash[:16]}"

    def get_extra_state(self) -> torch.Tensor:
        """Return the release file's bytes; a tensor, so that any checkpoint format holds it."""
        return torch.frombuffer(bytearray(to_bytes(self.release)), dtype=torch.uint8)

    def set_extra_state(self, state: torch.Tensor) -> None:
        """Read the release strictly; refuse another one than the layer already has."""
        if not isinstance(state, torch.Tensor) or state.dtype != torch.uint8:
            raise InvalidRelease("the state holds no release: it is not a tensor of bytes")
        loaded = from_bytes(state.cpu().numpy().tobytes())
        if self._release is not None and loaded != self._release:
            raise InvalidRelease(
                f"the state holds release {loaded.hash[:16]} ({loaded.guarantee}), the layer has "
                f"{self._release.hash[:16]} ({self._release.guarantee}); PrivateLayer() takes any"
            )
        self._release = loaded


def _in_backward() -> bool:
    # Torch has no public name for it; where this one is missing a checkpoint goes unnoticed.
    task = getattr(torch._C, "_current_graph_task_id", None)
    return task is not None and task() != -1


def _is_traced(z: torch.Tensor) -> bool:
    """Whether operations are being recorded: by torch.jit, make_fx or torch.export."""
    if torch.jit.is_tracing() or isinstance(z, FakeTensor):  # type: ignore[attr-defined, no-untyped-call]
        return True
    # Not a public name either.
    mode = getattr(proxy_tensor, "get_proxy_mode", None)
    return mode is not None and mode() is not None
