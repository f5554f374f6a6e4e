"""The result of an audit: one finding per test, and a summary of what was shown."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal

from offaxis.auditing.trials import Count, trials_needed
from offaxis.privacy.guarantee import Guarantee, decimal

Verdict = Literal["nothing found", "violation", "side channel", "not run"]
Group = Literal["white box", "black box", "bytes", "conduct"]

Curve = tuple[tuple[float, float], ...]

CAVEAT: Final = "An audit can find faults; finding none does not show that there are none."


@dataclass(frozen=True)
class Finding:
    """The outcome of one test.

    Attributes
    ----------
    test : str
        A stable name, such as ``worst-pair``.
    group : str
        What the attacker knows: the code ("white box") or the reports alone ("black box"); or what
        is checked: the "bytes" of reports, or the "conduct" of the release.
    tried : str
        What was attacked, in words.
    verdict : str
        ``violation`` contradicts the guarantee. ``side channel`` reveals something about the vector
        by other means than the report, which the guarantee does not cover.
    result : str
        The outcome in words.
    reports : int
        Number of reports used by this test, of both vectors together.
    epsilon, resolution : float or None
        A lower bound on ε, and the largest one that this many reports could have shown.
    shift : float or None
        A lower bound on Δ/σ, if Gaussian noise is claimed.
    p_value : float or None
        Of the hypothesis "no difference", if that was tested.
    alpha : float or None
        An upper bound on the probability that this test alone raises a false alarm.
    count : Count or None
        The event behind the bound or the p-value.
    promised : float or None
        The ε promised for these inputs, if a function was audited.
    inputs : tuple or None
        The two inputs of an audited function.

    Examples
    --------
    >>> from offaxis.auditing import Finding
    >>> finding = Finding("length", "bytes", "hostile vectors", "nothing found", "always 36 bytes")
    >>> finding.verdict, finding.reports, finding.epsilon
    ('nothing found', 0, None)
    """

    test: str
    group: Group
    tried: str
    verdict: Verdict
    result: str
    reports: int = 0
    epsilon: float | None = None
    resolution: float | None = None
    shift: float | None = None
    p_value: float | None = None
    alpha: float | None = None
    count: Count | None = None
    promised: float | None = None
    inputs: tuple[Any, Any] | None = field(default=None, compare=False, repr=False)

    @property
    def evidence(self) -> str:
        """The finding in one line, with the counts behind it."""
        line = f"{self.test} ({self.tried}): {self.result}"
        if self.count is None:
            return line
        c = self.count
        return (
            f"{line}; one set of outputs was seen {c.hits:,} times of {c.trials:,} for one input "
            f"and {c.other_hits:,} times of {c.other_trials:,} for the other"
        )


@dataclass(frozen=True)
class AuditResult:
    """The findings of an audit.

    Attributes
    ----------
    release : str or None
        The hash of the release; None if a function was audited.
    randomizer : str or None
        The kind of its randomizer; None if a function was audited.
    guarantee : Guarantee
        The guarantee that was promised. If ε depends on the inputs: that of the main pair.
    findings : tuple of Finding
    reports : int
        Number of reports drawn in all; several tests may use the same ones.
    false_alarm : float
        An upper bound on the probability that a release which keeps its guarantee is accused, all
        tests together.
    needed : int or None
        The fewest reports in the main test that could contradict ε; None if no feasible number can.
    curve : tuple of (float, float)
        Of the main test: the share of reports of the second and of the first vector beyond a
        threshold, for a range of thresholds.
    seed : str
        Seed of the auditor's choices; reports have none.
    versions : dict
    seconds : float
    target, domain : str or None
        The name of the audited function and the domain of its inputs; None for a release.
    promise : str or None
        The promise in words, for a function.

    Examples
    --------
    >>> from offaxis.auditing import AuditResult, Finding
    >>> from offaxis.privacy.guarantee import Guarantee
    >>> words = ("worst-pair", "white box", "the worst in theory", "nothing found", "ε ≥ 0.912")
    >>> finding = Finding(*words, reports=40_000, epsilon=0.912, resolution=6.7)
    >>> result = AuditResult(  # as audit() returns it
    ...     release="0af1", randomizer="laplace", guarantee=Guarantee(1), findings=(finding,),
    ...     reports=40_000, false_alarm=1e-3, needed=80, curve=(),
    ...     seed="7", versions={}, seconds=9.0,
    ... )
    >>> result.violated
    False
    >>> print(result.summary)
    No violation found at ε = 1 with 40,000 reports; the strongest attack shows ε ≥ 0.91; a run of
    this size could have shown up to ε = 6.70.
    >>> result.facts()["epsilon_at_least"]  # for JSON
    0.912
    """

    release: str | None
    randomizer: str | None
    guarantee: Guarantee
    findings: tuple[Finding, ...]
    reports: int
    false_alarm: float
    needed: int | None
    curve: Curve
    seed: str
    versions: dict[str, str]
    seconds: float
    target: str | None = None
    domain: str | None = None
    promise: str | None = None

    def by_verdict(self, verdict: Verdict) -> list[Finding]:
        """Return the findings with a verdict."""
        return [finding for finding in self.findings if finding.verdict == verdict]

    @property
    def violated(self) -> bool:
        """Whether any finding contradicts the guarantee."""
        return bool(self.by_verdict("violation"))

    @property
    def strongest(self) -> Finding | None:
        """The finding with the largest lower bound on ε, relative to what was promised for it."""
        bounded = [finding for finding in self.findings if finding.epsilon is not None]

        def share(finding: Finding) -> float:
            return (finding.epsilon or 0.0) / max(finding.promised or 1.0, 1e-300)

        return max(bounded, key=share, default=None)

    @property
    def resolution(self) -> float:
        """The largest lower bound on ε that any test of this run could have shown."""
        return max((f.resolution for f in self.findings if f.resolution is not None), default=0.0)

    @property
    def summary(self) -> str:
        """What this run shows about the guarantee, and no more."""
        delta = "" if self.guarantee.pure else f", δ = {decimal(self.guarantee.delta)}"
        promised = self.promise or f"ε = {decimal(self.guarantee.epsilon)}{delta}"
        what = "reports" if self.target is None else "outputs"
        if self.violated:
            names = ", ".join(finding.test for finding in self.by_verdict("violation"))
            return f"Violation found at {promised} by: {names}."
        parts = [f"No violation found at {promised} with {self.reports:,} {what}"]
        if self.strongest is not None:
            parts.append(f"the strongest attack shows ε ≥ {self.strongest.epsilon:.2f}")
        if self.resolution > self.guarantee.epsilon:
            parts.append(f"a run of this size could have shown up to ε = {self.resolution:.2f}")
        else:
            parts.append(self._too_small(promised, what))
        sentence = "; ".join(parts) + "."
        if channels := self.by_verdict("side channel"):
            names = ", ".join(finding.test for finding in channels)
            sentence += f" Besides the reports, a side channel was found: {names}."
        return sentence

    def _too_small(self, promised: str, what: str) -> str:
        could_not = f"this run could not have contradicted {promised}"
        if self.needed is None:
            return f"{could_not}, and no number of reports within reach could"
        return f"{could_not}; run at least {self.needed:,} {what}"

    def facts(self) -> dict[str, Any]:
        """Return plain data under stable names, for JSON."""
        target = {"target": self.target, "domain": self.domain, "promise": self.promise}
        return {
            "release": self.release,
            "randomizer": self.randomizer,
            **({} if self.target is None else target),
            "epsilon": decimal(self.guarantee.epsilon),
            "delta": decimal(self.guarantee.delta),
            "violation": self.violated,
            "summary": self.summary,
            "caveat": CAVEAT,
            "reports": self.reports,
            "epsilon_at_least": None if self.strongest is None else self.strongest.epsilon,
            "resolution": self.resolution,
            "reports_needed": self.needed,
            "false_alarm": self.false_alarm,
            "auditor_seed": self.seed,
            "seconds": self.seconds,
            "versions": self.versions,
            "findings": [_finding_facts(finding) for finding in self.findings],
            "curve": [list(point) for point in self.curve],
        }


def _finding_facts(finding: Finding) -> dict[str, Any]:
    facts = {name: getattr(finding, name) for name in finding.__dataclass_fields__}
    facts |= {"epsilon_at_least": finding.epsilon, "event": None}
    del facts["epsilon"], facts["count"], facts["inputs"]
    if finding.promised is None:
        del facts["promised"]
    if finding.count is not None:
        flat = asdict(finding.count)
        facts["event"] = flat.pop("event") | flat
    return facts


def reports_needed(guarantee: Guarantee, alpha: float) -> int | None:
    """Return how many reports of the main test could contradict ε; a quarter counts per vector."""
    trials = trials_needed(float(guarantee.epsilon), delta=float(guarantee.delta), alpha=alpha / 2)
    return None if trials is None else 4 * trials
