"""A guarantee reads its numbers exactly, rejects bad ones by name, and prints what it promises."""

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from offaxis.errors import InvalidInput
from offaxis.privacy import Guarantee, exact_delta, exact_epsilon


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.1, Fraction(1, 10)),
        (np.float64(0.1), Fraction(1, 10)),
        (np.float32(0.1), Fraction(1, 10)),
        (7.5, Fraction(15, 2)),
        (5, Fraction(5)),
        (np.int64(5), Fraction(5)),
        ("1/3", Fraction(1, 3)),
        (Decimal("0.30"), Fraction(3, 10)),
        (1e-3, Fraction(1, 1000)),
        (Fraction(2, 7), Fraction(2, 7)),
    ],
)
def test_a_number_is_read_as_its_shortest_decimal(value, expected):
    assert exact_epsilon(value) == expected


@given(st.floats(min_value=1e-6, max_value=1e4))
def test_every_float_is_read_back_unchanged(value):
    assert float(exact_epsilon(value)) == value


@pytest.mark.parametrize(
    "value",
    [
        *(0, -1, 0.0, float("nan"), float("inf"), np.float64("nan"), Decimal("sNaN"), 1e9),
        *(None, True, 1 + 0j, 10**30, "five", "1/0", "1/00", "1_000", "１", "0x1", ""),
        *("1e999999999", "9" * 5000),
    ],
)
def test_an_error_names_epsilon(value):
    with pytest.raises(InvalidInput, match="epsilon"):
        exact_epsilon(value)


def test_every_accepted_guarantee_fits_a_release_file(head, public):
    import offaxis
    from offaxis.formats.release_file import from_bytes, to_bytes

    for delta in ("1e-90", 1e-5, "1/3"):
        release = offaxis.fit(head, public, epsilon=2, mechanism="gaussian", delta=delta)
        assert from_bytes(to_bytes(release)) == release
    for value in (Fraction(10**5000), Fraction(1, 10**5000), Fraction(10**150 + 1, 3 * 10**150)):
        with pytest.raises(InvalidInput, match="epsilon"):
            exact_epsilon(value)


def test_an_integer_too_long_to_print_is_an_error():
    with pytest.raises(InvalidInput, match="epsilon"):
        exact_epsilon(10**5000)


@pytest.mark.parametrize("value", [0, 1, -0.1, 2, float("nan"), "x"])
def test_an_error_names_delta(value):
    with pytest.raises(InvalidInput, match="delta"):
        exact_delta(value)


def test_pure_means_delta_is_exactly_zero():
    assert Guarantee(Fraction(1)).pure
    assert not Guarantee(Fraction(1), Fraction(1, 10**12)).pure


def test_an_unknown_unit_is_an_error():
    with pytest.raises(InvalidInput, match="unit"):
        Guarantee(Fraction(1), unit="household")  # type: ignore[arg-type]


def test_a_guarantee_prints_what_it_promises():
    assert str(Guarantee(exact_epsilon(7.5))) == "ε = 7.5, pure"
    assert str(Guarantee(exact_epsilon("1/3"), exact_delta(1e-5))) == "ε = 1/3, δ = 1e-05"
