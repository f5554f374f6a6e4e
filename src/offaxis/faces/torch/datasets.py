"""Datasets whose vectors are released once, and their seeded stand-ins for public vectors.

A layer or a ``transform=`` in front of a model would draw a new report of every item in every
epoch, and each costs ε again. Here a report is drawn once, before the first epoch, and kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import Dataset

from offaxis.client import Reporter
from offaxis.errors import InvalidInput
from offaxis.faces.torch.beside import columns_of
from offaxis.formats.reports import read_reports, write_reports
from offaxis.privacy.guarantee import Guarantee
from offaxis.privacy.ledger import Ledger
from offaxis.release import Release
from offaxis.vectors import as_array


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
    >>> from offaxis.faces.torch import PrivateDataset
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
    >>> from offaxis.faces.torch import SimulatedDataset
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
        noisy = self._release.simulate(vector, np.random.default_rng([self._seed, at]))
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
