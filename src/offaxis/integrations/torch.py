"""What stands beside a private vector in an item, in memory of its own.

A label cut out of the same tensor or array as its vector shares that memory, and torch writes the
whole of it to a file with the label, vectors included. So tensors and arrays are copied, also in
tuples, lists, dicts and arrays of objects.
"""

from __future__ import annotations

from offaxis.errors import MissingExtra, installing

try:
    import torch
except ImportError as error:
    raise MissingExtra(f"offaxis.integrations.torch needs torch: {installing('torch')}") from error

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.lib.recfunctions import repack_fields
from numpy.typing import NDArray
from torch._subclasses import FakeTensor
from torch.fx.experimental import proxy_tensor
from torch.utils.data import Dataset

from offaxis.client import Reporter
from offaxis.errors import InvalidInput, InvalidRelease, MissingExtra, installing
from offaxis.formats.release_file import from_bytes, to_bytes
from offaxis.formats.reports import read_reports, write_reports
from offaxis.privacy.guarantee import Guarantee
from offaxis.privacy.ledger import Ledger
from offaxis.release import Release
from offaxis.simulation import simulate
from offaxis.simulation.releases import DECODERS
from offaxis.vectors import as_array, moved, on_device

__all__ = ["PrivateDataset", "PrivateLayer", "SimulatedDataset"]


def columns_of(rows: Sequence[tuple[Any, ...]]) -> list[Any]:
    """Return tuples of one length as columns that share no memory with them.

    A column of tensors of one shape is one tensor, which torch hands to workers as one piece
    without a copy; any other is a list.

    Raises
    ------
    InvalidInput
        If the tuples are not of one length.
    """
    lengths = sorted({len(row) for row in rows})
    if len(lengths) > 1:
        raise InvalidInput(f"items must be tuples of one length, got {lengths} beside the vector")
    return [_column(list(values)) for values in zip(*rows, strict=True)]


def _column(values: list[Any]) -> Any:
    if all(type(value) is torch.Tensor and value.layout == torch.strided for value in values):
        kinds = {(value.shape, value.dtype, value.device) for value in values}
        if len(kinds) == 1:
            return torch.stack([value.detach() for value in values])
    return [_own(value) for value in values]


def _packed(dtype: Any) -> Any:
    return repack_fields(dtype, recurse=True) if dtype.names else dtype


def _own(value: Any) -> Any:
    """Return a copy of tensors and arrays, in tuples, lists and dicts too; all else as it is."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, np.void):  # a row of a record array
        return _own(np.asarray(value))[()]
    if isinstance(value, np.ndarray):
        # Fields left out of a view stand between the others, and a copy has them, too.
        copied = np.array(value, dtype=_packed(value.dtype), copy=True, subok=True)
        if copied.dtype == object:
            copied[...] = np.frompyfunc(_own, 1, 1)(copied)
        return copied
    if isinstance(value, dict):
        return {key: _own(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_own(inner) for inner in value]
    if isinstance(value, tuple):
        inside = [_own(inner) for inner in value]
        return type(value)(*inside) if hasattr(value, "_fields") else tuple(inside)
    return value


# ----------------------------------------------------------------------------
# Datasets whose vectors are released once, and their seeded stand-ins for public vectors.
#
# A layer or a ``transform=`` in front of a model would draw a new report of every item in every
# epoch, and each costs ε again. Here a report is drawn once, before the first epoch, and kept.


class PrivateDataset(Dataset[Any]):
    """What a collector has of a dataset: one report an item, drawn once and kept.

    Reports are drawn when this is made, so that neither epochs nor the workers of a ``DataLoader``
    draw any: they all read the same memory. **Making a second one of the same items spends the
    budget again**; :meth:`save` the first and :meth:`load` it instead.

    The private vectors are not kept. What stands beside a vector in an item, such as a label, is
    kept and **not protected**. Tensors and arrays there, in tuples, lists and dicts too, are
    copied: a label cut out of one tensor with its vector would bring the memory of both along. Any
    other object is kept as it is; see that it holds no vector.

    Parameters
    ----------
    items : Dataset or iterable
        Vectors, or tuples of one length that begin with one; read once.
    release : Release
    ledger : Ledger, optional
        Of the one person all items are about: all reports are paid for before the first is made.
    dtype : torch.dtype
        Of the decoded vectors.

    Examples
    --------
    >>> import torch
    >>> from torch.utils.data import DataLoader, TensorDataset
    >>> from offaxis import fit
    >>> from offaxis.integrations.torch import PrivateDataset
    >>> release = fit(np.eye(3)[:1], np.random.default_rng(0).normal(size=(99, 3)), epsilon=4)
    >>> mine = TensorDataset(torch.randn(20, 3), torch.arange(20))
    >>> private = PrivateDataset(mine, release)                 # twenty reports, once
    >>> loader = DataLoader(private, batch_size=10)
    >>> first, second = list(loader), list(loader)              # two epochs
    >>> torch.equal(first[0][0], second[0][0])
    True
    >>> print(private.guarantee, len(private.reports))
    ε = 4, pure 20
    >>> private.save("mine.reports")
    >>> again = PrivateDataset.load("mine.reports", release, beside=[(n,) for n in range(20)])
    >>> torch.equal(again[3][0], private[3][0])
    True
    """

    def __init__(
        self,
        items: Any,
        release: Release,
        *,
        ledger: Ledger | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        if not isinstance(release, Release):
            raise InvalidInput(
                f"release must be a Release, got {type(release).__name__}; read one from its file "
                f"with offaxis.load(path)"
            )
        vectors, beside = _taken_apart(items)
        reports: bytes | list[bytes]
        if ledger is None:
            reports = release.privatize(vectors)
        else:
            reports = [r for part in Reporter(release, ledger).reports(vectors) for r in part]
        assert isinstance(reports, list), "a batch gives a list"
        self._hold(reports, beside, release, dtype)

    def _hold(
        self, reports: list[bytes], beside: list[Any] | None, release: Release, dtype: torch.dtype
    ) -> None:
        self._release = release
        # Tensors, which torch hands to workers without a copy, however they are started.
        self._decoded = torch.as_tensor(release.decode(reports)).to(dtype)
        octets = np.frombuffer(b"".join(reports), dtype=np.uint8).copy()
        self._octets = torch.from_numpy(octets.reshape(len(reports), -1))
        self._beside = beside

    @classmethod
    def load(
        cls,
        path: str | Path,
        release: Release,
        *,
        beside: Sequence[tuple[Any, ...]] | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> PrivateDataset:
        """Read reports that were drawn before; spends nothing.

        Parameters
        ----------
        beside : sequence of tuples, optional
            What an item has beside its vector, one tuple a report; all of one length.
        """
        reports = list(read_reports(path, release.report_size))
        if beside is not None and not all(isinstance(row, tuple) for row in beside):
            raise InvalidInput("beside holds one tuple an item, such as (label,)")
        if beside is not None and len(beside) != len(reports):
            raise InvalidInput(f"{len(reports)} reports and {len(beside)} items do not fit")
        made = cls.__new__(cls)
        made._hold(reports, None if beside is None else columns_of(beside), release, dtype)
        return made

    def save(self, path: str | Path) -> None:
        """Write the reports to a file that :meth:`load` and ``offaxis decode`` read."""
        write_reports(path, self.reports)

    @property
    def reports(self) -> list[bytes]:
        """The report of every item."""
        return [row.tobytes() for row in self._octets.numpy()]

    @property
    def guarantee(self) -> Guarantee:
        """What every item has spent: the cost of one report, however many epochs follow."""
        return self._release.guarantee

    def __len__(self) -> int:
        """Return the number of items."""
        return len(self._decoded)

    def __repr__(self) -> str:
        """Show how many reports there are, and what each promises."""
        release = self._release
        return f"PrivateDataset({len(self)} reports, {release.guarantee}, {release.hash[:16]})"

    def __getitem__(self, index: int) -> Any:
        """Return the decoded vector, in a tuple with what stood beside the private one."""
        vector = self._decoded[index]
        if self._beside is None:
            return vector
        return (vector, *(column[index] for column in self._beside))


class SimulatedDataset(Dataset[Any]):
    """A public dataset as reports *would* leave it: seeded, **and no release of anything**.

    The noise of an item depends on the seed and the item's place only: the same in every epoch, in
    every worker and in every order, as one kept report would be. Another seed is another report.

    Parameters
    ----------
    items : map-style Dataset or sequence
        Public vectors, or tuples that begin with one; read when asked for.
    release : Release
    seed : int

    Examples
    --------
    >>> import torch
    >>> from offaxis import fit
    >>> from offaxis.integrations.torch import SimulatedDataset
    >>> public = torch.randn(99, 3)
    >>> release = fit(np.eye(3)[:1], public, epsilon=4)
    >>> noisy = SimulatedDataset(public, release, seed=7)
    >>> torch.equal(noisy[5], noisy[5]), torch.equal(noisy[5], SimulatedDataset(public, release)[5])
    (True, False)
    """

    def __init__(self, items: Any, release: Release, *, seed: int = 0) -> None:
        self._items = items
        self._release = release
        self._seed = seed

    def __len__(self) -> int:
        """Return the number of items."""
        return len(self._items)

    def __getitem__(self, index: int) -> Any:
        """Return the item with its vector as one report would leave it."""
        at = range(len(self))[index]
        vector, others = _split(self._items[at])
        noisy = simulate(self._release, vector, np.random.default_rng([self._seed, at]))
        return noisy if others is None else (noisy, *others)


def _split(item: Any) -> tuple[Any, tuple[Any, ...] | None]:
    """Return the vector of an item, and what stands beside it in a tuple."""
    return (item[0], item[1:]) if isinstance(item, tuple) else (item, None)


def _taken_apart(items: Any) -> tuple[NDArray[Any], list[Any] | None]:
    """Return the vectors (n, m), and the columns that stand beside them, or None for bare ones."""
    parts = [_split(item) for item in _each(items)]
    if any(isinstance(vector, dict) for vector, _ in parts):
        raise InvalidInput("items are vectors or tuples (vector, …); make tuples of dicts first")
    vectors = [as_array(vector, "the vector of an item") for vector, _ in parts]
    shapes = {vector.shape for vector in vectors}
    if len(shapes) != 1 or any(len(shape) != 1 for shape in shapes):
        raise InvalidInput(f"items must hold vectors of one length, got shapes {sorted(shapes)}")
    beside = [others for _, others in parts if others is not None]
    if len(beside) not in (0, len(parts)):
        raise InvalidInput("items must all be vectors, or all be tuples that begin with one")
    return np.stack(vectors), columns_of(beside) if beside else None


def _each(items: Any) -> Iterator[Any]:
    """Go through a map-style dataset by its length, and through anything else as it comes."""
    if hasattr(items, "__getitem__") and hasattr(items, "__len__"):
        return (items[index] for index in range(len(items)))
    if isinstance(items, Iterable):
        return iter(items)
    raise InvalidInput(f"items must be a dataset or an iterable, got {type(items).__name__}")


# ----------------------------------------------------------------------------
# A torch module that replaces vectors by what their private reports say.


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
    >>> from offaxis.integrations.torch import PrivateLayer
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


# ----------------------------------------------------------------------------
# torch: a layer that releases what passes it, and datasets whose items are released once.
