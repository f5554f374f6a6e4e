"""Are reports fresh? The same noise twice is no noise: the difference of two reports is bare."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

from offaxis.audit.forms import is_lattice, is_ranked
from offaxis.audit.low_bits import wire_numbers
from offaxis.audit.result import Finding
from offaxis.audit.support import payloads
from offaxis.errors import InvalidReport
from offaxis.randomizers.box_form import BoxForm
from offaxis.randomizers.directions import NONCE_BYTES
from offaxis.randomizers.piecewise import Piecewise
from offaxis.randomizers.sampled_form import SampledForm
from offaxis.release import Release
from offaxis.vectors import Vectors

_ROWS: Final = 64
_CALLS: Final = 16
_COMPARISONS: Final = 4


def freshness(release: Release, alpha: float, rng: np.random.Generator) -> Finding:
    """Look for randomness that comes back: between calls, between rows of a call, between inputs.

    What must not come back is the noise of a lattice randomizer, the nonce of a ranked one, the
    whole payload of others. A few repetitions happen by chance, and more than chance allows with
    probability ``alpha`` are needed; where chance allows any number of them, nothing is tried.
    """
    tried, chance = "randomness used again", _chance(release.randomizer)
    if binom.isf(alpha / _COMPARISONS, _ROWS - 1, chance) >= _ROWS - 1:
        why = "a report is one of a few, which repeat by chance"
        return Finding("freshness", "conduct", tried, "not run", why)
    try:
        repeated = _repetitions(release, rng.standard_normal((_ROWS, release.input_dim)))
    except InvalidReport as error:
        why = f"the reports cannot be read: {error}"
        return Finding("freshness", "conduct", tried, "not run", why)
    faults = [
        f"{found} of {of} are the same {where}"
        for where, found, of in repeated
        if found > binom.isf(alpha / _COMPARISONS, of, chance)
    ]
    return Finding(
        "freshness",
        "conduct",
        tried,
        "violation" if faults else "nothing found",
        faults[0] if faults else "never",
        reports=3 * _ROWS + _CALLS,
        alpha=alpha,
    )


def _repetitions(release: Release, Z: Vectors) -> list[tuple[str, int, int]]:
    """Return where randomness was compared, how often it was the same, out of how many."""
    once, again = _randomness(release, Z), _randomness(release, Z)
    other = _randomness(release, Z[::-1].copy())
    single = np.concatenate([_randomness(release, Z[:1]) for _ in range(_CALLS)])
    comparisons = {
        "between two calls with the same vectors": (once, again),
        "between two calls with other vectors": (once, other),
        "between rows of one call": (once[1:], once[:-1]),
        "between single calls": (single[1:], single[:-1]),
    }
    return [
        (where, int((a == b).all(axis=1).sum()), len(a)) for where, (a, b) in comparisons.items()
    ]


def _randomness(release: Release, Z: Vectors) -> NDArray[Any]:
    """Return what was random in one report of every row, as far as it can be seen; (n, columns)."""
    drawn = payloads(release, Z)
    if is_lattice(release.randomizer):
        noisy = wire_numbers(release.randomizer, drawn)
        assert noisy is not None
        return noisy - release.randomizer.integers(release.encoder.encode(Z))
    octets = np.frombuffer(b"".join(drawn), dtype=np.uint8).reshape(len(drawn), -1)
    return octets[:, :NONCE_BYTES] if is_ranked(release.randomizer) else octets


def _chance(randomizer: Any) -> float:
    """Return an upper bound on the probability that an honest draw is like a given one."""
    if is_lattice(randomizer):
        # No value of the noise is more likely than half an inverse scale.
        return float(2.0 ** -((randomizer.log2_scale + 1) * min(randomizer.domain.dim, 30)))
    if is_ranked(randomizer):
        return 2.0 ** (-8 * NONCE_BYTES)
    if isinstance(randomizer, SampledForm):
        chosen = math.comb(randomizer.dim, randomizer.sampled)
        if isinstance(randomizer, Piecewise):
            return float(randomizer.near ** float(-randomizer.sampled) / chosen)
        return float(_likeliest(randomizer.share) ** randomizer.sampled / chosen)
    if isinstance(randomizer, BoxForm):
        # A random vector of signs, turned round or not.
        return math.ldexp(_likeliest(randomizer.epsilon), 1 - randomizer.dim)
    return 1.0


def _likeliest(epsilon: Any) -> float:
    """Return e^ε/(e^ε + 1): no payload is likelier, where the opposite vector has an opposite one.

    Pr[t | w] <= e^ε Pr[t | −w] = e^ε Pr[−t | w], and t and −t cannot both be reported.
    """
    return 1 / (1 + math.exp(-float(epsilon)))
