"""The audit of a function: find the two inputs it tells apart best, then count on fresh outputs.

Contract: a function that keeps its promise, and whose calls are independent, is accused with
probability at most the false-alarm rate. The search for inputs and statistics uses outputs of its
own; nothing is concluded from them. The tests are fixed before their outputs are drawn, and share
the rate evenly.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import combinations, islice
from typing import Any, Final

import numpy as np

from offaxis.auditing import attacks, blackbox
from offaxis.auditing.domains import AnyVector, Input, Promise, Space, shown_apart, space_of
from offaxis.auditing.outputs import BatchRaised, Caller, Outputs, kind_of, name_of
from offaxis.auditing.result import AuditResult, Curve, Finding, reports_needed
from offaxis.auditing.trials import (
    SIDES,
    Attack,
    Outcome,
    Trial,
    same_proportion,
)
from offaxis.errors import InvalidInput
from offaxis.privacy.guarantee import Guarantee
from offaxis.randomizers.base import FiniteSet
from offaxis.release import Release
from offaxis.sampling.entropy import Entropy

Progress = Callable[[str, int, int], None]

_MOST: Final = 20_000_000
"""Largest number of outputs of each input in one test."""

_LEAST, _FEWEST = 16, 8
"""Smallest number of outputs of each input in a test, and in the search, of slow functions."""

_ROWS: Final = 4096
_BATCH: Final = 1 << 17
_NUMBERS: Final = 1 << 20
"""Largest number of outputs, of outputs of a batch, and of numbers in them, drawn at a time."""


@dataclass(frozen=True, eq=False)
class Effort:
    """How long an audit of a function may take, and how many outputs its main test draws."""

    seconds: float
    reports: int | None

    @property
    def main(self) -> int:
        """The largest number of outputs of each input in the main test."""
        return _MOST if self.reports is None else self.reports // 2

    @property
    def pairs(self) -> int:
        """The largest number of pairs in the first round of the search."""
        return _TRIED if self.reports is None else max(100, min(_TRIED, self.reports // 100))

    def pilot(self, calls: int) -> int:
        """Return how many outputs of an input the search draws, if time allows ``calls``."""
        most = _PILOT if self.reports is None else max(100, min(_PILOT, self.reports // 64))
        return max(_FEWEST, min(most, calls))


def audit_function(
    function: Callable[[Any], Any],
    promise: Promise,
    domain: Any,
    effort: Effort,
    *,
    batched: bool,
    rng: np.random.Generator,
    progress: Progress | None,
    described: dict[str, Any],
) -> AuditResult:
    """Attack a function and return the findings; ``described`` holds the rest of the result."""
    started = time.perf_counter()
    caller = Caller(function, batched, rng)
    deadline, false_alarm = started + effort.seconds, described["false_alarm"]
    # Inputs and outputs may be so large that their squares overflow.
    with np.errstate(all="ignore"):
        search = _Search(caller, space_of(domain, promise, rng), promise, effort, rng, progress)
        chosen = search.run(started + _SEARCH * effort.seconds)
        tests = _Final(search, chosen, effort, deadline, false_alarm, progress)
        findings = tests.run()
    # A distance may promise next to nothing for inputs that are next to equal.
    guarantee = Guarantee(
        min(max(chosen[0].promised, 1e-9), 1e4) if callable(promise.epsilon) else promise.epsilon,
        promise.delta,
    )
    return AuditResult(
        release=None,
        randomizer=None,
        guarantee=guarantee,
        findings=tuple(sorted(findings, key=lambda finding: finding.group == "conduct")),
        reports=caller.calls,
        needed=reports_needed(guarantee, tests.share),
        curve=tests.curve,
        seconds=time.perf_counter() - started,
        target=name_of(function),
        domain=search.space.words,
        promise=str(promise),
        **described,
    )


def searched(
    release: Release,
    seconds: float,
    reports: int | None,
    rng: np.random.Generator,
    false_alarm: float,
) -> AuditResult:
    """Attack the randomizer of a release as a function: its worst inputs are not known."""
    randomizer, guarantee = release.randomizer, release.guarantee
    domain = randomizer.domain

    def reported(W: Any) -> list[Any]:
        payloads = randomizer.report(np.asarray(W), Entropy())
        return list(zip(payloads, randomizer.read(payloads), strict=True))

    result = audit_function(
        reported,
        Promise.of(guarantee.epsilon, guarantee.delta or None),
        domain if isinstance(domain, FiniteSet) else AnyVector(domain.dim),
        Effort(seconds / 2, reports),
        batched=True,
        rng=rng,
        progress=None,
        described={"false_alarm": false_alarm, "seed": "", "versions": {}},
    )
    named = (replace(part, test=f"searched-{part.test}") for part in result.findings)
    return replace(result, findings=tuple(named))


# ---- The search: which two inputs, by which statistics

_SEARCH: Final = 0.35
"""Share of the time for the search."""

_PILOT: Final = 3000
_LARGER: Final = 8
"""Outputs of an input in the search, and how many times more for those that are searched again."""

_AGAIN: Final = 2
"""Number of pairs of each statistic, by each of two measures, that are searched again."""

_TRIED: Final = 500
"""Largest number of pairs in the first round."""

_LOOK, _CLEAR = 20, 1.5
"""Pairs that are tried at least, and by how much ε is exceeded if the search may then end."""

_ROUNDS: Final = 3
_FINALISTS: Final = 3
_FEW: Final = 3
"""Statistics of the main test, at most."""

_FAMILIES: Final = {"along": "numbers", "nearer-l1": "numbers", "nearer-l2": "numbers"} | {
    "direction": "numbers",
    "coordinate": "ranges",
    "norm": "ranges",
    "form": "values",
    "value": "values",
    "low-bits": "digits",
}
"""Statistics that find the same kind of fault."""


@dataclass(frozen=True, eq=False)
class Candidate:
    """A pair of inputs, and how well each statistic tells it apart.

    ``powers`` are rough bounds on ε less the promise, noisy with few outputs; ``apart`` distances
    of means, which say nothing about rare events.
    """

    first: Input
    second: Input
    promised: float
    powers: dict[str, float]
    apart: dict[str, float]

    @property
    def clear(self) -> bool:
        """Whether it seems to break the promise by far, so that a short test should show it."""
        return max(self.powers.values()) > _CLEAR

    def statistics(self, count: int) -> list[str]:
        """Return the best statistics."""
        return sorted(self.powers, key=lambda name: -self.powers[name])[:count]


@dataclass(eq=False)
class _Search:
    """The search for inputs that a function tells apart."""

    caller: Caller
    space: Space
    promise: Promise
    effort: Effort
    rng: np.random.Generator
    progress: Progress | None
    costs: dict[str, float] = field(default_factory=dict)
    """Seconds that each statistic takes for one output."""
    call: float = 0.0
    """Seconds of one call, and of reading its output."""
    width: int = 0
    _drawn: dict[int, Outputs] = field(default_factory=dict)

    def run(self, deadline: float) -> list[Candidate]:
        """Return the pairs to test, the most promising first."""
        started = time.perf_counter()
        self._settle()
        left = max(0.0, deadline - time.perf_counter())
        inputs = self._affordable(left)
        count = self.effort.pilot(int(0.4 * left / (max(len(inputs), 1) * self.call)))
        candidates: list[Candidate] = []
        for one, other in islice(self._pairs(inputs), self.effort.pairs):
            if candidates and time.perf_counter() > started + 0.5 * (deadline - started):
                break
            if len(candidates) > _LOOK and candidates[-1].clear:
                break
            candidates.append(self._candidate(one, other, count))
            self._report("search", time.perf_counter() - started, deadline - started)
        self._evolve(candidates, count, started + 0.65 * (deadline - started))
        again = self._again(candidates, count, deadline)
        self._report("search", 1.0, 1.0)
        return _finalists(again)

    def _settle(self) -> None:
        """Time calls, fix the columns of outputs, and reject a function that never answers."""
        inputs = self.space.inputs
        seconds, started = [], time.perf_counter()
        for x in inputs[:8]:
            try:
                seconds.append(self.caller.seconds(x))
            except BatchRaised:
                seconds.append(self.caller.seconds(x))
            if time.perf_counter() - started > 0.05 * self.effort.seconds and len(seconds) > 1:
                break
        self.call = max(1e-8, float(np.mean(seconds)))
        if not self.caller.answered:
            tried = inputs[:8] if len(seconds) >= 8 else inputs[: len(seconds)]
            raise InvalidInput(
                f"the function raised {self.caller.error!r} for every input that was tried, such "
                f"as {tried[0]}: it is called with one element of the domain, or with "
                f"batched=True with a batch of them"
            ) from self.caller.error
        self.width = self.caller.reader.width

    def _affordable(self, seconds: float) -> tuple[Input, ...]:
        """Return the inputs that there is time for, the most telling first."""
        inputs = self.space.inputs
        if self.space.partners is not None:
            return inputs
        return inputs[: max(2, min(len(inputs), int(0.4 * seconds / (4 * _FEWEST * self.call))))]

    def _pairs(self, inputs: tuple[Input, ...]) -> Iterator[tuple[Input, Input]]:
        """Yield pairs of inputs, those of the most telling ones first."""
        if self.space.partners is not None:
            order = self.rng.permutation(len(self.space.partners))
            for place in order if len(order) > _FINALISTS else range(len(order)):
                one, other = self.space.partners[place]
                yield inputs[one], inputs[other]
            return
        places = np.array(list(combinations(range(len(inputs)), 2)))
        ranks = places.sum(axis=1) if self.space.ranked else self.rng.random(len(places))
        for one, other in places[np.argsort(ranks, kind="stable")].tolist():
            yield inputs[one], inputs[other]

    @property
    def rows(self) -> int:
        """Number of outputs to draw at a time."""
        most = _ROWS if self.caller.one_by_one else _BATCH
        return max(1, min(most, _NUMBERS // max(1, self.width)))

    def _pilot(self, x: Input, count: int) -> Outputs:
        if id(x) not in self._drawn:
            self._drawn[id(x)] = self.caller.outputs(x, count, self.rows)
        return self._drawn[id(x)]

    def _candidate(self, x: Input, other: Input, count: int) -> Candidate:
        sides = (self._pilot(x, count), self._pilot(other, count))
        return self._judge(x, other, sides, quick=True)

    def _judge(
        self, x: Input, other: Input, sides: tuple[Outputs, Outputs], *, quick: bool
    ) -> Candidate:
        """Return how well every statistic tells two inputs apart."""
        promised = self.promise.between(x.value, other.value)
        powers, apart = {}, {}
        for name, statistic in self.statistics(x, other, quick=quick).items():
            scored = sides
            if statistic.learns:
                half = min(map(len, sides)) // 2
                for side in SIDES:
                    statistic.learn(side, sides[side][:half])
                scored = (sides[0][half:], sides[1][half:])
            statistic.settle()
            started = time.perf_counter()
            first, second = (statistic.scores(side) for side in scored)
            taken = (time.perf_counter() - started) / max(1, sum(map(len, scored)))
            self.costs[name] = taken
            bound, apart[name] = blackbox.power(first, second, self.promise.delta)
            powers[name] = bound + 0.05 * apart[name] - promised
        return Candidate(x, other, promised, powers, apart)

    def statistics(self, x: Input, other: Input, *, quick: bool = False) -> dict[str, Attack]:
        """Return every statistic that applies to a pair."""
        measures = self.caller.reader.measures
        return blackbox.statistics(x, other, self.width, measures=measures, quick=quick)

    def _evolve(self, candidates: list[Candidate], count: int, deadline: float) -> None:
        """Try inputs that resemble those of the best pairs."""
        if self.space.mutate is None:
            return
        for _ in range(_ROUNDS):
            ranked = sorted(candidates, key=lambda c: -max(c.powers.values()))[:4]
            if ranked[0].clear:
                return
            for best in ranked:
                for one, other in ((best.first, best.second), (best.second, best.first)):
                    if time.perf_counter() > deadline:
                        return
                    new = self.space.mutate(one, self.rng)
                    if new is not one and new.value is not other.value:
                        candidates.append(self._candidate(new, other, count))

    def _again(self, candidates: list[Candidate], count: int, deadline: float) -> list[Candidate]:
        """Return the best pairs of each statistic, judged on more outputs of their own."""
        chosen: dict[int, Candidate] = {}
        for name in candidates[0].powers:
            for key in (
                lambda c, name=name: c.powers[name],
                lambda c, name=name: c.apart[name] / max(c.promised, 1e-300),
            ):
                best = sorted(candidates, key=key, reverse=True)[:_AGAIN]
                chosen |= {id(candidate): candidate for candidate in best}
        left = max(0.0, deadline - time.perf_counter())
        cost = self.call + sum(self.costs.values())
        times = 2 if any(candidate.clear for candidate in candidates) else _LARGER
        larger = min(times * count, int(left / (2 * cost * len(chosen))))
        if larger <= count:
            return list(chosen.values())
        judged = []
        self._drawn.clear()
        for candidate in chosen.values():
            x, other = candidate.first, candidate.second
            first, second = (self.caller.outputs(z, larger, self.rows) for z in (x, other))
            judged.append(self._judge(x, other, (first, second), quick=False))
        return judged

    def _report(self, name: str, done: float, total: float) -> None:
        if self.progress is not None:
            self.progress(name, int(100 * min(1.0, done / max(total, 1e-9))), 100)


def _finalists(candidates: list[Candidate]) -> list[Candidate]:
    """Return the best pair, and the best ones by other kinds of statistics."""
    ranked = sorted(candidates, key=lambda c: -max(c.powers.values()))
    chosen, families = [ranked[0]], {_FAMILIES[ranked[0].statistics(1)[0]]}
    by_family = sorted(
        ((power, name, c) for c in candidates for name, power in c.powers.items()),
        key=lambda part: -part[0],
    )
    for _, name, candidate in by_family:
        if len(chosen) < _FINALISTS and _FAMILIES[name] not in families:
            families.add(_FAMILIES[name])
            if candidate not in chosen:
                chosen.append(candidate)
    return chosen


# ---- The tests


@dataclass(frozen=True, eq=False)
class _Test:
    """Statistics to try on fresh outputs of a pair, and the share of the time for it."""

    label: str
    pair: Candidate
    statistics: dict[str, Attack]
    time: float
    outputs: float
    """The largest number of outputs, as a share of the main test."""


class _Final:
    """The tests of an audit: fixed before any of their outputs is drawn."""

    def __init__(
        self,
        search: _Search,
        chosen: list[Candidate],
        effort: Effort,
        deadline: float,
        false_alarm: float,
        progress: Progress | None,
    ) -> None:
        self._search, self._caller = search, search.caller
        self._effort, self._deadline, self._progress = effort, deadline, progress
        # A slow function is called for the main test alone.
        calls = (deadline - time.perf_counter()) / (2 * search.call)
        self._tests = list(self._planned(chosen))[: None if calls > 50 * _LEAST else 1]
        tests = sum(len(test.statistics) for test in self._tests) + 1
        # A batch that raises restarts its test, so that a test may be made twice.
        self.share = false_alarm / tests / (1 if self._caller.one_by_one else 2)
        self.curve: Curve = ()

    def run(self) -> tuple[Finding, ...]:
        """Run the tests until one finds a violation."""
        findings = [*self._repeats()]
        left = sum(test.time for test in self._tests)
        for test in self._tests:
            seconds = max(0.0, self._deadline - time.perf_counter()) * test.time / left
            left -= test.time
            findings += self._judged(test, self._outcomes(test, seconds))
            if any(finding.verdict == "violation" for finding in findings):
                break
        if not attacks.available():
            tried = blackbox.WORDS["classifier"]
            findings.append(Finding("classifier", "black box", tried, "not run", attacks.MISSING))
        if self._caller.error is not None:
            findings.append(_exceptions(self._caller))
        return tuple(findings)

    def _planned(self, chosen: list[Candidate]) -> Iterator[_Test]:
        search, worst = self._search, chosen[0]
        width, rng = search.width, search.rng

        def of(pair: Candidate) -> dict[str, Attack]:
            return search.statistics(pair.first, pair.second)

        best = worst.statistics(_FEW)
        seconds = 0.2 if worst.clear else 4.0
        yield _Test("main", worst, {name: of(worst)[name] for name in best}, seconds, 1.0)
        if len(of(worst)) > len(best):
            yield _Test("worst", worst, of(worst), 2.0, 0.5)
        for label, pair in zip(("second", "third"), chosen[1:], strict=False):
            yield _Test(label, pair, of(pair), 1.5, 0.5)
        if attacks.available() and width:
            seed = int(rng.integers(1 << 31))
            trees = blackbox.Trees(worst.first, worst.second, width, seed)
            yield _Test("worst", worst, {"classifier": trees}, 1.5, 0.25)

    def _outcomes(self, test: _Test, seconds: float) -> list[Outcome]:
        search, progress, caller = self._search, self._progress, self._caller
        costs = (search.costs.get(name, _TREES) for name in test.statistics)
        cost = 2 * (search.call + sum(costs))
        most = max(_LEAST, int(test.outputs * self._effort.main))
        count = max(_LEAST, min(most, int(seconds / cost)))
        digits = 10 ** max(0, len(str(count)) - 2) if count < most else 1
        count = count // digits * digits
        pair = test.pair
        while True:
            trial = Trial(
                lambda side, rows: caller.raw((pair.first, pair.second)[side], rows),
                search.rows,
                lambda rows: caller.both(pair.first, pair.second, rows),
            )
            try:
                return trial.run(
                    list(test.statistics.values()),
                    count,
                    delta=search.promise.delta,
                    alpha=self.share / 2,
                    advance=None
                    if progress is None
                    else lambda done, total: progress(test.label, done, total),
                )
            except BatchRaised:
                continue

    def _judged(self, test: _Test, outcomes: list[Outcome]) -> list[Finding]:
        if not self.curve:
            self.curve = outcomes[0].curve
        return [
            self._finding(test, name, outcome)
            for name, outcome in zip(test.statistics, outcomes, strict=True)
        ]

    def _finding(self, test: _Test, name: str, outcome: Outcome) -> Finding:
        """Compare a lower bound on ε with the promise for the pair."""
        pair, delta = test.pair, self._search.promise.delta
        count, epsilon = outcome.best(delta, self.share)
        violated = epsilon > pair.promised
        result = f"ε ≥ {epsilon:.3f}"
        if violated:
            result += f", promised ε = {pair.promised:.6g}"
            result += f" at δ = {delta:g}" if delta else ""
            result += self._in_words(pair) if name == "form" else ""
        return Finding(
            f"{test.label}-{name}",
            "black box",
            f"{shown_apart(pair.first, pair.second)}: {blackbox.WORDS[name]}",
            "violation" if violated else "nothing found",
            result,
            reports=outcome.reports,
            epsilon=epsilon,
            resolution=count.resolution(delta, self.share / 2),
            alpha=self.share,
            count=count,
            promised=pair.promised,
            inputs=(pair.first.value, pair.second.value),
        )

    def _in_words(self, pair: Candidate) -> str:
        """Return what kinds of outputs both inputs have."""
        kinds = []
        for x in (pair.first, pair.second):
            try:
                outputs = list(self._caller.raw(x, _LEAST))
            except BatchRaised:
                outputs = list(self._caller.raw(x, _LEAST))
            kinds.append(Counter(map(kind_of, outputs)).most_common(1)[0][0])
        return f" (usually {kinds[0]} for x, {kinds[1]} for x′)"

    def _repeats(self) -> Iterator[Finding]:
        """Yield whether successive calls are independent: they must not share their randomness.

        Equal outputs are counted among neighbours in time, among calls at the same place of two
        runs, and among others. For independent calls all three are equally frequent.
        """
        search, caller = self._search, self._caller
        x = self._tests[0].pair.first
        seconds = 0.04 * max(0.0, self._deadline - time.perf_counter())
        k = min(_REPEATS, int(seconds / (8 * search.call)))
        if k < _LEAST:
            why = "the function is too slow"
            yield Finding("repeats", "conduct", "repeated outputs", "not run", why)
            return
        while True:
            try:
                runs = [caller.reader.read(caller.raw(x, 4 * k)).keys for _ in SIDES]
                break
            except BatchRaised:
                continue
        a, b = runs
        others = int((a[3 * k :] == b[:k]).sum())
        compared = {
            "in succession": int((a[: 2 * k : 2] == a[1 : 2 * k : 2]).sum()),
            "at the same place of two runs": int((a[2 * k : 3 * k] == b[2 * k : 3 * k]).sum()),
        }
        p_values = {where: same_proportion(hits, k, others, k) for where, hits in compared.items()}
        where = min(p_values, key=lambda name: p_values[name])
        p_value = min(1.0, len(p_values) * p_values[where])
        violated = p_value < self.share
        found = f"{compared[where]:,} of {k:,} outputs {where} are equal, of others {others:,}"
        yield Finding(
            "repeats",
            "conduct",
            f"x = {x}: repeated outputs",
            "violation" if violated else "nothing found",
            f"calls are not independent: {found}. They share randomness, or a clock, a counter or "
            f"a salt of a batch is part of the output: leave that out"
            if violated
            else "as in independent calls",
            reports=8 * k,
            p_value=p_value,
            alpha=self.share,
        )


_REPEATS: Final = 2000
_TREES: Final = 4e-6
"""Seconds that the trees take for one output, roughly."""


def _exceptions(caller: Caller) -> Finding:
    """Return that some calls raised an exception, which was counted as an output."""
    name = type(caller.error).__name__
    return Finding(
        "exceptions",
        "conduct",
        f"{caller.calls:,} calls",
        "nothing found",
        f"{caller.raised:,} calls raised an exception ({name}), an output like any other",
    )
