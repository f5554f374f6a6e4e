"""Inputs that must be refused, and odd ones that must not be.

NaN that passes through is a report without noise. A device that fails for some finite vectors, but
not for others, tells which it holds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from offaxis.audit.result import Finding
from offaxis.errors import InvalidInput
from offaxis.randomizers.domain import FiniteSet
from offaxis.release import Release
from offaxis.sampling.entropy import Entropy


def refusals(release: Release) -> Finding:
    """Give a release, and its randomizer alone, what they must refuse and what they must take."""
    bad, odd = _bad(release.input_dim), _odd(release.input_dim)
    domain = release.randomizer.domain
    alone = _no_symbols(domain) if isinstance(domain, FiniteSet) else _not_finite(domain.dim)

    def randomize(w: Any) -> object:
        return release.randomizer.report(w[None], Entropy())

    tests: list[tuple[str, Callable[[Any], object], Any]] = [
        (f"{name}, given to the release,", release.privatize, z) for name, z in bad.items()
    ]
    tests += [(f"{name}, given to the randomizer,", randomize, w) for name, w in alone.items()]
    faults = [f"{name} {fault}" for name, call, z in tests if (fault := _not_refused(call, z))]
    faults += [f"{name} {fault}" for name, z in odd.items() if (fault := _not_taken(release, z))]
    tried = f"{len(tests)} bad and {len(odd)} odd ones"
    if faults:
        return Finding("hostile-input", "conduct", tried, "violation", "; ".join(faults[:4]))
    return Finding(
        "hostile-input", "conduct", tried, "nothing found", "refused and taken", reports=len(odd)
    )


def _not_finite(dim: int) -> dict[str, Any]:
    """Return what is not finite, alone and among good numbers."""
    found: dict[str, Any] = {}
    for name, value in (("NaN", np.nan), ("infinity", np.inf), ("−infinity", -np.inf)):
        one = np.zeros(dim)
        one[-1] = value
        found |= {f"one {name}": one, f"nothing but {name}": np.full(dim, value)}
    return found


def _no_symbols(domain: FiniteSet) -> dict[str, Any]:
    """Return what is none of the symbols."""
    return {
        "the symbol −1": np.array(-1),
        "a symbol too large": np.array(domain.size),
        "a symbol with a fraction": np.array(0.5),
        "NaN": np.array(np.nan),
        "a truth value": np.array(True),
    }


def _bad(dim: int) -> dict[str, Any]:
    return _not_finite(dim) | {
        "a vector too long": np.zeros(dim + 1),
        "a vector too short": np.zeros(dim - 1),
        "an empty batch": np.zeros((0, dim)),
        "an array of objects": np.zeros(dim, dtype=object),
        "an array of text": np.full(dim, "1"),
    }


def _odd(dim: int) -> dict[str, Any]:
    return {
        "zero": np.zeros(dim),
        "minus zero": np.full(dim, -0.0),
        "the smallest number": np.full(dim, 5e-324),
        "a denormal number": np.full(dim, -1e-310),
        "1e308": np.full(dim, 1e308),
        "float32": np.full(dim, np.finfo(np.float32).max, dtype=np.float32),
        "float16": np.full(dim, 65504, dtype=np.float16),
        "integers": np.full(dim, -(2**62), dtype=np.int64),
        "bytes": np.full(dim, 255, dtype=np.uint8),
    }


def _not_refused(call: Callable[[Any], object], z: Any) -> str | None:
    """Return what is wrong with the answer to an input that must be refused, if anything."""
    try:
        with np.errstate(all="ignore"):
            call(z)
    except InvalidInput:
        return None
    except Exception as error:
        return f"raises {type(error).__name__} in place of InvalidInput"
    return "gives a report"


def _not_taken(release: Release, z: Any) -> str | None:
    """Return what is wrong with the report of an odd vector, if anything."""
    try:
        report = release.privatize(z)
    except Exception as error:
        return f"gives no report but {type(error).__name__}"
    if not isinstance(report, bytes):
        return f"gives a {type(report).__name__}"
    if len(report) != release.report_size:
        return f"gives {len(report)} bytes in place of {release.report_size}"
    return None
