"""Datasets that are released once: epochs and workers draw nothing, simulations repeat."""

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


Beside = namedtuple("Beside", ["label", "weight"])


def saved(thing: Any) -> bytes:
    file = io.BytesIO()
    torch.save(thing, file)
    return file.getvalue()


def test_what_stands_beside_a_vector_has_memory_of_its_own(
    public: np.ndarray, release: offaxis.Release
) -> None:
    """A view's storage is the whole tensor, with the private vectors, and torch writes it all."""
    data = torch.tensor(np.hstack([public[:COUNT], np.arange(COUNT)[:, None]]))
    rows, labels = data[:, :6], data[:, 6]
    array = data.numpy()
    columns = {
        "tensor": labels,
        "array": array[:, 6:],
        "uneven": [label.expand(1 + at % 2) for at, label in enumerate(labels)],
        "tuple": [(label, "a text", {"deep": [label, 7]}) for label in labels],
        "named": [Beside(label, row[6:]) for label, row in zip(labels, array, strict=True)],
    }
    secrets = [row.numpy().tobytes() for row in rows]
    for name, column in columns.items():
        whole = [(row, beside) for row, beside in zip(rows, column, strict=True)]
        private = PrivateDataset(whole, release)
        for kept in (pickle.dumps(private), saved(private), saved(private[3])):
            assert not any(secret in kept for secret in secrets), name
        for again in (private, pickle.loads(pickle.dumps(private))):
            assert len(again) == COUNT
            assert same(again[3][1], column[3]), name
    assert secrets[0] in saved([(row, label) for row, label in zip(rows, labels, strict=True)][:1])
    assert any(secret in saved(labels) for secret in secrets), "what the search would find"


def test_loaded_reports_share_no_memory_with_what_stands_beside(
    items: TensorDataset, release: offaxis.Release, tmp_path: Path
) -> None:
    PrivateDataset(items, release).save(tmp_path / "mine.reports")
    data = torch.tensor(np.random.default_rng(1).normal(size=(COUNT, 7)))
    beside = [(row[6],) for row in data]
    again = PrivateDataset.load(tmp_path / "mine.reports", release, beside=beside)
    assert data[0, :6].numpy().tobytes() not in saved(again)
    assert torch.equal(epoch(again, 0)[1], data[:, 6])


def test_a_gradient_beside_a_vector_is_let_go(release: offaxis.Release) -> None:
    weight = torch.ones(6, requires_grad=True)
    private = PrivateDataset([(torch.zeros(6), (weight * 2).sum())] * 3, release)
    assert not private[0][1].requires_grad
    assert private[0][1] == 12


def same(one: Any, other: Any) -> bool:
    if isinstance(one, (torch.Tensor, np.ndarray)):
        return type(one) is type(other) and one.shape == other.shape and bool((one == other).all())
    if isinstance(one, (tuple, list)):
        return type(one) is type(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return bool(one == other)


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
        ([(np.zeros(6), 1), (np.zeros(6), 1, 2)], "tuples of one length"),
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


def test_mistakes_are_named_at_once(items: Any, release: offaxis.Release, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"got str; read one from its file with offaxis\.load"):
        PrivateDataset(items, "my.release")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="make tuples of dicts first"):
        PrivateDataset([{"vector": vector} for vector, _ in items], release)
    made = PrivateDataset(items, release)
    made.save(tmp_path / "mine.reports")
    with pytest.raises(InvalidInput, match="one tuple an item"):
        PrivateDataset.load(tmp_path / "mine.reports", release, beside=list(range(COUNT)))  # type: ignore[arg-type]
    assert repr(made) == f"PrivateDataset({COUNT} reports, ε = 3, pure, {release.hash[:16]})"


def test_rows_of_records_and_arrays_of_objects_bring_no_vector(release: offaxis.Release) -> None:
    secret = np.frombuffer(b"a private vector of six numbers: one two threefour", np.uint8)[:48]
    records = np.zeros(3, dtype=[("label", "i8"), ("vector", "f8", 6)])
    records["vector"] = secret.view(np.float64)
    held = torch.tensor(np.concatenate([[1.0], secret.view(np.float64)]))
    vectors = [torch.zeros(6)] * 3
    objects = np.empty(1, dtype=object)
    objects[0] = held[:1]
    for beside in (records[["label"]][0], records[["label"]], objects):
        items = [(vector, beside) for vector in vectors]
        assert secret.tobytes() in pickle.dumps(items)
        found = PrivateDataset(items, release)
        assert secret.tobytes() not in pickle.dumps(found)
        assert np.asarray(found[1][1]).tolist() == np.asarray(beside).tolist()
