from __future__ import annotations

from fractions import Fraction

import pytest

from offaxis.privacy import wording
from offaxis.privacy.guarantee import Guarantee

LEAK = Fraction(1, 100_000)


@pytest.mark.parametrize(
    ("epsilon", "delta", "word"),
    [
        (1, 0, "strong"),
        (1, LEAK, "strong"),
        (2, 0, "moderate"),
        (5, 0, "weak"),
        (Fraction(51, 10), 0, "very weak"),
        (10_000, 0, "very weak"),
        (1, Fraction(1, 1000), "moderate"),
        (1, Fraction(1, 10), "very weak"),
    ],
)
def test_large_budgets_are_called_weak(epsilon: Fraction, delta: Fraction, word: str) -> None:
    found, meaning = wording.strength(Guarantee(Fraction(epsilon), Fraction(delta)))
    assert found == word
    assert meaning.endswith(".")


def test_a_large_delta_is_given_as_the_reason() -> None:
    _, meaning = wording.strength(Guarantee(Fraction(1), Fraction(1, 10)))
    assert "once in 10 reports" in meaning


def test_only_a_pure_promise_speaks_of_a_hard_limit() -> None:
    pure = " ".join(wording.promise(Guarantee(Fraction(2))))
    leaky = " ".join(wording.promise(Guarantee(Fraction(2), LEAK)))
    assert "hard limit" in pure
    assert "at most 7.39" in pure
    assert "hard limit" not in leaky
    assert "does not rule out that it tells everything" in leaky
    assert "1 in 100,000" in leaky


def test_bounds_on_beliefs_are_shown_only_where_they_hold() -> None:
    assert len(wording.beliefs(Guarantee(Fraction(2)))) == 3
    assert wording.beliefs(Guarantee(Fraction(2), LEAK)) == []


def test_units_are_told_apart() -> None:
    assert "not to a person" in wording.protected(Guarantee(Fraction(1)))[0]
    assert "one report in total, ever" in wording.protected(Guarantee(Fraction(1), unit="user"))[0]


@pytest.mark.parametrize(
    "topic", ["add up", "took part", "compromised", "time, power", "public data", "personal data"]
)
def test_what_is_not_promised_is_said(topic: str) -> None:
    assert any(topic in line for line in wording.not_promised(Guarantee(Fraction(1))))


def test_several_reports_multiply_the_odds() -> None:
    first = wording.not_promised(Guarantee(Fraction(1), LEAK))[0]
    assert "7.39" in first
    assert "22,100" in first
    assert "δ add up" in first
