"""What reports look like from outside: one length, readable, nothing off the declared lattice.

Exact: every report of every vector must look so.
"""

from __future__ import annotations

import time
from collections import Counter

import numpy as np

from offaxis.audit.forms import is_lattice
from offaxis.audit.hostile import hostile
from offaxis.audit.preimages import preimages
from offaxis.audit.result import Finding
from offaxis.encoding import AffineEncoder, ShiftEncoder
from offaxis.errors import InvalidReport
from offaxis.formats import reports as wire
from offaxis.randomizers.domain import Ball
from offaxis.release import Release
from offaxis.vectors import Vectors

_VECTORS = 1000
_EACH = 2
_ROWS = 256


def hostile_inputs(release: Release, count: int, rng: np.random.Generator) -> Vectors:
    """Return inputs of a release whose encodings are hostile vectors, and some that are so raw."""
    domain = release.randomizer.domain
    if isinstance(release.encoder, AffineEncoder | ShiftEncoder):
        ball = domain if isinstance(domain, Ball) else Ball(release.encoder.output_dim, 1.0, 2)
        W = hostile(ball, getattr(release.randomizer, "bound", 1 << 17), count, rng)
        # A linear solver wants numbers that can be multiplied.
        Z = preimages(release.encoder, np.clip(W, -1e100, 1e100))
    else:
        Z = hostile(Ball(release.input_dim, 1.0, 2), 1 << 17, count, rng)
    raw = np.zeros((6, release.input_dim))
    raw[:] = np.array([0.0, -0.0, 5e-324, -1e-310, 1e308, -1e308])[:, None]
    return np.concatenate([Z[np.isfinite(Z).all(axis=1)], raw])


def looks(release: Release, seconds: float, rng: np.random.Generator) -> list[Finding]:
    """Draw reports of hostile vectors and look at their length and their contents."""
    Z = hostile_inputs(release, _VECTORS, rng)
    Z = Z[rng.permutation(len(Z))[: _affordable(release, Z, seconds)]]
    reports: list[bytes] = []
    try:
        for start in range(0, len(Z), _ROWS):
            reports += draw_reports(release, np.repeat(Z[start : start + _ROWS], _EACH, axis=0))
    except InvalidReport as error:
        tried = f"{len(Z):,} hostile vectors, a report for each"
        return [Finding("support", "bytes", tried, "violation", str(error))]
    return [_length(release, reports, len(Z)), _support(release, reports, len(Z))]


def _affordable(release: Release, Z: Vectors, seconds: float) -> int:
    started = time.perf_counter()
    draw_reports(release, Z[:_EACH])
    return max(16, int(seconds / (time.perf_counter() - started)))


def _length(release: Release, reports: list[bytes], vectors: int) -> Finding:
    lengths = Counter(map(len, reports))
    tried = f"{vectors:,} hostile vectors"
    if set(lengths) == {release.report_size}:
        result = f"always {release.report_size:,} bytes"
        return Finding("length", "bytes", tried, "nothing found", result, reports=len(reports))
    shown = ", ".join(f"{size:,}" for size in sorted(lengths)[:4])
    result = f"lengths of {shown} bytes, declared {release.report_size:,}"
    return Finding("length", "bytes", tried, "violation", result, reports=len(reports))


def _support(release: Release, reports: list[bytes], vectors: int) -> Finding:
    randomizer = release.randomizer
    tried = "the same, as declared"
    fault = None
    try:
        observed = np.asarray(release.observe(reports))
    except InvalidReport as error:
        fault = f"its own reader refuses a report: {error}"
    else:
        if observed.dtype.kind == "f" and not np.isfinite(observed).all():
            fault = "an observation is not finite"
        elif is_lattice(randomizer):
            nearest = np.rint(observed / randomizer.step) * randomizer.step
            off = int(np.count_nonzero(nearest != observed))
            if off:
                fault = f"{off:,} of {observed.size:,} numbers lie off the declared lattice"
    if fault is not None:
        return Finding("support", "bytes", tried, "violation", fault)
    what = "all on the lattice" if is_lattice(randomizer) else "all readable"
    return Finding("support", "bytes", tried, "nothing found", what)


def draw_reports(release: Release, vectors: Vectors) -> list[bytes]:
    """Return reports of finite vectors; that there is none is an error of its own."""
    try:
        drawn = release.privatize(vectors)
    except Exception as error:
        raise InvalidReport(f"a finite vector gave no report but {error!r}") from error
    assert isinstance(drawn, list)
    return drawn


def payloads(release: Release, vectors: Vectors) -> list[bytes]:
    """Return reports of finite vectors without the public header."""
    return [report[wire.HEADER_SIZE :] for report in draw_reports(release, vectors)]
