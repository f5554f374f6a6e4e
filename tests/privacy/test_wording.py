"""The wording of a guarantee: no sentence and no rounded number claims more than it gives."""

from __future__ import annotations

from decimal import Decimal, localcontext
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offaxis.privacy import wording
from offaxis.privacy.guarantee import Guarantee
from offaxis.privacy.wording import (
    answer_rate,
    at_most,
    belief_after,
    guess_rate,
    kept,
    large,
    odds_factor,
    one_in,
)

LEAK = Fraction(1, 100_000)
EPSILONS = st.fractions(Fraction(1, 10**9), 10_000, max_denominator=10**9)
SHARES = st.fractions(Fraction(1, 10**4), 1 - Fraction(1, 10**4), max_denominator=10**4)
_DIGITS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789")


def value(text: str) -> Decimal:
    mantissa, _, power = text.replace(",", "").partition(" × 10")
    return Decimal(mantissa) * Decimal(10) ** int(power.translate(_DIGITS) or 0)


def share(text: str) -> Decimal:
    return Decimal(text.removesuffix(" %").replace(",", "")) / 100


def exp(epsilon: Fraction) -> Decimal:
    return (Decimal(epsilon.numerator) / Decimal(epsilon.denominator)).exp()


@pytest.mark.parametrize(
    ("epsilon", "text"),
    [
        (Fraction(1, 1000), "1.00101"),
        (Fraction(1, 2), "1.649"),
        (Fraction(1), "2.72"),
        (Fraction(5), "149"),
        (Fraction(10), "22,100"),
        (Fraction(30), "1.07 × 10¹³"),
        (Fraction(10_000), "8.81 × 10⁴³⁴²"),
    ],
)
def test_odds_factors_are_readable(epsilon: Fraction, text: str) -> None:
    assert odds_factor(epsilon) == text


@given(EPSILONS)
def test_odds_factors_are_rounded_up_and_tight(epsilon: Fraction) -> None:
    with localcontext(prec=80):
        shown, true = value(odds_factor(epsilon)), exp(epsilon)
        assert true <= shown <= true * Decimal("1.01")


@given(SHARES, EPSILONS)
def test_beliefs_are_rounded_outwards(prior: Fraction, epsilon: Fraction) -> None:
    least, most = (share(text) for text in belief_after(prior, epsilon))
    with localcontext(prec=80):
        odds = Decimal(prior.numerator) / Decimal(prior.denominator - prior.numerator)
        factor = exp(epsilon)
        assert least <= odds / factor / (1 + odds / factor)
        assert most >= odds * factor / (1 + odds * factor)
        assert 0 <= least <= most <= 1


@given(EPSILONS, st.fractions(0, Fraction(99, 100), max_denominator=10**9))
def test_guess_rates_are_rounded_up_and_tight(epsilon: Fraction, delta: Fraction) -> None:
    with localcontext(prec=80):
        factor = exp(epsilon)
        true = (factor + Decimal(delta.numerator) / Decimal(delta.denominator)) / (1 + factor)
        assert true <= share(guess_rate(epsilon, delta)) <= min(true + Decimal("0.002"), Decimal(1))


def test_percentages_are_readable() -> None:
    assert belief_after(Fraction(1, 2), Fraction(5)) == ("0.669 %", "99.34 %")
    assert belief_after(Fraction(1, 2), Fraction(50)) == ("0 %", "100 %")
    assert guess_rate(Fraction(1, 10), Fraction(0)) == "52.5 %"


@given(st.fractions(Fraction(1, 10**20), 10_000), st.fractions(1, Fraction(11, 10)))
def test_what_is_spent_is_rounded_up_but_never_beyond_the_promise(
    spent: Fraction, slack: Fraction
) -> None:
    shown = Fraction(at_most(spent, spent * slack))
    assert spent <= shown <= spent * min(slack, Fraction(100_001, 100_000))


def test_a_share_is_rounded_down_and_never_above_100_percent() -> None:
    assert kept(0.99538) == "99.5 %"
    assert kept(0.99999992) == "99.9 %"
    assert kept(0.003125) == "0.312 %"
    assert kept(1.0) == kept(1 + 1e-12) == "100 %"
    assert at_most(Fraction(0), Fraction(0)) == "0"


def test_large_numbers_are_grouped_or_given_as_powers_of_ten() -> None:
    assert one_in(Fraction(1, 100_000)) == "100,000"
    assert one_in(Fraction(3, 10**9)) == "3.33 × 10⁸"
    assert large(Decimal("1000000")) == "1,000,000"


@given(st.integers(2, 1000), EPSILONS)
def test_the_rate_of_right_answers_is_never_understated(answers: int, epsilon: Fraction) -> None:
    shown = share(answer_rate(answers, epsilon))
    with localcontext(prec=50, Emax=999_999_999, Emin=-999_999_999):
        truth = 1 - (answers - 1) / (exp(epsilon) + answers - 1)
        assert truth <= shown <= 1
        assert shown - truth <= Decimal("0.01") * max(truth, 1 - truth)


def test_the_rate_for_two_answers_equals_that_for_two_vectors() -> None:
    for epsilon in (Fraction(1, 3), Fraction(5), Fraction(20)):
        assert answer_rate(2, epsilon) == guess_rate(epsilon, Fraction(0))


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
    strength, meaning = wording.strength(Guarantee(Fraction(epsilon), Fraction(delta)))
    assert strength == word
    assert meaning.endswith(".")


def test_a_large_delta_is_stated_as_the_reason() -> None:
    _, meaning = wording.strength(Guarantee(Fraction(1), Fraction(1, 10)))
    assert "once in 10 reports" in meaning


def test_only_a_pure_promise_claims_a_hard_limit() -> None:
    pure = " ".join(wording.promise(Guarantee(Fraction(2))))
    leaky = " ".join(wording.promise(Guarantee(Fraction(2), LEAK)))
    assert "hard limit" in pure
    assert "at most 7.39" in pure
    assert "hard limit" not in leaky
    assert "once in 100,000 reports, the promise rules out nothing" in leaky


def test_the_odds_of_a_promise_with_delta_are_not_called_bounded() -> None:
    guarantee = Guarantee(Fraction(2), LEAK)
    assert "further in rare reports" in wording.strength(guarantee)[1]
    assert "by more in rare reports" in wording.not_promised(guarantee)[0]
    pure = Guarantee(Fraction(2))
    assert "rare" not in wording.strength(pure)[1] + wording.not_promised(pure)[0]


@given(EPSILONS)
def test_twice_the_odds_factor_is_rounded_up_and_tight(epsilon: Fraction) -> None:
    with localcontext(prec=80):
        shown, true = value(wording.twice_odds_factor(epsilon)), 2 * exp(epsilon)
        assert true <= shown <= true * Decimal("1.01")


@given(st.floats(1e-90, 1), st.fractions(Fraction(1, 10**9), Fraction(1, 2)))
def test_probabilities_next_to_delta_are_rounded_up(probability: float, delta: Fraction) -> None:
    exact = Decimal(probability)
    assert exact <= Decimal(wording.likely(probability)) <= exact * Decimal("1.1001")
    with localcontext(prec=80):
        ratio = exact * delta.denominator / delta.numerator
        mantissa, _, power = wording.times(probability, delta).replace(",", "").partition(" × 10")
        shown = Decimal(mantissa) * Decimal(10) ** int(power.translate(_DIGITS) or 0)
        assert ratio <= shown <= ratio * Decimal("1.0101")


@pytest.mark.parametrize("mechanism", ["class-response", "scalar-response"])
@pytest.mark.parametrize("expected", [0.5, 0.8])
def test_a_ceiling_states_for_whom_it_holds(expected: float, mechanism: str) -> None:
    settings: dict[str, str | float] = {
        "goal": "answers",
        "mechanism": mechanism,
        "expected": expected,
        "ceiling": 0.8,
    }
    text = wording.utility(settings, True)
    assert "On average over such people, no report of this ε keeps more" in text


def test_bounds_on_beliefs_are_shown_only_where_they_hold() -> None:
    assert len(wording.beliefs(Guarantee(Fraction(2)))) == 3
    assert wording.beliefs(Guarantee(Fraction(2), LEAK)) == []


def test_each_unit_has_its_sentence() -> None:
    assert "not to a person" in wording.protected(Guarantee(Fraction(1)))[0]
    assert "one report in total, ever" in wording.protected(Guarantee(Fraction(1), unit="user"))[0]


@pytest.mark.parametrize(
    "topic", ["add up", "took part", "compromised", "time, power", "public data", "personal data"]
)
def test_what_is_not_promised_is_stated(topic: str) -> None:
    assert any(topic in line for line in wording.not_promised(Guarantee(Fraction(1))))


def test_several_reports_multiply_the_odds() -> None:
    first = wording.not_promised(Guarantee(Fraction(1), LEAK))[0]
    assert "7.39" in first
    assert "22,100" in first
    assert "δ add up" in first
