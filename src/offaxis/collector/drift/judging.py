"""Do the reports of a round look as reports of the public vectors would?

A publisher attaches a *profile* to a release: what its randomizer would let through if people's
vectors were the public ones. Each test compares means over n reports with the profile's. With
covariance A of one report and E of the profile itself, both in units of the profile's scale D, the
sum of squares of the differences behaves as a sum of weighted χ² variables. It is compared with
the χ² of the same first two moments (Satterthwaite 1946), for which three traces are enough:

    g χ²_h,  g = tr C² / tr C,  h = (tr C)² / tr C²,  C = A/n + E.

Symbols: shares of the named symbols, by the exact law; E counts that the public vectors are a
sample. Vectors: the mean and the spread (variances) of each coordinate, by simulation; E comes from
how public vectors' own averages differ, so it counts the sample and the simulation. Correlations
between coordinates are counted through the traces. With two tests, each gets half of the
false-alarm rate. The tests hold for many reports: below `FEWEST` there is no answer.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2

from offaxis.collector.drift.profile import Expectation, Profile
from offaxis.decoding.aggregate import Moments
from offaxis.randomizers.symbol_form import SymbolForm
from offaxis.release import Release

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
    >>> from offaxis.collector.drift import drift_facts, profile_of
    >>> public = np.random.default_rng(0).standard_normal((100, 3))
    >>> release = offaxis.fit(None, public, epsilon=2, reshaping="none")
    >>> profile = profile_of(release, public)
    >>> from offaxis.decoding.aggregate import Moments
    >>> rng = np.random.default_rng(1)
    >>> def seen(vectors):  # simulated here; a collector has release.observe(reports)
    ...     moments = Moments()
    ...     observed = release.randomizer.simulate(release.encoder.encode(vectors), rng)
    ...     moments.add(observed, np.ones(600))
    ...     return moments
    >>> alike = public[rng.integers(0, 100, 600)]
    >>> drift_facts(release, profile, seen(alike))["sentence"]
    'The reports fit the public vectors.'
    >>> drift_facts(release, profile, seen(alike + [2.0, 0.0, 0.0]))["warning"]
    True
    """
    facts = {"reports": observed.count, "false_alarm_rate": FALSE_ALARM}
    if profile is None:
        return facts | _silent("This release has no profile of public reports to compare with.")
    if observed.count < _needed(profile):
        return facts | _silent(
            f"There are too few reports to tell: {observed.count} of {_needed(profile)}."
        )
    seen = _statistics(release, observed)
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
    return facts | {"warning": p < FALSE_ALARM, "p_value": p, "sentence": sentence}


def _silent(sentence: str) -> dict[str, Any]:
    return {"warning": False, "p_value": None, "sentence": sentence}


def _needed(profile: Profile) -> int:
    for one in profile.expectations:
        if one.what == "shares":
            rarest = float(one.expected.min())
            return max(FEWEST, int(np.ceil(_FEWEST_OF_A_SYMBOL / max(rarest, 1e-12))))
    return FEWEST


def _statistics(release: Release, observed: Moments) -> dict[str, NDArray[np.float64]]:
    if isinstance(release.randomizer, SymbolForm):
        low, high = release.randomizer.levels
        return {"shares": (observed.mean - low) / (high - low)}
    return {"mean": observed.mean, "spread": observed.spread / (observed.count - 1)}


def p_value(expected: Expectation, seen: NDArray[np.float64], count: int) -> float:
    """Return how often reports of the public vectors would be as far off as these.

    Examples
    --------
    >>> import offaxis
    >>> from offaxis.collector.drift import p_value, profile_of
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
