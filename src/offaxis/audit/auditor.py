"""The audit of a release: every test, with one false-alarm rate for all of them together."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, get_args

import numpy as np
import scipy

from offaxis.audit import black_box
from offaxis.audit.bounds import trials_needed
from offaxis.audit.freshness import freshness
from offaxis.audit.front_end import front_end
from offaxis.audit.pairs import pairs, timed_pairs
from offaxis.audit.plan import PlannedTrial, plan
from offaxis.audit.refusals import refusals
from offaxis.audit.result import AuditResult, Curve, Finding, Group
from offaxis.audit.support import looks
from offaxis.audit.timing import timing
from offaxis.audit.trial import Outcome, Trial
from offaxis.audit.verdicts import judge
from offaxis.errors import InvalidInput, InvalidReport
from offaxis.privacy.guarantee import Guarantee
from offaxis.release import Release
from offaxis.version import __version__

FALSE_ALARM: Final = 1e-3
"""How often an audit accuses a release that keeps its promise, unless asked otherwise."""

FULL: Final = 10**7
"""Reports in the main test of a thorough audit."""

LEAST: Final = 400
"""Fewer reports than this say nothing."""

Progress = Callable[[str, int, int], None]
"""Called with the name of a test, the reports drawn for it and how many it takes."""

_REPORTS_A_CALL: Final = 40
_MOST_CALLS: Final = 2000
"""Single reports that are timed: so many of each vector, and no more."""

_ROWS: Final = 4096
_NUMBERS: Final = 1 << 18
"""Reports and numbers drawn at a time."""


@dataclass(frozen=True)
class _Pace:
    """Reports of the main test, and how many seconds a test of each kind may take."""

    reports: int
    seconds: dict[str, float]


def _pace(reports: int | None) -> _Pace:
    """Return a pace for half a minute in all, or for as many reports as were asked for."""
    if reports is None:
        return _Pace(2_000_000, {"main": 6.0, "coarse": 3.0, "pair": 1.2, "call": 1.0})
    return _Pace(reports, {"main": 300.0, "coarse": 60.0, "pair": 60.0, "call": 1.0})


def audit(
    release: Release,
    *,
    reports: int | None = None,
    false_alarm: float = FALSE_ALARM,
    rng: np.random.Generator | None = None,
    progress: Progress | None = None,
) -> AuditResult:
    """Attack a release from ``privatize`` to the bytes and say what was found.

    A violation is found wrongly, in a release that keeps its promise, with probability at most
    ``false_alarm``, all tests together. Finding none does not show that there is none: the result
    says which ε a run of this size could have contradicted.

    Parameters
    ----------
    release : Release
    reports : int, optional
        Reports in the main test, half of them of each vector; other tests take fewer, and none
        takes longer than five minutes. By default as many as fit half a minute on two cores.
    false_alarm : float
    rng : numpy.random.Generator, optional
        For the auditor's own choices. Reports always draw from the operating system.
    progress : callable, optional

    Raises
    ------
    InvalidInput
        If a parameter makes no sense, or the encoder is of a kind that cannot be inverted.

    Examples
    --------
    >>> import offaxis
    >>> from offaxis.audit import LEAST, audit
    >>> public = np.random.default_rng(0).standard_normal((60, 3))
    >>> release = offaxis.fit(None, public, epsilon=1, reshaping="none")
    >>> result = audit(release, reports=LEAST, false_alarm=1e-6)  # very few, to be quick
    >>> result.violated
    False
    >>> result.resolution < 5  # what so few could have shown at most
    True
    """
    if reports is not None and reports < LEAST:
        raise InvalidInput(f"reports must be at least {LEAST}, got reports={reports!r}")
    if not 0 < false_alarm < 1:
        raise InvalidInput(f"false_alarm must lie between 0 and 1, got {false_alarm!r}")
    started = time.perf_counter()
    generator = np.random.default_rng() if rng is None else rng
    run = _Run(release, _pace(reports), false_alarm, generator, progress)
    order = get_args(Group)
    return AuditResult(
        release=release.hash,
        randomizer=release.randomizer.kind,
        guarantee=release.guarantee,
        findings=tuple(sorted(run.findings(), key=lambda finding: order.index(finding.group))),
        reports=run.drawn,
        false_alarm=false_alarm,
        needed=_needed(release.guarantee, run.share),
        curve=run.curve,
        seed=str(getattr(generator.bit_generator.seed_seq, "entropy", "unknown")),
        versions={
            "offaxis": __version__,
            "Python": platform.python_version(),
            "NumPy": np.__version__,
            "SciPy": scipy.__version__,
        },
        seconds=time.perf_counter() - started,
    )


def _needed(guarantee: Guarantee, alpha: float) -> int | None:
    """Return the reports of the main test that could contradict ε: a quarter counts for each."""
    trials = trials_needed(float(guarantee.epsilon), delta=float(guarantee.delta), alpha=alpha / 2)
    return None if trials is None else 4 * trials


class _Run:
    """One audit under way."""

    def __init__(
        self,
        release: Release,
        pace: _Pace,
        false_alarm: float,
        rng: np.random.Generator,
        progress: Progress | None,
    ) -> None:
        self._release, self._pace, self._rng, self._progress = release, pace, rng, progress
        tried = pairs(release)
        self._trials, self._timed = plan(release, tried, rng), timed_pairs(tried)
        tests = sum(len(trial.tests) for trial in self._trials) + len(self._timed) + 1
        self.share = false_alarm / tests
        """Every test that can raise a false alarm has the same part of the rate."""
        self.drawn = 0
        self.curve: Curve = ()

    def findings(self) -> list[Finding]:
        """Run every test."""
        release, rng, seconds = self._release, self._rng, self._pace.seconds["call"]
        calls = min(_MOST_CALLS, self._pace.reports // _REPORTS_A_CALL)
        found = [finding for trial in self._trials for finding in self._try(trial)]
        if not black_box.available():
            tried = "a classifier on bytes, bits and observations"
            found.append(Finding("classifier", "black box", tried, "not run", black_box.MISSING))
        others = [
            front_end(release.randomizer, rng),
            *looks(release, seconds, rng),
            refusals(release),
            freshness(release, self.share, rng),
            *(
                timing(release, pair, calls, seconds, alpha=self.share, rng=rng)
                for pair in self._timed
            ),
        ]
        self.drawn += sum(finding.reports for finding in others)
        return found + others

    def _try(self, planned: PlannedTrial) -> list[Finding]:
        """Run one trial and judge it; reports that cannot be read are for the support test."""
        tests = planned.tests
        if not tests:
            return []
        try:
            outcomes = self._outcomes(planned)
        except InvalidReport as error:
            why = f"the reports cannot be read: {error}"
            return [Finding(t.test, t.group, t.tried, "not run", why) for t in tests]
        if planned is self._trials[0]:
            self.curve = outcomes[0].curve
        guarantee = self._release.guarantee
        return [
            judge(test, outcome, guarantee, self.share)
            for test, outcome in zip(tests, outcomes, strict=True)
        ]

    def _outcomes(self, planned: PlannedTrial) -> list[Outcome]:
        attacks = [test.attack for test in planned.tests]
        width = max(self._release.input_dim, self._release.encoder.output_dim)
        trial = Trial(planned.draw, rows=max(1, min(_ROWS, _NUMBERS // width)))
        wanted = max(LEAST, int(planned.share * self._pace.reports)) // 2
        count = trial.affordable(attacks, wanted, self._pace.seconds[planned.kind])
        name, progress = planned.tests[0].test, self._progress
        outcomes = trial.run(
            attacks,
            count,
            delta=float(self._release.guarantee.delta),
            alpha=self.share / 2,
            advance=None if progress is None else lambda done, total: progress(name, done, total),
        )
        self.drawn += 2 * count
        return outcomes
