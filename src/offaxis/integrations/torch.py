"""PyTorch: a layer that releases its inputs, datasets released once, and learnt models.

A layer or a ``transform=`` in front of a model would draw a new report of every item in every
epoch, and each costs ε again. A :class:`PrivateDataset` draws one report per item, before the first
epoch, and keeps it. :class:`SimulatedDataset` is the seeded simulation for public vectors.
:class:`PrivateLayer` draws a new report in every forward pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.lib.recfunctions import repack_fields
from numpy.typing import NDArray

from offaxis.client import Reporter
from offaxis.decoding.pairs import PairDecoder
from offaxis.decoding.second_moments import SecondMomentsDecoder
from offaxis.errors import BiasedDecoder, InvalidInput, InvalidRelease, MissingExtra, installing
from offaxis.formats.release_file import from_bytes, to_bytes
from offaxis.formats.reports import read_reports, write_reports
from offaxis.integrations.learnt import PublicModel
from offaxis.privacy.guarantee import Guarantee
from offaxis.privacy.ledger import Ledger
from offaxis.release import Release
from offaxis.simulation import simulate
from offaxis.simulation.releases import DECODERS
from offaxis.vectors import Vectors, as_array, moved, on_device

try:
    import torch
except ImportError as error:
    raise MissingExtra(f"offaxis.integrations.torch needs torch: {installing('torch')}") from error

from torch._subclasses import FakeTensor
from torch.fx.experimental import proxy_tensor
from torch.utils.data import Dataset

__all__ = ["PrivateDataset", "PrivateLayer", "SimulatedDataset", "model_to_torch"]


class PrivateDataset(Dataset[Any]):
    """A dataset as the collector sees it: one report per item, drawn once and kept.

    Reports are drawn at construction. Epochs and the workers of a ``DataLoader`` draw none: they
    all read the same memory. **A second dataset of the same items spends the budget again**;
    :meth:`save` the first and :meth:`load` it instead.

    The private vectors are not kept. Other values of an item, such as a label, are kept and **not
    protected**. Tensors and arrays among them are copied, also inside tuples, lists and dicts: a
    label that is a slice of the same tensor as its vector would otherwise keep the memory of both.
    Any other object is kept as it is; make sure that it holds no vector.

    Parameters
    ----------
    items : Dataset or iterable
        Vectors, or tuples of the same length that begin with a vector; read once.
    release : Release
    ledger : Ledger, optional
        Ledger of the person whom all items are about: all reports are paid for before the first
        is drawn.
    dtype : torch.dtype
        Type of the decoded vectors.

    Examples
    --------
    >>> import torch
    >>> from torch.utils.data import DataLoader, TensorDataset
    >>> from offaxis import fit
    >>> from offaxis.integrations.torch import PrivateDataset
    >>> public = np.random.default_rng(0).normal(size=(99, 3))
    >>> release = fit(np.eye(3)[:1], public, epsilon=4, mechanism="laplace")
    >>> items = TensorDataset(torch.randn(20, 3), torch.arange(20))
    >>> private = PrivateDataset(items, release)                # twenty reports, once
    >>> loader = DataLoader(private, batch_size=10)
    >>> first, second = list(loader), list(loader)              # two epochs
    >>> torch.equal(first[0][0], second[0][0])
    True
    >>> print(private.guarantee, len(private.reports))
    ε = 4, pure 20
    >>> private.save("mine.reports")
    >>> loaded = PrivateDataset.load("mine.reports", release, rest=[(n,) for n in range(20)])
    >>> torch.equal(loaded[3][0], private[3][0])
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
        _require_vectors(release)
        vectors, rest = _separated(items)
        reports: bytes | list[bytes]
        if ledger is None:
            reports = release.privatize(vectors)
        else:
            reports = [r for part in Reporter(release, ledger).reports(vectors) for r in part]
        assert isinstance(reports, list), "a batch returns a list"
        self._keep(reports, rest, release, dtype)

    def _keep(
        self, reports: list[bytes], rest: list[Any] | None, release: Release, dtype: torch.dtype
    ) -> None:
        self._release = release
        # As tensors, which torch shares with workers without a copy, however they are started.
        self._decoded = torch.as_tensor(release.decode(reports)).to(dtype)
        octets = np.frombuffer(b"".join(reports), dtype=np.uint8).copy()
        self._octets = torch.from_numpy(octets.reshape(len(reports), -1))
        self._rest = rest

    @classmethod
    def load(
        cls,
        path: str | Path,
        release: Release,
        *,
        rest: Sequence[tuple[Any, ...]] | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> PrivateDataset:
        """Read reports that were drawn before; this spends no budget.

        Parameters
        ----------
        rest : sequence of tuples, optional
            The other values of each item, one tuple per report, all of the same length.
        """
        reports = list(read_reports(path, release.report_size))
        if rest is not None and not all(isinstance(row, tuple) for row in rest):
            raise InvalidInput("rest must hold one tuple per item, such as (label,)")
        if rest is not None and len(rest) != len(reports):
            raise InvalidInput(f"there are {len(reports)} reports but {len(rest)} tuples in rest")
        loaded = cls.__new__(cls)
        loaded._keep(reports, None if rest is None else _columns(rest), release, dtype)
        return loaded

    def save(self, path: str | Path) -> None:
        """Write the reports to a file that :meth:`load` and ``offaxis decode`` read."""
        write_reports(path, self.reports)

    @property
    def reports(self) -> list[bytes]:
        """The reports, one per item."""
        return [row.tobytes() for row in self._octets.numpy()]

    @property
    def guarantee(self) -> Guarantee:
        """The cost of each item: that of one report, regardless of the number of epochs."""
        return self._release.guarantee

    def __len__(self) -> int:
        """Return the number of items."""
        return len(self._decoded)

    def __repr__(self) -> str:
        """Show the number of reports and the guarantee of each."""
        release = self._release
        return f"PrivateDataset({len(self)} reports, {release.guarantee}, {release.hash[:16]})"

    def __getitem__(self, index: int) -> Any:
        """Return the decoded vector, in a tuple with the other values of the item if it has any."""
        vector = self._decoded[index]
        if self._rest is None:
            return vector
        return (vector, *(column[index] for column in self._rest))


class SimulatedDataset(Dataset[Any]):
    """A public dataset with simulated reports: seeded, and **not a release**.

    The noise of an item depends only on the seed and the item's index. It is the same in every
    epoch, in every worker and in every order, as for one kept report. Another seed simulates
    another report.

    Parameters
    ----------
    items : map-style Dataset or sequence
        Public vectors, or tuples that begin with one; read on access.
    release : Release
    seed : int

    Examples
    --------
    >>> import torch
    >>> from offaxis import fit
    >>> from offaxis.integrations.torch import SimulatedDataset
    >>> public = torch.randn(99, 3)
    >>> release = fit(np.eye(3)[:1], public, epsilon=4, mechanism="laplace")
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
        """Return the item with its vector replaced by a simulated, decoded report."""
        at = range(len(self))[index]
        vector, values = _split(self._items[at])
        noisy = simulate(self._release, vector, np.random.default_rng([self._seed, at]))
        return noisy if values is None else (noisy, *values)


class PrivateLayer(torch.nn.Module):
    """The boundary between a device and a collector, as a layer.

    **Every forward pass is a new release and spends the budget again**, in training and in
    evaluation. Reports are drawn on the CPU, exactly, from the operating system's randomness; no
    torch seed affects them. Only decoding runs on the layer's device.

    A report has no gradient. An input that requires one raises an error, because otherwise
    everything before the layer would silently stay untrained.

    **Do not use activation checkpointing around this layer**: ``torch.utils.checkpoint`` repeats a
    forward pass during the backward pass, and that would draw a second report. A forward pass
    during a backward pass raises an error. So does tracing, which would make one report a constant.
    Use both only after the layer.

    The ``state_dict`` contains the release as the bytes of its file, which are read as strictly as
    a file. Loading never replaces a release that the layer already has: the guarantee given at
    construction stays.

    Parameters
    ----------
    release : Release, optional
        ``PrivateLayer()`` is an empty layer that takes its release from a ``state_dict``.
    device, dtype : optional
        Where and in which type to decode, as in ``torch.nn.Linear``.

    Examples
    --------
    >>> import torch
    >>> from offaxis import fit
    >>> from offaxis.integrations.torch import PrivateLayer
    >>> public = np.random.default_rng(0).normal(size=(99, 3))
    >>> release = fit(np.eye(3)[:1], public, epsilon=4, mechanism="laplace")
    >>> layer = PrivateLayer(release)
    >>> model = torch.nn.Sequential(layer, torch.nn.Linear(3, 2))
    >>> model(torch.zeros(5, 3)).shape                     # a release of five vectors
    torch.Size([5, 2])
    >>> reports = layer.privatize(torch.zeros(2, 3))       # or in two steps: bytes, then vectors
    >>> layer.decode(reports).shape
    torch.Size([2, 3])
    >>> print(layer)
    PrivateLayer(ε = 4, pure, unit='item', release=...)

    A ``state_dict`` contains the release:

    >>> empty = PrivateLayer()
    >>> _ = empty.load_state_dict(layer.state_dict())
    >>> empty.release == layer.release
    True
    """

    place: torch.Tensor

    def __init__(
        self, release: Release | None = None, *, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__()
        # An empty tensor that records the device and dtype of the layer: .to() moves it.
        self.register_buffer("place", torch.zeros(0, device=device, dtype=dtype), persistent=False)
        self._release = release

    @property
    def release(self) -> Release:
        """The release; raises for an empty layer."""
        if self._release is None:
            raise InvalidInput("this layer is empty; use PrivateLayer(release), or load a state")
        return self._release

    # torch.compile would trace the sampler and could replay its noise, so it is disabled here.
    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def forward(self, z: torch.Tensor) -> torch.Tensor:
        """Release vectors (n, m) or (m,); return decoded vectors of the same device and dtype."""
        return self.decode(self.privatize(z), device=z.device, dtype=z.dtype)

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def privatize(self, z: torch.Tensor) -> bytes | list[bytes]:
        """Turn one private vector (m,) into bytes, or a batch (n, m) into a list of bytes."""
        _require_vectors(self.release)
        if not isinstance(z, torch.Tensor) or not z.is_floating_point():
            kind = getattr(z, "dtype", type(z).__name__)
            raise InvalidInput(f"vectors must be a floating-point tensor, got {kind}")
        if z.dtype == torch.float16:
            raise InvalidInput("decoded noise overflows float16: pass z.float() or z.bfloat16()")
        if z.requires_grad and torch.is_grad_enabled():
            raise InvalidInput("a report has no gradient: pass z.detach(), or use no_grad()")
        if _in_backward():
            raise InvalidInput(
                "this forward pass runs in a backward pass and would draw a second report; use "
                "torch.utils.checkpoint only after the layer"
            )
        if _is_traced(z):
            raise InvalidInput("a traced layer would repeat the same report; do not trace it")
        return self.release.privatize(z)

    def decode(
        self, reports: bytes | Iterable[bytes], *, device: Any = None, dtype: Any = None
    ) -> torch.Tensor:
        """Turn reports into vectors, by default on the layer's device and in its dtype."""
        batch = [reports] if isinstance(reports, bytes) else reports
        decoder: Any = self.release.decoder
        decoded: Any
        if isinstance(decoder, DECODERS):
            observed = on_device(self.release.observe(batch), self.place)
            decoded = moved(decoder, self.place).decode(observed)
        else:
            decoded = on_device(self.release.decode(batch), self.place)
        vectors: torch.Tensor = decoded.to(device=device, dtype=dtype)
        return vectors[0] if isinstance(reports, bytes) else vectors

    def extra_repr(self) -> str:
        """Show the guarantee, the hash and the expected utility of the release."""
        if self._release is None:
            return "empty"
        guarantee, settings = self._release.guarantee, self._release.provenance.settings
        shown = f"{guarantee}, unit={guarantee.unit!r}, release={self._release.hash[:16]}"
        return f"{shown}\n{self._release.summary}" if "expected" in settings else shown

    def get_extra_state(self) -> torch.Tensor:
        """Return the bytes of the release file, as a tensor, for any checkpoint format."""
        return torch.frombuffer(bytearray(to_bytes(self.release)), dtype=torch.uint8)

    def set_extra_state(self, state: torch.Tensor) -> None:
        """Read the release strictly; raise if the layer already has another one."""
        if not isinstance(state, torch.Tensor) or state.dtype != torch.uint8:
            raise InvalidRelease("the state does not hold a release: it is not a tensor of bytes")
        loaded = from_bytes(state.cpu().numpy().tobytes())
        if self._release is not None and loaded != self._release:
            raise InvalidRelease(
                f"the state holds release {loaded.hash[:16]} ({loaded.guarantee}), the layer has "
                f"{self._release.hash[:16]} ({self._release.guarantee}); PrivateLayer() accepts any"
            )
        self._release = loaded


def _require_vectors(release: Release) -> None:
    """Raise for a release whose reports decode to no vector, before a report is drawn."""
    if isinstance(release.decoder, SecondMomentsDecoder):
        raise BiasedDecoder(release.decoder.instead)
    if isinstance(release.decoder, PairDecoder):
        raise BiasedDecoder(
            "reports of this release are about a vector and a private answer together and decode "
            "to no vector: make them with release.privatize(vectors, answers=...), and learn from "
            "many of them with offaxis.learn"
        )


def _in_backward() -> bool:
    # Torch has no public name for this; if the name is missing, a checkpoint is not detected.
    task = getattr(torch._C, "_current_graph_task_id", None)
    return task is not None and task() != -1


def _is_traced(z: torch.Tensor) -> bool:
    """Whether operations are being recorded: by torch.jit, make_fx or torch.export."""
    if torch.jit.is_tracing() or isinstance(z, FakeTensor):  # type: ignore[attr-defined, no-untyped-call]
        return True
    # This is not a public name either.
    mode = getattr(proxy_tensor, "get_proxy_mode", None)
    return mode is not None and mode() is not None


# ---- Items of a dataset


def _split(item: Any) -> tuple[Any, tuple[Any, ...] | None]:
    """Return the vector of an item, and its other values if it is a tuple."""
    return (item[0], item[1:]) if isinstance(item, tuple) else (item, None)


def _separated(items: Any) -> tuple[NDArray[Any], list[Any] | None]:
    """Return the vectors (n, m), and columns of the other values, or None if there are none."""
    parts = [_split(item) for item in _iterate(items)]
    if any(isinstance(vector, dict) for vector, _ in parts):
        raise InvalidInput(
            "items must be vectors or tuples (vector, …); convert dicts to tuples first"
        )
    vectors = [as_array(vector, "the vector of an item") for vector, _ in parts]
    shapes = {vector.shape for vector in vectors}
    if len(shapes) != 1 or any(len(shape) != 1 for shape in shapes):
        raise InvalidInput(f"items must hold vectors of one length, got shapes {sorted(shapes)}")
    rest = [values for _, values in parts if values is not None]
    if len(rest) not in (0, len(parts)):
        raise InvalidInput("items must all be vectors, or all be tuples that begin with one")
    return np.stack(vectors), _columns(rest) if rest else None


def _iterate(items: Any) -> Iterator[Any]:
    """Iterate over a map-style dataset by index, and over anything else directly."""
    if hasattr(items, "__getitem__") and hasattr(items, "__len__"):
        return (items[index] for index in range(len(items)))
    if isinstance(items, Iterable):
        return iter(items)
    raise InvalidInput(f"items must be a dataset or an iterable, got {type(items).__name__}")


def _columns(rows: Sequence[tuple[Any, ...]]) -> list[Any]:
    """Return tuples of the same length as columns that share no memory with them.

    A label that is a slice of the same tensor or array as its vector shares that memory, and torch
    writes the whole memory to a file with the label, vectors included. So tensors and arrays are
    copied, also inside tuples, lists, dicts and arrays of objects. A column of tensors of one shape
    becomes one tensor, which torch shares with workers without a copy; any other becomes a list.

    Raises
    ------
    InvalidInput
        If the tuples differ in length.
    """
    lengths = sorted({len(row) for row in rows})
    if len(lengths) > 1:
        raise InvalidInput(
            f"items must be tuples of the same length, got {lengths} values after the vector"
        )
    return [_column(list(values)) for values in zip(*rows, strict=True)]


def _column(values: list[Any]) -> Any:
    if all(type(value) is torch.Tensor and value.layout == torch.strided for value in values):
        kinds = {(value.shape, value.dtype, value.device) for value in values}
        if len(kinds) == 1:
            return torch.stack([value.detach() for value in values])
    return [_copied(value) for value in values]


def _copied(value: Any) -> Any:
    """Copy tensors and arrays, also inside tuples, lists and dicts; return the rest as it is."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, np.void):  # a row of a record array
        return _copied(np.asarray(value))[()]
    if isinstance(value, np.ndarray):
        # Fields left out of a view are still between the others; a plain copy would keep them.
        dtype = value.dtype
        if dtype.names:
            dtype = repack_fields(dtype, recurse=True)
        array = np.array(value, dtype=dtype, copy=True, subok=True)
        if array.dtype == object:
            array[...] = np.frompyfunc(_copied, 1, 1)(array)
        return array
    if isinstance(value, dict):
        return {key: _copied(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_copied(part) for part in value]
    if isinstance(value, tuple):
        inner = [_copied(part) for part in value]
        return type(value)(*inner) if hasattr(value, "_fields") else tuple(inner)
    return value


# ---- Models learnt from reports

_MOST_CELLS: Final = 128

_ACTIVATIONS: Final[dict[str, Callable[[int], torch.nn.Module]]] = {
    "identity": lambda units: torch.nn.Identity(),
    "relu": lambda units: torch.nn.ReLU(),
    "tanh": lambda units: torch.nn.Tanh(),
    "logistic": lambda units: torch.nn.Sigmoid(),
    "gelu": lambda units: torch.nn.GELU(),
    "silu": lambda units: torch.nn.SiLU(),
    "elu": lambda units: torch.nn.ELU(),
    "clip": lambda units: torch.nn.Hardtanh(0.0, 1.0),
    "normalise": lambda units: torch.nn.RMSNorm(units, eps=1.0, elementwise_affine=False),
}


def model_to_torch(model: Any, *, dtype: torch.dtype = torch.float32) -> torch.nn.Sequential:
    """Return a public model, such as one learnt from reports, as a torch module in eval mode.

    It maps vectors (n, m) to outputs (n, k): scores of the classes, in the order of
    ``model.classes_``, or a number. It equals ``model.layers_.outputs`` up to the rounding of its
    dtype. offaxis reads it as layers again, so it can be the model of the next release, also after
    it was trained further on public data.

    Parameters
    ----------
    model : ReportClassifier, ReportRegressor or Layers
        As :func:`offaxis.learn` returns it. A model of cells has at most 128 of them.
    dtype : torch.dtype
        Of the parameters, and of the vectors that the module takes.

    Examples
    --------
    >>> import torch
    >>> import offaxis
    >>> from offaxis.integrations.torch import model_to_torch
    >>> from offaxis.learning import fit_pairs, principal
    >>> people = np.random.default_rng(0).standard_normal((3000, 4))
    >>> release = fit_pairs(principal(people[:500]), ["no", "yes"], epsilon=2)
    >>> reports = release.privatize(people[500:], answers=1 * (people[500:, 0] > 0))
    >>> module = model_to_torch(offaxis.learn(release, reports))
    >>> module(torch.zeros(5, 4)).shape
    torch.Size([5, 2])
    >>> offaxis.fit(module, people[:500], epsilon=2).encoder.input_dim  # as the next head
    4
    """
    weights, biases, names = _chain_of(model)
    modules: list[torch.nn.Module] = []
    for depth, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        modules.append(_linear(weight, bias, dtype))
        if depth < len(names):
            modules.append(_ACTIVATIONS[names[depth]](len(bias)))
    return torch.nn.Sequential(*modules).eval()


def _chain_of(model: Any) -> tuple[list[Vectors], list[Vectors], list[str]]:
    """Return weights, biases and the activations between them."""
    parts = PublicModel.of(model)
    table = parts.table
    if table is not None and len(table) > _MOST_CELLS:
        raise InvalidInput(
            f"a module has at most {_MOST_CELLS} cells, this model has {len(table)}: use "
            f"offaxis.integrations.onnx.model_to_onnx"
        )
    layers = parts.network if table is None else model.layers_
    weights, biases = list(layers.weights), list(layers.biases)
    names = list(layers.activations)
    if table is not None:
        # Pairs of rectified units, max(g, 0) − max(g − 1, 0), are g clipped to [0, 1]: in single
        # precision, the difference of two large numbers would not be.
        half = len(biases[-3]) // 2
        weights[-3:-1] = [weights[-3][:half], weights[-2][:, :half]]
        biases[-3], names[-2] = biases[-3][:half], "clip"
    return weights, biases, names


def _linear(weight: NDArray[Any], bias: NDArray[Any], dtype: torch.dtype) -> torch.nn.Linear:
    linear = torch.nn.Linear(weight.shape[1], weight.shape[0], dtype=dtype)
    with torch.no_grad():
        linear.weight.copy_(torch.tensor(weight))
        linear.bias.copy_(torch.tensor(bias))
    return linear
