"""The privacy card of a release as data: its guarantee in numbers and in words.

The guarantee is computed from the parameters of the release, never copied from a claim.
"""

from __future__ import annotations

from typing import Any

from offaxis.privacy import wording
from offaxis.privacy.guarantee import RELATION, decimal
from offaxis.randomizers.base import FiniteSet
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


def averages(release: Release) -> str:
    """Say whether reports can be averaged over people."""
    if symbols(release) is not None:
        return "no, but shares of the symbols can be estimated for any population"
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


def card_facts(release: Release) -> dict[str, Any]:
    """Return the whole card."""
    guarantee, provenance = release.guarantee, release.provenance
    word, meaning = wording.strength(guarantee)
    return {
        "release": release.hash,
        "guarantee": guarantee_facts(release),
        "spent": spent(release),
        "strength": word,
        "meaning": meaning,
        "promise": wording.promise(guarantee),
        "beliefs": [
            {"before": before, "at_least": least, "at_most": most}
            for before, least, most in wording.beliefs(guarantee)
        ],
        "allowed": [
            {"answers": answers, "guessing": guessing, "at_most": most}
            for answers, guessing, most in wording.allowed(guarantee)
        ],
        "protected": wording.protected(guarantee),
        "not_promised": wording.not_promised(guarantee),
        "report": {
            "bytes": release.report_size,
            "input_dim": release.input_dim,
            "encoded_dim": release.encoder.output_dim,
            "encoder": release.encoder.kind,
            "randomizer": release.randomizer.kind,
            "symbols": symbols(release),
            "can_decode_mean": release.supports_mean,
            "averages": averages(release),
        },
        "origin": {
            "public_vectors": provenance.public.count,
            "model": provenance.model and provenance.model.name,
            "statement": provenance.statement,
        },
    }
