"""The privacy card of a release as data: its guarantee in numbers and in words.

The guarantee is computed from the parameters of the release, never copied from a claim.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

from scipy.special import ndtr

from offaxis import randomizers
from offaxis.encoding.pairs import PairEncoder
from offaxis.encoding.questions import AnswersEncoder
from offaxis.encoding.second_moments import SecondMomentsEncoder
from offaxis.errors import InvalidInput
from offaxis.privacy import wording
from offaxis.privacy.guarantee import RELATION, decimal
from offaxis.randomizers.base import FiniteSet
from offaxis.randomizers.gaussian import Gaussian
from offaxis.randomizers.memoised import Memoised
from offaxis.randomizers.privunit import RankForm
from offaxis.release import Release


def guarantee_facts(release: Release) -> dict[str, Any]:
    """Return the guarantee in numbers; ε and δ as exact text, p/q or a decimal."""
    guarantee = release.guarantee
    return {
        "epsilon": decimal(guarantee.epsilon),
        "delta": decimal(guarantee.delta),
        "pure": guarantee.pure,
        "unit": guarantee.unit,
        "relation": RELATION,
        "assumptions": list(guarantee.assumptions),
    }


def spent(release: Release) -> dict[str, str]:
    """Return the ε and δ that reports actually spend, rounded up; never more than the guarantee.

    A lattice has whole steps, so its noise may protect slightly better than required.
    """
    randomizer, guarantee = release.randomizer, release.guarantee
    epsilon = getattr(randomizer, "realised_epsilon", guarantee.epsilon)
    delta = getattr(randomizer, "realised_delta", guarantee.delta)
    return {
        "epsilon": wording.at_most(epsilon, guarantee.epsilon),
        "delta": wording.at_most(delta, guarantee.delta),
    }


def loss_above_epsilon(release: Release) -> str | None:
    """Say how likely the privacy loss of a Gaussian report exceeds ε, for the farthest vectors.

    It is larger than δ, which bounds E[(1 − e^{ε−loss})₊] and not this tail. With h = Δ/σ the loss
    is normal with mean h²/2 and variance h², and the lattice moves it by at most h√m/s, which is
    added here: Pr[loss > ε] <= Q(ε/h − h/2 − √m/s) (docs/proofs.md §6). None for other randomizers.
    """
    randomizer = release.randomizer
    if not isinstance(randomizer, Gaussian):
        return None
    h = 2 * randomizer.bound / randomizer.noise_steps
    cell = math.sqrt(randomizer.dim) / randomizer.noise_steps
    tail = float(ndtr(h / 2 - float(randomizer.epsilon) / h + cell))
    return wording.loss_above(tail, randomizer.delta)


def averages(release: Release) -> str:
    """Say whether reports can be averaged over people."""
    if isinstance(release.encoder, PairEncoder):
        return "no, but a model can be learnt from many of them"
    if isinstance(release.encoder, SecondMomentsEncoder):
        return "no, but the mean and covariance of people can be estimated from many of them"
    if symbols(release) is not None:
        what = "answers" if isinstance(release.encoder, AnswersEncoder) else "symbols"
        return f"no, but shares of the {what} can be estimated for any population"
    if not release.supports_mean:
        if isinstance(release.randomizer, RankForm):
            return "no, a report forgets its vector's length"
        return "no, their mean would be biased"
    if release.provenance.model:
        return "yes, of the clipped vectors: accurate along what the model reads, noisy across it"
    return "yes, of the clipped vectors"


def symbols(release: Release) -> int | None:
    """Return the number of symbols that a report chooses from; None if it holds a vector."""
    domain = release.randomizer.domain
    return domain.size if isinstance(domain, FiniteSet) else None


def report_bytes(release: Release) -> int | None:
    """Return the bytes of one report; None if a mechanism of another package makes none."""
    try:
        return release.report_size
    except InvalidInput:
        return None


def card_facts(release: Release) -> dict[str, Any]:
    """Return the whole card."""
    guarantee, provenance = release.guarantee, release.provenance
    about = subject(release)
    word, meaning = wording.strength(guarantee, about)
    return {
        "release": release.hash,
        "guarantee": guarantee_facts(release),
        "spent": spent(release),
        "loss_above_epsilon": loss_above_epsilon(release),
        "about": wording.ABOUT[about],
        "per": "permanent answer" if about == "answer" else guarantee.unit,
        "strength": word,
        "meaning": meaning,
        "promise": wording.promise(guarantee, about),
        "beliefs": [
            {"before": before, "at_least": least, "at_most": most}
            for before, least, most in wording.beliefs(guarantee)
        ],
        "allowed": [
            {"answers": answers, "guessing": guessing, "at_most": most}
            for answers, guessing, most in wording.allowed(guarantee)
        ],
        "sequence": [
            {"compared": compared, "promise": promise}
            for compared, promise in sequence_promises(release)
        ],
        "protected": wording.protected(guarantee, about),
        "not_promised": wording.not_promised(guarantee, about),
        "report": {
            "bytes": report_bytes(release),
            "input_dim": release.input_dim,
            "encoded_dim": release.encoder.output_dim,
            "encoder": release.encoder.kind,
            "randomizer": randomizers.shown(release.randomizer),
            "symbols": symbols(release),
            "answers": [str(part) for part in release.asked],
            "can_decode_mean": release.supports_mean,
            "averages": averages(release),
        },
        "origin": {
            "public_vectors": provenance.public.count,
            "model": provenance.model and provenance.model.name,
            "statement": provenance.statement,
        },
    }


def is_sequence(release: Release) -> bool:
    """Whether the guarantee is one of all reports of a person's sequence together."""
    return isinstance(release.randomizer, Memoised) and release.unit == "user"


def subject(release: Release) -> wording.Subject:
    """Return what the guarantee is about."""
    if not isinstance(release.randomizer, Memoised):
        if isinstance(release.encoder, AnswersEncoder):
            return "answers"
        return "pair" if release.asked else "report"
    return "sequence" if is_sequence(release) else "answer"


def sequence_promises(release: Release) -> list[tuple[str, str]]:
    """Return rows (what is compared, what is promised) for a release of sequences; else no rows.

    Each row compares two histories of one person's vectors. A loss of ε moves the odds between
    them by a factor of at most e^ε. Losses are rounded up.
    """
    randomizer = release.randomizer
    if not isinstance(randomizer, Memoised):
        return []
    epsilon, period, wait = randomizer.epsilon, randomizer.period, randomizer.first_wait

    def loss(value: Fraction | float) -> str:
        return f"ε = {wording.rounded(Fraction(value), up=True)}"

    answers = "permanent answer" if randomizer.draws == 1 else "permanent answers"
    each = "" if randomizer.draws == 1 else " each"
    whole = (
        f"{loss(epsilon * randomizer.draws)}, however many: at most {randomizer.draws} {answers}, "
        f"ε = {decimal(epsilon)}{each}"
        if randomizer.draws
        else f"no limit: permanent answers of ε = {decimal(epsilon)}, one in every period"
    )
    several = min(wait, 30)
    return [
        ("all reports of a person, any two histories", whole),
        (
            f"histories that differ in {wait} consecutive rounds",
            f"{loss(epsilon)}: one permanent answer at most",
        ),
        (
            f"histories that differ in {period} consecutive rounds",
            loss(epsilon * randomizer.draws_within(period)),
        ),
        ("one report, any two histories", loss(randomizer.loss_after(1))),
        (
            f"{several} reports of one answer, any two histories",
            loss(randomizer.loss_after(several)),
        ),
        (
            "a change of the vector",
            "has no effect before the next draw, whose time does not depend on any vector",
        ),
        ("answers are drawn", _schedule(randomizer)),
    ]


def _schedule(randomizer: Memoised) -> str:
    """Say in which rounds of a person permanent answers are drawn."""
    wait, period, draws = randomizer.first_wait, randomizer.period, randomizer.draws
    if draws == 1:
        return "in the first round only"
    last = wait + period - 1
    second = f"in the first round and {wait} to {last} rounds later"
    if draws == 2:
        return second
    if not draws:
        return f"{second}, then every {period} rounds"
    later = (draws - 2) * period
    return (
        f"{second}, then every {period} rounds; the last one {wait + later} to {last + later} "
        f"rounds after the first"
    )
