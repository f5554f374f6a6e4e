from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import offaxis
from offaxis.decoding import LinearDecoder
from offaxis.errors import InvalidInput
from offaxis.simulation import simulate
from offaxis.vectors import like, moved, to_numpy, with_rows

Rows = np.ndarray


class Kind(NamedTuple):
    """How rows are put into a kind, and what has to come back besides the numbers."""

    make: Callable[[Rows], Any]
    same: Callable[[Any, Any], bool]
    dtypes: tuple[str, ...] = ("float32", "float64")


def _index(rows: Rows) -> pd.Index:
    return pd.Index([f"person {i}" for i in range(len(rows))], name="who")


def _frame(rows: Rows) -> pd.DataFrame:
    return pd.DataFrame(rows, _index(rows), [f"x{i}" for i in range(rows.shape[1])])


def _series(rows: Rows) -> pd.Series:
    return pd.Series(list(rows), _index(rows), name="vector")


def _fixed(rows: Rows) -> pa.FixedSizeListArray:
    return pa.FixedSizeListArray.from_arrays(pa.array(rows.reshape(-1)), rows.shape[1])


def _lists(rows: Rows) -> pa.ListArray:
    # Sliced from a longer array: its offsets do not start at zero.
    padded = np.concatenate([np.zeros_like(rows[:1]), rows, np.ones_like(rows[:1])])
    return pa.array(padded.tolist(), pa.list_(pa.from_numpy_dtype(rows.dtype)))[1:-1]


def _chunked(rows: Rows) -> pa.ChunkedArray:
    return pa.chunked_array([_fixed(rows[:1]), _fixed(rows[1:])])


def _table(rows: Rows) -> pa.Table:
    return pa.table({f"x{i}": column for i, column in enumerate(rows.T)})


def _tensor(rows: Rows) -> torch.Tensor:
    return torch.tensor(rows)


def _same_array(given: Any, found: Any) -> bool:
    return found.dtype == given.dtype and given.device == found.device


def _same_frame(given: pd.DataFrame, found: pd.DataFrame) -> bool:
    same = found.index.equals(given.index) and found.columns.equals(given.columns)
    return same and (found.dtypes == given.dtypes).all()


def _same_series(given: pd.Series, found: pd.Series) -> bool:
    named = found.index.equals(given.index) and found.name == given.name
    return named and {row.dtype for row in found} == {given.iloc[0].dtype}


KINDS = {
    "numpy": Kind(np.array, lambda given, found: found.dtype == given.dtype),
    "torch": Kind(_tensor, _same_array),
    "jax": Kind(jnp.asarray, _same_array, ("float32",)),
    "frame": Kind(_frame, _same_frame),
    "series of arrays": Kind(_series, _same_series),
    "fixed lists": Kind(_fixed, lambda given, found: found.type == given.type),
    "lists": Kind(_lists, lambda given, found: found.type.value_type == given.type.value_type),
    "chunked lists": Kind(_chunked, lambda given, found: found.type == given.type),
    "table": Kind(_table, lambda given, found: found.schema == given.schema),
    "record batch": Kind(
        lambda rows: _table(rows).to_batches()[0], lambda g, f: f.schema == g.schema
    ),
    "table of lists": Kind(
        lambda rows: pa.table({"vector": _fixed(rows)}), lambda g, f: f.schema == g.schema
    ),
}
CASES = [(name, dtype) for name, kind in KINDS.items() for dtype in kind.dtypes]


@st.composite
def batches(draw: st.DrawFn) -> tuple[Rows, Rows]:
    shape = draw(st.integers(2, 5)), draw(st.integers(1, 4))
    numbers = st.floats(-(2.0**99), 2.0**99, width=32, allow_subnormal=False)

    def rows() -> Rows:
        flat = draw(st.lists(numbers, min_size=shape[0] * shape[1], max_size=shape[0] * shape[1]))
        return np.array(flat).reshape(shape)

    return rows(), rows()


@pytest.mark.parametrize(("name", "dtype"), CASES)
@settings(max_examples=15)
@given(both=batches())
def test_every_kind_goes_in_and_comes_back(name: str, dtype: str, both: tuple[Rows, Rows]) -> None:
    rows, answer = (part.astype(dtype) for part in both)
    kind = KINDS[name]
    value = kind.make(rows)
    np.testing.assert_array_equal(to_numpy(value), rows)
    found = like(answer.astype(np.float64), value)
    expected = type(value) if name != "lists" else pa.FixedSizeListArray
    assert type(found) is expected
    assert kind.same(value, found)
    np.testing.assert_array_equal(to_numpy(found), answer)


@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_a_release_simulates_every_kind_as_it_does_numpy(
    name: str, dtype: str, release: offaxis.Release, public: Rows
) -> None:
    rows = public[:9].astype(dtype)
    value = KINDS[name].make(rows)
    found = simulate(release, value, np.random.default_rng(3))
    wanted = simulate(release, rows.astype(np.float64), np.random.default_rng(3))
    np.testing.assert_array_equal(to_numpy(found), wanted.astype(dtype))
    if name != "lists":
        assert KINDS[name].same(value, found)
    reports = release.privatize(value)
    assert release.decode(reports).shape == rows.shape


@pytest.mark.parametrize(
    "make", [np.array, torch.tensor, jnp.asarray, pa.array, pd.Series], ids=lambda f: f.__module__
)
def test_one_vector_is_answered_by_one(make: Any, release: offaxis.Release, public: Rows) -> None:
    vector = make(public[0].astype(np.float32))
    found = simulate(release, vector, np.random.default_rng(3))
    assert type(found) is type(vector)
    assert to_numpy(found).shape == (6,)
    assert len(release.privatize(vector)) == release.report_size


def test_public_vectors_of_every_kind_give_the_same_release(head: Any, public: Rows) -> None:
    wanted = offaxis.fit(head, public, epsilon=3)
    for name, kind in KINDS.items():
        if "float64" in kind.dtypes:
            assert offaxis.fit(head, kind.make(public), epsilon=3) == wanted, name
    parts = np.split(public, 5)
    tables = offaxis.fit(head, lambda: map(_table, parts), epsilon=3)
    assert tables == offaxis.fit(head, lambda: iter(parts), epsilon=3)


def test_half_precision_of_every_library_is_read_and_given_back(
    release: offaxis.Release, public: Rows
) -> None:
    rng = np.random.default_rng(0)
    for vectors in (
        torch.tensor(public[:4]).bfloat16(),
        jnp.asarray(public[:4], dtype=jnp.bfloat16),
        public[:4].astype(np.float16),
    ):
        assert simulate(release, vectors, rng).dtype == vectors.dtype
        assert len(release.privatize(vectors)) == 4


def test_a_result_that_does_not_fit_is_refused(public: Rows) -> None:
    wide = offaxis.fit(None, public * 1e4, epsilon=1, reshaping="none")
    vectors = np.float16(public[:200])
    for value in (vectors, torch.tensor(vectors)):
        with pytest.raises(InvalidInput, match="does not fit into"):
            simulate(wide, value, np.random.default_rng(0))
    with pytest.raises(InvalidInput, match="does not fit into"):
        simulate(wide, torch.tensor(vectors), torch.Generator().manual_seed(0))


def test_other_widths_get_other_columns() -> None:
    rows = np.ones((2, 3))
    narrow = np.zeros((2, 2))
    assert list(like(narrow, _frame(rows)).columns) == [0, 1]
    assert like(narrow, _frame(rows)).index.equals(_index(rows))
    assert like(narrow, _table(rows)).column_names == ["0", "1"]
    assert like(narrow, _fixed(rows)).type == pa.list_(pa.float64(), 2)


def test_integers_come_back_as_floating_point(release: offaxis.Release) -> None:
    whole = np.arange(12).reshape(2, 6)
    for name, kind in KINDS.items():
        if name != "lists":
            found = simulate(release, kind.make(whole), np.random.default_rng(0))
            assert to_numpy(found).dtype.kind == "f"
            assert to_numpy(found).shape == (2, 6)
    assert simulate(release, whole.tolist(), np.random.default_rng(0)).dtype == np.float64


def test_lists_in_a_series_come_back_as_lists() -> None:
    series = pd.Series([[1.0, 2.0], [3.0, 4.0]], index=[7, 3])
    found = like(np.array([[5.0, 6.0], [7.0, 8.0]]), series)
    assert found.to_dict() == {7: [5.0, 6.0], 3: [7.0, 8.0]}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (pd.DataFrame({"a": [1.0], "b": ["x"]}), "'b' is not"),
        (pd.DataFrame({"a": [1.0], "b": [True]}), "'b' is not"),
        (pd.DataFrame({"a": [1.0], "b": pd.array([None], dtype="Float64")}), "nan at index"),
        (pd.Series([[1.0, 2.0], [1.0]]), "same length"),
        (pd.Series([[1.0, 2.0], None]), "same length"),
        (pd.Series(["a", "b"]), "real numbers"),
        (pa.array([[1.0, 2.0], [1.0]]), "same length"),
        (pa.array([[1.0, 2.0], None]), "missing rows"),
        (pa.array([[1.0, None]]), "missing entries"),
        (pa.array([["a", "b"]]), "real numbers"),
        (pa.table({"a": [1.0], "b": ["x"]}), "real numbers"),
        (pa.array([], pa.list_(pa.float64(), 2)), "(dimension|empty)"),
        (torch.tensor([True, False]), "real numbers"),
        (jnp.asarray([1.0, jnp.nan]), "nan at index"),
    ],
)
def test_tables_that_hold_no_vectors_are_refused(value: Any, message: str, public: Rows) -> None:
    pair = offaxis.fit(None, public[:, :2], epsilon=1, reshaping="none")
    with pytest.raises(InvalidInput, match=message):
        pair.privatize(value)
    with pytest.raises(InvalidInput, match=message):
        simulate(pair, value, np.random.default_rng(0))


def test_a_part_is_carried_to_a_device_once() -> None:
    decoder = LinearDecoder(np.eye(2), np.ones(2))
    there = moved(decoder, torch.zeros(1))
    assert moved(decoder, np.zeros(1)) is decoder
    assert moved(decoder, torch.ones(3)) is there
    assert there.matrix.dtype == torch.float32
    assert isinstance(decoder.matrix, np.ndarray)
    assert moved(decoder, torch.zeros(1).double()) is not there
    assert isinstance(moved(decoder, jnp.zeros(1)).matrix, jax.Array)
    with pytest.raises(InvalidInput, match="single precision"):
        moved(LinearDecoder(np.eye(2) * 1e30, np.ones(2)), torch.zeros(1))


@pytest.mark.parametrize("make", [np.array, torch.tensor, jnp.asarray])
def test_chosen_rows_are_replaced_in_their_order(make: Any) -> None:
    found = with_rows(
        make(np.zeros((4, 2))), make(np.array([False, True, False, True])), make(np.eye(2))
    )
    assert np.asarray(found).tolist() == [[0, 0], [1, 0], [0, 0], [0, 1]]
