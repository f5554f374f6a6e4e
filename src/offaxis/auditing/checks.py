"""Checks of a release that are not attacks on a pair: front end, inputs, bytes, freshness, time.

The checks of the front end, of inputs and of the bytes are exact: one vector that fails contradicts
the guarantee, and chance cannot raise a false alarm. Freshness and timing are tests with a stated
false-alarm rate.
"""

from __future__ import annotations

import gc
import math
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom, mannwhitneyu

from offaxis.auditing.attacks import wire_numbers
from offaxis.auditing.inputs import (
    Pair,
    Ranked,
    coarse_forms,
    draw_payloads,
    draw_reports,
    hostile,
    is_lattice,
    is_ranked,
    make_reports,
    power_sum,
    preimages,
)
from offaxis.auditing.result import Finding
from offaxis.client.sequences import Sequence, next_reports
from offaxis.encoding import AffineEncoder, ShiftEncoder
from offaxis.errors import InvalidInput, InvalidReport
from offaxis.formats import reports as wire
from offaxis.randomizers import Randomizer
from offaxis.randomizers.base import BOX_BOUND, Ball, FiniteSet
from offaxis.randomizers.box import BoxForm, Piecewise, SampledForm
from offaxis.randomizers.directions import NONCE_BYTES
from offaxis.randomizers.hashing import POINTS, LocalHashing
from offaxis.randomizers.memoised import OLDEST, Memoised, MemoisedPrivUnit2
from offaxis.randomizers.symbols import SetForm
from offaxis.release import Release
from offaxis.sampling.entropy import Entropy
from offaxis.vectors import Vectors

# ---- Front end: the bounded integers, or the fixed number of directions, before the noise

_NONCES: Final = 4
_VECTORS: Final = 4000
_ROWS: Final = 64


def front_end(randomizer: Randomizer, rng: np.random.Generator) -> Finding:
    """Check the front end of a randomizer on hostile vectors."""
    if isinstance(randomizer, MemoisedPrivUnit2):
        return front_end(randomizer.layers[0], rng)
    if is_lattice(randomizer):
        return _integers(randomizer, rng)
    if is_ranked(randomizer):
        return _near(randomizer, rng)
    if isinstance(randomizer, BoxForm):
        return _coordinates(randomizer, rng)
    if isinstance(randomizer, LocalHashing):
        return _points(randomizer, rng)
    if isinstance(randomizer, SetForm):
        return _symbols(randomizer, rng)
    return Finding(
        "front-end",
        "white box",
        "the input of the noise",
        "not run",
        f"the auditor does not know the front end of {randomizer.kind!r}",
    )


def _integers(randomizer: Any, rng: np.random.Generator) -> Finding:
    """Check Σ|n| <= R, or Σn² <= R², on the lattice as it is and on coarse ones."""
    order = randomizer.domain.order
    norm = "Σ|n| ≤ R" if order == 1 else "Σn² ≤ R²"
    tried, broken, worst = 0, 0, 0.0
    lattices: list[Any] = [randomizer, *coarse_forms(randomizer)]
    for form in lattices:
        vectors = hostile(form.domain, form.bound, _VECTORS, rng)
        sizes = [power_sum(row, order) for row in _lattice_points(form, vectors)]
        over = [size for size in sizes if size > form.bound**order]
        tried, broken = tried + len(sizes), broken + len(over)
        if over:
            worst = max(worst, (max(over) / form.bound**order) ** (1 / order))
    words = f"{norm}, {tried:,} vectors"
    if broken:
        result = f"{broken:,} vectors leave the ball, the farthest at {worst:.3g} times the bound"
        return Finding("front-end", "white box", words, "violation", result)
    return Finding("front-end", "white box", words, "nothing found", "all within bounds")


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
    return Finding("front-end", "white box", words, "nothing found", "all within bounds")


def _symbols(randomizer: Any, rng: np.random.Generator) -> Finding:
    """Check that every payload names the declared number of symbols, for every true symbol."""
    symbols = rng.integers(0, randomizer.size, _VECTORS // _ROWS)
    words = f"{randomizer.named} named, {symbols.size:,} symbols"
    try:
        counts = (randomizer.read(randomizer.report(symbols, Entropy())) > 0).sum(axis=1)
    except InvalidReport as error:
        return Finding("front-end", "white box", words, "violation", str(error))
    broken = int((counts != randomizer.named).sum())
    if broken:
        result = f"{broken:,} payloads name a wrong number of symbols"
        return Finding("front-end", "white box", words, "violation", result)
    return Finding("front-end", "white box", words, "nothing found", "always as declared")


def _points(randomizer: LocalHashing, rng: np.random.Generator) -> Finding:
    """Check that exactly ``near`` of all points name a symbol, for nonces of its own reports."""
    symbols = rng.integers(0, randomizer.size, _NONCES)
    points = np.arange(POINTS, dtype="<u2")
    broken = 0
    for symbol in symbols:
        (payload,) = randomizer.report(symbol[None], Entropy())
        payloads = [payload[:NONCE_BYTES] + point.tobytes() for point in points]
        named = randomizer.log_likelihood(payloads, np.broadcast_to(symbol, POINTS)) > 0
        broken += int(named.sum()) != randomizer.near
    words = f"{randomizer.near:,} near points, {_NONCES} nonces"
    if broken:
        result = f"{broken} nonces have a wrong number of near points"
        return Finding("front-end", "white box", words, "violation", result)
    return Finding("front-end", "white box", words, "nothing found", "always as declared")


def _lattice_points(form: Any, vectors: Vectors) -> list[list[int]]:
    with np.errstate(all="ignore"):
        rows: list[list[int]] = form.integers(vectors).tolist()
    return rows


def _near(randomizer: Ranked, rng: np.random.Generator) -> Finding:
    """Check that exactly ``near`` distinct directions are near, for every vector."""
    vectors = hostile(Ball(randomizer.dim, 1.0, 2), 1 << 20, _VECTORS // _ROWS, rng)
    broken, entropy = 0, Entropy()
    for start in range(0, len(vectors), _ROWS):
        part = vectors[start : start + _ROWS]
        nonces = entropy.words(len(part) * NONCE_BYTES // 2).view(np.uint8)
        with np.errstate(all="ignore"):
            nearest = randomizer.nearest(part, nonces.reshape(-1, NONCE_BYTES).copy())
        broken += sum(
            len(row) != randomizer.near
            or len(set(row)) != randomizer.near
            or min(row) < 0
            or max(row) >= randomizer.directions
            for row in nearest.tolist()
        )
    words = f"{randomizer.near} near, {len(vectors):,} vectors"
    if broken:
        result = f"{broken:,} vectors have a wrong number of near directions"
        return Finding("front-end", "white box", words, "violation", result)
    return Finding("front-end", "white box", words, "nothing found", "always as declared")


# ---- Inputs that must be rejected, and unusual ones that must be accepted
#
# A NaN that passes through is a report without noise. A device that fails for some finite vectors
# and not for others reveals which it holds.


def input_checks(release: Release) -> Finding:
    """Check that a release and its randomizer reject invalid inputs and accept unusual ones."""
    invalid, unusual = _invalid(release.input_dim), _unusual(release.input_dim)
    domain = release.randomizer.domain
    encoded = _no_symbols(domain) if isinstance(domain, FiniteSet) else _not_finite(domain.dim)

    def randomize(w: Any) -> object:
        return release.randomizer.report(w[None], Entropy())

    tests: list[tuple[str, Callable[[Any], object], Any]] = [
        (f"{name}, given to the release,", partial(make_reports, release), z)
        for name, z in invalid.items()
    ]
    tests += [(f"{name}, given to the randomizer,", randomize, w) for name, w in encoded.items()]
    faults = [f"{name} {fault}" for name, call, z in tests if (fault := _not_rejected(call, z))]
    for name, z in unusual.items():
        if fault := _not_accepted(release, z):
            faults.append(f"{name} {fault}")
    tried = f"{len(tests)} invalid, {len(unusual)} unusual"
    if faults:
        return Finding("hostile-input", "conduct", tried, "violation", "; ".join(faults[:4]))
    return Finding(
        "hostile-input",
        "conduct",
        tried,
        "nothing found",
        "all as required",
        reports=len(unusual),
    )


def _not_finite(dim: int) -> dict[str, Any]:
    """Return vectors with one entry or all entries that are not finite."""
    vectors: dict[str, Any] = {}
    for name, value in (("NaN", np.nan), ("infinity", np.inf), ("−infinity", -np.inf)):
        single = np.zeros(dim)
        single[-1] = value
        vectors |= {f"one {name}": single, f"all {name}": np.full(dim, value)}
    return vectors


def _no_symbols(domain: FiniteSet) -> dict[str, Any]:
    """Return values that are not symbols."""
    return {
        "the symbol −1": np.array(-1),
        "a symbol too large": np.array(domain.size),
        "a symbol with a fraction": np.array(0.5),
        "NaN": np.array(np.nan),
        "a truth value": np.array(True),
    }


def _invalid(dim: int) -> dict[str, Any]:
    return _not_finite(dim) | {
        "a vector too long": np.zeros(dim + 1),
        "a vector too short": np.zeros(dim - 1),
        "an empty batch": np.zeros((0, dim)),
        "an array of objects": np.zeros(dim, dtype=object),
        "an array of text": np.full(dim, "1"),
    }


def _unusual(dim: int) -> dict[str, Any]:
    return {
        "zero": np.zeros(dim),
        "minus zero": np.full(dim, -0.0),
        "the smallest number": np.full(dim, 5e-324),
        "a denormal number": np.full(dim, -1e-310),
        "1e308": np.full(dim, 1e308),
        "float32": np.full(dim, np.finfo(np.float32).max, dtype=np.float32),
        "float16": np.full(dim, 65504, dtype=np.float16),
        "int64": np.full(dim, -(2**62), dtype=np.int64),
        "uint8": np.full(dim, 255, dtype=np.uint8),
    }


def _not_rejected(call: Callable[[Any], object], z: Any) -> str | None:
    """Return the fault if an invalid input is not rejected with InvalidInput."""
    try:
        with np.errstate(all="ignore"):
            call(z)
    except InvalidInput:
        return None
    except Exception as error:
        return f"raises {type(error).__name__} instead of InvalidInput"
    return "gives a report"


def _not_accepted(release: Release, z: Any) -> str | None:
    """Return the fault if an unusual vector does not give a normal report."""
    try:
        (report,) = make_reports(release, z)
    except Exception as error:
        return f"raises {type(error).__name__} instead of giving a report"
    if not isinstance(report, bytes):
        return f"gives a {type(report).__name__}"
    if len(report) != release.report_size:
        return f"gives {len(report)} bytes instead of {release.report_size}"
    return None


# ---- Timing: does the time of a report depend on its vector?
#
# This would be a side channel; the guarantee covers bytes only. The order of the calls is random.
# If time does not depend on the vector, any drift of the machine affects both vectors alike and the
# ranks of the times are a random labelling, so the rank test (Mann and Whitney 1947) keeps its
# false-alarm rate however noisy the machine is.

_WARM_UP: Final = 6
_LEAST_CALLS: Final = 25


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

    At most ``calls`` reports of each vector, and as many as fit into ``seconds``.
    """
    vectors = np.stack([pair.first, pair.second])
    name = f"timing-{pair.name}"
    try:
        cost = _times(release, vectors, np.arange(_WARM_UP) % 2).mean() / 1e9
        calls = max(_LEAST_CALLS, min(calls, int(seconds / cost / 2)))
        order = rng.permutation(np.repeat([0, 1], calls))
        taken = _times(release, vectors, order)
    except Exception as error:
        why = f"a vector raised {error!r} instead of a report"
        return Finding(name, "conduct", pair.words, "not run", why)
    first, second = taken[order == 0], taken[order == 1]
    p_value = float(mannwhitneyu(first, second, method="asymptotic").pvalue)
    gap = float(np.median(first) - np.median(second)) / 1e3
    difference = f"medians differ by {abs(gap):.1f} µs of {np.median(taken) / 1e3:,.0f}"
    significant = p_value < alpha
    return Finding(
        name,
        "conduct",
        pair.words,
        "side channel" if significant else "nothing found",
        difference if significant else f"{abs(gap):.1f} µs, within chance",
        reports=2 * calls + _WARM_UP,
        p_value=p_value,
        alpha=alpha,
    )


def _times(
    release: Release, vectors: NDArray[np.float64], order: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return the nanoseconds of each call, from the same memory, without garbage collection."""
    buffer = vectors[0].copy()
    taken = np.empty(len(order))
    collecting = gc.isenabled()
    gc.disable()
    try:
        for call, side in enumerate(order):
            buffer[:] = vectors[side]
            started = time.perf_counter_ns()
            make_reports(release, buffer)
            taken[call] = time.perf_counter_ns() - started
    finally:
        if collecting:
            gc.enable()
    return taken


# ---- Bytes: one length, readable, on the declared lattice

_HOSTILE_VECTORS: Final = 1000
_REPORTS_PER_VECTOR: Final = 2
_REPORT_ROWS: Final = 256


def _hostile_inputs(release: Release, count: int, rng: np.random.Generator) -> Vectors:
    """Return inputs whose encodings are hostile vectors, and some extreme inputs."""
    domain = release.randomizer.domain
    if isinstance(release.encoder, AffineEncoder | ShiftEncoder):
        ball = domain if isinstance(domain, Ball) else Ball(release.encoder.output_dim, 1.0, 2)
        W = hostile(ball, getattr(release.randomizer, "bound", 1 << 17), count, rng)
        # Avoid overflow in the linear solver.
        Z = preimages(release.encoder, np.clip(W, -1e100, 1e100))
    else:
        Z = hostile(Ball(release.input_dim, 1.0, 2), 1 << 17, count, rng)
    extreme = np.zeros((6, release.input_dim))
    extreme[:] = np.array([0.0, -0.0, 5e-324, -1e-310, 1e308, -1e308])[:, None]
    return np.concatenate([Z[np.isfinite(Z).all(axis=1)], extreme])


def byte_checks(release: Release, seconds: float, rng: np.random.Generator) -> list[Finding]:
    """Draw reports of hostile vectors and check their length and their support."""
    Z = _hostile_inputs(release, _HOSTILE_VECTORS, rng)
    Z = Z[rng.permutation(len(Z))[: _affordable(release, Z, seconds)]]
    reports: list[bytes] = []
    try:
        for start in range(0, len(Z), _REPORT_ROWS):
            rows = np.repeat(Z[start : start + _REPORT_ROWS], _REPORTS_PER_VECTOR, axis=0)
            reports += draw_reports(release, rows)
    except InvalidReport as error:
        tried = f"{len(Z):,} hostile vectors"
        return [Finding("support", "bytes", tried, "violation", str(error))]
    return [_length(release, reports, len(Z)), _support(release, reports)]


def _affordable(release: Release, Z: Vectors, seconds: float) -> int:
    started = time.perf_counter()
    draw_reports(release, Z[:_REPORTS_PER_VECTOR])
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


def _support(release: Release, reports: list[bytes]) -> Finding:
    randomizer = release.randomizer
    tried = "the same reports"
    fault = None
    try:
        observed = np.asarray(release.observe(reports))
    except InvalidReport as error:
        fault = f"a report cannot be read: {error}"
    else:
        if observed.dtype.kind == "f" and not np.isfinite(observed).all():
            fault = "an observation is not finite"
        elif is_lattice(randomizer):
            nearest = np.rint(observed / randomizer.step) * randomizer.step
            off = int(np.count_nonzero(nearest != observed))
            if off:
                fault = f"{off:,} of {observed.size:,} numbers are off the declared lattice"
    if fault is not None:
        return Finding("support", "bytes", tried, "violation", fault)
    what = "all on the lattice" if is_lattice(randomizer) else "all readable"
    return Finding("support", "bytes", tried, "nothing found", what)


# ---- Sequences: how often and when a device draws permanent answers

_PEOPLE: Final = 32
_CONSECUTIVE: Final = 400
_PER_PERIOD: Final = 8
_PERIODS: Final = 64


def schedule(release: Release, pair: Pair) -> list[Finding]:
    """Check from the ages of sequences that draws keep to their number and their distance.

    Vectors change in every round. The ages must be those of some rounds of drawing, at most
    ``draws`` of them, the second half a period after the first or later, and each other one a
    period after the one before it. This has no false alarms. Both runs are of the same people:
    consecutive rounds, and rounds with gaps over more periods than the release has draws.
    """
    randomizer = release.randomizer
    if not isinstance(randomizer, Memoised):
        return []
    gap = max(1, randomizer.period // _PER_PERIOD)
    periods = min(randomizer.draws + 3, _PERIODS)
    with_gaps = range(0, gap * _PER_PERIOD * periods, gap)
    faults, rounds = [], 0
    for numbers in (range(_CONSECUTIVE), with_gaps):
        ages = _ages(release, pair, numbers)
        rounds += len(numbers)
        faults += [fault for row in ages.T if (fault := _unscheduled(randomizer, numbers, row))]
    tried = f"{_PEOPLE} people, {rounds:,} rounds"
    return [
        Finding(
            "schedule",
            "conduct",
            tried,
            "violation" if faults else "nothing found",
            faults[0] if faults else "as declared",
            reports=_PEOPLE * rounds,
        )
    ]


def _ages(release: Release, pair: Pair, numbers: range) -> NDArray[np.int64]:
    """Return the ages of people whose vector changes in every round, (rounds, people)."""
    randomizer = release.randomizer
    assert isinstance(randomizer, Memoised)
    people: list[Sequence | None] = [None] * _PEOPLE
    ages = []
    for at, number in enumerate(numbers):
        vectors = {i: (pair.first, pair.second)[(at + i) % 2].ravel() for i in range(_PEOPLE)}
        reports, states = next_reports(release, people, number, vectors)
        people = list(states)
        ages.append(randomizer.ages([report[wire.HEADER_SIZE :] for report in reports]))
    return np.array(ages)


def _unscheduled(randomizer: Memoised, numbers: range, ages: NDArray[np.int64]) -> str | None:
    """Return the fault if these are not the ages of a sequence with the declared schedule."""
    rounds = np.array(numbers)
    drawn = rounds[ages == 0]
    if not drawn.size or drawn[0] != rounds[0]:
        return "the first report does not have the age 0"
    last = drawn[np.searchsorted(drawn, rounds, "right") - 1]
    if (ages != np.minimum(rounds - last, OLDEST)).any():
        return "an age is not the number of rounds since a draw"
    if randomizer.draws and drawn.size > randomizer.draws:
        return f"{drawn.size} draws of a person instead of at most {randomizer.draws}"
    waits = np.diff(drawn)
    if waits.size and waits[0] < randomizer.first_wait:
        return f"a second draw after {waits[0]} rounds instead of {randomizer.first_wait}"
    if waits[1:].size and waits[1:].min() < randomizer.period:
        return f"a draw after {waits[1:].min()} rounds instead of {randomizer.period}"
    return None


# ---- Freshness: reports that share their noise reveal the difference of their vectors

_FRESH_ROWS: Final = 64
_CALLS: Final = 16
_COMPARISONS: Final = 4


def freshness(release: Release, alpha: float, rng: np.random.Generator) -> Finding:
    """Look for reused randomness: between calls, between rows of a call, between inputs.

    The noise of a lattice randomizer must not repeat, nor the nonce of a ranked one, nor the whole
    payload of others. Some repetitions occur by chance; a violation needs more than chance allows
    with probability ``alpha``. The test is not run if chance allows any number of them.
    """
    tried, chance = "reused randomness", _repeat_probability(release.randomizer)
    if binom.isf(alpha / _COMPARISONS, _FRESH_ROWS - 1, chance) >= _FRESH_ROWS - 1:
        why = "reports may repeat by chance: there are few possible ones, or it is not known"
        return Finding("freshness", "conduct", tried, "not run", why)
    try:
        comparisons = _repetitions(release, rng.standard_normal((_FRESH_ROWS, release.input_dim)))
    except InvalidReport as error:
        why = f"the reports cannot be read: {error}"
        return Finding("freshness", "conduct", tried, "not run", why)
    faults = [
        f"{repeated} of {total} are equal {where}"
        for where, repeated, total in comparisons
        if repeated > binom.isf(alpha / _COMPARISONS, total, chance)
    ]
    return Finding(
        "freshness",
        "conduct",
        tried,
        "violation" if faults else "nothing found",
        faults[0] if faults else "never reused",
        reports=3 * _FRESH_ROWS + _CALLS,
        alpha=alpha,
    )


def _repetitions(release: Release, Z: Vectors) -> list[tuple[str, int, int]]:
    """Return where randomness was compared, how often it was equal, and out of how many."""
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
    """Return the visible randomness of one report of every row, (n, columns)."""
    payloads = draw_payloads(release, Z)
    if is_lattice(release.randomizer):
        noisy = wire_numbers(release.randomizer, payloads)
        assert noisy is not None
        return noisy - release.randomizer.integers(release.encoder.encode(Z))
    octets = np.frombuffer(b"".join(payloads), dtype=np.uint8).reshape(len(payloads), -1)
    nonces = is_ranked(release.randomizer) or isinstance(release.randomizer, LocalHashing)
    return octets[:, :NONCE_BYTES] if nonces else octets


def _repeat_probability(randomizer: Any) -> float:
    """Return an upper bound on the probability that an independent draw equals a given one."""
    if is_lattice(randomizer):
        # No value of the noise is likelier than half the inverse scale.
        return float(2.0 ** -((randomizer.log2_scale + 1) * min(randomizer.domain.dim, 30)))
    if is_ranked(randomizer) or isinstance(randomizer, LocalHashing | MemoisedPrivUnit2):
        return 2.0 ** (-8 * NONCE_BYTES)
    if isinstance(randomizer, SampledForm):
        chosen = math.comb(randomizer.dim, randomizer.sampled)
        if isinstance(randomizer, Piecewise):
            return float(randomizer.near ** float(-randomizer.sampled) / chosen)
        return float(_likeliest(randomizer.share) ** randomizer.sampled / chosen)
    if isinstance(randomizer, BoxForm):
        # A random vector of signs, negated or not.
        return math.ldexp(_likeliest(randomizer.epsilon), 1 - randomizer.dim)
    return 1.0


def _likeliest(epsilon: Any) -> float:
    """Return e^ε/(e^ε + 1): no payload is likelier, if the opposite vector has the opposite one.

    Pr[t | w] <= e^ε Pr[t | −w] = e^ε Pr[−t | w], and t and −t cannot both be reported.
    """
    return 1 / (1 + math.exp(-float(epsilon)))
