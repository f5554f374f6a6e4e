"""The leak passport: what attacks found out, beside chance and what ε allows at most."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal

from offaxis.leakage.channels import RELEASE
from offaxis.privacy.guarantee import Guarantee, decimal
from offaxis.privacy.wording import Subject

Measure = Literal["success", "explained"]

CAVEAT: Final = (
    "The bounds are proved; the attacks are examples. A better attack may come closer to a bound, "
    "but none exceeds it while the assumptions hold."
)

_MEANT: Final[dict[str, str]] = {
    "success": "share of right guesses",
    "explained": "share of the variance explained",
}


@dataclass(frozen=True)
class Leak:
    """One attack on one source: what it achieved, by chance, and at most.

    Attributes
    ----------
    attack : str
        A stable name, such as ``membership``.
    setting : str
        How it was run, in words.
    source : str
        ``release``, or a control: ``no privacy``, ``float noise`` or ``no clipping``.
    measure : {"success", "explained"}
        The share of right guesses, or the share of the variance that estimates explain.
    value : float
    low, high : float
        Exact limits; each is wrong with probability at most ``alpha``.
    alpha : float
    trials : int
    chance : float
        The value without a report.
    bound : float or None
        What the guarantee allows at most; None if nothing is proved.
    basis : str
        The bound as a formula.
    law : str
        Whether reports were exact, simulated in floating point, or of a control.
    cosine : float or None
        Mean cosine of estimated and real vectors about the public mean.

    Examples
    --------
    >>> from offaxis.leakage import Leak
    >>> leak = Leak("membership", "one person or another", "release", "success", 0.61, 0.57, 0.65,
    ...             1e-5, 2000, chance=0.5, bound=0.73, basis="e^ε/(e^ε + 1)", law="exact")
    >>> leak.exceeds, round(leak.spent, 2)  # less than half of what ε allows beyond chance
    (False, 0.48)
    """

    attack: str
    setting: str
    source: str
    measure: Measure
    value: float
    low: float
    high: float
    alpha: float
    trials: int
    chance: float
    bound: float | None
    basis: str
    law: str
    cosine: float | None = None

    @property
    def exceeds(self) -> bool:
        """Whether the lower limit is above the bound."""
        return self.bound is not None and self.low > self.bound

    @property
    def spent(self) -> float | None:
        """The share of the way from chance to the bound; None without a bound."""
        if self.bound is None or self.bound <= self.chance:
            return None
        return (self.value - self.chance) / (self.bound - self.chance)

    @property
    def shown(self) -> float:
        """The share of the way from chance to the bound that the lower limit shows; 0 if none."""
        if self.bound is None or self.bound <= self.chance:
            return 0.0
        return max(0.0, (self.low - self.chance) / (self.bound - self.chance))

    def facts(self) -> dict[str, Any]:
        """Return plain data under stable names, for JSON."""
        return asdict(self) | {"exceeds": self.exceeds, "spent": self.spent, "shown": self.shown}


@dataclass(frozen=True, repr=False)
class LeakPassport:
    """What attacks found out about people from reports of a release.

    Attributes
    ----------
    release : str
        The hash of the release.
    randomizer : str
    guarantee : Guarantee
        What the release promises.
    report : Guarantee
        What one report promises: the same, unless the release is of sequences.
    leaks : tuple of Leak
        The release first, then the controls.
    not_run : mapping
        Attacks that were not run, each with the reason.
    known, people : int
        Number of public vectors that the attacker knows, and of those that are attacked.
    split : str
        How the public vectors were divided.
    labels : str
        What the sensitive attribute is.
    about : str
        What the guarantee is about, as in :mod:`offaxis.privacy.wording`.
    false_alarm : float
        The probability that any leak of a release that keeps its guarantee is said to exceed its
        bound, all together, at most.
    seed : int
        Of the attacker's choices and of simulated reports. Exact reports take none.
    versions : dict
    date : str
    seconds : float

    Examples
    --------
    >>> import offaxis
    >>> rng = np.random.default_rng(0)
    >>> public = rng.standard_normal((400, 3))
    >>> release = offaxis.fit(np.eye(3), public, epsilon=1)
    >>> passport = offaxis.passport(release, public, trials=400, controls=False)
    >>> passport.exceeded
    ()
    >>> passport.strongest.attack
    'nearest candidate'
    """

    release: str
    randomizer: str
    guarantee: Guarantee
    report: Guarantee
    leaks: tuple[Leak, ...]
    not_run: Mapping[str, str]
    known: int
    people: int
    split: str
    labels: str
    about: Subject
    false_alarm: float
    seed: int
    versions: dict[str, str] = field(default_factory=dict)
    date: str = ""
    seconds: float = 0.0

    @property
    def of_release(self) -> tuple[Leak, ...]:
        """The leaks of the release itself."""
        return tuple(leak for leak in self.leaks if leak.source == RELEASE)

    @property
    def of_controls(self) -> tuple[Leak, ...]:
        """The leaks of what people would send without the release."""
        return tuple(leak for leak in self.leaks if leak.source != RELEASE)

    def beside(self, leak: Leak) -> dict[str, Leak]:
        """Return the same attack in the same setting on the controls, by source."""
        return {
            other.source: other
            for other in self.of_controls
            if (other.attack, other.setting) == (leak.attack, leak.setting)
        }

    @property
    def exceeded(self) -> tuple[Leak, ...]:
        """The leaks of the release above their bound: the release breaks its promise."""
        return tuple(leak for leak in self.of_release if leak.exceeds)

    @property
    def strongest(self) -> Leak | None:
        """The leak of the release that is shown to come closest to its bound, from chance."""
        judged = [leak for leak in self.of_release if leak.spent is not None]
        return max(judged, key=lambda leak: (leak.shown, leak.spent or 0.0), default=None)

    @property
    def summary(self) -> str:
        """What this run shows, and no more."""
        promised = str(self.guarantee)
        if self.exceeded:
            named = ", ".join(f"{leak.attack} ({leak.setting})" for leak in self.exceeded)
            return f"Beyond what {promised} allows: {named}."
        judged = sum(leak.bound is not None for leak in self.of_release)
        text = f"No attack of {judged} exceeds what {promised} allows"
        best = self.strongest
        if best is not None and best.bound is not None:
            text += (
                f"; the strongest, {best.attack} ({best.setting}), is shown to reach "
                f"{100 * best.low:.1f} % (measured {100 * best.value:.1f} %) where "
                f"{100 * best.bound:.1f} % is the most and {100 * best.chance:.1f} % is chance"
            )
        broken = sorted({leak.source for leak in self.of_controls if leak.exceeds})
        if broken:
            text += f". The same attacks exceed these bounds on: {', '.join(broken)}"
        if not any(leak.law == "exact" for leak in self.of_release):
            text += ". All reports were simulated: the code that makes real ones was not attacked"
        return text + "."

    def __repr__(self) -> str:
        """Return for example ``LeakPassport(ε = 1, pure, 21 attacks, none exceeds its bound)``."""
        count = len(self.exceeded)
        verdict = f"{count} exceed their bounds" if count else "none exceeds its bound"
        return f"LeakPassport({self.guarantee}, {len(self.of_release)} attacks, {verdict})"

    def facts(self) -> dict[str, Any]:
        """Return plain data under stable names, for JSON."""
        return {
            "release": self.release,
            "randomizer": self.randomizer,
            "epsilon": decimal(self.guarantee.epsilon),
            "delta": decimal(self.guarantee.delta),
            "unit": self.guarantee.unit,
            "about": self.about,
            "report_epsilon": decimal(self.report.epsilon),
            "exceeded": bool(self.exceeded),
            "summary": self.summary,
            "caveat": CAVEAT,
            "false_alarm": self.false_alarm,
            "known": self.known,
            "people": self.people,
            "split": self.split,
            "labels": self.labels,
            "seed": self.seed,
            "date": self.date,
            "seconds": self.seconds,
            "versions": self.versions,
            "measures": _MEANT,
            "leaks": [leak.facts() for leak in self.leaks],
            "not_run": dict(self.not_run),
        }
