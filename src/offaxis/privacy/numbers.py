"""Numbers of a guarantee in plain form, rounded against the promise and never in its favour."""

from __future__ import annotations

from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from typing import Final

from offaxis.privacy.guarantee import decimal

_EXACT: Final = Context(prec=60, Emin=-999_999_999, Emax=999_999_999)
_SUPERSCRIPTS: Final = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def _decimal(value: Fraction) -> Decimal:
    return _EXACT.divide(Decimal(value.numerator), Decimal(value.denominator))


def _significant(value: Decimal, digits: int, rounding: str) -> Decimal:
    return Context(prec=digits, rounding=rounding, Emin=-999_999_999, Emax=999_999_999).plus(value)


def _grouped(value: Decimal) -> str:
    text = f"{value:,f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def large(value: Decimal) -> str:
    """Write 148.5, 22,100 or 1.07 × 10¹³."""
    exponent = value.adjusted()
    if exponent < 7:
        return _grouped(value)
    return f"{_grouped(value.scaleb(-exponent))} × 10{str(exponent).translate(_SUPERSCRIPTS)}"


def odds_factor(epsilon: Fraction) -> str:
    """Return e^ε, rounded up to three digits (of what exceeds 1, when that is small)."""
    factor = _EXACT.exp(_decimal(epsilon))
    if factor < 2:
        return _grouped(1 + _significant(factor - 1, 3, ROUND_CEILING))
    return large(_significant(factor, 3, ROUND_CEILING))


def _percent(share: Decimal, *, up: bool) -> str:
    """Write a share as a percentage; shares near 1 keep the digits of what is missing to it."""
    rounding, opposite = (ROUND_CEILING, ROUND_FLOOR) if up else (ROUND_FLOOR, ROUND_CEILING)
    percent = 100 * share
    if percent > 50:
        percent = 100 - _significant(100 - percent, 3 if percent < 90 else 2, opposite)
    else:
        percent = _significant(percent, 3, rounding)
    # Beyond four decimals a reader takes it for certainty, so that is what is written.
    if up and percent > Decimal("99.9999"):
        return "100 %"
    if not up and percent < Decimal("0.0001"):
        return "0 %"
    return f"{_grouped(percent)} %"


def belief_after(prior: Fraction, epsilon: Fraction) -> tuple[str, str]:
    """Return the least and the most that a belief can become by one report of a pure guarantee."""
    p, factor = _decimal(prior), _EXACT.exp(_decimal(epsilon))
    least = _EXACT.divide(p, p + factor * (1 - p))
    most = 1 - _EXACT.divide(1 - p, p * factor + 1 - p)
    return _percent(least, up=False), _percent(most, up=True)


def guess_rate(epsilon: Fraction, delta: Fraction) -> str:
    """Return how often the best guess between two equally likely vectors can be right.

    Any test between two inputs of an (ε, δ) randomizer errs, averaged over both, in at least
    (1 − δ)/(1 + e^ε) of cases.
    """
    factor = _EXACT.exp(_decimal(epsilon))
    return _percent(1 - _EXACT.divide(1 - _decimal(delta), 1 + factor), up=True)


def answer_rate(answers: int, epsilon: Fraction) -> str:
    """Return how often one of so many equally likely answers can be guessed from a report.

    1 − (k − 1)/(e^ε + k − 1), for a pure guarantee (docs/proofs.md §15).
    """
    others = answers - 1
    return _percent(1 - _EXACT.divide(others, _EXACT.exp(_decimal(epsilon)) + others), up=True)


def kept(share: float) -> str:
    """Return a share of what is possible as a percentage, rounded down and never above 100."""
    return f"{_grouped(_significant(100 * Decimal(min(share, 1.0)), 3, ROUND_FLOOR))} %"


def at_most(value: Fraction, limit: Fraction) -> str:
    """Write a number up to ``limit``, rounded up to six digits but not beyond the limit."""
    up = Context(prec=6, rounding=ROUND_CEILING)
    rounded = Fraction(up.divide(Decimal(value.numerator), Decimal(value.denominator)))
    return decimal(min(rounded, limit))


def one_in(delta: Fraction) -> str:
    """Return N of "1 in N", rounded down."""
    return large(_significant(_decimal(1 / delta), 3, ROUND_FLOOR))
