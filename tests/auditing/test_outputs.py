"""An observer sees exact outputs: other bits, types, lengths and exceptions are other outputs."""

from __future__ import annotations

import math
from collections import namedtuple

import numpy as np
import pytest

from offaxis.auditing.domains import as_input, shown, shown_apart
from offaxis.auditing.outputs import Raised, Reader
from offaxis.errors import InvalidInput

Point = namedtuple("Point", "x y")

OUTPUTS = [
    0.0,
    -0.0,
    math.nextafter(0.1, 1),
    0.1,
    math.nan,
    math.inf,
    -math.inf,
    0,
    False,
    10**400,
    "0",
    "0\x00",
    "é",
    "\ud800",
    b"0",
    b"",
    b"0" * 1000,
    None,
    np.float32(0),
    np.int64(0),
    np.zeros(2),
    np.zeros((2, 1)),
    np.array([0.0, -0.0]),
    np.array([0.0, math.nan]),
    np.zeros(2, dtype=np.float32),
    np.zeros(2, dtype=np.uint8),
    np.array(["a", "b"]),
    (0.0, 1),
    (0.0, 1.0),
    [0.0, 1],
    (0.0, "a", b"b"),
    (),
    Point(0.0, 1),
    {"a": 1},
    {"a": 2},
    frozenset({1}),
    Raised(ValueError("a")),
    Raised(KeyError("a")),
]


@pytest.mark.parametrize("usual", [0.0, b"0", "word", np.zeros(2), (0.0, 1), 3], ids=repr)
def test_keys_are_equal_for_equal_outputs_only(usual):
    reader = Reader()
    reader.settle([usual])
    keys = reader.read(OUTPUTS).keys
    assert len(set(keys.tolist())) == len(OUTPUTS)
    assert (reader.read(OUTPUTS).keys == keys).all()


@pytest.mark.parametrize("output", OUTPUTS, ids=lambda output: repr(output)[:30])
def test_many_outputs_of_one_kind_are_read_like_single_ones(output):
    reader = Reader()
    reader.settle([output])
    single = reader.read([output, "of another kind"])
    many = reader.read([output] * 3)
    assert set(many.keys.tolist()) == {int(single.keys[0])}
    assert set(many.forms.tolist()) == {int(single.forms[0])}
    assert np.array_equal(many.numbers[0], single.numbers[0], equal_nan=True)


def test_the_form_shows_type_length_and_special_numbers_but_no_value():
    reader = Reader()
    reader.settle([0.0])
    forms = reader.read([0.0, 1.0, math.nan, math.inf, 1, "a", "b", "ab", (1.0,), (2.0,)]).forms
    same = [[0, 1], [5, 6], [8, 9]]
    assert all(forms[i] == forms[j] for i, j in same)
    assert len(set(forms.tolist())) == len(forms) - len(same)
    raised = reader.read([Raised(ValueError("x = 3")), Raised(ValueError("x = 4"))])
    assert raised.keys[0] == raised.keys[1]


def test_an_unusual_output_has_no_numbers():
    reader = Reader()
    reader.settle([0.0, 1.0, "x"])
    numbers = reader.read([2.0, Raised(ValueError()), "x", np.zeros(3)]).numbers
    assert numbers[0] == 2
    assert np.isnan(numbers[1:]).all()


def test_bytes_are_numbers_and_bits():
    reader = Reader()
    reader.settle([b"\x00\x05"])
    assert not reader.measures
    (row,) = reader.read([b"\x00\x05"]).numbers
    assert row.tolist() == [0, 5, *[0] * 8, 0, 0, 0, 0, 0, 1, 0, 1]


def test_tensors_are_arrays():
    torch = pytest.importorskip("torch")
    reader = Reader()
    reader.settle([torch.zeros(2)])
    read = reader.read([torch.tensor([1.0, 2.0]), np.array([1, 2], dtype=np.float32)])
    assert read.keys[0] == read.keys[1]
    assert read.numbers.tolist() == [[1, 2], [1, 2]]
    assert reader.read([torch.tensor([1.0, 2.0], dtype=torch.bfloat16)] * 2).numbers.shape == (2, 2)


def test_outputs_that_cannot_be_compared_are_rejected():
    reader = Reader()
    with pytest.raises(InvalidInput, match="type set cannot be compared"):
        reader.settle([{1}])


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.1, "0.1"),
        (np.float64(1e-12), "1e-12"),
        (np.ones(8), "8 × 1"),
        (np.arange(9.0), "[0, 1, 2, 3, …]"),
        ((1, "a"), "(1, 'a')"),
        ("word", "'word'"),
        ("x" * 99, "'" + "x" * 38 + "…"),
    ],
)
def test_inputs_are_shown_in_short(value, text):
    assert shown(value) == text


def test_inputs_that_begin_alike_are_shown_where_they_differ():
    x = np.arange(50.0)
    other = x.copy()
    other[[30, 40]] = -1
    text = shown_apart(as_input(x), as_input(other))
    assert text == "x[30] = 30.0, x′[30] = -1.0, and 1 more"
    assert shown_apart(as_input(1), as_input("1")) == "x = 1, x′ = '1'"
