"""Under the key of a job, the bytes of a record's report depend on nothing but the record.

A task that is repeated draws the same noise. If it put the vector on another lattice point, the
difference of the two reports would show the sign of every coordinate. So batches, the order of
records, memory layouts and threads must not change a bit of what the noise is added to.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from offaxis.randomizers import KINDS
from offaxis.randomizers import base as randomizers_base
from offaxis.randomizers.laplace import report_records
from offaxis.sampling.entropy import JobKey

SMALL, LARGE = 64, 1 << 16
"""Square numbers; beyond 8,192 numbers NumPy sums one row and several in different orders."""

SETTINGS = {
    "radius": 1.0,
    "epsilon": 4,
    "delta": "1e-5",
    # As few directions as possible: a report of many dimensions is expanded from them.
    "directions": 8,
    "near": 2,
    "projected": 4,
    "instant": 2,
    "instant_directions": 8,
    "instant_near": 2,
    "draws": 2,
    "period": 30,
}


def made(kind, dim):
    """Build any registered randomizer for vectors of ``dim`` numbers, or that many symbols."""
    names = {field.name for field in dataclasses.fields(KINDS[kind])}
    settings = {name: value for name, value in SETTINGS.items() if name in names}
    settings |= {"dim": dim} if "dim" in names else {"size": min(dim, 64)}
    randomizer = KINDS[kind](**settings)
    if kind == "gaussian":  # a multiple of √dim, so that inputs can lie on lattice points
        randomizer = dataclasses.replace(randomizer, bound=randomizer.bound // 512 * 512)
    return randomizer


def inputs(randomizer, count):
    """Return vectors on and beside lattice points, of all sizes; or symbols.

    The scaled coordinates of a row of ±c are R/√dim or R/dim, which is a whole number here, up to
    the rounding of the norm: half of all rounding errors move every coordinate by a step.
    """
    rng = np.random.default_rng(5)
    if not hasattr(randomizer, "dim"):
        return rng.integers(0, randomizer.size, count)
    W = rng.choice([-1.0, 1.0], (count, randomizer.dim)) * rng.uniform(1, 2, (count, 1))
    W[-1] = rng.standard_normal(randomizer.dim)
    W[-2] *= 1e-320
    W[-3] *= 1e300
    return W


def misaligned(W):
    """Return a copy whose numbers do not start at a multiple of eight bytes."""
    octets = np.empty(W.nbytes + 8, dtype=np.uint8)
    copy = octets[3 : 3 + W.nbytes].view(W.dtype).reshape(W.shape)
    copy[...] = W
    return copy


def strided(W):
    """Return a copy with gaps between the numbers of a row."""
    return np.repeat(W, 2, axis=-1)[..., ::2]


LAYOUTS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "rows": np.ascontiguousarray,
    "columns": np.asfortranarray,
    "strided": strided,
    "misaligned": misaligned,
    "backwards": lambda W: W[::-1].copy()[::-1],
}


def drawn(randomizer, W, cuts, seed):
    """Return the reports of all rows, in batches that end at the cuts; ``seed`` holds the key."""
    key, ids = seed
    stream = key.streams("00")
    payloads = []
    for part in np.split(np.arange(len(W)), cuts):
        sources = [stream(ids[row], np.ascontiguousarray(W[row]).tobytes()) for row in part]
        payloads += report_records(randomizer, W[part[0] : part[-1] + 1], sources)
    return payloads


def differing(reports, expected):
    """Return how many reports differ; pytest would compare long ones character by character."""
    return sum(one != two for one, two in zip(reports, expected, strict=True))


def check_repeats(randomizer, W):
    count = len(W)
    ids = np.arange(count).tolist()
    seed = JobKey(), ids
    alone = drawn(randomizer, W, range(1, count), seed)
    for layout in LAYOUTS.values():
        assert not differing(drawn(randomizer, layout(W), [], seed), alone)
    assert not differing(drawn(randomizer, W, [2, 5], seed), alone)
    order = np.random.default_rng(0).permutation(count)
    shuffled = drawn(randomizer, W[order], [3], (seed[0], [ids[i] for i in order]))
    assert not differing(shuffled, [alone[i] for i in order])
    for threads in (1, 2):
        with threadpool_limits(threads):
            assert not differing(drawn(randomizer, W, [4], seed), alone)
    assert differing(drawn(randomizer, W, [], (JobKey(), ids)), alone)


@pytest.mark.parametrize("dim", [SMALL, LARGE])
@pytest.mark.parametrize("kind", KINDS)
def test_batches_order_layout_and_threads_change_no_byte(kind, dim):
    randomizer = made(kind, dim)
    check_repeats(randomizer, inputs(randomizer, 9))


@pytest.mark.parametrize("kind", KINDS)
def test_batches_change_no_byte_in_the_largest_dimensions(kind):
    randomizer = made(kind, 1 << 18)
    W, seed = inputs(randomizer, 8), (JobKey(), list(range(8)))
    alone = drawn(randomizer, W, range(1, 8), seed)
    assert not differing(drawn(randomizer, LAYOUTS["columns"](W), [], seed), alone)


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_reports_what_a_single_row_reports(kind):
    """``report`` takes all noise of a batch from one source; the first row's is that of the row."""
    randomizer = made(kind, SMALL)
    W, key = inputs(randomizer, 9), JobKey()
    for layout in LAYOUTS.values():
        whole = randomizer.report(layout(W), key.stream("00", 0, b""))
        assert whole == randomizer.report(W, key.stream("00", 0, b""))
    (alone,) = randomizer.report(W[:1], key.stream("00", 0, b""))
    assert [alone] == report_records(randomizer, W[:1], [key.stream("00", 0, b"")])


ON_A_BALL = [kind for kind, cls in KINDS.items() if hasattr(cls, "integers") and cls.order != "inf"]


@pytest.mark.parametrize("dim", [SMALL, LARGE])
@pytest.mark.parametrize("kind", ON_A_BALL)
def test_lattice_points_are_those_of_the_row_alone(kind, dim):
    randomizer = made(kind, dim)
    W = inputs(randomizer, 40)
    alone = np.concatenate([randomizer.integers(W[row : row + 1]) for row in range(len(W))])
    for layout in LAYOUTS.values():
        assert np.array_equal(randomizer.integers(layout(W)), alone)


def test_norms_in_the_order_of_the_library_are_noticed(monkeypatch):
    """The broken control: with NumPy's own sums the same check fails, for one layout at least."""

    def broken(W, order):
        return np.abs(W).sum(axis=1) if order == 1 else np.sqrt(np.einsum("ij,ij->i", W, W))

    monkeypatch.setattr(randomizers_base, "row_norms", broken)
    randomizer = made("spherical-laplace", LARGE)
    with pytest.raises(AssertionError):
        test_lattice_points_are_those_of_the_row_alone("spherical-laplace", LARGE)
    with pytest.raises(AssertionError):
        check_repeats(randomizer, inputs(randomizer, 9))
