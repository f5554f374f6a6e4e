"""The reshaping minimises the noise risk under its constraint: no other map has a smaller one."""

from __future__ import annotations

import numpy as np
import pytest

from offaxis.encoding import reshape

_TRIES = 200


def _cost(gram: np.ndarray, basis: np.ndarray, stretch: np.ndarray) -> float:
    return float(np.sum(stretch * np.einsum("ij,ik,kj->j", basis, gram, basis)))


def _stretches(rng: np.random.Generator, dim: int, order: float, cap: float) -> np.ndarray:
    """Return random λ ≤ cap with Σ λ^{−p/2} = m."""
    floor = cap ** (-order / 2)
    share = rng.dirichlet(np.full(dim, rng.uniform(0.2, 5)))
    return (floor + share * dim * (1 - floor)) ** (-2 / order)


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("cap", [2.0, 1000.0])
def test_no_random_map_has_a_smaller_risk(geometry, order, cap):
    best = reshape(geometry, order=order, lambda_max=cap)
    lowest = _cost(geometry.gram, best.basis, best.stretch)
    assert np.sum(best.stretch ** (-order / 2)) == pytest.approx(64)
    rng = np.random.default_rng(7)
    for _ in range(_TRIES):
        other = _stretches(rng, 64, order, cap)
        assert other.max() <= cap * (1 + 1e-9)
        basis = np.linalg.qr(rng.standard_normal((64, 64)))[0]
        assert _cost(geometry.gram, best.basis, other) >= lowest * (1 - 1e-9)
        assert _cost(geometry.gram, basis, best.stretch) >= lowest * (1 - 1e-9)
        assert _cost(geometry.gram, basis, other) >= lowest * (1 - 1e-9)
