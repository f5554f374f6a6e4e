"""A release as plain facts, the same for people's cards and for ``--json``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from offaxis.release import Release


def allowed(release: Release) -> dict[str, float] | None:
    """Return how often one of 2, 10, 100 equally likely answers is guessed at most, by number.

    None where the promise is not pure. The shares that answers really have are not in the file.
    """
    from offaxis.privacy.wording import ANSWERS
    from offaxis.theory.ceiling import agreement_ceiling

    if not release.guarantee.pure:
        return None
    epsilon = release.guarantee.epsilon
    return {str(k): agreement_ceiling([1.0] * k, epsilon).probability for k in ANSWERS}


def direction_facts(release: Release) -> dict[str, Any] | None:
    """Describe what finitely many directions keep of the ideal report; None if it names none."""
    from offaxis.randomizers.rank_form import RankForm

    randomizer = release.randomizer
    if not isinstance(randomizer, RankForm):
        return None
    return {
        "count": randomizer.directions,
        "near": randomizer.near,
        "kept_correlation": min(1.0, randomizer.mean / randomizer.ideal_mean),
    }


def stretch_facts(release: Release) -> dict[str, float] | None:
    """Return how far encoding can pull two vectors apart; None if its map is not affine."""
    from offaxis.errors import InvalidInput
    from offaxis.theory import amplification

    try:
        found = amplification(release)
    except InvalidInput:
        return None
    return {"l1": found.l1, "l2": found.l2}


def describe(release: Release) -> dict[str, Any]:
    """Describe a release."""
    from offaxis.card import guarantee_facts, spent
    from offaxis.formats.manifest import VERSION
    from offaxis.randomizers import parameters

    origin = release.provenance
    return {
        "release": release.hash,
        "format_version": VERSION,
        "guarantee": guarantee_facts(release),
        "spent": spent(release),
        "allowed_if_equally_likely": allowed(release),
        "report_bytes": release.report_size,
        "can_decode_mean": release.gives_means,
        "input_dim": release.input_dim,
        "encoder": {"kind": release.encoder.kind, "output_dim": release.encoder.output_dim},
        "stretch": stretch_facts(release),
        "randomizer": {
            "kind": release.randomizer.kind,
            "parameters": parameters(release.randomizer),
            "directions": direction_facts(release),
        },
        "decoder": {"kind": release.decoder.kind, "output_dim": release.decoder.output_dim},
        "provenance": {
            "model": vars(origin.model) if origin.model else None,
            "public": vars(origin.public),
            "settings": dict(origin.settings),
            "statement": origin.statement,
        },
    }
