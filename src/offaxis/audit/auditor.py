"""Which statistics are tried on which pairs of vectors."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Literal, get_args

import numpy as np
import scipy

from offaxis.audit import attacks as black_box
from offaxis.audit.attacks import (
    LikelihoodRatio,
    Precision,
    WireBits,
    freshness,
    from_randomizer,
    widest_spread,
    wire_bits,
)
from offaxis.audit.checks import front_end, looks, payloads, refusals, timing
from offaxis.audit.inputs import (
    Pair,
    coarse_forms,
    is_ranked,
    pairs,
    reduced,
    says_gaussian,
    timed_pairs,
)
from offaxis.audit.result import AuditResult, Curve, Finding, Group
from offaxis.audit.trials import Attack, Draw, Outcome, Trial, trials_needed
from offaxis.errors import InvalidInput, InvalidReport
from offaxis.privacy.guarantee import Guarantee, decimal
from offaxis.randomizers import Randomizer
from offaxis.randomizers.base import FiniteSet
from offaxis.randomizers.box import BoxForm
from offaxis.randomizers.gaussian import noise_scale
from offaxis.release import Release
from offaxis.vectors import Vectors
from offaxis.version import __version__

_PILOT_ALPHA: Final = 1e-4
"""For choosing a pair; nothing is said with it."""


@dataclass(frozen=True, eq=False)
class Planned:
    """A statistic to try, and how to speak of it."""

    test: str
    group: Group
    tried: str
    attack: Attack


@dataclass(frozen=True, eq=False)
class PlannedTrial:
    """Reports to draw and the statistics that look at them.

    ``share`` is in reports of the main test.
    """

    draw: Draw
    tests: tuple[Planned, ...]
    kind: Literal["main", "coarse", "pair"]
    share: float


def plan(release: Release, pairs: tuple[Pair, ...], rng: np.random.Generator) -> list[PlannedTrial]:
    """Return the trials of a release, the main one first."""
    return [
        *_main(release, pairs[0]),
        *_coarse(release.randomizer, rng),
        *(_on_pair(release, pair, rng) for pair in pairs),
    ]


def _from_release(release: Release, pair: Pair) -> Draw:
    sides = (pair.first[None], pair.second[None])
    return lambda side, count: payloads(release, np.repeat(sides[side], count, axis=0))


def _main(release: Release, worst: Pair) -> Iterator[PlannedTrial]:
    """Yield the worst pair through the whole release, and through its randomizer in small."""
    encoded = worst.encoded(release)
    tests = _by_likelihood("worst-pair", worst.words, release.randomizer, *encoded)
    yield PlannedTrial(_from_release(release, worst), tests, "main", 1.0)
    form = reduced(release.randomizer)
    if form is not None:
        w, other = (vector[None] for vector in form.worst_pair())
        tests = _by_likelihood("reduced", "in two dimensions", form, w, other)
        yield PlannedTrial(from_randomizer(form, w, other), tests, "main", 1.0)


def _by_likelihood(
    test: str, tried: str, randomizer: Randomizer, w: Vectors, other: Vectors
) -> tuple[Planned, ...]:
    """Return the test against ε and, where the noise is said to be Gaussian, one of its size."""
    ratio = LikelihoodRatio(randomizer, w, other)
    planned = Planned(test, "white box", tried, ratio)
    if not says_gaussian(randomizer):
        return (planned,)
    noise = LikelihoodRatio(randomizer, w, other, aim="shift")
    name = f"{test.removesuffix('-pair').removesuffix('-lattice')}-noise"
    return planned, Planned(name, "white box", "size of the noise", noise)


def _coarse(randomizer: Randomizer, rng: np.random.Generator) -> Iterator[PlannedTrial]:
    """Yield the randomizer on a lattice so coarse that one step too many shows."""
    forms = coarse_forms(randomizer)
    if forms:
        delta = float(randomizer.guarantee.delta)
        found = widest_spread(forms, rng, delta=delta, alpha=_PILOT_ALPHA)
        form, pair = found.form, (found.first, found.second)
        tried = f"{found.distance:.3g} of {found.allowed} steps apart"
        tests = _by_likelihood("coarse-lattice", tried, form, *pair)
        yield PlannedTrial(from_randomizer(form, *pair), tests, "coarse", 8.0)


def _on_pair(release: Release, pair: Pair, rng: np.random.Generator) -> PlannedTrial:
    """Return every statistic that fits a pair of inputs."""
    randomizer = release.randomizer
    first, second = pair.encoded(release)
    tests = []
    if pair.name != "worst":
        ratio = LikelihoodRatio(randomizer, first, second)
        tests.append(Planned(f"{pair.name}-pair", "white box", pair.words, ratio))
    if black_box.available():
        trees = black_box.Classifier(randomizer, int(rng.integers(1 << 31)))
        tests.append(Planned(f"classifier-{pair.name}", "black box", pair.words, trees))
    # A ranked randomizer gives a zero vector an index of its own, as far as ε allows; symbols
    # have no digits.
    digits_on = "worst" if is_ranked(randomizer) else "zero"
    if pair.name == digits_on and not isinstance(randomizer.domain, FiniteSet):
        tests += _last_digits(randomizer, int(np.argmax(np.abs(first - second))))
    return PlannedTrial(_from_release(release, pair), tuple(tests), "pair", 0.25)


def _last_digits(randomizer: Randomizer, coordinate: int) -> Iterator[Planned]:
    """Yield the tests of low bits, on the coordinate in which the encoded vectors differ most."""
    both, alone = (Precision(randomizer, coordinate, given_size=given) for given in (False, True))
    yield Planned("low-bits", "bytes", "size and lowest bit", both)
    # Where a report is one of few values, which of one size it is may differ, as far as ε allows.
    if not isinstance(randomizer, BoxForm):
        yield Planned("precision", "bytes", "lowest bit at one size", alone)
    if wire_bits(randomizer):
        tried = f"last {wire_bits(randomizer)} bits sent"
        yield Planned("wire-bits", "bytes", tried, WireBits(randomizer))


# ----------------------------------------------------------------------------
# From what a trial counted to what may be said about the promise.


def judge(planned: Planned, outcome: Outcome, guarantee: Guarantee, alpha: float) -> Finding:
    """Return the finding of one statistic; a false alarm has probability at most ``alpha``."""
    what = (planned.test, planned.group, planned.tried, outcome)
    aim = planned.attack.aim
    if aim == "epsilon":
        return bounded(*what, guarantee, alpha)
    return shifted(*what, guarantee, alpha) if aim == "shift" else compared(*what, alpha)


def bounded(
    test: str, group: Group, tried: str, outcome: Outcome, guarantee: Guarantee, alpha: float
) -> Finding:
    """Compare a lower bound on ε with the promise; wrong with probability at most ``alpha``."""
    delta = float(guarantee.delta)
    count, epsilon = outcome.best(delta, alpha)
    broken = epsilon > guarantee.epsilon
    promised = f", promised ε = {decimal(guarantee.epsilon)}" if broken else ""
    return Finding(
        test,
        group,
        tried,
        "violation" if broken else "nothing found",
        f"ε ≥ {epsilon:.3f}{promised}",
        reports=outcome.reports,
        epsilon=epsilon,
        resolution=count.resolution(delta, alpha / 2),
        alpha=alpha,
        count=count,
    )


def shifted(
    test: str, group: Group, tried: str, outcome: Outcome, guarantee: Guarantee, alpha: float
) -> Finding:
    """Compare a lower bound on h = Δ/σ with the largest h that (ε, δ) allows Gaussian noise.

    (ε, δ) alone says little about frequent events when δ is small. Gaussian noise says much more:
    it bounds every event, and this test is against that.
    """
    shift, count = max(((c.shift(alpha / 2), c) for c in outcome.counts), key=lambda pair: pair[0])
    allowed = 1 / noise_scale(1.0, float(guarantee.epsilon), float(guarantee.delta))
    broken = shift > allowed
    return Finding(
        test,
        group,
        tried,
        "violation" if broken else "nothing found",
        f"Δ/σ ≥ {shift:.3f} of {allowed:.3f}",
        reports=outcome.reports,
        shift=shift,
        alpha=alpha,
        count=count,
    )


def compared(test: str, group: Group, tried: str, outcome: Outcome, alpha: float) -> Finding:
    """Say whether two vectors differ where they must not; a false alarm has probability alpha."""
    p_value, count = min(((c.p_value(), c) for c in outcome.counts), key=lambda pair: pair[0])
    p_value = min(1.0, 2 * p_value)
    found = p_value < alpha
    shares = (count.hits / max(1, count.trials), count.other_hits / max(1, count.other_trials))
    shown = f"{100 * shares[0]:.1f} % against {100 * shares[1]:.1f} %"
    return Finding(
        test,
        group,
        tried,
        "violation" if found else "nothing found",
        f"it tells them apart, {shown}" if found else "no difference",
        reports=outcome.reports,
        p_value=p_value,
        alpha=alpha,
        count=count,
    )


# ----------------------------------------------------------------------------
# The audit of a release: every test, with one false-alarm rate for all of them together.

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
