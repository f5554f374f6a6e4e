"""Composition: what several reports about one person cost together.

Three bounds. All hold in any order, and also when later vectors depend on earlier reports.

*Sums*: ε and δ add up, as exact fractions. *Filter*: at the price of a small δ, many small budgets
cost less than their sum; they count by their squares. Both hold when a publisher chooses budgets,
and their number, by looking at earlier reports, so a device counts by these (docs/proofs.md §21).

*Privacy loss distributions* (Sommer, Meiser, Mohammadi 2019; Koskela, Jälkö, Honkela 2020; computed
by dp_accounting, which rounds pessimistically) are for a plan that is fixed in advance: the budgets
and their number must not be chosen by looking at earlier reports. An (ε, δ) report is dominated by
randomized response that reveals its input with probability δ.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

from offaxis.errors import InvalidInput, MissingExtra, installing
from offaxis.privacy.guarantee import Guarantee, Number, decimal, exact, exact_delta, exact_epsilon

__all__ = ["Cost", "Limit", "basic", "by_loss_distribution", "filtered_epsilon"]

GRID: Final = 1e-3
"""Grid width for privacy losses. A coarser grid is pessimistic, never optimistic."""

MOST_COMPOSED: Final = 100_000
"""The most reports that are composed by loss distributions; more would take too long."""

_TIMES: Final = (("day", 86_400), ("hour", 3600), ("minute", 60), ("second", 1))


@dataclass(frozen=True)
class Cost:
    """The cost of one report of a release, and the number of reports paid for.

    Attributes
    ----------
    epsilon, delta : Fraction
        The guarantee of one report.
    reports : int

    Examples
    --------
    >>> from offaxis.privacy.composition import Cost
    >>> Cost(0.1, reports=3)
    Cost(epsilon=Fraction(1, 10), delta=Fraction(0, 1), reports=3)
    """

    epsilon: Fraction
    delta: Fraction = Fraction(0)
    reports: int = 1

    if TYPE_CHECKING:  # As for Guarantee: any number, converted in __post_init__.

        def __init__(self, epsilon: Number, delta: Number = 0, reports: int = 1) -> None: ...

    def __post_init__(self) -> None:
        """Convert the guarantee to exact fractions."""
        guarantee = Guarantee(self.epsilon, self.delta)
        object.__setattr__(self, "epsilon", guarantee.epsilon)
        object.__setattr__(self, "delta", guarantee.delta)
        if not isinstance(self.reports, int) or self.reports < 0:
            raise InvalidInput(f"reports must be a whole number of at least 0, got {self.reports}")


@dataclass(frozen=True)
class Limit:
    """A budget for all reports together, for the lifetime of a ledger or per period of time.

    Attributes
    ----------
    epsilon : Fraction
    delta : Fraction
        0 for a pure total.
    seconds : float or None
        None for a lifetime limit. Otherwise the limit holds in any period of this many seconds.
        Such a limit alone does not bound the lifetime total.
    slack : Fraction
        The part of δ that pays for counting many small budgets by a filter. The δ of the reports
        themselves may add up to the rest. With 0, budgets are counted by their sum.

    Examples
    --------
    >>> from offaxis.privacy import Limit
    >>> str(Limit(8)), Limit(1, delta=1e-6, seconds=30 * 86_400).stretch
    ('ε = 8 in all', 'in any 30 days')
    >>> from offaxis.privacy.composition import Cost
    >>> small = [Cost(0.1, reports=400)]  # their sum is 40
    >>> Limit(13, 1e-6).admits(small), Limit(13, 1e-6, slack=1e-6).admits(small)
    (False, True)
    """

    epsilon: Fraction
    delta: Fraction = Fraction(0)
    seconds: float | None = None
    slack: Fraction = Fraction(0)

    if TYPE_CHECKING:  # As for Guarantee: any number, converted in __post_init__.

        def __init__(
            self,
            epsilon: Number,
            delta: Number = 0,
            seconds: float | None = None,
            slack: Number = 0,
        ) -> None: ...

    def __post_init__(self) -> None:
        """Convert the numbers to exact fractions."""
        object.__setattr__(self, "epsilon", exact_epsilon(self.epsilon))
        delta = exact(self.delta, "delta")
        object.__setattr__(self, "delta", exact_delta(delta) if delta else delta)
        if self.seconds is not None and not (
            isinstance(self.seconds, int | float) and 0 < self.seconds < math.inf
        ):
            raise InvalidInput(
                f"seconds must be a positive number, or None for a limit in all, got "
                f"seconds={self.seconds!r}"
            )
        slack = exact(self.slack, "slack")
        object.__setattr__(self, "slack", exact_delta(slack) if slack else slack)
        if self.slack > self.delta:
            raise InvalidInput(
                f"slack is a part of delta, got slack={decimal(self.slack)} of "
                f"delta={decimal(self.delta)}"
            )

    def admits(self, costs: Iterable[Cost]) -> bool:
        """Return whether payments stay within the limit, however each was chosen.

        Σδ is at most δ − slack, and Σε, or ε by the filter at δ = slack, is at most ε.
        """
        costs = list(costs)
        total_epsilon, total_delta = basic(costs)
        if total_delta > self.delta - self.slack:
            return False
        if total_epsilon <= self.epsilon:
            return True
        filtered = filtered_epsilon(costs, self.slack)
        return filtered is not None and filtered <= self.epsilon

    def left(self, costs: Iterable[Cost]) -> Fraction:
        """Return the largest ε of one more pure report that is admitted, rounded down.

        Examples
        --------
        >>> from offaxis.privacy import Limit
        >>> from offaxis.privacy.composition import Cost
        >>> Limit(3).left([Cost(1, reports=2)])
        Fraction(1, 1)
        """
        costs = list(costs)
        total_epsilon, total_delta = basic(costs)
        if total_delta > self.delta - self.slack:
            return Fraction(0)
        left = max(Fraction(0), self.epsilon - total_epsilon)
        if not self.slack or not self.admits(costs):
            return left
        low, high = float_below(left), float_above(self.epsilon)
        while high - low > 1e-9 * high:
            middle = (low + high) / 2
            admitted = self.admits([*costs, Cost(Fraction(middle))])
            low, high = (middle, high) if admitted else (low, middle)
        return max(left, Fraction(low))

    def __str__(self) -> str:
        """Return for example ``ε = 8 in all`` or ``ε = 1, δ = 1e-06 in any 30 days``."""
        tail = f", δ = {decimal(self.delta)}" if self.delta else ""
        return f"ε = {decimal(self.epsilon)}{tail} {self.stretch}"

    @property
    def stretch(self) -> str:
        """The period of the limit: ``in all``, or for example ``in any 30 days``."""
        if self.seconds is None:
            return "in all"
        name, unit = next((n, u) for n, u in _TIMES if self.seconds % u == 0 or u == 1)
        count = self.seconds / unit
        return f"in any {count:.12g} {name}" + ("" if count == 1 else "s")


def basic(costs: Iterable[Cost]) -> tuple[Fraction, Fraction]:
    """Return Σε and Σδ over all reports, exactly.

    Examples
    --------
    >>> from offaxis.privacy.composition import Cost, basic
    >>> basic([Cost(0.1, reports=3), Cost(1, 1e-6)])
    (Fraction(13, 10), Fraction(1, 1000000))
    """
    epsilon = delta = Fraction(0)
    for cost in costs:
        epsilon += cost.reports * cost.epsilon
        delta += cost.reports * cost.delta
    return epsilon, delta


def filtered_epsilon(costs: Iterable[Cost], slack: Fraction) -> Fraction | None:
    """Return ε of all payments at δ = Σδ + slack by the filter, rounded up; None without slack.

    ε-LDP reports are ε²/2-zCDP (Bun, Steinke 2016), and ρ = Σε²/2 adds up even if budgets are
    chosen by looking at earlier reports (Feldman, Zrnic 2021; Whitehouse, Ramdas, Rogers, Wu 2023).
    Then, for every α > 1, ε = αρ + (log((α − 1)^(α−1)/α^α) − log slack)/(α − 1) (Canonne, Kamath,
    Steinke 2020); the least over α is returned. Proof in docs/proofs.md §21.

    Examples
    --------
    >>> from fractions import Fraction
    >>> from offaxis.privacy.composition import Cost, filtered_epsilon
    >>> round(float(filtered_epsilon([Cost(0.1, reports=100)], Fraction(1, 10**6))), 1)
    5.2
    """
    costs = list(costs)
    if not slack:
        return None
    rho = float_above(sum((c.reports * c.epsilon**2 for c in costs), Fraction(0)) / 2)
    if not rho:
        return Fraction(0)
    log_slack = math.log(float_below(slack))

    def epsilon(log_order: float) -> float:
        order = math.exp(log_order)  # α − 1
        constant = order * log_order - (1 + order) * math.log1p(order)
        return (1 + order) * rho + (constant - log_slack) / order

    # The function has one minimum. Any α gives a valid bound, so the search need not be exact.
    low, high = -40.0, 40.0
    for _ in range(200):
        third = (high - low) / 3
        if epsilon(low + third) <= epsilon(high - third):
            high -= third
        else:
            low += third
    # The margin covers the rounding of a few operations on doubles.
    return Fraction(max(0.0, epsilon((low + high) / 2)) * (1 + 1e-12) + 1e-12)


def by_loss_distribution(costs: Iterable[Cost], delta: Any) -> float:
    """Return an ε at which all reports together are (ε, δ), by composing their loss distributions.

    At most a rounding error above the basic Σε where Σδ <= δ, and less for many reports.

    Raises
    ------
    MissingExtra
        If dp-accounting is not installed.

    Examples
    --------
    >>> from offaxis.privacy.composition import Cost, by_loss_distribution
    >>> round(by_loss_distribution([Cost(0.1, reports=100)], delta=1e-6), 1)  # their sum is 10
    4.8
    """
    try:
        from dp_accounting.pld import common, privacy_loss_distribution
    except ImportError:
        raise MissingExtra(
            f"totals by privacy loss distributions need dp-accounting: {installing('accounting')}"
        ) from None
    target = float_below(exact_delta(delta))
    total = privacy_loss_distribution.identity(value_discretization_interval=GRID)
    for cost in costs:
        if not cost.reports:
            continue
        # The dominating pair of every (ε, δ) mechanism: randomized response that reveals its
        # input with probability δ.
        guarantee = common.DifferentialPrivacyParameters(
            float_above(cost.epsilon), float_above(cost.delta)
        )
        per_report = privacy_loss_distribution.from_privacy_parameters(
            guarantee, value_discretization_interval=GRID
        )
        total = total.compose(per_report.self_compose(cost.reports))
    return float(total.get_epsilon_for_delta(target))


def composed_epsilon(costs: Iterable[Cost], delta: Fraction) -> Fraction | None:
    """Return ε of all reports at δ by their loss distributions, or None if it is unknown.

    It is unknown for more than ``MOST_COMPOSED`` reports, where the reports' δ add up to more than
    ``delta``, and where ``delta`` is below the resolution of the composed distribution.

    Raises
    ------
    MissingExtra
        If dp-accounting is not installed.
    """
    costs = list(costs)
    if sum(cost.reports for cost in costs) > MOST_COMPOSED or basic(costs)[1] > delta:
        return None
    epsilon = by_loss_distribution(costs, delta)
    return Fraction(max(epsilon, 0.0)) if math.isfinite(epsilon) else None


def float_above(value: Fraction) -> float:
    """Return a float that is not below the fraction."""
    nearest = float(value)
    return nearest if Fraction(nearest) >= value else math.nextafter(nearest, math.inf)


def float_below(value: Fraction) -> float:
    """Return a float that is not above the fraction, which is not negative."""
    nearest = float(value)
    return nearest if Fraction(nearest) <= value else math.nextafter(nearest, 0.0)
