from fractions import Fraction
from functools import partial

from offaxis.sampling.bernoulli import Probability
from offaxis.sampling.enclosure import exp_minus


class Script:
    """Random bits that were written down beforehand."""

    def __init__(self, *integers):
        self.integers = list(integers)

    def integer(self, bits):
        return self.integers.pop(0)


def half_life():
    return Probability(partial(exp_minus, Fraction(1)))


def test_the_first_different_digit_decides():
    p = half_life()
    head, tail = p.digits(80) >> 64, p.digits(80) & ((1 << 64) - 1)
    assert head == p.digits(16)
    assert p.exceeds(16, Script(tail - 1))
    assert not p.exceeds(16, Script(tail + 1))


def test_a_tie_is_never_guessed_but_fetches_more_bits():
    p = half_life()
    tie = p.digits(80) & ((1 << 64) - 1)
    after = p.digits(144) & ((1 << 64) - 1)
    script = Script(tie, after - 1)
    assert p.exceeds(16, script)
    assert script.integers == []
    assert not p.exceeds(16, Script(tie, after + 1))
