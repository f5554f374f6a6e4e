"""Inputs of an audit: smaller forms of a randomizer, hostile vectors, and pairs of vectors.

Everything here is synthetic; an audit needs no private vectors.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeGuard

import numpy as np
from numpy.typing import NDArray

from offaxis.client.sequences import first_reports
from offaxis.encoding import (
    AffineEncoder,
    ArgmaxEncoder,
    BoxEncoder,
    Encoder,
    NetworkEncoder,
    ShiftEncoder,
)
from offaxis.encoding.encoders import AnswerEncoder
from offaxis.encoding.pairs import NO_ANSWER, PairEncoder
from offaxis.encoding.questions import AnswersEncoder
from offaxis.encoding.second_moments import SecondMomentsEncoder, matrix_of
from offaxis.errors import InvalidInput, InvalidReport
from offaxis.formats import reports as wire
from offaxis.privacy.guarantee import Guarantee
from offaxis.randomizers import Randomizer
from offaxis.randomizers.base import CHOOSE, Ball, FiniteSet
from offaxis.randomizers.custom import WIRE_ID as FOREIGN
from offaxis.randomizers.memoised import Memoised
from offaxis.release import Release
from offaxis.sampling.entropy import Entropy
from offaxis.vectors import Vectors, as_batch, row_norms

# ---- Kinds of randomizers, and smaller forms of the same code
#
# A *reduced* form has two coordinates, so that many more reports can be drawn. A *coarse* form uses
# a lattice of a few steps, on which one step too many is a large share of ε.

_COARSE_BOUND: Final = 8
"""Largest number of steps from the centre to the boundary of a coarse lattice."""

_COARSE_DIM: Final = 16


class Lattice(Protocol):
    """A randomizer that adds noise to bounded integers."""

    bound: int
    step: float
    log2_scale: int
    domain: Ball
    guarantee: Guarantee

    def integers(self, W: Vectors) -> NDArray[np.int64]:
        """Return the integers that noise is added to."""
        ...

    def read(self, payloads: list[bytes]) -> Vectors:
        """Return observations, multiples of the step."""
        ...


class Ranked(Protocol):
    """A randomizer that reports one of several public directions."""

    dim: int
    directions: int
    near: int

    def nearest(self, W: Vectors, nonces: NDArray[np.uint8]) -> NDArray[np.int64]:
        """Return the directions that are likelier than the others, (n, near)."""
        ...


def is_lattice(randomizer: Any) -> TypeGuard[Lattice]:
    """Whether noise is added to integers bounded in the ℓ1 or ℓ2 norm."""
    return isinstance(randomizer.domain, Ball) and all(
        hasattr(randomizer, name) for name in ("bound", "step", "log2_scale", "integers")
    )


def is_ranked(randomizer: Any) -> TypeGuard[Ranked]:
    """Whether a report names one of the directions of a nonce."""
    names = ("directions", "near", "nearest")
    foreign = getattr(randomizer, "wire_id", None) == FOREIGN
    return not foreign and all(hasattr(randomizer, name) for name in names)


def claims_gaussian(randomizer: Any) -> bool:
    """Whether the guarantee rests on Gaussian noise: not pure, on an ℓ2 ball."""
    return is_lattice(randomizer) and randomizer.domain.order == 2 and not randomizer.guarantee.pure


def law_is_known(randomizer: Randomizer) -> bool:
    """Whether the likelihood of payloads can be computed: another package may not give it.

    Raises
    ------
    InvalidInput
        If the randomizer makes no reports.
    """
    if randomizer.wire_id != FOREIGN:
        return True
    vector = np.asarray(randomizer.worst_pair()[0])[None]
    payloads = randomizer.report(vector, Entropy())
    try:
        randomizer.log_likelihood(payloads, vector)
    except NotImplementedError:
        return False
    return True


def _altered(randomizer: Any, **changes: int) -> Any:
    """Return the randomizer with changed parameters; names it does not have are ignored."""
    names = {field.name for field in dataclasses.fields(randomizer)}
    return dataclasses.replace(randomizer, **{k: v for k, v in changes.items() if k in names})


def reduced(randomizer: Randomizer) -> Randomizer | None:
    """Return the same randomizer in two dimensions; None if it has at most two."""
    if getattr(randomizer, "dim", 0) <= 2 or randomizer.wire_id == FOREIGN:
        return None
    form: Randomizer = _altered(
        randomizer, dim=2, directions=CHOOSE, near=CHOOSE, sampled=CHOOSE, projected=CHOOSE
    )
    return form


def coarse_forms(randomizer: Randomizer) -> list[Randomizer]:
    """Return the same randomizer on its coarsest lattices; empty if it has no lattice.

    The coarser the lattice, the larger is one step. An error of rounding in many coordinates,
    however, needs several steps to show, so a few lattices are returned.
    """
    forms: list[Randomizer] = []
    if not is_lattice(randomizer):
        return forms
    dim = min(randomizer.domain.dim, _COARSE_DIM)
    for log2_scale in range(randomizer.log2_scale):
        try:
            form = _altered(randomizer, dim=dim, log2_scale=log2_scale, bound=CHOOSE)
        except InvalidInput:
            continue
        if forms and form.bound > _COARSE_BOUND:
            break
        forms.append(form)
    return forms


def power_sum(integers: list[int], order: int) -> int:
    """Return Σ|n| (order 1) or Σn² (order 2) in exact integers."""
    return sum(map(abs, integers)) if order == 1 else sum(n * n for n in integers)


# ---- Hostile vectors: an ulp from the boundary, half a step off, tiny and huge
#
# These are encoded vectors, the input of a randomizer.

_ULP: Final = float(np.finfo(np.float64).eps)
_FACTORS: Final = (1 - 2 * _ULP, 1 - _ULP, 1.0, 1 + _ULP, 1 + 2 * _ULP, 1.5, 1e6)
"""Positions on a ray, in units of the boundary."""

_EXTREMES: Final = (0.0, -0.0, 5e-324, 1e-310, 2.0**-1022, 1e-160, 1e160, 1e308)
_NUMBERS: Final = 1 << 21
"""Largest count of numbers in all vectors: wide releases get fewer vectors."""

_OVER_HALF: Final = 0.5 + 2.0**-12


def hostile(ball: Ball, bound: int, count: int, rng: np.random.Generator) -> Vectors:
    """Return about ``count`` hostile vectors for a ball on a lattice of ``bound`` steps; (n, dim).

    The second half are the negatives of the first half.
    """
    dim = ball.dim
    count = max(1, min(count, _NUMBERS // dim) // 64)
    rays = np.concatenate([_poles(dim, count), _diagonals(dim, count), _random(dim, count, rng)])
    rays *= (ball.radius / row_norms(rays, ball.order))[:, None]
    boundary = np.concatenate([rays * factor for factor in _FACTORS])
    steps = np.concatenate([_one_and_halves(ball, bound, count), _halves(ball, bound, count, rng)])
    extremes = np.zeros((2 * len(_EXTREMES), dim))
    extremes[::2] = np.array(_EXTREMES)[:, None]
    extremes[1::2, 0] = _EXTREMES
    W = np.concatenate([boundary, steps * (ball.radius / bound), extremes])
    return np.concatenate([W, -W])


def _poles(dim: int, count: int) -> Vectors:
    return np.eye(min(dim, count), dim)


def _diagonals(dim: int, count: int) -> Vectors:
    """Return vectors with 2, 3, 4, 6, … equal entries."""
    widths = np.unique(np.geomspace(2, max(2, dim), min(count, 12)).astype(int))
    return (np.arange(dim) < widths[:, None]).astype(np.float64)


def _random(dim: int, count: int, rng: np.random.Generator) -> Vectors:
    """Return random directions, dense and sparse, and some with entries of all sizes."""
    dense = rng.standard_normal((count, dim))
    sparse = dense * (rng.random((count, dim)) < 3 / dim)
    sparse[:, 0] += 1.0
    return np.concatenate([dense, sparse, dense * 10.0 ** rng.uniform(-12, 0, (count, dim))])


def _one_and_halves(ball: Ball, bound: int, count: int) -> Vectors:
    """Return, in steps, one large entry and j entries just over half a step, on the boundary.

    Rounding to nearest moves the j entries up by half a step each, and so leaves the ball.
    """
    most = min(ball.dim - 1, int((bound / _OVER_HALF) ** ball.order))
    js = np.unique(np.geomspace(1, max(1, most), count).astype(int))
    js = js[js <= most]
    rest = np.maximum(0.0, bound**ball.order - js * _OVER_HALF**ball.order) ** (1 / ball.order)
    places = np.arange(ball.dim)
    small = np.where((places > 0) & (places <= js[:, None]), _OVER_HALF, 0.0)
    # The large entry rounds up as well if it is just over half a step.
    up = np.maximum(0.0, np.floor(rest - _OVER_HALF) + _OVER_HALF)
    W = np.concatenate([small, small])
    W[:, 0] = np.concatenate([rest, up])
    return W


def _halves(ball: Ball, bound: int, count: int, rng: np.random.Generator) -> Vectors:
    """Return, in steps, random vectors in the ball with all entries just over half a step."""
    directions = rng.standard_normal((count, ball.dim))
    margin = bound - _OVER_HALF * ball.dim ** (1 / ball.order)
    directions *= (max(0.0, margin) / row_norms(directions, ball.order))[:, None]
    over = np.floor(np.abs(directions)) + _OVER_HALF
    # If the ball is too small for all entries, keep as many as fit.
    within = np.cumsum(over**ball.order, axis=1) <= bound**ball.order
    return np.where(within, np.copysign(over, directions), 0.0)


# ---- Inverting encoders

_STEPS: Final = 10_000
_TRIED: Final = 4096
"""Number of random vectors that are tried on a network."""


def preimages(encoder: Encoder, W: NDArray[Any]) -> Vectors:
    """Return inputs whose encodings are as close to the rows of W as the encoder allows.

    W are coordinates (n, r) or symbols (n,). For a network, the best of some random vectors.

    Raises
    ------
    InvalidInput
        If the auditor cannot invert this kind of encoder.
    """
    if isinstance(encoder, ShiftEncoder):
        return np.asarray(W + encoder.centre)
    if isinstance(encoder, AffineEncoder):
        return np.asarray(_solve(encoder.matrix, W.T).T + encoder.centre)
    if isinstance(encoder, ArgmaxEncoder):
        return np.stack([_inside(encoder, int(symbol)) for symbol in W])
    if isinstance(encoder, NetworkEncoder):
        return _closest(encoder, W)
    if isinstance(encoder, AnswerEncoder):
        return np.stack([_answered(encoder, int(symbol)) for symbol in W])
    if isinstance(encoder, PairEncoder):
        return _paired(encoder, W)
    if isinstance(encoder, SecondMomentsEncoder):
        return _rooted(encoder, W)
    if isinstance(encoder, AnswersEncoder):
        return _asked(encoder, W)
    raise InvalidInput(f"an encoder of kind {encoder.kind!r} cannot be audited yet")


def _solve(matrix: Vectors, rows: Vectors) -> Any:
    if matrix.shape[0] == matrix.shape[1]:
        try:
            return np.linalg.solve(matrix, rows)
        except np.linalg.LinAlgError:
            pass
    return np.linalg.lstsq(matrix, rows)[0]


def _inside(encoder: ArgmaxEncoder, symbol: int) -> Vectors:
    """Return a vector with the given symbol, by steps across the border to the best other one."""
    z = encoder.centre.copy()
    for _ in range(_STEPS):
        scores = encoder.matrix @ (z - encoder.centre) + encoder.bias
        scores[symbol] -= 1e-9 * max(1.0, np.abs(scores).max())
        best = int(np.argmax(scores))
        if best == symbol:
            return z
        across = encoder.matrix[symbol] - encoder.matrix[best]
        # A little beyond the border, so that the iteration ends.
        z = z + 1.1 * (scores[best] - scores[symbol]) / max(across @ across, 1e-300) * across
    raise InvalidInput(f"found no vector that is encoded as symbol {symbol}")


def _answered(encoder: AnswerEncoder, symbol: int) -> Vectors:
    """Return a random vector for which the answer of the network is the given symbol."""
    rng = np.random.default_rng(0)
    for size in np.tile(10.0 ** np.arange(-2, 5), 20):
        tried = size * rng.standard_normal((_TRIED, encoder.input_dim))
        matches = np.flatnonzero(encoder.encode(tried) == symbol)
        if matches.size:
            chosen: Vectors = tried[matches[0]]
            return chosen
    raise InvalidInput(f"found no vector that is encoded as symbol {symbol}")


def _paired(encoder: PairEncoder, W: NDArray[Any]) -> Vectors:
    """Return the tried pairs that are encoded as the symbols, or farthest along the rows."""
    rng = np.random.default_rng(0)
    size = 10.0 ** rng.uniform(-2, 4, (_TRIED, 1))
    columns: list[NDArray[Any]] = [size * rng.standard_normal((_TRIED, encoder.vector_dim))]
    for classes, low, high, optional in encoder.asked[: encoder.answer_count]:
        if classes:
            columns.append(rng.integers(0, int(classes + optional), (_TRIED, 1)))
        else:
            columns.append(rng.choice([low, high], (_TRIED, 1)))
    tried = np.hstack(columns)
    encoded = encoder.encode(tried)
    if W.ndim > 1:
        return _along(tried, encoded, W)
    missing = sorted(set(W.tolist()) - set(encoded.tolist()))
    if missing:
        raise InvalidInput(f"found no pair that is encoded as symbol {missing[0]}")
    return np.stack([tried[np.flatnonzero(encoded == symbol)[0]] for symbol in W])


def _rooted(encoder: SecondMomentsEncoder, W: Vectors) -> Vectors:
    """Return vectors along an eigenvector of the rows' second moments, or the centre.

    Of these, the one whose encoding is farthest along the row. Its length is that of the ball of
    coordinates, times the root of that of the row, relative to the longest encoding.
    """
    radius, moments = float(encoder.sizes[0]), encoder.output_dim - encoder.rank
    back = np.linalg.pinv(encoder.matrix)
    out = np.empty((len(W), encoder.input_dim))
    for row, place in zip(W, out, strict=True):
        vectors = np.linalg.eigh(matrix_of(row[:moments]))[1].T
        size = radius * np.sqrt(np.linalg.norm(row) / encoder.reach)
        tried = np.vstack([size * vectors, -size * vectors, np.zeros(encoder.rank)])
        candidates = tried @ back.T + encoder.centre
        place[:] = candidates[np.argmax(encoder.encode(candidates) @ row)]
    return out


def _asked(encoder: AnswersEncoder, W: NDArray[Any]) -> Vectors:
    """Return rows with the given symbols: indices of classes, and the middles of bins."""
    values = np.stack(np.unravel_index(W, encoder.values), axis=1).astype(np.float64)
    for column, (count, low, high, _) in zip(values.T, encoder.asked, strict=True):
        if low < high:
            middle = low + (column + 0.5) / count * (high - low)
            column[:] = np.where(column < count, middle, NO_ANSWER)
    return values


def _closest(encoder: NetworkEncoder, W: Vectors) -> Vectors:
    """Return the tried vectors whose encodings, after clipping, are farthest along the rows."""
    rng = np.random.default_rng(0)
    size = 10.0 ** rng.uniform(-2, 4, (_TRIED, 1))
    tried = size * rng.standard_normal((_TRIED, encoder.input_dim))
    return _along(tried, encoder.encode(tried), W)


def _along(tried: Vectors, encoded: Vectors, W: Vectors) -> Vectors:
    # Beyond the length of a row the randomizer clips anyway.
    length = row_norms(W, 1)[:, None]
    shrink = np.minimum(1.0, length / np.maximum(row_norms(encoded, 1), 1e-300))
    closest: Vectors = tried[np.argmax(W @ encoded.T * shrink, axis=1)]
    return closest


# ---- Pairs of vectors that nobody may distinguish

_FAR: Final = 1e6
"""Distance of vectors "far outside", in units of the boundary."""

_CLOSE: Final = 2.0**-20


@dataclass(frozen=True, eq=False)
class Pair:
    """Two inputs of a release, with a name and a description."""

    name: str
    words: str
    first: Vectors
    second: Vectors

    def encoded(self, release: Release) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the encoding of each, (1, r), or (1,) for a symbol."""
        with np.errstate(all="ignore"):
            both = release.encoder.encode(np.stack([self.first, self.second]))
        return both[:1], both[1:]


def pairs(release: Release) -> tuple[Pair, ...]:
    """Return the pairs to audit a release on; the first is the worst one in theory."""
    w, other = release.randomizer.worst_pair()
    if isinstance(release.randomizer.domain, FiniteSet):
        return _symbol_pairs(release, w, other)
    if isinstance(release.encoder, BoxEncoder):  # corners are on the boundary, poles are not
        w, other = release.encoder.limits, -release.encoder.limits
    scales = [w, other, _FAR * w, _FAR * other, 0 * w, w * (1 - _CLOSE), w * (1 + _CLOSE)]
    poles = preimages(release.encoder, np.stack(scales))
    return (
        Pair("worst", "the worst in theory", poles[0], poles[1]),
        Pair("far", "opposite, far outside", poles[2], poles[3]),
        Pair("zero", "centre and boundary", poles[4], poles[0]),
        Pair("near", "just inside, outside", poles[5], poles[6]),
        *_other_answers(release, poles[0], poles[1]),
        _extreme(release),
    )


def _other_answers(release: Release, first: Vectors, second: Vectors) -> Iterator[Pair]:
    """Yield a pair of other vectors with other answers: a cost of each would add up."""
    encoder = release.encoder
    if not isinstance(encoder, PairEncoder) or not encoder.answer_count:
        return
    if (first[: encoder.vector_dim] == second[: encoder.vector_dim]).all():
        return
    x, y = first.copy(), second.copy()
    for place, (classes, low, high, _) in enumerate(encoder.asked, start=encoder.vector_dim):
        x[place], y[place] = (0, 1) if classes else (low, high)
    centre = _opposite(encoder, x)
    y[: encoder.vector_dim] = centre
    yield Pair("answer", "opposite features, other answers", x, y)


def _opposite(encoder: PairEncoder, row: Vectors) -> Vectors:
    rng = np.random.default_rng(0)
    tried = 10.0 ** rng.uniform(-2, 4, (_TRIED, 1)) * rng.standard_normal(
        (_TRIED, encoder.vector_dim)
    )
    own = encoder.apply(row[None, : encoder.vector_dim])[0]
    opposite: Vectors = tried[np.argmin(encoder.apply(tried) @ own)]
    return opposite


def _extreme(release: Release) -> Pair:
    tiny = np.full(release.input_dim, 5e-324)
    huge = np.full(release.input_dim, 1e308)
    return Pair("extreme", "5e-324 and 1e308", tiny, huge)


def _symbol_pairs(release: Release, symbol: NDArray[Any], other: NDArray[Any]) -> tuple[Pair, ...]:
    """Return the pairs for a release that encodes vectors as symbols."""
    first, second = preimages(release.encoder, np.stack([symbol, other]))
    inside, outside = first, second
    while np.abs(outside - inside).max() > _CLOSE * np.abs(second - first).max():
        middle = (inside + outside) / 2
        if release.encoder.encode(middle[None])[0] == symbol:
            inside = middle
        else:
            outside = middle
    return (
        Pair("worst", "two symbols", first, second),
        Pair("far", "far outside", _FAR * first, _FAR * second),
        Pair("zero", "zero and a symbol", np.zeros(release.input_dim), first),
        Pair("near", "across a border", inside, outside),
        _extreme(release),
    )


def timed_pairs(audited: tuple[Pair, ...]) -> tuple[Pair, Pair]:
    """Return the pairs to time: one that needs equal work, and one that may not."""
    by_name = {pair.name: pair for pair in audited}
    inside, outside = by_name["zero"].first, by_name["far"].first
    return by_name["worst"], Pair("outside", "centre and far outside", inside, outside)


# ---- Drawing reports


def make_reports(release: Release, vectors: Any) -> list[bytes]:
    """Return reports by the code that makes real ones: of sequences, the first of each."""
    if isinstance(release.randomizer, Memoised):
        return first_reports(release, vectors)[0]
    if isinstance(release.encoder, AnswersEncoder):
        # Without the check of codes: a device's encoder gives a report for any finite row.
        return release.reports_of(as_batch(vectors, release.input_dim)[0])
    reports = release.privatize(vectors)
    return [reports] if isinstance(reports, bytes) else reports


def draw_reports(release: Release, vectors: Vectors) -> list[bytes]:
    """Return reports of finite vectors; raise InvalidReport if the release fails on one."""
    try:
        return make_reports(release, vectors)
    except Exception as error:
        raise InvalidReport(f"a finite vector raised {error!r} instead of a report") from error


def draw_payloads(release: Release, vectors: Vectors) -> list[bytes]:
    """Return reports of finite vectors without the public header."""
    return [report[wire.HEADER_SIZE :] for report in draw_reports(release, vectors)]
