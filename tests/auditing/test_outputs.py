"""An observer sees exact outputs: other bits, types, lengths and exceptions are other outputs."""

from __future__ import annotations

import copy
import math
import os
from collections import namedtuple
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from offaxis.auditing import audit
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
    for output in (object(), (x for x in "a"), (1, object())):
        with pytest.raises(InvalidInput, match="cannot be compared"):
            reader.settle([output])


def wide(last: float) -> np.ndarray:
    return np.append(np.zeros(5000), last)


ALIKE = {
    "low bits of int64": (np.int64(1 << 62), np.int64((1 << 62) | 1)),
    "low bits of uint64 arrays": (np.array([1 << 63], "u8"), np.array([(1 << 63) | 1], "u8")),
    "longdouble": (np.longdouble(1), np.nextafter(np.longdouble(1), 2)),
    "bits of NaN": tuple(np.array([0x7FF8 << 48, (0x7FF8 << 48) | 1], "u8").view("f8")),
    "columns beyond 4,096": (wide(0.0), wide(1.0)),
    "columns in a tuple": ((1, wide(0.0)), (1, wide(1.0))),
    "fractions": (Fraction(-1), Fraction(-2)),
    "decimals": (Decimal("1.0"), Decimal("1.00")),
    "long bytes": (bytes(9000), bytes(8999) + b"x"),
    "sets": ({1, 2}, {1, 3}),
}


@pytest.mark.parametrize("one", ALIKE, ids=str)
def test_every_bit_of_an_output_is_seen(one):
    """In a batch and one by one; equal outputs have equal keys, in whatever memory they are."""
    first, second = ALIKE[one]
    for batch in (1, 3):
        reader = Reader()
        reader.settle([first, second])
        keys = reader.read([copy.deepcopy(first) for _ in range(batch)]).keys
        others = reader.read([copy.deepcopy(second) for _ in range(batch)]).keys
        assert len(set(keys.tolist())) == 1
        assert keys[0] != others[0]


@pytest.mark.parametrize("place", [20, 95, 471, -1])
@pytest.mark.parametrize("size", [500, 2000])
def test_one_byte_among_random_ones_is_found(place, size):
    """A token or a ciphertext that holds the answer somewhere."""

    def leaky(x):
        token = bytearray(os.urandom(size))
        token[place] = x
        return bytes(token)

    result = audit(leaky, epsilon=1, domain=[0, 1], reports=4000, false_alarm=1e-6)
    assert result.violated


def test_the_end_of_a_text_is_found():
    def leaky(x):
        return os.urandom(40).hex() + x

    assert audit(leaky, epsilon=1, domain=["0", "1"], reports=4000, false_alarm=1e-6).violated


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
