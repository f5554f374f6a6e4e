"""From what a trial counted to what may be said about the promise."""

from __future__ import annotations

from offaxis.audit.plan import Planned
from offaxis.audit.result import Finding, Group
from offaxis.audit.trial import Outcome
from offaxis.privacy.guarantee import Guarantee, decimal
from offaxis.randomizers.gaussian_calibration import noise_scale


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
