"""A ledger as plain facts: what was spent, by which count, and what each limit leaves.

Numbers are rounded against the person: what was spent up, what is left down.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

from offaxis.errors import MissingExtra, installing
from offaxis.privacy.composition import Cost, Limit, basic, by_loss_distribution
from offaxis.privacy.guarantee import decimal

if TYPE_CHECKING:
    from offaxis.privacy.ledger import Ledger

MOST_COMPOSED: Final = 100_000
"""More reports are not composed by their loss distributions: it would take too long."""
CHOSEN_BEFOREHAND: Final = "if no release is chosen by looking at earlier reports"


def rounded(value: Fraction, *, up: bool) -> str:
    """Write a number exactly if it is short, else to six digits, rounded up or down."""
    exact = decimal(value)
    if len(exact) <= (5 if "/" in exact else 8):
        return exact
    context = Context(prec=6, rounding=ROUND_CEILING if up else ROUND_FLOOR)
    short = context.divide(Decimal(value.numerator), Decimal(value.denominator))
    return decimal(Fraction(short))


def written_budget(epsilon: Fraction, delta: Fraction, *, up: bool = True) -> str:
    """Write ε, and δ where there is one."""
    tail = f", δ = {rounded(delta, up=up)}" if delta else ""
    return f"ε = {rounded(epsilon, up=up)}{tail}"


def composed(costs: Sequence[Cost], delta: Fraction) -> Fraction | None:
    """Return ε of all reports at δ by their loss distributions; None where there is no figure.

    Raises
    ------
    MissingExtra
        If dp-accounting is not installed.
    """
    if sum(cost.reports for cost in costs) > MOST_COMPOSED or basic(costs)[1] > delta:
        return None
    found = by_loss_distribution(costs, delta)
    return Fraction(max(found, 0.0)) if math.isfinite(found) else None


def by_loss(costs: Sequence[Cost], delta: Fraction) -> tuple[str | None, str | None]:
    """Return ε by loss distributions, or why there is none."""
    try:
        found = composed(costs, delta)
    except MissingExtra:
        return None, f"needs dp-accounting: {installing('accounting')}"
    if found is None:
        # Too many, or their own δ add up to more than is asked for.
        many = sum(cost.reports for cost in costs) > MOST_COMPOSED
        reason = f"more than {MOST_COMPOSED:,} reports" if many else "their own δ is larger"
        return None, f"no figure: {reason}"
    return rounded(found, up=True), None


def loss_words(loss: str | None, why: str | None, delta: Fraction) -> str:
    """Say what :func:`by_loss` found, on which assumption."""
    if loss is None:
        return str(why)
    return f"ε = {loss}, δ = {rounded(delta, up=True)}, {CHOSEN_BEFOREHAND}"


@dataclass(frozen=True)
class Standing:
    """Where a ledger stands under one limit.

    Attributes
    ----------
    limit : Limit
    epsilon, delta : Fraction
        The sums over the limit's stretch of time.
    composed : Fraction or None
        ε at the limit's δ by loss distributions, where the limit has a δ and there is a figure.
    """

    limit: Limit
    epsilon: Fraction
    delta: Fraction
    composed: Fraction | None

    @property
    def left(self) -> Fraction:
        """ε up to the limit, by whichever count is smaller and holds at the limit's δ."""
        counts = [] if self.composed is None else [self.composed]
        if self.delta <= self.limit.delta:
            counts.append(self.epsilon)
        return max(Fraction(0), self.limit.epsilon - min(counts)) if counts else Fraction(0)


def standings(ledger: Ledger) -> list[Standing]:
    """Return where the ledger stands under each of its limits."""
    found = []
    for limit in ledger.limits:
        costs = ledger.within(limit)
        loss = None
        if limit.delta:
            try:
                loss = composed(costs, limit.delta)
            except MissingExtra:
                loss = None
        found.append(Standing(limit, *basic(costs), loss))
    return found


def moment(when: float) -> str:
    """Write a time to the second, in UTC."""
    return datetime.fromtimestamp(when, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def standing_facts(standing: Standing) -> dict[str, Any]:
    """Return a standing for ``--json``; exact numbers as text."""
    limit, loss = standing.limit, standing.composed
    return {
        "epsilon": decimal(limit.epsilon),
        "delta": decimal(limit.delta),
        "seconds": limit.seconds,
        "spent_epsilon": decimal(standing.epsilon),
        "spent_delta": decimal(standing.delta),
        "spent_epsilon_by_loss_distribution": None if loss is None else rounded(loss, up=True),
        "left_epsilon": rounded(standing.left, up=False),
    }
