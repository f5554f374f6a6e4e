"""A release as plain facts, the same for people's cards and for ``--json``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from offaxis.errors import InvalidRelease

if TYPE_CHECKING:
    from offaxis.release import Release


def load_release(path: Path, expect: str | None = None) -> Release:
    """Read a release file strictly, and only the one that is expected."""
    from offaxis.release import Release

    if not path.is_file():
        raise InvalidRelease(f"there is no release file {path}; make one with: offaxis fit")
    try:
        return Release.load(path, expect=expect)
    except InvalidRelease as error:
        raise InvalidRelease(f"{path}: {error}") from None


def report_size(release: Release) -> int | None:
    """Return the bytes of one report, or None if the release can only be simulated."""
    return release.report_size if release.randomizer.has_exact_form else None


def guarantee_facts(release: Release) -> dict[str, Any]:
    """Describe the promise in numbers; ε and δ as exact text, p/q or a decimal."""
    from offaxis.privacy.guarantee import RELATION, decimal

    guarantee = release.guarantee
    return {
        "epsilon": decimal(guarantee.epsilon),
        "delta": decimal(guarantee.delta),
        "pure": guarantee.pure,
        "unit": guarantee.unit,
        "relation": RELATION,
        "assumptions": list(guarantee.assumptions),
    }


def describe(release: Release) -> dict[str, Any]:
    """Describe a release."""
    from offaxis.manifest import VERSION
    from offaxis.randomizers import parameters

    origin = release.provenance
    return {
        "release": release.hash,
        "format_version": VERSION,
        "guarantee": guarantee_facts(release),
        "can_report": report_size(release) is not None,
        "report_bytes": report_size(release),
        "can_decode_mean": release.gives_means,
        "input_dim": release.input_dim,
        "encoder": {"kind": release.encoder.kind, "output_dim": release.encoder.output_dim},
        "randomizer": {
            "kind": release.randomizer.kind,
            "parameters": parameters(release.randomizer),
        },
        "decoder": {"kind": release.decoder.kind, "output_dim": release.decoder.output_dim},
        "provenance": {
            "model": vars(origin.model) if origin.model else None,
            "public": vars(origin.public),
            "settings": dict(origin.settings),
            "statement": origin.statement,
        },
    }
