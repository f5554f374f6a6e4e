"""Profiles: what reports would look like if people's vectors were the public ones.

Made by the publisher from public vectors, published beside the release, read by the collector.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from offaxis.errors import InvalidInput
from offaxis.formats.fields import Sha256
from offaxis.formats.strict_json import canonical_json, parse_json
from offaxis.randomizers.symbol_form import SymbolForm
from offaxis.release import Release

What = Literal["shares", "mean", "spread"]


@dataclass(frozen=True)
class Traces:
    """tr C and tr C² of a covariance C in units of the scale."""

    trace: float
    squared: float


@dataclass(frozen=True, eq=False)
class Expectation:
    """What the mean of a statistic should be.

    Attributes
    ----------
    what : str
        The statistic.
    expected, scale : array (r,)
        Its mean, and what squares of differences are divided by.
    report, profile : Traces
        Of the covariance of one report's statistic, and of the profile's own error.
    crossed : float
        Trace of the product of the two.
    """

    what: What
    expected: NDArray[np.float64]
    scale: NDArray[np.float64]
    report: Traces
    profile: Traces
    crossed: float


@dataclass(frozen=True, eq=False)
class Profile:
    """Expectations of a release's reports under public vectors.

    Attributes
    ----------
    release : str
        Hash.
    public, draws : int
        Vectors, and simulated reports of each; 0 where the exact law was used.
    expectations : tuple of Expectation

    Examples
    --------
    >>> import offaxis
    >>> from offaxis.collector.drift import Profile, profile_of
    >>> public = np.random.default_rng(0).standard_normal((100, 3))
    >>> release = offaxis.fit(None, public, epsilon=2, reshaping="none")
    >>> profile = profile_of(release, public)
    >>> Profile.from_json(profile.to_json(), release).release == release.hash
    True
    """

    release: str
    public: int
    draws: int
    expectations: tuple[Expectation, ...]

    def to_json(self) -> str:
        """Write the profile."""
        return canonical_json(
            {
                "release": self.release,
                "public": self.public,
                "draws": self.draws,
                "expectations": [_written(one) for one in self.expectations],
            }
        )

    @classmethod
    def from_json(cls, text: str, release: Release) -> Profile:
        """Read an untrusted profile of a release; InvalidInput if it is none."""
        try:
            found = _Document.model_validate(parse_json(text))
            parts = tuple(one.read() for one in found.expectations)
        except (ValidationError, ValueError, RecursionError):
            raise InvalidInput("this is no profile; make it with profile_of()") from None
        wanted = _statistics(release)
        size = release.decoder.input_dim
        if found.release != release.hash or tuple(one.what for one in parts) != wanted:
            raise InvalidInput("this profile belongs to another release")
        if any(one.expected.shape != (size,) or one.scale.shape != (size,) for one in parts):
            raise InvalidInput(f"a profile of this release has {size} numbers a statistic")
        return cls(found.release, found.public, found.draws, parts)


def _statistics(release: Release) -> tuple[What, ...]:
    return ("shares",) if isinstance(release.randomizer, SymbolForm) else ("mean", "spread")


_Positive = Field(gt=0, allow_inf_nan=False)
_NotNegative = Field(ge=0, allow_inf_nan=False)


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    what: What
    expected: str
    scale: str
    report: tuple[float, float] = Field(strict=False)
    profile: tuple[float, float] = Field(strict=False)
    crossed: float = _NotNegative

    def read(self) -> Expectation:
        expected, scale = (_numbers(text) for text in (self.expected, self.scale))
        traces = (*self.report, *self.profile)
        if not (np.isfinite([*traces]).all() and min(traces) >= 0 and min(self.report) > 0):
            raise ValueError("traces are positive")
        if not (scale > 0).all():
            raise ValueError("a scale is positive")
        return Expectation(
            self.what, expected, scale, Traces(*self.report), Traces(*self.profile), self.crossed
        )


class _Document(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    release: Sha256
    public: int = _Positive
    draws: int = _NotNegative
    expectations: list[_Part] = Field(max_length=2)


def _written(one: Expectation) -> dict[str, Any]:
    return {
        "what": one.what,
        "expected": base64.b64encode(one.expected.astype("<f8").tobytes()).decode(),
        "scale": base64.b64encode(one.scale.astype("<f8").tobytes()).decode(),
        "report": [one.report.trace, one.report.squared],
        "profile": [one.profile.trace, one.profile.squared],
        "crossed": one.crossed,
    }


def _numbers(text: str) -> NDArray[np.float64]:
    numbers = np.frombuffer(base64.b64decode(text, validate=True), "<f8").astype(np.float64)
    if not np.isfinite(numbers).all():
        raise ValueError("numbers are finite")
    return numbers
