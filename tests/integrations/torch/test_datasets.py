"""Datasets are released once: epochs and workers draw no reports, simulations repeat."""

from __future__ import annotations

import io
import pickle
from collections import namedtuple
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import offaxis
from offaxis.errors import BudgetExceeded, InvalidInput, InvalidReport
from offaxis.integrations.torch import PrivateDataset, PrivateLayer, SimulatedDataset
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


class LayerAsTransform(torch.utils.data.Dataset[Any]):
    """The broken control: a layer as a transform, so that every access is a new release."""

    def __init__(self, items: TensorDataset, layer: PrivateLayer) -> None:
        self.items, self.layer = items, layer

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Any:
        vector, label = self.items[index]
        return self.layer(vector), label


def test_workers_and_epochs_draw_no_reports(items: TensorDataset, release: offaxis.Release) -> None:
    private = PrivateDataset(items, release)
    assert len(private.reports) == len(set(private.reports)) == COUNT
    first, labels = epoch(private)
    second, _ = epoch(private)
    single, _ = epoch(private, workers=0)
    assert torch.equal(first, second)
    assert torch.equal(first, single)
    assert torch.equal(labels, torch.arange(COUNT))
    np.testing.assert_allclose(first, release.decode(private.reports), rtol=1e-6)
    broken = LayerAsTransform(items, PrivateLayer(release))
    assert not torch.equal(epoch(broken, 0)[0], epoch(broken, 0)[0])


def test_every_item_is_released_exactly_once(
    items: TensorDataset, release: offaxis.Release, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[int] = []
    privatize = offaxis.Release.privatize

    def counted(self: offaxis.Release, vectors: Any) -> Any:
        drawn.append(len(vectors))
        return privatize(self, vectors)

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
    # A newly started worker receives the dataset as a pickle.
    received = pickle.loads(kept)
    assert received.reports == private.reports
    assert torch.equal(epoch(received, 0)[0], epoch(private, 0)[0])
    # The search finds a vector where there is one:
    assert items.tensors[0][3].numpy().tobytes() in pickle.dumps(items.tensors[0].numpy())


Values = namedtuple("Values", ["label", "weight"])


def saved(value: Any) -> bytes:
    file = io.BytesIO()
    torch.save(value, file)
    return file.getvalue()


def test_other_values_of_an_item_share_no_memory_with_the_vector(
    public: np.ndarray, release: offaxis.Release
) -> None:
    """The storage of a view is the whole tensor, private vectors included; torch writes it all."""
    data = torch.tensor(np.hstack([public[:COUNT], np.arange(COUNT)[:, None]]))
    rows, labels = data[:, :6], data[:, 6]
    array = data.numpy()
    columns = {
        "tensor": labels,
        "array": array[:, 6:],
        "uneven": [label.expand(1 + at % 2) for at, label in enumerate(labels)],
        "tuple": [(label, "a text", {"deep": [label, 7]}) for label in labels],
        "named": [Values(label, row[6:]) for label, row in zip(labels, array, strict=True)],
    }
    secrets = [row.numpy().tobytes() for row in rows]
    for name, column in columns.items():
        items = [(row, value) for row, value in zip(rows, column, strict=True)]
        private = PrivateDataset(items, release)
        for kept in (pickle.dumps(private), saved(private), saved(private[3])):
            assert not any(secret in kept for secret in secrets), name
        for dataset in (private, pickle.loads(pickle.dumps(private))):
            assert len(dataset) == COUNT
            assert same(dataset[3][1], column[3]), name
    assert secrets[0] in saved([(row, label) for row, label in zip(rows, labels, strict=True)][:1])
    assert any(secret in saved(labels) for secret in secrets), "the search finds them in the input"


def test_a_loaded_dataset_shares_no_memory_with_the_given_values(
    items: TensorDataset, release: offaxis.Release, tmp_path: Path
) -> None:
    PrivateDataset(items, release).save(tmp_path / "mine.reports")
    data = torch.tensor(np.random.default_rng(1).normal(size=(COUNT, 7)))
    rest = [(row[6],) for row in data]
    loaded = PrivateDataset.load(tmp_path / "mine.reports", release, rest=rest)
    assert data[0, :6].numpy().tobytes() not in saved(loaded)
    assert torch.equal(epoch(loaded, 0)[1], data[:, 6])


def test_other_values_of_an_item_are_detached_from_the_graph(release: offaxis.Release) -> None:
    weight = torch.ones(6, requires_grad=True)
    private = PrivateDataset([(torch.zeros(6), (weight * 2).sum())] * 3, release)
    assert not private[0][1].requires_grad
    assert private[0][1] == 12


def same(a: Any, b: Any) -> bool:
    if isinstance(a, (torch.Tensor, np.ndarray)):
        return type(a) is type(b) and a.shape == b.shape and bool((a == b).all())
    if isinstance(a, (tuple, list)):
        return type(a) is type(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    return bool(a == b)


def test_reports_are_saved_and_loaded(
    items: TensorDataset, release: offaxis.Release, public: np.ndarray, head: Any, tmp_path: Path
) -> None:
    private = PrivateDataset(items, release, dtype=torch.float64)
    private.save(tmp_path / "mine.reports")
    rest = [(label,) for label in range(COUNT)]
    loaded = PrivateDataset.load(tmp_path / "mine.reports", release, rest=rest, dtype=torch.float64)
    assert loaded.reports == private.reports
    assert torch.equal(epoch(loaded, 0)[0], epoch(private, 0)[0])
    assert PrivateDataset.load(tmp_path / "mine.reports", release)[0].dtype == torch.float32
    with pytest.raises(InvalidInput, match="30 reports but 3 tuples"):
        PrivateDataset.load(tmp_path / "mine.reports", release, rest=rest[:3])
    other = offaxis.fit(head, public, epsilon=2, mechanism="laplace")
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
    ("items", "message"),
    [
        ([], "got shapes"),
        ([np.zeros(6), np.zeros(5)], r"\(5,\), \(6,\)"),
        ([np.zeros((2, 6))], r"\(2, 6\)"),
        ([np.zeros(6), (np.zeros(6), 1)], "or all be tuples"),
        ([(np.zeros(6), 1), (np.zeros(6), 1, 2)], "tuples of the same length"),
        ([np.full(6, np.nan)], "finite"),
        ([np.zeros(5)], "dimension 6, got 5"),
        (7, "got int"),
    ],
)
def test_invalid_items_release_nothing(items: Any, message: str, release: offaxis.Release) -> None:
    with pytest.raises(InvalidInput, match=message):
        PrivateDataset(items, release)


def test_a_simulation_is_the_same_in_every_worker_epoch_and_order(
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
    only_vectors = SimulatedDataset(items.tensors[0].numpy(), release, seed=5)
    np.testing.assert_array_equal(only_vectors[4], simulated[4][0].numpy())


def test_invalid_arguments_raise(items: Any, release: offaxis.Release, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"got str; read one from its file with offaxis\.load"):
        PrivateDataset(items, "my.release")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="convert dicts to tuples first"):
        PrivateDataset([{"vector": vector} for vector, _ in items], release)
    private = PrivateDataset(items, release)
    private.save(tmp_path / "mine.reports")
    with pytest.raises(InvalidInput, match="one tuple per item"):
        PrivateDataset.load(tmp_path / "mine.reports", release, rest=list(range(COUNT)))  # type: ignore[arg-type]
    assert repr(private) == f"PrivateDataset({COUNT} reports, ε = 3, pure, {release.hash[:16]})"


def test_rows_of_records_and_arrays_of_objects_keep_no_vector(release: offaxis.Release) -> None:
    secret = np.frombuffer(b"a private vector of six numbers: one two threefour", np.uint8)[:48]
    records = np.zeros(3, dtype=[("label", "i8"), ("vector", "f8", 6)])
    records["vector"] = secret.view(np.float64)
    tensor = torch.tensor(np.concatenate([[1.0], secret.view(np.float64)]))
    vectors = [torch.zeros(6)] * 3
    objects = np.empty(1, dtype=object)
    objects[0] = tensor[:1]
    for value in (records[["label"]][0], records[["label"]], objects):
        items = [(vector, value) for vector in vectors]
        assert secret.tobytes() in pickle.dumps(items)
        private = PrivateDataset(items, release)
        assert secret.tobytes() not in pickle.dumps(private)
        assert np.asarray(private[1][1]).tolist() == np.asarray(value).tolist()
