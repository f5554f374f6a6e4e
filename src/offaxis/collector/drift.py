"""Profiles: what reports would look like if people's vectors were the public ones.

Made by the publisher from public vectors, published beside the release, read by the collector.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from scipy.stats import chi2

from offaxis.decoding.aggregate import Moments
from offaxis.errors import InvalidInput
from offaxis.formats.release_file import Sha256
from offaxis.formats.strict_json import canonical_json, parse_json
from offaxis.randomizers.symbols import SymbolForm
from offaxis.release import Release

__all__ = ["FALSE_ALARM", "FEWEST", "Profile", "drift_facts", "p_value"]

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
    >>> from offaxis.collector.drift import Profile
    >>> from offaxis.evaluation.profiles import profile_of
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


# ----------------------------------------------------------------------------
# Do the reports of a round look as reports of the public vectors would?
#
# A publisher attaches a *profile* to a release: what its randomizer would let through if people's
# vectors were the public ones. Each test compares means over n reports with the profile's. With
# covariance A of one report and E of the profile itself, both in units of the profile's scale D,
# the sum of squares of the differences behaves as a sum of weighted χ² variables. It is compared
# with the χ² of the same first two moments (Satterthwaite 1946), for which three traces are enough:
#
#     g χ²_h,  g = tr C² / tr C,  h = (tr C)² / tr C²,  C = A/n + E.
#
# Symbols: shares of the named symbols, by the exact law; E counts that the public vectors are a
# sample. Vectors: the mean and the spread (variances) of each coordinate, by simulation; E comes
# from how public vectors' own averages differ, so it counts the sample and the simulation.
# Correlations between coordinates are counted through the traces. With two tests, each gets half of
# the false-alarm rate. The tests hold for many reports: below `FEWEST` there is no answer.

FALSE_ALARM: Final = 1e-3
"""How often a round without drift is warned of."""

FEWEST: Final = 500
"""Reports without which nothing is said."""

_FEWEST_OF_A_SYMBOL: Final = 5
_WORDS: Final = {
    "shares": "the symbols come in other shares",
    "mean": "their mean is elsewhere",
    "spread": "they spread differently",
}


def drift_facts(release: Release, profile: Profile | None, observed: Moments) -> dict[str, Any]:
    """Return whether to warn, how surprising the reports are, and one sentence.

    Examples
    --------
    >>> import offaxis
    >>> from offaxis.collector.drift import drift_facts
    >>> from offaxis.evaluation.profiles import profile_of
    >>> public = np.random.default_rng(0).standard_normal((100, 3))
    >>> release = offaxis.fit(None, public, epsilon=2, reshaping="none")
    >>> profile = profile_of(release, public)
    >>> from offaxis.decoding.aggregate import Moments
    >>> people = np.tile(public, (6, 1)) + [2.0, 0.0, 0.0]  # they differ from the public vectors
    >>> observed = release.observe(release.privatize(people))
    >>> drift_facts(release, profile, Moments.of(observed, np.ones(600)))["warning"]
    True
    """
    facts = {"reports": observed.count, "false_alarm_rate": FALSE_ALARM}
    if profile is None:
        return facts | _silent("This release has no profile of public reports to compare with.")
    if observed.count < _needed(profile):
        return facts | _silent(
            f"There are too few reports to tell: {observed.count} of {_needed(profile)}."
        )
    seen = _observed_statistics(release, observed)
    values = {
        one.what: p_value(one, seen[one.what], observed.count) for one in profile.expectations
    }
    least = min(values, key=lambda what: values[what])
    p = min(1.0, len(values) * values[least])
    if p >= FALSE_ALARM:
        sentence = "The reports fit the public vectors."
    else:
        sentence = (
            f"The reports do not fit the public vectors ({_WORDS[least]}; without drift this "
            f"happens in less than 1 of {1 / FALSE_ALARM:,.0f} rounds): what was fitted to them "
            f"may clip more and decode worse here."
        )
    return facts | {"warning": p < FALSE_ALARM, "p_value": p, "summary": sentence}


def _silent(sentence: str) -> dict[str, Any]:
    return {"warning": False, "p_value": None, "summary": sentence}


def _needed(profile: Profile) -> int:
    for one in profile.expectations:
        if one.what == "shares":
            rarest = float(one.expected.min())
            return max(FEWEST, int(np.ceil(_FEWEST_OF_A_SYMBOL / max(rarest, 1e-12))))
    return FEWEST


def _observed_statistics(release: Release, observed: Moments) -> dict[str, NDArray[np.float64]]:
    if isinstance(release.randomizer, SymbolForm):
        low, high = release.randomizer.levels
        return {"shares": (observed.mean - low) / (high - low)}
    return {"mean": observed.mean, "spread": observed.spread / (observed.count - 1)}


def p_value(expected: Expectation, seen: NDArray[np.float64], count: int) -> float:
    """Return how often reports of the public vectors would be as far off as these.

    Examples
    --------
    >>> import offaxis
    >>> from offaxis.collector.drift import p_value
    >>> from offaxis.evaluation.profiles import profile_of
    >>> public = np.random.default_rng(0).standard_normal((100, 3))
    >>> release = offaxis.fit(None, public, epsilon=2, reshaping="none")
    >>> profile = profile_of(release, public)
    >>> mean, spread = profile.expectations
    >>> p_value(mean, mean.expected, count=1000)  # nothing is off
    1.0
    >>> p_value(mean, mean.expected + mean.scale**0.5, count=1000) < 1e-9  # by a deviation
    True
    """
    off = float(np.sum((seen - expected.expected) ** 2 / expected.scale))
    one, error = expected.report, expected.profile
    trace = one.trace / count + error.trace
    squared = one.squared / count**2 + 2 * expected.crossed / count + error.squared
    return float(chi2.sf(off * trace / squared, trace**2 / squared))
