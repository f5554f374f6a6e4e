"""Vectors of any kind: checked on the way in, and returned as the kind, dtype and device given."""

from __future__ import annotations

import math
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
from offaxis.vectors import (
    as_batch,
    as_integer,
    as_number,
    like,
    moved,
    row_norms,
    to_numpy,
    with_rows,
)

# ---- Checks


@pytest.mark.parametrize(
    "value",
    [[1.0, 2.0], np.array([1, 2]), np.array([1, 2], dtype=np.float32), torch.tensor([1.0, 2.0])],
)
def test_one_vector_of_any_kind_becomes_a_float64_row(value):
    batch, single = as_batch(value, 2)
    assert single
    assert batch.dtype == np.float64
    assert batch.tolist() == [[1.0, 2.0]]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([1.0, float("nan")], r"nan at index 1;"),
        ([[1.0, float("nan")]], r"nan at index \(0, 1\)"),
        ([[1.0, 2.0], [float("inf"), 0.0]], r"inf at index \(1, 0\)"),
        ([-float("inf"), 0.0], "finite"),
        ([1.0, 2.0, 3.0], "dimension 2, got 3"),
        (np.ones((0, 2)), "empty"),
        (np.ones((1, 1, 2)), "shape"),
        (["a", "b"], "real numbers"),
        (np.array([1 + 1j, 2]), "real numbers"),
        (np.array([True, False]), "real numbers"),
        (np.array([object(), 1]), "real numbers"),
        (3.0, "shape"),
        ([[1.0], [1.0, 2.0]], "same length"),
        (np.ma.masked_array([1.0, 2.0], mask=[True, False]), "masked"),
    ],
)
def test_an_error_names_the_bad_value(value, message):
    with pytest.raises(InvalidInput, match=message):
        as_batch(value, 2)


def test_the_largest_finite_numbers_are_accepted():
    top = np.finfo(float).max
    assert as_batch([top, -top], 2)[0].tolist() == [[top, -top]]


def test_half_precision_tensors_are_read():
    for dtype in (torch.bfloat16, torch.float16):
        assert as_batch(torch.tensor([1.0, 2.0], dtype=dtype), 2)[0].tolist() == [[1.0, 2.0]]


@pytest.mark.parametrize("value", [None, "1", True, float("nan"), 1j])
def test_settings_must_be_numbers(value):
    with pytest.raises(InvalidInput, match="order"):
        as_number(value, "order")


@pytest.mark.parametrize("value", [0, 11, 2.0, True, "3", None])
def test_integers_must_be_integers_in_the_range(value):
    with pytest.raises(InvalidInput, match=r"count must be an integer from 1 to 10, got count="):
        as_integer(value, "count", 1, 10)
    assert type(as_integer(np.int8(10), "count", 1, 10)) is int


# ---- Kinds of arrays

Rows = np.ndarray


class Kind(NamedTuple):
    """How to make a kind from rows, and what must be preserved besides the numbers."""

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


def _same_array(value: Any, result: Any) -> bool:
    return result.dtype == value.dtype and result.device == value.device


def _same_frame(value: pd.DataFrame, result: pd.DataFrame) -> bool:
    same = result.index.equals(value.index) and result.columns.equals(value.columns)
    return same and (result.dtypes == value.dtypes).all()


def _same_series(value: pd.Series, result: pd.Series) -> bool:
    named = result.index.equals(value.index) and result.name == value.name
    return named and {row.dtype for row in result} == {value.iloc[0].dtype}


KINDS = {
    "numpy": Kind(np.array, lambda value, result: result.dtype == value.dtype),
    "torch": Kind(_tensor, _same_array),
    "jax": Kind(jnp.asarray, _same_array, ("float32",)),
    "frame": Kind(_frame, _same_frame),
    "series of arrays": Kind(_series, _same_series),
    "fixed lists": Kind(_fixed, lambda value, result: result.type == value.type),
    "lists": Kind(_lists, lambda value, result: result.type.value_type == value.type.value_type),
    "chunked lists": Kind(_chunked, lambda value, result: result.type == value.type),
    "table": Kind(_table, lambda value, result: result.schema == value.schema),
    "record batch": Kind(
        lambda rows: _table(rows).to_batches()[0],
        lambda value, result: result.schema == value.schema,
    ),
    "table of lists": Kind(
        lambda rows: pa.table({"vector": _fixed(rows)}),
        lambda value, result: result.schema == value.schema,
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
def test_every_kind_survives_a_round_trip(name: str, dtype: str, both: tuple[Rows, Rows]) -> None:
    rows, changed = (part.astype(dtype) for part in both)
    kind = KINDS[name]
    value = kind.make(rows)
    np.testing.assert_array_equal(to_numpy(value), rows)
    result = like(changed.astype(np.float64), value)
    expected = type(value) if name != "lists" else pa.FixedSizeListArray
    assert type(result) is expected
    assert kind.same(value, result)
    np.testing.assert_array_equal(to_numpy(result), changed)


@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_a_release_simulates_every_kind_like_numpy(
    name: str, dtype: str, release: offaxis.Release, public: Rows
) -> None:
    rows = public[:9].astype(dtype)
    value = KINDS[name].make(rows)
    decoded = simulate(release, value, np.random.default_rng(3))
    expected = simulate(release, rows.astype(np.float64), np.random.default_rng(3))
    np.testing.assert_array_equal(to_numpy(decoded), expected.astype(dtype))
    if name != "lists":
        assert KINDS[name].same(value, decoded)
    reports = release.privatize(value)
    assert release.decode(reports).shape == rows.shape


@pytest.mark.parametrize(
    "make", [np.array, torch.tensor, jnp.asarray, pa.array, pd.Series], ids=lambda f: f.__module__
)
def test_one_vector_gives_one_vector(make: Any, release: offaxis.Release, public: Rows) -> None:
    vector = make(public[0].astype(np.float32))
    decoded = simulate(release, vector, np.random.default_rng(3))
    assert type(decoded) is type(vector)
    assert to_numpy(decoded).shape == (6,)
    assert len(release.privatize(vector)) == release.report_size


def test_public_vectors_of_every_kind_give_the_same_release(head: Any, public: Rows) -> None:
    expected = offaxis.fit(head, public, epsilon=3, mechanism="laplace")
    for name, kind in KINDS.items():
        if "float64" in kind.dtypes:
            assert (
                offaxis.fit(head, kind.make(public), epsilon=3, mechanism="laplace") == expected
            ), name
    parts = np.split(public, 5)
    tables = offaxis.fit(head, lambda: map(_table, parts), epsilon=3, mechanism="laplace")
    assert tables == offaxis.fit(head, lambda: iter(parts), epsilon=3, mechanism="laplace")


def test_half_precision_of_every_library_is_read_and_returned(
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


def test_a_result_that_does_not_fit_is_rejected(public: Rows) -> None:
    wide = offaxis.fit(None, public * 1e4, epsilon=1, reshaping="none", mechanism="laplace")
    vectors = np.float16(public[:200])
    for value in (vectors, torch.tensor(vectors)):
        with pytest.raises(InvalidInput, match="does not fit into"):
            simulate(wide, value, np.random.default_rng(0))
    with pytest.raises(InvalidInput, match="does not fit into"):
        simulate(wide, torch.tensor(vectors), torch.Generator().manual_seed(0))


def test_results_of_another_width_get_new_columns() -> None:
    rows = np.ones((2, 3))
    narrow = np.zeros((2, 2))
    assert list(like(narrow, _frame(rows)).columns) == [0, 1]
    assert like(narrow, _frame(rows)).index.equals(_index(rows))
    assert like(narrow, _table(rows)).column_names == ["0", "1"]
    assert like(narrow, _fixed(rows)).type == pa.list_(pa.float64(), 2)


def test_integers_are_returned_as_floating_point(release: offaxis.Release) -> None:
    whole = np.arange(12).reshape(2, 6)
    for name, kind in KINDS.items():
        if name != "lists":
            decoded = simulate(release, kind.make(whole), np.random.default_rng(0))
            assert to_numpy(decoded).dtype.kind == "f"
            assert to_numpy(decoded).shape == (2, 6)
    assert simulate(release, whole.tolist(), np.random.default_rng(0)).dtype == np.float64


def test_lists_in_a_series_are_returned_as_lists() -> None:
    series = pd.Series([[1.0, 2.0], [3.0, 4.0]], index=[7, 3])
    result = like(np.array([[5.0, 6.0], [7.0, 8.0]]), series)
    assert result.to_dict() == {7: [5.0, 6.0], 3: [7.0, 8.0]}


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
def test_tables_without_vectors_are_rejected(value: Any, message: str, public: Rows) -> None:
    pair = offaxis.fit(None, public[:, :2], epsilon=1, reshaping="none", mechanism="laplace")
    with pytest.raises(InvalidInput, match=message):
        pair.privatize(value)
    with pytest.raises(InvalidInput, match=message):
        simulate(pair, value, np.random.default_rng(0))


def test_a_part_is_copied_to_a_device_once() -> None:
    decoder = LinearDecoder(np.eye(2), np.ones(2))
    on_torch = moved(decoder, torch.zeros(1))
    assert moved(decoder, np.zeros(1)) is decoder
    assert moved(decoder, torch.ones(3)) is on_torch
    assert on_torch.matrix.dtype == torch.float32
    assert isinstance(decoder.matrix, np.ndarray)
    assert moved(decoder, torch.zeros(1).double()) is not on_torch
    assert isinstance(moved(decoder, jnp.zeros(1)).matrix, jax.Array)
    with pytest.raises(InvalidInput, match="single precision"):
        moved(LinearDecoder(np.eye(2) * 1e30, np.ones(2)), torch.zeros(1))


@pytest.mark.parametrize("make", [np.array, torch.tensor, jnp.asarray])
def test_chosen_rows_are_replaced_in_order(make: Any) -> None:
    replaced = with_rows(
        make(np.zeros((4, 2))), make(np.array([False, True, False, True])), make(np.eye(2))
    )
    assert np.asarray(replaced).tolist() == [[0, 0], [1, 0], [0, 0], [0, 1]]


# ---- Norms: a function of the row alone, to the last bit


def _misaligned(W):
    octets = np.empty(W.nbytes + 8, dtype=np.uint8)
    copy = octets[5 : 5 + W.nbytes].view(W.dtype).reshape(W.shape)
    copy[...] = W
    return copy


def _same_bits_in_every_layout(norms, W, order):
    """Whether the norms of a batch, in any layout and any cut, are those of single rows."""
    alone = np.concatenate([norms(W[row : row + 1].copy(), order) for row in range(len(W))])
    batches = [
        W,
        np.asfortranarray(W),
        np.repeat(W, 3, axis=1)[:, ::3],
        np.repeat(W, 2, axis=0)[::2],
        W[:, ::-1].copy()[:, ::-1],
        _misaligned(W),
    ]
    whole = all(np.array_equal(norms(batch, order), alone) for batch in batches)
    return whole and np.array_equal(np.append(norms(W[:3], order), norms(W[3:], order)), alone)


@pytest.mark.parametrize("order", [1, 2, "inf"])
@pytest.mark.parametrize("dim", [1, 2, 3, 7, 64, 8192, 8193, 20_000, 1 << 18])
def test_the_norm_of_a_row_depends_on_the_row_alone(dim, order):
    rng = np.random.default_rng(dim)
    W = rng.standard_normal((11, dim)) * 10.0 ** rng.integers(-150, 150, (11, 1))
    assert _same_bits_in_every_layout(row_norms, W, order)


@pytest.mark.parametrize("order", [1, 2])
def test_norms_in_the_order_of_the_library_are_noticed(order):
    def broken(W, order):
        return np.abs(W).sum(axis=1) if order == 1 else np.sqrt(np.einsum("ij,ij->i", W, W))

    W = np.random.default_rng(0).standard_normal((11, 20_000))
    assert not _same_bits_in_every_layout(broken, W, order)


@given(st.integers(1, 40), st.sampled_from([1, 2]), st.integers(0, 2**32))
def test_norms_are_summed_by_halves(dim, order, seed):
    """The order of summation is part of the contract: the same bits on every machine."""
    W = np.random.default_rng(seed).standard_normal((2, dim))
    for row, norm in zip(W.tolist(), row_norms(W, order).tolist(), strict=True):
        terms = [abs(x) if order == 1 else x * x for x in row]
        while len(terms) > 1:
            half = len(terms) // 2
            added = [a + b for a, b in zip(terms[:half], terms[-half:], strict=True)]
            terms = added + terms[half : len(terms) - half]
        assert norm == (terms[0] if order == 1 else math.sqrt(terms[0]))


@pytest.mark.parametrize("dim", [64, 1 << 18])
def test_norms_are_accurate_and_never_raise(dim):
    W = np.random.default_rng(1).standard_normal((3, dim))
    before = W.copy()
    for row in range(3):
        exact = math.fsum(map(abs, W[row].tolist())), math.sqrt(math.fsum((W[row] ** 2).tolist()))
        # One rounding per level of the tree, and one per square, root and exact sum.
        norms = row_norms(W, 1)[row], row_norms(W, 2)[row]
        assert norms == pytest.approx(exact, rel=(math.log2(dim) + 3) * 2.0**-53)
    with np.errstate(all="raise"):
        assert row_norms(1e200 * W, 2).tolist() == [math.inf] * 3
        assert row_norms(1e-200 * W, 2).tolist() == [0.0] * 3
    assert row_norms(W[:0], 2).shape == (0,)
    assert row_norms(W.astype(np.float32), 2).dtype == np.float32
    assert np.array_equal(W, before)
