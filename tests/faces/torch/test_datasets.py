"""Datasets that are released once: epochs and workers draw nothing, simulations repeat."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import offaxis
from offaxis.errors import BudgetExceeded, InvalidInput, InvalidReport
from offaxis.faces.torch import PrivateDataset, PrivateLayer, SimulatedDataset
from offaxis.privacy.ledger import Ledger, Limit

COUNT = 30


@pytest.fixture
def items(public: np.ndarray) -> TensorDataset:
    vectors = torch.tensor(public[:COUNT], dtype=torch.float32)
    return TensorDataset(vectors, torch.arange(COUNT))


def epoch(dataset: Any, workers: int = 2) -> tuple[torch.Tensor, torch.Tensor]:
    loader = DataLoader(dataset, batch_size=7, num_workers=workers)
    vectors, labels = zip(*loader, strict=True)
    return torch.cat(vectors), torch.cat(labels)


class Released(torch.utils.data.Dataset[Any]):
    """The broken twin: a layer as a transform, so that every look is a new release."""

    def __init__(self, items: TensorDataset, layer: PrivateLayer) -> None:
        self.items, self.layer = items, layer

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Any:
        vector, label = self.items[index]
        return self.layer(vector), label


def test_workers_and_epochs_draw_nothing(items: TensorDataset, release: offaxis.Release) -> None:
    private = PrivateDataset(items, release)
    assert len(private.reports) == len(set(private.reports)) == COUNT
    first, labels = epoch(private)
    second, _ = epoch(private)
    alone, _ = epoch(private, workers=0)
    assert torch.equal(first, second)
    assert torch.equal(first, alone)
    assert torch.equal(labels, torch.arange(COUNT))
    np.testing.assert_allclose(first, release.decode(private.reports), rtol=1e-6)
    twin = Released(items, PrivateLayer(release))
    assert not torch.equal(epoch(twin, 0)[0], epoch(twin, 0)[0])


def test_every_item_is_released_exactly_once(
    items: TensorDataset, release: offaxis.Release, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[int] = []
    real = offaxis.Release.privatize

    def counted(self: offaxis.Release, vectors: Any) -> Any:
        drawn.append(len(vectors))
        return real(self, vectors)

    monkeypatch.setattr(offaxis.Release, "privatize", counted)
    private = PrivateDataset(items, release)
    for _ in range(3):
        epoch(private, 0)
    assert drawn == [COUNT]
    assert private.guarantee == release.guarantee


def test_private_vectors_are_not_kept(items: TensorDataset, release: offaxis.Release) -> None:
    private = PrivateDataset(items, release)
    kept = pickle.dumps(private)
    for vector in items.tensors[0]:
        for octets in (vector.numpy().tobytes(), vector.double().numpy().tobytes()):
            assert octets not in kept
    # And this is how a worker that is started afresh gets it.
    there = pickle.loads(kept)
    assert there.reports == private.reports
    assert torch.equal(epoch(there, 0)[0], epoch(private, 0)[0])
    # What the search would find if it were there:
    assert items.tensors[0][3].numpy().tobytes() in pickle.dumps(items.tensors[0].numpy())


def test_reports_are_kept_in_a_file(
    items: TensorDataset, release: offaxis.Release, public: np.ndarray, head: Any, tmp_path: Path
) -> None:
    private = PrivateDataset(items, release, dtype=torch.float64)
    private.save(tmp_path / "mine.reports")
    beside = [(label,) for label in range(COUNT)]
    again = PrivateDataset.load(
        tmp_path / "mine.reports", release, beside=beside, dtype=torch.float64
    )
    assert again.reports == private.reports
    assert torch.equal(epoch(again, 0)[0], epoch(private, 0)[0])
    assert PrivateDataset.load(tmp_path / "mine.reports", release)[0].dtype == torch.float32
    with pytest.raises(InvalidInput, match="30 reports and 3 items"):
        PrivateDataset.load(tmp_path / "mine.reports", release, beside=beside[:3])
    other = offaxis.fit(head, public, epsilon=2)
    with pytest.raises(InvalidReport, match="belongs to release"):
        PrivateDataset.load(tmp_path / "mine.reports", other)


def test_a_ledger_is_paid_for_all_items_before_the_first(
    items: TensorDataset, release: offaxis.Release, tmp_path: Path
) -> None:
    ledger = Ledger(tmp_path / "my.ledger", Limit(3 * COUNT))
    PrivateDataset(items, release, ledger=ledger)
    assert ledger.spent()[0] == 3 * COUNT
    with pytest.raises(BudgetExceeded):
        PrivateDataset(items, release, ledger=ledger)
    assert ledger.spent()[0] == 3 * COUNT


class Stream(IterableDataset[Any]):
    def __init__(self, vectors: torch.Tensor) -> None:
        self.vectors, self.passes = vectors, 0

    def __iter__(self) -> Iterator[Any]:
        self.passes += 1
        return iter(self.vectors)


def test_a_stream_is_read_once(items: TensorDataset, release: offaxis.Release) -> None:
    stream = Stream(items.tensors[0])
    private = PrivateDataset(stream, release)
    assert [private[i].shape for i in range(len(private))] == [(6,)] * COUNT
    assert stream.passes == 1
    assert len(PrivateDataset(items.tensors[0], release)) == COUNT


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ([], "got shapes"),
        ([np.zeros(6), np.zeros(5)], r"\(5,\), \(6,\)"),
        ([np.zeros((2, 6))], r"\(2, 6\)"),
        ([np.zeros(6), (np.zeros(6), 1)], "or all be tuples"),
        ([np.full(6, np.nan)], "finite"),
        ([np.zeros(5)], "dimension 6, got 5"),
        (7, "got int"),
    ],
)
def test_bad_items_release_nothing(bad: Any, message: str, release: offaxis.Release) -> None:
    with pytest.raises(InvalidInput, match=message):
        PrivateDataset(bad, release)


def test_a_simulation_repeats_in_every_worker_epoch_and_order(
    items: TensorDataset, release: offaxis.Release
) -> None:
    simulated = SimulatedDataset(items, release, seed=5)
    first, labels = epoch(simulated)
    second, _ = epoch(simulated)
    assert torch.equal(first, second)
    assert torch.equal(labels, torch.arange(COUNT))
    assert torch.equal(simulated[COUNT - 1][0], simulated[-1][0])
    noise = first - items.tensors[0]
    assert len(torch.unique(noise, dim=0)) == COUNT, "workers must not share a stream"
    other, _ = epoch(SimulatedDataset(items, release, seed=6), 0)
    assert (other != first).any(dim=1).all()
    alone = SimulatedDataset(items.tensors[0].numpy(), release, seed=5)
    np.testing.assert_array_equal(alone[4], simulated[4][0].numpy())
