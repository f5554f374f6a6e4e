"""The guarantee of a release in plain words: what it promises and what it does not.

Contract: every sentence here is a claim about the guarantee, and none may say more than the
definition gives. Numbers are rounded against the promise, never in its favour.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from typing import Final, Literal

from offaxis.privacy.guarantee import Guarantee, decimal

_EXACT: Final = Context(prec=60, Emin=-999_999_999, Emax=999_999_999)
_SUPERSCRIPTS: Final = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


# ---- Numbers


def _decimal(value: Fraction) -> Decimal:
    return _EXACT.divide(Decimal(value.numerator), Decimal(value.denominator))


def _significant(value: Decimal, digits: int, rounding: str) -> Decimal:
    return Context(prec=digits, rounding=rounding, Emin=-999_999_999, Emax=999_999_999).plus(value)


def _grouped(value: Decimal) -> str:
    text = f"{value:,f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def large(value: Decimal) -> str:
    """Write a number like 148.5, 22,100 or 1.07 × 10¹³."""
    exponent = value.adjusted()
    if exponent < 7:
        return _grouped(value)
    return f"{_grouped(value.scaleb(-exponent))} × 10{str(exponent).translate(_SUPERSCRIPTS)}"


def odds_factor(epsilon: Fraction) -> str:
    """Return e^ε, rounded up to three digits; below 2, to three digits of e^ε − 1."""
    factor = _EXACT.exp(_decimal(epsilon))
    if factor < 2:
        return _grouped(1 + _significant(factor - 1, 3, ROUND_CEILING))
    return large(_significant(factor, 3, ROUND_CEILING))


def twice_odds_factor(epsilon: Fraction) -> str:
    """Return 2e^ε, rounded up to three digits."""
    return large(_significant(2 * _EXACT.exp(_decimal(epsilon)), 3, ROUND_CEILING))


def _percent(share: Decimal, *, up: bool) -> str:
    """Write a share as a percentage; near 1, the rounded digits are those of 1 − share."""
    rounding, opposite = (ROUND_CEILING, ROUND_FLOOR) if up else (ROUND_FLOOR, ROUND_CEILING)
    percent = 100 * share
    if percent > 50:
        percent = 100 - _significant(100 - percent, 3 if percent < 90 else 2, opposite)
    else:
        percent = _significant(percent, 3, rounding)
    # Beyond four decimals a reader takes it for certainty, so write certainty.
    if up and percent > Decimal("99.9999"):
        return "100 %"
    if not up and percent < Decimal("0.0001"):
        return "0 %"
    return f"{_grouped(percent)} %"


def belief_after(prior: Fraction, epsilon: Fraction) -> tuple[str, str]:
    """Return the least and the most a belief can become after one report of a pure guarantee."""
    p, factor = _decimal(prior), _EXACT.exp(_decimal(epsilon))
    least = _EXACT.divide(p, p + factor * (1 - p))
    most = 1 - _EXACT.divide(1 - p, p * factor + 1 - p)
    return _percent(least, up=False), _percent(most, up=True)


def guess_rate(epsilon: Fraction, delta: Fraction) -> str:
    """Return how often the best guess between two equally likely vectors can be right.

    Any test between two inputs of an (ε, δ) randomizer errs, averaged over both, with probability
    at least (1 − δ)/(1 + e^ε).
    """
    factor = _EXACT.exp(_decimal(epsilon))
    return _percent(1 - _EXACT.divide(1 - _decimal(delta), 1 + factor), up=True)


def answer_rate(answers: int, epsilon: Fraction) -> str:
    """Return how often the right one of k equally likely answers can be guessed from a report.

    1 − (k − 1)/(e^ε + k − 1), for a pure guarantee (docs/proofs.md §15).
    """
    others = answers - 1
    return _percent(1 - _EXACT.divide(others, _EXACT.exp(_decimal(epsilon)) + others), up=True)


def kept(share: float) -> str:
    """Return a share of what is possible as a percentage, rounded down and never above 100."""
    return f"{_grouped(_significant(100 * Decimal(min(share, 1.0)), 3, ROUND_FLOOR))} %"


def at_most(value: Fraction, limit: Fraction) -> str:
    """Write a number up to ``limit``, rounded up to six digits but not beyond the limit."""
    up = Context(prec=6, rounding=ROUND_CEILING)
    rounded = Fraction(up.divide(Decimal(value.numerator), Decimal(value.denominator)))
    return decimal(min(rounded, limit))


def likely(probability: float) -> str:
    """Write a probability, rounded up to two digits."""
    return f"{float(_significant(Decimal(probability), 2, ROUND_CEILING)):.1e}"


def times(probability: float, delta: Fraction) -> str:
    """Return how many times δ a probability is, rounded up to three digits."""
    ratio = _EXACT.divide(Decimal(probability), _decimal(delta))
    return large(_significant(ratio, 3, ROUND_CEILING))


def one_in(delta: Fraction) -> str:
    """Return N of "1 in N", rounded down."""
    return large(_significant(_decimal(1 / delta), 3, ROUND_FLOOR))


# ---- Sentences

PRIORS: Final = (Fraction(1, 1000), Fraction(1, 10), Fraction(1, 2))
"""Beliefs before the report, for the table of a pure guarantee."""

ANSWERS: Final = (2, 10, 100)
"""Numbers of equally likely answers, for the table of how well a report lets them be guessed."""

STRENGTHS: Final = ("strong", "moderate", "weak", "very weak")
_EPSILON_LIMITS: Final = (1, 2, 5)
_DELTA_LIMITS: Final = (Fraction(1, 10**4), Fraction(1, 10**3), Fraction(1, 10**2))
"""Where a promise stops being strong, moderate, weak. No official limits exist; these are ours."""

Subject = Literal["report", "pair", "answers", "sequence", "answer"]
"""What a guarantee is about: one report, of a vector, of a vector and private answers, or of
answers alone; all reports of a person's sequence; or the reports of one permanent answer of a
sequence without end."""

ABOUT: Final[dict[Subject, str]] = {
    "report": "one report",
    "pair": "one report of a vector and its answers",
    "answers": "one report of private answers",
    "sequence": "all reports of a person",
    "answer": "the reports of one permanent answer",
}

_MEANINGS: Final[dict[Subject, tuple[str, ...]]] = {
    "report": (
        "one report by itself tells little about its vector.",
        "one report tells something about its vector, but leaves real doubt.",
        "one report may tell a great deal about its vector. Treat it as sensitive.",
        "one report may all but give its vector away. Treat it as if it were the vector itself.",
    ),
    "sequence": (
        "all reports of a person together tell little about them.",
        "all reports of a person together tell something about them, but leave real doubt.",
        "all reports of a person together may tell a great deal about them. Treat them as "
        "sensitive.",
        "all reports of a person together may all but give their vectors away. Treat them as such.",
    ),
    "answer": (
        "the reports of one permanent answer tell little about its vector. Every further answer "
        "adds to it, without a limit.",
        "the reports of one permanent answer tell something about its vector, but leave real "
        "doubt. Every further answer adds to it, without a limit.",
        "the reports of one permanent answer may tell a great deal about its vector. Treat them as "
        "sensitive.",
        "the reports of one permanent answer may all but give its vector away. Treat them as such.",
    ),
}


def _of(text: str, about: Subject) -> str:
    """Say of pairs or answers what a sentence says of vectors."""
    said = _SAID_OF[about]
    text = text.replace("a vector", f"{'an' if said[0] == 'a' else 'a'} {said}")
    return text.replace("vector", said)


_SAID_OF: Final[dict[Subject, str]] = {"pair": "pair", "answers": "answer"}
"""What sentences about a vector say of instead."""


def strength(guarantee: Guarantee, about: Subject = "report") -> tuple[str, str]:
    """Return a word for the strength of the promise, and what it means."""
    if about in _SAID_OF:
        word, meaning = strength(guarantee)
        return word, _of(meaning, about)
    by_epsilon = sum(guarantee.epsilon > limit for limit in _EPSILON_LIMITS)
    by_delta = sum(guarantee.delta > limit for limit in _DELTA_LIMITS)
    level = max(by_epsilon, by_delta)
    reason = f"With odds that can move by a factor of {odds_factor(guarantee.epsilon)}"
    if not guarantee.pure:
        reason += ", and further in rare reports"
    if by_delta > by_epsilon:
        reason = f"As it may tell everything once in {one_in(guarantee.delta)} reports"
    return STRENGTHS[level], f"{reason}, {_MEANINGS[about][level]}"


def promise(guarantee: Guarantee, about: Subject = "report") -> list[str]:
    """Say what is promised about one report, or about several of a sequence."""
    if about == "pair":
        return [
            "A pair is a vector together with the private answers of the person about it. Both are "
            "hidden by one report under one promise.",
            *(_of(text, about) for text in promise(guarantee)),
        ]
    if about == "answers":
        return [
            "Whatever a person answers to all questions of this release together counts as one "
            "answer here. All of it is hidden by one report under one promise.",
            *(_of(text, about) for text in promise(guarantee)),
        ]
    factor = odds_factor(guarantee.epsilon)
    rate = guess_rate(guarantee.epsilon, guarantee.delta)
    if about == "answer":
        return [
            f"A person reports again and again. The reports are made from permanent answers, one "
            f"in every period, and each of those from one vector by randomizing it. What can be "
            f"learnt from all reports of one permanent answer has a hard limit without exceptions: "
            f"whoever sees them, whatever else they know, the odds of any guess about the vector "
            f"grow or shrink by a factor of at most {factor}. That is e^ε for "
            f"ε = {decimal(guarantee.epsilon)}; a larger ε protects less. All reports of a "
            f"lifetime together have no limit.",
            f"Someone who must guess which of two equally likely vectors an answer came from is "
            f"right at most {rate} of the time. Tossing a coin is right 50 % of the time.",
        ]
    if about == "sequence":
        return [
            f"A person reports again and again. All of these reports are made from a few permanent "
            f"answers, and each of those from one vector by randomizing it. What can be "
            f"learnt from all reports of a person together has a hard limit without exceptions, "
            f"however many there are: whoever sees them, whatever else they know, the odds of any "
            f"guess about the person's vectors grow or shrink by a factor of at most {factor}. "
            f"That is e^ε for ε = {decimal(guarantee.epsilon)}; a larger ε protects less.",
            f"Someone who must guess which of two equally likely histories a person has is right "
            f"at most {rate} of the time. Tossing a coin is right 50 % of the time.",
        ]
    contest = (
        f"Someone who must guess which of two equally likely vectors a report came from is right "
        f"at most {rate} of the time. Tossing a coin is right 50 % of the time."
    )
    if guarantee.pure:
        return [
            f"A report is made from one vector by randomizing it. Any other vector could have "
            f"given the same report, and what can be learnt from it has a hard limit without "
            f"exceptions: whoever sees the report, whatever else they know, the odds of any guess "
            f"about the vector grow or shrink by a factor of at most {factor}. That is e^ε for "
            f"ε = {decimal(guarantee.epsilon)}; a larger ε protects less.",
            contest,
        ]
    return [
        f"A report is made from one vector by randomizing it. What can be learnt from it is "
        f"limited, but not for every report. In most reports the odds of a guess about the vector "
        f"grow or shrink by a factor of at most about {factor}, e^ε for "
        f"ε = {decimal(guarantee.epsilon)}; a larger ε protects less. With probability up to "
        f"δ = {decimal(guarantee.delta)}, once in {one_in(guarantee.delta)} reports, the promise "
        f"rules out nothing, not even that a report tells everything.",
        _exceptions(guarantee),
        contest,
    ]


def _exceptions(guarantee: Guarantee) -> str:
    """Say how often the odds move by more than e^ε, for a guarantee that is not pure.

    Let L be the privacy loss between two hypotheses. δ bounds E[(1 − e^{ε−L})₊], so
    Pr[L > ε + t] <= δ/(1 − e^{−t}) for t > 0, and nothing follows for t = 0. At t = ln 2 the odds
    of what is true grow by more than 2e^ε with probability at most 2δ, and shrink by more with at
    most e^{−ε}δ: together less than 3δ (docs/proofs.md §6).
    """
    text = (
        "δ is not the probability that the odds move by more than e^ε: that can be larger. What "
        "follows from ε and δ together is weaker: "
    )
    often = 3 * guarantee.delta
    if often >= 1:
        return f"{text}for a δ this large, no limit on the odds of most reports."
    return (
        f"{text}the odds grow or shrink by more than {twice_odds_factor(guarantee.epsilon)}, "
        f"twice e^ε, in fewer than 1 in {one_in(often)} reports, which is 3δ."
    )


def loss_above(probability: float, delta: Fraction) -> str:
    """Say how likely the privacy loss exceeds ε, next to δ."""
    ratio = times(probability, delta)
    return f"with probability {likely(probability)}, {ratio} times δ, for the farthest vectors"


def beliefs(guarantee: Guarantee) -> list[tuple[str, str, str]]:
    """Return rows (before, at least, at most) for a pure guarantee; no rows otherwise."""
    if not guarantee.pure:
        return []
    return [
        (f"{decimal(100 * prior)} %", *belief_after(prior, guarantee.epsilon)) for prior in PRIORS
    ]


def allowed(guarantee: Guarantee) -> list[tuple[str, str, str]]:
    """Return rows (answers, by guessing, from a report at most) for a pure guarantee only."""
    if not guarantee.pure:
        return []
    return [
        (str(k), f"{decimal(Fraction(100, k))} %", answer_rate(k, guarantee.epsilon))
        for k in ANSWERS
    ]


def protected(guarantee: Guarantee, about: Subject = "report") -> list[str]:
    """Say to whom the promise is made."""
    if about == "pair" and guarantee.unit == "item":
        return [
            "Each single pair of a vector and its answers, whoever it is about: neither the vector "
            "nor an answer can be told from any other. The promise is made to a pair, not to a "
            "person: n reports of one person have n times ε together (see below)."
        ]
    if about == "answers" and guarantee.unit == "item":
        return [
            "Each single set of answers, whoever it is about. The promise is made to answers, not "
            "to a person: n reports of one person have n times ε together (see below)."
        ]
    if about == "answer":
        return [
            "Each single permanent answer, and so the vector of one round. The promise is not made "
            "to a person: one who takes part for long gives an answer in every period, and these "
            "add up. Limits on the device bound their number in all, or in any stretch of time."
        ]
    if about == "sequence":
        return [
            "Each person, for all their vectors, however they change over time. The promise counts "
            "on one sequence per person and study, kept by one device. The device enforces it; "
            "this file cannot."
        ]
    if guarantee.unit == "user":
        return [
            "Each person, for everything about them that goes into their one report. The promise "
            "counts on every person sending one report in total, ever. This file cannot enforce "
            "that: whoever runs the collection must."
        ]
    return [
        "Each single vector, whoever it is about. The promise is made to a vector, not to a "
        "person: each vector of a person is protected separately, and n reports of one person have "
        "n times ε together (see below)."
    ]


def why_clipped(l1: float, l2: float) -> str:
    """Say what the Lipschitz constants of an encoder mean for its vectors."""
    if l1 == l2 == 1:
        return (
            "Encoding pulls no two vectors apart, but it sets no bound on them either. Every "
            "encoded vector is clipped on the device; the promise rests on that, not on the map."
        )
    return (
        "Encoding can pull two vectors apart by these factors, so a bound they kept before does "
        "not hold after it. Every encoded vector is therefore clipped on the device; the promise "
        "rests on that, not on the map."
    )


def not_promised(guarantee: Guarantee, about: Subject = "report") -> list[str]:
    """Say what nobody should read into the promise."""
    twice, often = (odds_factor(k * guarantee.epsilon) for k in (2, 10))
    failures = "" if guarantee.pure else ", and by more in rare reports: their δ add up too"
    if about == "answers":
        return [
            *(_of(text, about) for text in not_promised(guarantee)[:-3]),
            "It does not stop anybody from sending invented reports.",
            not_promised(guarantee)[-1],
        ]
    if about == "pair":
        return [
            *not_promised(guarantee)[:-2],
            "It does not stop anybody from sending invented reports.",
            "It does not hide the model that is learnt from many reports: that is what they are "
            "for.",
            not_promised(guarantee)[-1],
        ]
    several = {
        "report": f"Reports about the same person add up. Two of them can move the odds by a "
        f"factor of {twice}, ten of them by {often}{failures}. Making a second report of the same "
        f"vector costs as much as the first.",
        "sequence": f"Sequences about the same person add up. A second one lets the odds move by a "
        f"factor of {twice}: on another device, in another study, after a lost state or a restored "
        f"backup, or on a new device to which the file was not moved.",
        "answer": f"Permanent answers of the same person add up. Two of them can move the odds by "
        f"a factor of {twice}, ten of them by {often}.",
    }[about]
    secret = [
        "It does not protect against whoever reads the device's own file, which holds the "
        "permanent answer that years of reports would reveal."
    ]
    return [
        several,
        *(secret if about != "report" else []),
        "It does not hide that somebody took part, when, from where, or how often, nor anything "
        "sent alongside a report, such as a name, an address or a label.",
        "It does not keep secret what many reports say together. Learning about a group, and so "
        "about what is likely for its members, is what reports are for.",
        "It does not protect against a device that is compromised or software that sends the "
        "vector elsewhere, nor against what is measured from outside while a report is made: "
        "time, power, memory.",
        "It does not protect the public data and the public model this release was fitted to.",
        "It does not say that a decoded vector is right: it was randomized, and may be far off. "
        "It does not stop anybody from sending invented reports.",
        "It is a mathematical statement, not a legal one. Whether reports count as anonymous or "
        "as personal data is for the law to say; this card does not say it.",
    ]


# ---- Utility

MEAN_OVER: Final = 1_000
"""Number of people that the expected error of a mean is stated for."""

PLUG_IN: Final = "That limit is a plug-in estimate from the public vectors, which tends to be"
"""The start of the sentence that follows every stated limit; the side to which it errs ends it."""


def utility(settings: Mapping[str, str | float], has_model: bool) -> str:
    """Say what a release is expected to keep and the most that any report could, as recorded."""
    expected, ceiling = settings.get("expected"), settings.get("ceiling")
    if not isinstance(expected, float) or not isinstance(ceiling, float):
        return (
            "What this release keeps was not measured when it was fitted: use "
            "offaxis.evaluation.evaluate, or offaxis.recommend to compare releases."
        )
    if settings.get("goal") == "means":
        return (
            f"A mean over {MEAN_OVER:,} people is expected to have a squared error of "
            f"{expected:.3g} times the variance of one person, for people like the public "
            f"vectors. No unbiased report of this ε leaves less than {ceiling:.3g}; "
            f"offaxis.recommend compares other releases. {PLUG_IN} too low."
        )
    scalar = settings.get("mechanism") == "scalar-response"
    what = "the variance of the model's answer" if scalar else "the model's answers"
    if settings.get("goal") == "vectors":
        what = f"the variance of the vectors{' in the metric of the model' if has_model else ''}"
    words = (
        f"Expected to keep {100 * expected:.1f} % of {what}, for people like the public "
        f"vectors. On average over such people, no report of this ε keeps more"
    )
    if expected >= ceiling - 0.001:
        return f"{words}. {PLUG_IN} too high."
    limit = f"than {100 * ceiling:.1f} %"
    return f"{words} {limit}; offaxis.recommend compares other releases. {PLUG_IN} too high."


# ---- Budgets, rounded against the person: what was spent up, what is left down


def rounded(value: Fraction, *, up: bool) -> str:
    """Write a number exactly if that is short, else to six digits, rounded up or down."""
    exact = decimal(value)
    if len(exact) <= (5 if "/" in exact else 8):
        return exact
    context = Context(prec=6, rounding=ROUND_CEILING if up else ROUND_FLOOR)
    short = context.divide(Decimal(value.numerator), Decimal(value.denominator))
    return decimal(Fraction(short))


def written_budget(epsilon: Fraction, delta: Fraction, *, up: bool = True) -> str:
    """Write ε, and δ if it is not 0."""
    tail = f", δ = {rounded(delta, up=up)}" if delta else ""
    return f"ε = {rounded(epsilon, up=up)}{tail}"
