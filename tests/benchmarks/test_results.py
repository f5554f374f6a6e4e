from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import linregress

from benchmarks.harness import (
    OURS,
    Growth,
    Race,
    cost_text,
    line_text,
    number_text,
    ratio_text,
)

SIZES = [100, 200, 400, 800, 1600]


def growth(costs: list[float], expected: float = 1) -> Growth:
    return Growth("work", "N", "s", SIZES, costs, expected)


@given(st.floats(-1, 3), st.floats(1e-9, 1e3))
def test_the_exponent_of_a_power_law_is_recovered(exponent: float, scale: float) -> None:
    slope, error = growth([scale * n**exponent for n in SIZES]).exponent()
    assert slope == pytest.approx(exponent, abs=1e-9)
    assert error < 1e-7


def test_the_standard_error_is_that_of_regression() -> None:
    costs = np.random.default_rng(0).uniform(1, 9, len(SIZES))
    expected = linregress(np.log(SIZES), np.log(costs))
    slope, error = growth(costs.tolist()).exponent()
    assert slope == pytest.approx(expected.slope)
    assert error == pytest.approx(expected.stderr)


@given(st.floats(0, 10), st.floats(1e-9, 10))
def test_the_fixed_part_and_the_slope_of_a_line_are_recovered(fixed: float, each: float) -> None:
    measured = growth([fixed + each * n for n in SIZES])
    line = measured.line()
    assert line[0] == pytest.approx(fixed, rel=1e-6, abs=1e-6 * each * SIZES[0])
    assert line[1] == pytest.approx(each, rel=1e-6, abs=1e-6 * fixed / SIZES[-1])
    assert measured.line_error() < 1e-6


def test_a_curve_has_a_large_line_error() -> None:
    assert growth([n**2 for n in SIZES]).line_error() > 0.3


def test_growth_beyond_the_expected_exponent_lowers_the_ratio() -> None:
    name = "growth: work with N"
    assert growth([3.0 * n for n in SIZES]).ratios() == {name: pytest.approx(1)}
    assert growth([n**2 for n in SIZES]).ratios() == {name: pytest.approx(1 / 16)}
    assert growth([n**2 for n in SIZES], expected=2).ratios() == {name: pytest.approx(1)}
    assert growth([80.0] * 5, expected=0).ratios() == {name: pytest.approx(1)}


def test_a_ratio_is_how_many_times_faster_ours_is() -> None:
    race = Race("decode", "one", "reports/s", {OURS: 0.5, "slow": 5.0, "quick": 0.1})
    assert race.ratios() == {
        "decode: one, against slow": 10,
        "decode: one, against quick": pytest.approx(0.2),
    }
    assert race.shown(OURS) == 2
    assert [f["times_faster"] for f in race.facts()["figures"]] == [1, 10, pytest.approx(0.2)]
    assert Race("x", "one", "ms", {OURS: 0.5}).shown(OURS) == 500


def test_numbers_are_formatted_with_three_digits() -> None:
    assert [number_text(x) for x in (17.34e6, 588_123, 0.1712)] == ["17.3 M", "588 k", "0.171"]
    assert [ratio_text(x) for x in (1343.2, 0.25)] == ["1,343× faster", "4× slower"]
    assert [cost_text(x, "s") for x in (2.5, 0.0021, 3e-7)] == ["2.5 s", "2.1 ms", "300 ns"]
    assert cost_text(83.7, "MiB") == "84 MiB"
    growing = growth([0.25 + 1e-6 * n for n in SIZES])
    assert line_text(growing) == "250 ms + 1 µs × N, within 0%"
