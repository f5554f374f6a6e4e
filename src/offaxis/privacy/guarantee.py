"""A privacy guarantee as data: exact numbers, the unit they protect, and their assumptions."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

import numpy as np

from offaxis.errors import InvalidInput

Unit = Literal["item", "user"]

Number = int | float | str | Decimal | Fraction | np.integer[Any] | np.floating[Any]
"""What :func:`exact` reads."""

_NUMBER: Final = re.compile(r"[+-]?(\d+/0*[1-9]\d*|(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?)", re.ASCII)

_LARGEST_PART: Final = 10**95
"""Bounds numerator and denominator, so that every guarantee fits its field in a release file."""

RELATION: Final = "replacement of the whole vector"


def exact(value: Any, name: str) -> Fraction:
    """Read a number exactly. A float stands for its shortest decimal, so 0.1 is 1/10.

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
        # NumPy integers inside a fraction would overflow; Python integers do not.
        number = Fraction(int(value.numerator), int(value.denominator))
    else:
        # str() of a Python or NumPy float is the shortest decimal that reads back the same.
        text = str(value).strip()
        # Check before Fraction(), which would expand an exponent of a billion digit by digit.
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
        raise InvalidInput(f"epsilon must be between 1e-9 and 10000, got epsilon={value!r}")
    return epsilon


def exact_delta(value: Any) -> Fraction:
    """Read δ exactly and check that it is strictly between 0 and 1.

    Examples
    --------
    >>> from offaxis.privacy import exact_delta
    >>> exact_delta(1e-5)
    Fraction(1, 100000)
    """
    delta = exact(value, "delta")
    if not 0 < delta < 1:
        raise InvalidInput(f"delta must be strictly between 0 and 1, got delta={value!r}")
    if delta < Fraction(1, 10**90):
        raise InvalidInput(f"delta must be at least 1e-90, got delta={value!r}")
    return delta


@dataclass(frozen=True)
class Guarantee:
    """The (ε, δ) local differential privacy guarantee of one report.

    For *every* two vectors z and z' and every set S of reports,
    ``Pr[report(z) in S] <= exp(epsilon) * Pr[report(z') in S] + delta``.

    Attributes
    ----------
    epsilon, delta : Fraction
        Exact numbers. ``delta == 0`` means the guarantee is pure.
    unit : {"item", "user"}
        What the guarantee protects. ``"item"``: one vector of a person who may send several; each
        report costs epsilon again. ``"user"``: a person, who sends one report in total.
    assumptions : tuple of str
        What must be true for the guarantee to hold, in plain words.

    Examples
    --------
    >>> from offaxis.privacy import Guarantee
    >>> guarantee = Guarantee(epsilon=0.1)
    >>> guarantee.epsilon, str(guarantee)  # exactly one tenth
    (Fraction(1, 10), 'ε = 0.1, pure')
    >>> round(Guarantee(5).odds_factor, 1)  # the largest change of an observer's odds
    148.4
    >>> str(Guarantee("1/3", 1e-6, unit="user"))
    'ε = 1/3, δ = 1e-06'
    """

    epsilon: Fraction
    delta: Fraction = Fraction(0)
    unit: Unit = "item"
    assumptions: tuple[str, ...] = ()

    if TYPE_CHECKING:  # The generated one takes any number, and __post_init__ converts it.

        def __init__(
            self,
            epsilon: Number,
            delta: Number = 0,
            unit: Unit = "item",
            assumptions: tuple[str, ...] = (),
        ) -> None: ...

    def __post_init__(self) -> None:
        """Convert the numbers to exact fractions and check them."""
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
        """The factor by which one report can at most multiply the odds between two vectors: e^ε.

        It bounds a pure guarantee only.
        """
        return math.exp(self.epsilon) if self.epsilon < 700 else math.inf

    def __str__(self) -> str:
        """Return for example ``ε = 5, pure`` or ``ε = 1/3, δ = 1e-05``."""
        tail = "pure" if self.pure else f"δ = {decimal(self.delta)}"
        return f"ε = {decimal(self.epsilon)}, {tail}"


def decimal(value: Fraction) -> str:
    """Write a fraction as its short decimal, or as p/q if it has none."""
    short = repr(float(value))
    if Fraction(short) == value:
        return str(int(value)) if value.denominator == 1 else short
    return f"{value.numerator}/{value.denominator}"


# ---- Assumptions of a release's guarantee, written into release files

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

PER_SEQUENCE: Final[dict[Unit, str]] = {
    "item": "one permanent answer is protected at a time, and each one costs ε again; when it is "
    "drawn does not depend on a vector",
    "user": "a person's reports are one sequence per study, kept by one device; when a permanent "
    "answer is drawn does not depend on a vector",
}
"""For releases of sequences (:func:`offaxis.memoise`)."""


def assumptions_of(kind: str, unit: Unit, is_sequence: bool, *, foreign: bool) -> tuple[str, ...]:
    """Return the assumptions of a release with a randomizer of this kind."""
    per_unit = PER_SEQUENCE if is_sequence else PER_UNIT
    stated = (
        f"the randomizer {kind} is not part of offaxis: its guarantee is what its authors state, "
        f"and was not proved here",
    )
    return (*(stated if foreign else ()), *ALWAYS, per_unit[unit])
