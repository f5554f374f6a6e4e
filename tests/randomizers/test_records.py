"""Reports of many records are those of each record alone, byte for byte."""

from __future__ import annotations

import numpy as np
import pytest

from offaxis.randomizers import NAMES, make
from offaxis.randomizers.additive import report_records
from offaxis.sampling.entropy import Entropy, JobKey
from offaxis.sampling.laplace import DiscreteLaplace
from tests.tape import Tape


@pytest.mark.parametrize("name", NAMES)
def test_a_record_gets_the_same_bytes_in_any_company(name):
    delta = 1e-5 if name == "gaussian" else None
    randomizer = make(name, dim=17, radius=2.0, epsilon=3, delta=delta)
    rng = np.random.default_rng(0)
    symbols = rng.integers(0, 17, 40)
    W = symbols if name in ("response", "subset") else rng.standard_normal((40, 17))
    stream = JobKey().streams("ab" * 32)

    def sources(rows):
        return [stream(int(row), bytes(8)) for row in rows]

    together = report_records(randomizer, W, sources(range(40)))
    order = rng.permutation(40)
    assert report_records(randomizer, W[order], sources(order)) == [together[i] for i in order]
    for row in range(40):
        assert randomizer.report(W[row : row + 1], *sources([row])) == [together[row]]


def test_rows_that_share_a_source_are_refused():
    # Broadcasting one row of noise would give everybody the same.
    randomizer = make("laplace", dim=3, radius=2.0, epsilon=3)
    with pytest.raises(ValueError, match="as many sources"):
        report_records(randomizer, np.zeros((4, 3)), [Entropy()])


@pytest.mark.parametrize("log2_scale", [0, 4, 19])
@pytest.mark.parametrize("count", [1, 50, 5000])
def test_many_sources_draw_what_each_draws_alone(log2_scale, count):
    # Small scales give many minus zeros; a word of zeros may tie or overflow.
    sampler = DiscreteLaplace(log2_scale)
    size = 200 * count + 4000

    def tapes():
        return [Tape.named(f"{log2_scale} {count} {i}", size) for i in range(8)]

    alone = np.stack([sampler.draw(count, tape) for tape in tapes()])
    used = tapes()
    assert np.array_equal(sampler.draw_each(count, used), alone)
