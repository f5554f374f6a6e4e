from __future__ import annotations

from fractions import Fraction

from offaxis.cli import ledger


def test_numbers_are_rounded_against_the_person() -> None:
    odd = Fraction(1000, 3001)
    assert odd < Fraction(ledger.rounded(odd, up=True)) < odd * (1 + Fraction(1, 10**5))
    assert odd > Fraction(ledger.rounded(odd, up=False)) > odd * (1 - Fraction(1, 10**5))
    assert ledger.rounded(Fraction(1, 3), up=True) == "1/3"
    assert ledger.rounded(Fraction(7, 2), up=True) == "3.5"
