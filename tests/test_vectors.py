import numpy as np
import pytest
import torch

from offaxis.errors import InvalidInput
from offaxis.vectors import as_batch, as_integer, as_number


@pytest.mark.parametrize(
    "value", [[1.0, 2.0], np.array([1, 2]), np.float32([1, 2]), torch.tensor([1.0, 2.0])]
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
def test_bad_input_names_the_value_and_the_fix(value, message):
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
    with pytest.raises(InvalidInput, match="gauge"):
        as_number(value, "gauge")


@pytest.mark.parametrize("value", [0, 11, 2.0, True, "3", None])
def test_whole_numbers_of_a_range_are_whole_and_in_it(value):
    with pytest.raises(InvalidInput, match=r"count must be an integer from 1 to 10, got count="):
        as_integer(value, "count", 1, 10)
    assert type(as_integer(np.int8(10), "count", 1, 10)) is int
