"""What stands before the noise: bounded integers, or a fixed number of near directions.

Exact: a single vector that breaks the bound contradicts the guarantee, whatever the noise does.
"""

from __future__ import annotations

import gc
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import mannwhitneyu

from offaxis.audit.inputs import (
    Pair,
    Ranked,
    coarse_forms,
    hostile,
    is_lattice,
    is_ranked,
    preimages,
)
from offaxis.audit.result import Finding
from offaxis.encoding import AffineEncoder, ShiftEncoder
from offaxis.errors import InvalidInput, InvalidReport
from offaxis.formats import reports as wire
from offaxis.randomizers import Randomizer
from offaxis.randomizers.base import BOX_BOUND, Ball, FiniteSet
from offaxis.randomizers.box import BoxForm
from offaxis.randomizers.directions import NONCE_BYTES
from offaxis.randomizers.symbols import SymbolForm
from offaxis.release import Release
from offaxis.sampling.entropy import Entropy
from offaxis.vectors import Vectors

_VECTORS = 4000
_ROWS = 64


def front_end(randomizer: Randomizer, rng: np.random.Generator) -> Finding:
    """Try the front end of a randomizer on hostile vectors."""
    if is_lattice(randomizer):
        return _integers(randomizer, rng)
    if is_ranked(randomizer):
        return _near(randomizer, rng)
    if isinstance(randomizer, BoxForm):
        return _coordinates(randomizer, rng)
    if isinstance(randomizer, SymbolForm):
        return _symbols(randomizer, rng)
    return Finding(
        "front-end",
        "white box",
        "what stands before the noise",
        "not run",
        f"the auditor does not know the front end of {randomizer.kind!r}",
    )


def size(integers: list[int], order: int) -> int:
    """Return Σ|n| or Σn² in exact integers."""
    return sum(map(abs, integers)) if order == 1 else sum(n * n for n in integers)


def _integers(randomizer: Any, rng: np.random.Generator) -> Finding:
    """Check Σ|n| <= R, or Σn² <= R², on the lattice as it is and on coarse ones."""
    order = randomizer.domain.order
    norm = "Σ|n| ≤ R" if order == 1 else "Σn² ≤ R²"
    tried, broken, worst = 0, 0, 0.0
    lattices: list[Any] = [randomizer, *coarse_forms(randomizer)]
    for form in lattices:
        vectors = hostile(form.domain, form.bound, _VECTORS, rng)
        sizes = [size(row, order) for row in _lattice_points(form, vectors)]
        over = [found for found in sizes if found > form.bound**order]
        tried, broken = tried + len(sizes), broken + len(over)
        if over:
            worst = max(worst, (max(over) / form.bound**order) ** (1 / order))
    words = f"{norm}, {tried:,} vectors"
    if broken:
        result = f"{broken:,} vectors leave the ball, one to {worst:.3g} times the bound"
        return Finding("front-end", "white box", words, "violation", result)
    return Finding("front-end", "white box", words, "nothing found", "all within")


def _coordinates(randomizer: BoxForm, rng: np.random.Generator) -> Finding:
    """Check |n| <= R in every coordinate."""
    ball = Ball(randomizer.dim, randomizer.radius, 2)
    vectors = hostile(ball, BOX_BOUND, _VECTORS, rng)
    points = _lattice_points(randomizer, vectors)
    broken = sum(max(map(abs, row)) > BOX_BOUND for row in points)
    words = f"|n| ≤ R, {len(points):,} vectors"
    if broken:
        result = f"{broken:,} vectors leave the box"
        return Finding("front-end", "white box", words, "violation", result)
    return Finding("front-end", "white box", words, "nothing found", "all within")


def _symbols(randomizer: Any, rng: np.random.Generator) -> Finding:
    """Check that every payload names as many symbols as it must, whatever the own one is."""
    own = rng.integers(0, randomizer.size, _VECTORS // _ROWS)
    words = f"{randomizer.named} named, {own.size:,} symbols"
    try:
        counts = (randomizer.read(randomizer.report(own, Entropy())) > 0).sum(axis=1)
    except InvalidReport as error:
        return Finding("front-end", "white box", words, "violation", str(error))
    broken = int((counts != randomizer.named).sum())
    if broken:
        result = f"{broken:,} payloads name another number of symbols"
        return Finding("front-end", "white box", words, "violation", result)
    return Finding("front-end", "white box", words, "nothing found", "never another number")


def _lattice_points(form: Any, vectors: Vectors) -> list[list[int]]:
    with np.errstate(all="ignore"):
        rows: list[list[int]] = form.integers(vectors).tolist()
    return rows


def _near(randomizer: Ranked, rng: np.random.Generator) -> Finding:
    """Check that exactly ``near`` distinct directions are near, whatever the vector."""
    vectors = hostile(Ball(randomizer.dim, 1.0, 2), 1 << 20, _VECTORS // _ROWS, rng)
    broken, entropy = 0, Entropy()
    for start in range(0, len(vectors), _ROWS):
        part = vectors[start : start + _ROWS]
        nonces = entropy.words(len(part) * NONCE_BYTES // 2).view(np.uint8)
        with np.errstate(all="ignore"):
            found = randomizer.nearest(part, nonces.reshape(-1, NONCE_BYTES).copy())
        broken += sum(
            len(row) != randomizer.near
            or len(set(row)) != randomizer.near
            or min(row) < 0
            or max(row) >= randomizer.directions
            for row in found.tolist()
        )
    words = f"{randomizer.near} near, {len(vectors):,} vectors"
    if broken:
        result = f"{broken:,} vectors have another number of near directions"
        return Finding("front-end", "white box", words, "violation", result)
    return Finding("front-end", "white box", words, "nothing found", "never another number")


# ----------------------------------------------------------------------------
# Inputs that must be refused, and odd ones that must not be.
#
# NaN that passes through is a report without noise. A device that fails for some finite vectors,
# but not for others, tells which it holds.


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


# ----------------------------------------------------------------------------
# Does the time a report takes depend on its vector? A side channel: the promise is about bytes.
#
# The order of the calls is drawn at random, so if time does not depend on the vector, any drift of
# the machine falls on both alike and the ranks of the times are a random labelling: the rank test
# (Mann and Whitney 1947) keeps its false-alarm rate however noisy the machine is.

_WARM_UP = 6
LEAST = 25


def timing(
    release: Release,
    pair: Pair,
    calls: int,
    seconds: float,
    *,
    alpha: float,
    rng: np.random.Generator,
) -> Finding:
    """Time single reports of two vectors in random order and compare the two samples.

    ``calls`` of each vector, or as many as fit the seconds.
    """
    vectors = np.stack([pair.first, pair.second])
    name = f"timing-{pair.name}"
    try:
        cost = _times(release, vectors, np.arange(_WARM_UP) % 2).mean() / 1e9
        calls = max(LEAST, min(calls, int(seconds / cost / 2)))
        order = rng.permutation(np.repeat([0, 1], calls))
        taken = _times(release, vectors, order)
    except Exception as error:
        why = f"a vector gave no report but {error!r}"
        return Finding(name, "conduct", pair.words, "not run", why)
    first, second = taken[order == 0], taken[order == 1]
    p_value = float(mannwhitneyu(first, second, method="asymptotic").pvalue)
    gap = float(np.median(first) - np.median(second)) / 1e3
    result = f"medians differ by {abs(gap):.1f} µs of {np.median(taken) / 1e3:,.0f}"
    found = p_value < alpha
    return Finding(
        name,
        "conduct",
        pair.words,
        "side channel" if found else "nothing found",
        result if found else f"{abs(gap):.1f} µs, by chance",
        reports=2 * calls + _WARM_UP,
        p_value=p_value,
        alpha=alpha,
    )


def _times(
    release: Release, vectors: NDArray[np.float64], order: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return nanoseconds a call; always from the same memory, without the garbage collector."""
    buffer = vectors[0].copy()
    taken = np.empty(len(order))
    collecting = gc.isenabled()
    gc.disable()
    try:
        for call, side in enumerate(order):
            buffer[:] = vectors[side]
            started = time.perf_counter_ns()
            release.privatize(buffer)
            taken[call] = time.perf_counter_ns() - started
    finally:
        if collecting:
            gc.enable()
    return taken


# ----------------------------------------------------------------------------
# What reports look like from outside: one length, readable, nothing off the declared lattice.
#
# Exact: every report of every vector must look so.

_HOSTILE_VECTORS = 1000
_EACH = 2
_REPORT_ROWS = 256


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
    Z = hostile_inputs(release, _HOSTILE_VECTORS, rng)
    Z = Z[rng.permutation(len(Z))[: _affordable(release, Z, seconds)]]
    reports: list[bytes] = []
    try:
        for start in range(0, len(Z), _REPORT_ROWS):
            reports += draw_reports(
                release, np.repeat(Z[start : start + _REPORT_ROWS], _EACH, axis=0)
            )
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
