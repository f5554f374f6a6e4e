"""The audit of a release or a function: every test, with one false-alarm rate for all together.

Contract: a release that keeps its guarantee is reported as violating it with probability at most
the false-alarm rate. The rate is divided evenly among the tests that chance can mislead.
"""

from __future__ import annotations

import math
import platform
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, get_args

import numpy as np
import scipy

from offaxis.auditing import attacks, blackbox, functions
from offaxis.auditing.attacks import (
    YEAR,
    Averaging,
    Classifier,
    LikelihoodRatio,
    Precision,
    Wait,
    WireBits,
    from_randomizer,
    later_reports,
    sequences_of_reports,
    widest_spread,
    wire_bits,
)
from offaxis.auditing.checks import (
    byte_checks,
    freshness,
    front_end,
    input_checks,
    schedule,
    timing,
)
from offaxis.auditing.domains import Distance, InputDomain, Promise
from offaxis.auditing.inputs import (
    Pair,
    claims_gaussian,
    coarse_forms,
    draw_payloads,
    is_ranked,
    law_is_known,
    pairs,
    reduced,
    timed_pairs,
)
from offaxis.auditing.result import AuditResult, Curve, Finding, Group, reports_needed
from offaxis.auditing.trials import Attack, Draw, Outcome, Trial
from offaxis.errors import InvalidInput, InvalidReport
from offaxis.plugins import is_plugin
from offaxis.privacy.guarantee import Guarantee, Number, decimal
from offaxis.randomizers import Randomizer
from offaxis.randomizers.base import FiniteSet
from offaxis.randomizers.box import BoxForm
from offaxis.randomizers.custom import WIRE_ID as FOREIGN
from offaxis.randomizers.gaussian import noise_scale
from offaxis.randomizers.memoised import Memoised
from offaxis.release import Release
from offaxis.vectors import Vectors
from offaxis.version import __version__

FALSE_ALARM: Final = 1e-3
"""Default probability that an audit accuses a release that keeps its guarantee."""

FULL: Final = 10**7
"""Number of reports in the main test of a thorough audit."""

LEAST: Final = 400
"""Smallest number of reports in the main test: fewer show nothing."""

SECONDS: Final = 30.0
"""Roughly the time of an audit, unless its number of reports or another time is given."""

_LONGEST: Final = 300.0
"""Seconds that a test may take if the number of reports is given."""

Progress = Callable[[str, int, int], None]
"""Called with the name of a test, the number of reports drawn for it, and their total."""

_REPORTS_PER_TIMED_CALL: Final = 40
_MOST_TIMED_CALLS: Final = 2000
"""Largest number of single reports of each vector that are timed."""

_ROWS: Final = 4096
_NUMBERS: Final = 1 << 18
"""Largest number of reports, and of numbers in them, that are drawn at a time."""

_PILOT_ALPHA: Final = 1e-4  # for choosing a pair; nothing is concluded from it


def audit(
    target: Release | Callable[[Any], Any],
    *,
    epsilon: Number | Distance | None = None,
    delta: Number | None = None,
    domain: InputDomain | None = None,
    batched: bool = False,
    reports: int | None = None,
    seconds: float | None = None,
    false_alarm: float = FALSE_ALARM,
    rng: np.random.Generator | None = None,
    progress: Progress | None = None,
) -> AuditResult:
    """Attack a release, or any function with a promise, and return the findings.

    A release is attacked from ``privatize`` to the bytes. A function is called on inputs of its
    domain; the auditor searches for the two that its outputs tell apart best.

    If the promise is kept, a violation is found with probability at most ``false_alarm``, all
    tests together. Finding none does not show that there is none: the result states which ε a run
    of this size could have contradicted.

    Parameters
    ----------
    target : Release or callable
        A callable takes one input and returns a freshly drawn output: bytes, a text, a number, a
        label, an array, a tensor, or a tuple of these. An exception counts as an output.
    epsilon : number or callable
        The ε that a function promises between any two inputs of its domain, or a function
        ``epsilon(x, x')`` of them, as in metric privacy. A release states its own.
    delta : number, optional
        The δ that a function promises.
    domain : Ball, Sphere, Box, FiniteSet, AnyVector, Pairs, tuple or list
        The inputs between any two of which a function promises ε: vectors (float64 arrays of shape
        (dim,)), the symbols of a :class:`~offaxis.randomizers.base.FiniteSet`, an interval
        ``(low, high)`` of floats, a list of values, or :class:`Pairs` of neighbours. No others are
        tried; ``AnyVector(dim)`` states that every finite vector is among them.
    batched : bool
        Whether the function takes a batch of inputs (an array with one row or number each, or a
        list) and returns one output for each.
    reports : int, optional
        Number of reports or outputs in the main test, half of each input. Other tests take fewer,
        and no test takes longer than five minutes. By default as many as time allows.
    seconds : float, optional
        The time that an audit may take, roughly; 30 by default. Slow functions get few calls.
    false_alarm : float
    rng : numpy.random.Generator, optional
        For the choices of the auditor. Reports always use the randomness of the operating system,
        functions their own.
    progress : callable, optional
        Called with the name of a test, the number of reports drawn for it, and their total.

    Raises
    ------
    InvalidInput
        If a parameter is out of range or has no effect, if the function fails for every input, or
        if the auditor cannot invert the encoder of a release.

    Examples
    --------
    >>> import offaxis
    >>> from offaxis.auditing import LEAST, audit
    >>> public = np.random.default_rng(0).standard_normal((60, 3))
    >>> release = offaxis.fit(None, public, epsilon=1, reshaping="none", mechanism="laplace")
    >>> result = audit(release, reports=LEAST, false_alarm=1e-6)  # very few, to be quick
    >>> result.violated
    False
    >>> result.resolution < 5  # the largest bound that so few reports can show
    True

    A function of your own: half the noise that numbers between 0 and 1 need for ε = 1.

    >>> rng = np.random.default_rng()
    >>> def half_the_noise(x):
    ...     return x + rng.laplace(scale=0.5)
    >>> result = audit(half_the_noise, epsilon=1, domain=(0.0, 1.0), reports=20_000)
    >>> result.violated, result.strongest.promised
    (True, 1.0)
    >>> x, other = result.strongest.inputs  # two inputs that its outputs tell apart
    """
    if reports is not None and reports < LEAST:
        raise InvalidInput(f"reports must be at least {LEAST}, got reports={reports!r}")
    if not 0 < false_alarm < 1:
        raise InvalidInput(f"false_alarm must be between 0 and 1, got {false_alarm!r}")
    if seconds is not None and not 0 < seconds < math.inf:
        raise InvalidInput(f"seconds must be positive and finite, got seconds={seconds!r}")
    generator = np.random.default_rng() if rng is None else rng
    described: dict[str, Any] = {
        "false_alarm": false_alarm,
        "seed": str(getattr(generator.bit_generator.seed_seq, "entropy", "unknown")),
        "versions": {
            "offaxis": __version__,
            "Python": platform.python_version(),
            "NumPy": np.__version__,
            "SciPy": scipy.__version__,
        },
    }
    if isinstance(target, Release):
        given = {"epsilon": epsilon, "delta": delta, "domain": domain, "batched": batched or None}
        for name, value in given.items():
            if value is not None:
                raise InvalidInput(
                    f"a release states its own guarantee and domain; leave out {name}={value!r}"
                )
        started, foreign = time.perf_counter(), is_plugin(target.randomizer.kind)
        share = false_alarm / (2 if foreign else 1)
        run = _Run(target, _pace(reports, seconds), share, generator, progress)
        findings, drawn = run.findings(), run.drawn
        if foreign:
            more = functions.searched(target, seconds or SECONDS, reports, generator, share)
            findings, drawn = findings + list(more.findings), drawn + more.reports
        order = get_args(Group)
        return AuditResult(
            release=target.hash,
            randomizer=target.randomizer.kind,
            guarantee=target.guarantee,
            findings=tuple(sorted(findings, key=lambda finding: order.index(finding.group))),
            reports=drawn,
            needed=reports_needed(target.guarantee, run.share),
            curve=run.curve,
            seconds=time.perf_counter() - started,
            **described,
        )
    if not callable(target):
        raise InvalidInput(
            f"audit takes a function of one input, or a release (of a randomizer, one fitted with "
            f"it), got a {type(target).__name__}"
        )
    most = seconds or (SECONDS if reports is None else _LONGEST)
    return functions.audit_function(
        target,
        Promise.of(epsilon, delta),
        domain,
        functions.Effort(most, reports),
        batched=batched,
        rng=generator,
        progress=progress,
        described=described,
    )


@dataclass(frozen=True)
class _Pace:
    """Number of reports in the main test, and the seconds that a test of each kind may take."""

    reports: int
    seconds: dict[str, float]


def _pace(reports: int | None, seconds: float | None = None) -> _Pace:
    """Return a pace for some seconds in all, or for the requested number of reports."""
    if reports is None or seconds is not None:
        scale = (seconds or SECONDS) / SECONDS
        shares = {"main": 6.0, "coarse": 3.0, "pair": 1.2, "call": 1.0}
        paced = {kind: scale * share for kind, share in shares.items()}
        return _Pace(reports or 2_000_000, paced)
    return _Pace(reports, {"main": _LONGEST, "coarse": 60.0, "pair": 60.0, "call": 1.0})


class _Run:
    """The state of one audit."""

    def __init__(
        self,
        release: Release,
        pace: _Pace,
        false_alarm: float,
        rng: np.random.Generator,
        progress: Progress | None,
    ) -> None:
        self._release, self._pace, self._rng, self._progress = release, pace, rng, progress
        audited = pairs(release)
        self._law = law_is_known(release.randomizer)
        self._trials, self._timed = plan(release, audited, rng, self._law), timed_pairs(audited)
        tests = sum(len(trial.tests) for trial in self._trials) + len(self._timed) + 1
        self.share = false_alarm / tests
        """The false-alarm rate of each test that chance can mislead."""
        self.drawn = 0
        self.curve: Curve = ()

    def findings(self) -> list[Finding]:
        """Run every test."""
        release, rng, seconds = self._release, self._rng, self._pace.seconds["call"]
        calls = min(_MOST_TIMED_CALLS, self._pace.reports // _REPORTS_PER_TIMED_CALL)
        findings = [finding for trial in self._trials for finding in self._attack(trial)]
        if not self._law:
            findings.append(Finding("worst-pair", "white box", "likelihood", "not run", _NO_LAW))
        if not attacks.available():
            tried = "a classifier on bytes, bits and observations"
            findings.append(Finding("classifier", "black box", tried, "not run", attacks.MISSING))
        checks = [
            front_end(release.randomizer, rng),
            *byte_checks(release, seconds, rng),
            input_checks(release),
            freshness(release, self.share, rng),
            *schedule(release, self._timed[0]),
            *(
                timing(release, pair, calls, seconds, alpha=self.share, rng=rng)
                for pair in self._timed
            ),
        ]
        self.drawn += sum(finding.reports for finding in checks)
        return findings + checks

    def _attack(self, planned: PlannedTrial) -> list[Finding]:
        """Run one trial and judge it; unreadable reports are left to the check of the support."""
        tests = planned.tests
        if not tests:
            return []
        try:
            outcomes = self._outcomes(planned)
        except InvalidReport as error:
            why = f"the reports cannot be read: {error}"
            return [Finding(t.test, t.group, t.tried, "not run", why) for t in tests]
        if planned is self._trials[0] and self._law:
            self.curve = outcomes[0].curve
        guarantee = self._release.guarantee
        return [
            judge(test, outcome, guarantee, self.share)
            for test, outcome in zip(tests, outcomes, strict=True)
        ]

    def _outcomes(self, planned: PlannedTrial) -> list[Outcome]:
        statistics = [test.attack for test in planned.tests]
        width = max(self._release.input_dim, self._release.encoder.output_dim)
        trial = Trial(planned.draw, rows=max(1, min(_ROWS, _NUMBERS // width)))
        most = max(LEAST, int(planned.share * self._pace.reports)) // 2
        count = trial.affordable(statistics, most, self._pace.seconds[planned.kind])
        name, progress = planned.tests[0].test, self._progress
        outcomes = trial.run(
            statistics,
            count,
            delta=float(self._release.guarantee.delta),
            alpha=self.share / 2,
            advance=None if progress is None else lambda done, total: progress(name, done, total),
        )
        self.drawn += 2 * count
        return outcomes


# ---- The plan: which statistics are tried on which pairs of vectors


_SOON: Final = 8
"""Rounds from which a later report of a sequence is taken."""


@dataclass(frozen=True, eq=False)
class PlannedTest:
    """A statistic to try, with its name, its group and what it is tried on."""

    test: str
    group: Group
    tried: str
    attack: Attack
    promise: Guarantee | None = None
    """What the test is judged against, if not the guarantee of the release."""


@dataclass(frozen=True, eq=False)
class PlannedTrial:
    """A source of reports, and the statistics that are computed on them.

    ``share`` is the number of reports as a share of the main test.
    """

    draw: Draw
    tests: tuple[PlannedTest, ...]
    kind: Literal["main", "coarse", "pair"]
    share: float


_NO_LAW: Final = "the randomizer gives no log_density; its reports are attacked as a black box"


def plan(
    release: Release, audited: tuple[Pair, ...], rng: np.random.Generator, law: bool = True
) -> list[PlannedTrial]:
    """Return the trials of a release, the main one first; without its law only black-box ones."""
    if not law:
        return [_on_pair(release, pair, rng, law=False) for pair in audited]
    single = [
        *_main(release, audited[0]),
        *_coarse(release.randomizer, rng),
        *(_on_pair(release, pair, rng) for pair in audited),
    ]
    if isinstance(release.randomizer, Memoised):
        # A single report of a sequence promises more than all of them together.
        one = Guarantee(release.randomizer.single_report_epsilon)
        single = [
            replace(trial, tests=tuple(replace(test, promise=one) for test in trial.tests))
            for trial in single
        ]
    return [*single, *_sequences(release, audited[0], rng)]


def _from_release(release: Release, pair: Pair) -> Draw:
    sides = (pair.first[None], pair.second[None])
    return lambda side, count: draw_payloads(release, np.repeat(sides[side], count, axis=0))


def _main(release: Release, worst: Pair) -> Iterator[PlannedTrial]:
    """Yield the worst pair through the whole release, and through the reduced randomizer."""
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
) -> tuple[PlannedTest, ...]:
    """Return the test against ε and, if Gaussian noise is claimed, one of its size."""
    ratio = LikelihoodRatio(randomizer, w, other)
    planned = PlannedTest(test, "white box", tried, ratio)
    if not claims_gaussian(randomizer):
        return (planned,)
    noise = LikelihoodRatio(randomizer, w, other, aim="shift")
    name = f"{test.removesuffix('-pair').removesuffix('-lattice')}-noise"
    return planned, PlannedTest(name, "white box", "size of the noise", noise)


def _coarse(randomizer: Randomizer, rng: np.random.Generator) -> Iterator[PlannedTrial]:
    """Yield the randomizer on a lattice so coarse that one step too many is detected."""
    forms = coarse_forms(randomizer)
    if forms:
        delta = float(randomizer.guarantee.delta)
        spread = widest_spread(forms, rng, delta=delta, alpha=_PILOT_ALPHA)
        form, vectors = spread.form, (spread.first, spread.second)
        tried = f"{spread.distance:.3g} of {spread.allowed} steps apart"
        tests = _by_likelihood("coarse-lattice", tried, form, *vectors)
        yield PlannedTrial(from_randomizer(form, *vectors), tests, "coarse", 8.0)


def _sequences(release: Release, worst: Pair, rng: np.random.Generator) -> Iterator[PlannedTrial]:
    """Yield later reports and whole sequences of people with different histories.

    All reports before a second draw are within ε of one answer. Histories that differ only in
    rounds that cannot draw, and the times of draws in general, must not be distinguishable at all.
    """
    randomizer = release.randomizer
    if not isinstance(randomizer, Memoised):
        return
    first, second = worst.first, worst.second
    apart = ((first, first), (second, second))
    between = ((first, first), (first, second))
    sides = worst.encoded(release)
    few = min(randomizer.first_wait, YEAR)

    def planned(test: str, tried: str, attack: Attack, **promise: Any) -> PlannedTest:
        return PlannedTest(test, "white box", tried, attack, **promise)

    rounds = min(_SOON, few)
    if rounds > 1:
        ratio = LikelihoodRatio(randomizer, *sides)
        later = (
            planned(
                "later-report",
                "a report that is not the first",
                ratio,
                promise=Guarantee(randomizer.single_report_epsilon),
            ),
        )
        yield PlannedTrial(later_reports(release, apart, rounds, rng), later, "main", 0.25)
    average, exact = Averaging(randomizer, *sides), Averaging(randomizer, *sides, aim="difference")
    whole = Guarantee(randomizer.epsilon * randomizer.draws_within(YEAR))
    every = f"{YEAR} reports of a person"
    year = (
        planned("averaging-year", every, average, promise=whole),
        planned("draws-year", every, Wait(randomizer)),
    )
    yield PlannedTrial(sequences_of_reports(release, apart, YEAR), year, "main", 0.05)
    changed = (planned("draws-change", f"{every}, changing after the first", Wait(randomizer)),)
    yield PlannedTrial(sequences_of_reports(release, between, YEAR), changed, "main", 0.05)
    promise = Guarantee(randomizer.epsilon)
    answer = (planned("averaging-answer", f"{few} reports of a person", average, promise=promise),)
    yield PlannedTrial(sequences_of_reports(release, apart, few), answer, "main", 0.05)
    if few > 1:
        change = (planned("between-draws", f"{few} reports of a person", exact),)
        yield PlannedTrial(sequences_of_reports(release, between, few), change, "main", 0.05)


def _on_pair(
    release: Release, pair: Pair, rng: np.random.Generator, *, law: bool = True
) -> PlannedTrial:
    """Return every statistic that applies to a pair of inputs."""
    randomizer = release.randomizer
    first, second = pair.encoded(release)
    tests = []
    if not law:
        found = blackbox.of_payloads(randomizer, first[0], second[0])
        tests = [
            PlannedTest(f"{name}-{pair.name}", "black box", blackbox.WORDS[name], statistic)
            for name, statistic in found.items()
        ]
    elif pair.name != "worst":
        ratio = LikelihoodRatio(randomizer, first, second)
        tests.append(PlannedTest(f"{pair.name}-pair", "white box", pair.words, ratio))
    if attacks.available():
        view, seed = attacks.payload_view(randomizer), int(rng.integers(1 << 31))
        trees = Classifier(view, randomizer.payload_size, seed)
        tests.append(PlannedTest(f"classifier-{pair.name}", "black box", pair.words, trees))
    # A ranked randomizer may give a zero vector an index of its own, as far as ε allows; symbols
    # have no digits.
    digits_on = "worst" if is_ranked(randomizer) else "zero"
    if pair.name == digits_on and not isinstance(randomizer.domain, FiniteSet):
        tests += _last_digits(randomizer, int(np.argmax(np.abs(first - second))))
    return PlannedTrial(_from_release(release, pair), tuple(tests), "pair", 0.25)


def _last_digits(randomizer: Randomizer, coordinate: int) -> Iterator[PlannedTest]:
    """Yield the tests of low bits, on the coordinate in which the encoded vectors differ most."""
    both, alone = (Precision(randomizer, coordinate, given_size=given) for given in (False, True))
    yield PlannedTest("low-bits", "bytes", "size and lowest bit", both)
    if randomizer.wire_id == FOREIGN:
        return  # an equal share of last bits is more than it promises
    # If there are few possible reports, those of one size may differ, as far as ε allows.
    if not isinstance(randomizer, BoxForm):
        yield PlannedTest("precision", "bytes", "lowest bit at one size", alone)
    if wire_bits(randomizer):
        tried = f"last {wire_bits(randomizer)} bits sent"
        yield PlannedTest("wire-bits", "bytes", tried, WireBits(randomizer))


# ---- Judgement: from counts to findings


def judge(planned: PlannedTest, outcome: Outcome, guarantee: Guarantee, alpha: float) -> Finding:
    """Return the finding of one statistic; a false alarm has probability at most ``alpha``."""
    if planned.attack.aim == "epsilon":
        return _judge_epsilon(planned, outcome, planned.promise or guarantee, alpha)
    if planned.attack.aim == "shift":
        return _judge_shift(planned, outcome, guarantee, alpha)
    return _judge_difference(planned, outcome, alpha)


def _judge_epsilon(
    planned: PlannedTest, outcome: Outcome, guarantee: Guarantee, alpha: float
) -> Finding:
    """Compare a lower bound on ε with the promised ε."""
    delta = float(guarantee.delta)
    count, epsilon = outcome.best(delta, alpha)
    violated = epsilon > guarantee.epsilon
    promised = f", promised ε = {decimal(guarantee.epsilon)}" if violated else ""
    return Finding(
        planned.test,
        planned.group,
        planned.tried,
        "violation" if violated else "nothing found",
        f"ε ≥ {epsilon:.3f}{promised}",
        reports=outcome.reports,
        epsilon=epsilon,
        resolution=count.resolution(delta, alpha / 2),
        alpha=alpha,
        count=count,
    )


def _judge_shift(
    planned: PlannedTest, outcome: Outcome, guarantee: Guarantee, alpha: float
) -> Finding:
    """Compare a lower bound on h = Δ/σ with the largest h that (ε, δ) allows for Gaussian noise.

    With a small δ, (ε, δ) alone hardly limits frequent events. Gaussian noise limits every event,
    and this test is against that stronger limit.
    """
    shift, count = max(((c.shift(alpha / 2), c) for c in outcome.counts), key=lambda pair: pair[0])
    allowed = 1 / noise_scale(1.0, float(guarantee.epsilon), float(guarantee.delta))
    return Finding(
        planned.test,
        planned.group,
        planned.tried,
        "violation" if shift > allowed else "nothing found",
        f"Δ/σ ≥ {shift:.3f} of {allowed:.3f}",
        reports=outcome.reports,
        shift=shift,
        alpha=alpha,
        count=count,
    )


def _judge_difference(planned: PlannedTest, outcome: Outcome, alpha: float) -> Finding:
    """Test whether two vectors differ where they must not."""
    p_value, count = min(((c.p_value(), c) for c in outcome.counts), key=lambda pair: pair[0])
    p_value = min(1.0, 2 * p_value)
    violated = p_value < alpha
    share, other = count.hits / max(1, count.trials), count.other_hits / max(1, count.other_trials)
    difference = f"distinguishable, {100 * share:.1f} % against {100 * other:.1f} %"
    return Finding(
        planned.test,
        planned.group,
        planned.tried,
        "violation" if violated else "nothing found",
        difference if violated else "no difference",
        reports=outcome.reports,
        p_value=p_value,
        alpha=alpha,
        count=count,
    )
