"""A privacy guarantee as data: exact numbers, the unit they protect and what they rest on."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final, Literal, get_args

import numpy as np

from offaxis.errors import InvalidInput

Unit = Literal["item", "user"]

_NUMBER: Final = re.compile(r"[+-]?(\d+/0*[1-9]\d*|(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?)", re.ASCII)

_LARGEST_PART: Final = 10**95
"""So that every promise fits its place in a release file."""

RELATION: Final = "replacement of the whole vector"


def exact(value: Any, name: str) -> Fraction:
    """Read a number exactly; a float stands for its shortest decimal, so 0.1 is 1/10.

    Raises
    ------
    InvalidInput
        If the value is not a finite real number.
    """
    if isinstance(value, bool | np.bool_) or not isinstance(
        value, int | float | str | Decimal | Fraction | np.integer | np.floating
    ):
        raise InvalidInput(f"{name} must be a number such as 0.1 or '1/3', got {name}={value!r}")
    if isinstance(value, int | Fraction):
        # NumPy's integers inside a fraction would wrap; Python's do not.
        number = Fraction(int(value.numerator), int(value.denominator))
    else:
        # str() of a Python or NumPy float is its shortest decimal that reads back the same.
        text = str(value).strip()
        # Checked first: an exponent of a billion would be expanded digit by digit.
        if len(text) > 200 or not _NUMBER.fullmatch(text):
            raise InvalidInput(
                f"{name} must be a finite number such as 0.1 or '1/3', got "
                f"{name}={repr(value)[:60]}"
            )
        number = Fraction(text)
    if max(abs(number.numerator), number.denominator) >= _LARGEST_PART:
        raise InvalidInput(f"{name} must be a fraction of numbers below 10**95")
    return number


def exact_epsilon(value: Any) -> Fraction:
    """Read ε exactly and check that it is positive.

    Examples
    --------
    >>> from offaxis.privacy import exact_epsilon
    >>> exact_epsilon(0.1), exact_epsilon("1/3")
    (Fraction(1, 10), Fraction(1, 3))
    >>> exact_epsilon(-1)
    Traceback (most recent call last):
        ...
    offaxis.errors.InvalidInput: epsilon must be positive, got epsilon=-1
    """
    epsilon = exact(value, "epsilon")
    if epsilon <= 0:
        raise InvalidInput(f"epsilon must be positive, got epsilon={value!r}")
    if epsilon > 10_000 or epsilon < Fraction(1, 10**9):
        raise InvalidInput(f"epsilon must lie between 1e-9 and 10000, got epsilon={value!r}")
    return epsilon


def exact_delta(value: Any) -> Fraction:
    """Read δ exactly and check that it lies strictly between 0 and 1.

    Examples
    --------
    >>> from offaxis.privacy import exact_delta
    >>> exact_delta(1e-5)
    Fraction(1, 100000)
    """
    delta = exact(value, "delta")
    if not 0 < delta < 1:
        raise InvalidInput(f"delta must lie strictly between 0 and 1, got delta={value!r}")
    if delta < Fraction(1, 10**90):
        raise InvalidInput(f"delta must be at least 1e-90, got delta={value!r}")
    return delta


@dataclass(frozen=True)
class Guarantee:
    """What one report promises.

    For *every* two vectors z and z' and every set S of reports,
    ``Pr[report(z) in S] <= exp(epsilon) * Pr[report(z') in S] + delta``.

    Attributes
    ----------
    epsilon, delta : Fraction
        Exact numbers. ``delta == 0`` means the guarantee is pure.
    unit : {"item", "user"}
        What one report stands for: one vector of a person who may send several (each costs
        epsilon again), or the only report a person ever sends.
    assumptions : tuple of str
        What must be true for the promise to hold, in plain words.

    Examples
    --------
    >>> from offaxis.privacy import Guarantee
    >>> promise = Guarantee(epsilon=0.1)
    >>> promise.epsilon, promise.pure, str(promise)  # exactly one tenth
    (Fraction(1, 10), True, 'ε = 0.1, pure')
    >>> round(Guarantee(5).odds_factor, 1)  # the most by which one report moves anybody's odds
    148.4
    >>> str(Guarantee("1/3", 1e-6, unit="user"))
    'ε = 1/3, δ = 1e-06'
    """

    epsilon: Fraction
    delta: Fraction = Fraction(0)
    unit: Unit = "item"
    assumptions: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse anything that is not an exact, positive promise."""
        object.__setattr__(self, "epsilon", exact_epsilon(self.epsilon))
        delta = Fraction(0) if self.delta == 0 else exact_delta(self.delta)
        object.__setattr__(self, "delta", delta)
        if self.unit not in get_args(Unit):
            raise InvalidInput(f"unit must be 'item' or 'user', got unit={self.unit!r}")

    @property
    def pure(self) -> bool:
        """Whether δ is exactly zero."""
        return self.delta == 0

    @property
    def odds_factor(self) -> float:
        """How much one report can at most multiply anybody's odds between two vectors (pure)."""
        return math.exp(self.epsilon) if self.epsilon < 700 else math.inf

    def __str__(self) -> str:
        """Return for example ``ε = 5, pure`` or ``ε = 1/3, δ = 1e-05``."""
        tail = "pure" if self.pure else f"δ = {decimal(self.delta)}"
        return f"ε = {decimal(self.epsilon)}, {tail}"


def decimal(value: Fraction) -> str:
    """Write a fraction as the short decimal it is, or as p/q when it has none."""
    approximate = float(value)
    short = repr(approximate)
    if Fraction(short) == value:
        return str(int(value)) if value.denominator == 1 else short
    return f"{value.numerator}/{value.denominator}"


# ----------------------------------------------------------------------------
# What a release's promise rests on, in plain words.

ON_DEVICE: Final = (
    "encoding and randomizing happen on the device that holds the vector, and nothing but the "
    "report leaves it"
)
ALWAYS: Final = (
    ON_DEVICE,
    "the map, the radius and the decoder were fitted on public data only, before any private "
    "vector was seen",
    "the operating system's randomness is secret, and AES-256 in counter mode stretches it "
    "without a visible pattern",
)
PER_UNIT: Final[dict[Unit, str]] = {
    "item": "one vector is protected at a time: n reports about the same person cost n times ε",
    "user": "a person sends one report in total, ever",
}
