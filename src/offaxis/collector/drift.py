"""Do the reports of a round look like reports of the public vectors?

A publisher attaches a *profile* to a release: what its randomizer would output if people's vectors
were the public ones. The collector compares a round's reports with it.

Each test compares means over n reports with the profile's. With covariance A of one report and E of
the profile itself, both in units of the profile's scale D, the sum of squared differences behaves
as a sum of weighted χ² variables. It is compared with the χ² of the same first two moments
(Satterthwaite 1946), for which three traces are enough:

    g χ²_h,  g = tr C² / tr C,  h = (tr C)² / tr C²,  C = A/n + E.

Symbols: shares of the named symbols, by the exact law; E accounts for the public vectors being a
sample. Vectors: the mean and the spread (variances) of each coordinate, by simulation; E comes from
how the averages of single public vectors differ, so it accounts for the sample and the simulation.
Correlations between coordinates are accounted for by the traces. With two tests, each gets half of
the false-alarm rate. The tests are asymptotic: below `FEWEST` reports there is no result.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from scipy.special import chdtrc

from offaxis.decoding import Shares
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
    """The expected mean of a statistic, with the covariances that a test needs.

    Attributes
    ----------
    what : str
        The statistic.
    expected, scale : array (r,)
        Its mean, and the scale D that squared differences are divided by.
    report, profile : Traces
        Of the covariance A of one report's statistic, and of the profile's error E.
    crossed : float
        tr AE.
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
        Hash of the release.
    public, draws : int
        Number of public vectors, and of simulated reports per vector (0 if the law is exact).
    expectations : tuple of Expectation

    Examples
    --------
    >>> import offaxis
    >>> from offaxis.collector.drift import Profile
    >>> from offaxis.evaluation.profiles import profile_of
    >>> public = np.random.default_rng(0).standard_normal((100, 3))
    >>> release = offaxis.fit(None, public, epsilon=2, reshaping="none", mechanism="laplace")
    >>> profile = profile_of(release, public)
    >>> Profile.from_json(profile.to_json(), release).release == release.hash
    True
    """

    release: str
    public: int
    draws: int
    expectations: tuple[Expectation, ...]

    def to_json(self) -> str:
        """Return the profile as JSON."""
        return canonical_json(
            {
                "release": self.release,
                "public": self.public,
                "draws": self.draws,
                "expectations": [_to_dict(part) for part in self.expectations],
            }
        )

    @classmethod
    def from_json(cls, text: str, release: Release) -> Profile:
        """Read an untrusted profile of a release; raise InvalidInput if it is invalid."""
        try:
            document = _Document.model_validate(parse_json(text))
            parts = tuple(part.read() for part in document.expectations)
        except (ValidationError, ValueError, RecursionError):
            raise InvalidInput("this is not a profile; make one with profile_of()") from None
        statistics = tuple(part.what for part in parts)
        if document.release != release.hash or statistics != _statistics(release):
            raise InvalidInput("this profile belongs to another release")
        size = release.decoder.input_dim
        if any(part.expected.shape != (size,) or part.scale.shape != (size,) for part in parts):
            raise InvalidInput(f"a profile of this release has {size} numbers per statistic")
        return cls(document.release, document.public, document.draws, parts)


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
            raise ValueError("traces must be positive")
        if not (scale > 0).all():
            raise ValueError("the scale must be positive")
        return Expectation(
            self.what, expected, scale, Traces(*self.report), Traces(*self.profile), self.crossed
        )


class _Document(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    release: Sha256
    public: int = _Positive
    draws: int = _NotNegative
    expectations: list[_Part] = Field(max_length=2)


def _to_dict(part: Expectation) -> dict[str, Any]:
    return {
        "what": part.what,
        "expected": base64.b64encode(part.expected.astype("<f8").tobytes()).decode(),
        "scale": base64.b64encode(part.scale.astype("<f8").tobytes()).decode(),
        "report": [part.report.trace, part.report.squared],
        "profile": [part.profile.trace, part.profile.squared],
        "crossed": part.crossed,
    }


def _numbers(text: str) -> NDArray[np.float64]:
    numbers = np.frombuffer(base64.b64decode(text, validate=True), "<f8").astype(np.float64)
    if not np.isfinite(numbers).all():
        raise ValueError("numbers must be finite")
    return numbers


# ---- Tests

FALSE_ALARM: Final = 1e-3
"""Probability of a warning for a round without drift."""

FEWEST: Final = 500
"""Smallest number of reports for a test."""

_FEWEST_PER_SYMBOL: Final = 5
_DIFFERENCES: Final = {
    "shares": "the shares of the symbols differ",
    "mean": "their mean differs",
    "spread": "their spread differs",
}


def drift_facts(
    release: Release,
    profile: Profile | None,
    observed: Moments,
    change: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the verdict: whether to warn, the p-value, and a one-sentence summary.

    Parameters
    ----------
    release : Release
    profile : Profile or None
        What reports of the public vectors look like.
    observed : Moments
        Of the round's observations.
    change : dict, optional
        How the crowd has changed since earlier rounds (:mod:`offaxis.collector.changes`). With two
        tests, of the profile and of a change, each gets half of the false-alarm rate
        (:func:`level_of`).

    Examples
    --------
    >>> import offaxis
    >>> from offaxis.collector.drift import drift_facts
    >>> from offaxis.evaluation.profiles import profile_of
    >>> public = np.random.default_rng(0).standard_normal((100, 3))
    >>> release = offaxis.fit(None, public, epsilon=2, reshaping="none", mechanism="laplace")
    >>> profile = profile_of(release, public)
    >>> from offaxis.decoding.aggregate import Moments
    >>> people = np.tile(public, (6, 1)) + [2.0, 0.0, 0.0]  # shifted against the public vectors
    >>> observed = release.observe(release.privatize(people))
    >>> drift_facts(release, profile, Moments.of(observed, np.ones(600)))["warning"]
    True
    """
    facts = {"reports": observed.count, "false_alarm_rate": FALSE_ALARM}
    changed = change is not None and change["p_value"] is not None
    fit = _fit_facts(release, profile, observed, level_of(profile, changed=changed))
    parts = [part for part in (fit, change) if part is not None and part["p_value"] is not None]
    # Without a profile there is nothing to say about the fit, unless there is nothing else to say.
    told = [fit] if change is None else [change] if profile is None else [fit, change]
    summary = _joined(*(part["summary"] for part in told))
    p = min(1.0, len(parts) * min(part["p_value"] for part in parts)) if parts else None
    return facts | {
        "warning": p is not None and p < FALSE_ALARM,
        "p_value": p,
        "summary": summary,
        "fit": fit,
        "change": change,
    }


def level_of(profile: Profile | None, *, changed: bool) -> float:
    """Return the level of each test: two of them share the false-alarm rate (Bonferroni)."""
    return FALSE_ALARM / (1 + (profile is not None and changed))


def _joined(*sentences: str) -> str:
    """Join sentences to one."""
    first, *rest = (sentence.removesuffix(".") for sentence in sentences)
    return "; ".join([first, *(part[:1].lower() + part[1:] for part in rest)]) + "."


def _fit_facts(
    release: Release, profile: Profile | None, observed: Moments, level: float
) -> dict[str, Any]:
    """Return whether the reports look like reports of the public vectors of the profile."""
    if profile is None:
        return _no_result("This release has no profile of public vectors to compare with.")
    needed = _needed(profile)
    if observed.count < needed:
        return _no_result(f"There are too few reports for a test: {observed.count} of {needed}.")
    statistics = _observed_statistics(release, observed)
    p_values = {
        part.what: p_value(part, statistics[part.what], observed.count)
        for part in profile.expectations
    }
    smallest = min(p_values, key=lambda what: p_values[what])
    p = min(1.0, len(p_values) * p_values[smallest])
    if p >= level:
        summary = "The reports fit the public vectors."
    else:
        summary = (
            f"The reports do not fit the public vectors ({_DIFFERENCES[smallest]}; without drift "
            f"this happens in less than 1 of {1 / FALSE_ALARM:,.0f} rounds): a release fitted to "
            f"them may clip more and decode worse here."
        )
    return {"warning": p < level, "p_value": p, "summary": summary}


def _no_result(summary: str) -> dict[str, Any]:
    return {"warning": False, "p_value": None, "summary": summary}


def _needed(profile: Profile) -> int:
    """Return the number of reports that a test needs."""
    for part in profile.expectations:
        if part.what == "shares":
            rarest = float(part.expected.min())
            return max(FEWEST, int(np.ceil(_FEWEST_PER_SYMBOL / max(rarest, 1e-12))))
    return FEWEST


def _observed_statistics(release: Release, observed: Moments) -> dict[str, NDArray[np.float64]]:
    if isinstance(release.randomizer, SymbolForm):
        shares = Shares.from_mean(observed.mean, observed.count, release.randomizer)
        return {"shares": shares.named}
    return {"mean": observed.mean, "spread": observed.spread / (observed.count - 1)}


def p_value(expected: Expectation, seen: NDArray[np.float64], count: int) -> float:
    """Return the probability that ``count`` reports of the public vectors differ at least as much.

    Examples
    --------
    >>> import offaxis
    >>> from offaxis.collector.drift import p_value
    >>> from offaxis.evaluation.profiles import profile_of
    >>> public = np.random.default_rng(0).standard_normal((100, 3))
    >>> release = offaxis.fit(None, public, epsilon=2, reshaping="none", mechanism="laplace")
    >>> profile = profile_of(release, public)
    >>> mean, spread = profile.expectations
    >>> p_value(mean, mean.expected, count=1000)  # no difference
    1.0
    >>> p_value(mean, mean.expected + mean.scale**0.5, count=1000) < 1e-9  # one standard deviation
    True
    """
    distance = float(np.sum((seen - expected.expected) ** 2 / expected.scale))
    report, error = expected.report, expected.profile
    trace = report.trace / count + error.trace
    squared = report.squared / count**2 + 2 * expected.crossed / count + error.squared
    return float(chdtrc(trace**2 / squared, distance * trace / squared))
