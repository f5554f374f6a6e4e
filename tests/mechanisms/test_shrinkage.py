"""The best linear decoder: never worse than the public mean, for any linear task."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import offaxis
from offaxis.decoding import LinearDecoder
from offaxis.encoding import AffineEncoder
from offaxis.errors import InvalidInput
from offaxis.mechanisms import shrink
from offaxis.randomizers import NAMES, Laplace, PrivUnit2
from offaxis.simulation import draw_observations
from tests.checks import delta_for

REPEATS = 40


def observed(release, public, seed=5):
    Z = np.tile(public, (REPEATS, 1))
    return Z, draw_observations(
        release.randomizer, release.encoder.encode(Z), np.random.default_rng(seed)
    )


def fitted(head, public, name, epsilon):
    delta = delta_for(name)
    return offaxis.fit(head, public, epsilon=epsilon, mechanism=name, delta=delta)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("epsilon", [0.05, 3])
def test_no_linear_task_has_a_larger_error_than_with_the_public_mean(head, public, name, epsilon):
    release = fitted(head, public, name, epsilon)
    decoder = shrink(release, public)
    Z, V = observed(release, public)
    error, constant = decoder.decode(V) - Z, public.mean(axis=0) - Z
    # Every linear task at once: the largest share of the constant's error in any direction.
    root = np.linalg.cholesky(constant.T @ constant / len(Z))
    whitened = np.linalg.solve(root, error.T)
    worst = np.linalg.eigvalsh(whitened @ whitened.T / len(Z))[-1]
    assert worst < 1.02
    # The broken control: the unbiased decoder.
    broken = release.decoder.decode(V) - Z
    assert (broken**2).sum() > (constant**2).sum()


@pytest.mark.parametrize("name", ["laplace", "gaussian", "privunit2", "privunitg-mean", "duchi"])
def test_no_other_affine_map_is_better(head, public, name):
    """Least squares on a million simulated numbers gains almost nothing."""
    release = fitted(head, public, name, 4)
    Z, V = observed(release, public)
    error = ((shrink(release, public).decode(V) - Z) ** 2).sum()
    columns = np.column_stack([V, np.ones(len(V))])
    best = ((columns @ np.linalg.lstsq(columns, Z, rcond=None)[0] - Z) ** 2).sum()
    assert best <= error < 1.005 * best


def test_for_tiny_budgets_the_decoder_returns_the_public_mean(head, public):
    release = fitted(head, public, "privunit2", 0.001)
    _, V = observed(release, public)
    assert np.abs(shrink(release, public).decode(V) - public.mean(axis=0)).max() < 0.2


@pytest.mark.parametrize(
    "randomizer", [Laplace(2, 3.0, Fraction(4)), PrivUnit2(2, 3.0, Fraction(4))]
)
def test_a_map_of_lower_rank_is_inverted_by_public_regression(release, public, randomizer):
    matrix, centre = np.random.default_rng(0).standard_normal((2, 6)), public.mean(axis=0)
    low = offaxis.Release(
        AffineEncoder(matrix, centre),
        randomizer,
        LinearDecoder(np.linalg.pinv(matrix).astype(np.float64), centre),
        release.provenance,
    )
    Z, V = observed(low, public)
    shrunk, plain = (d.decode(V) - Z for d in (shrink(low, public), low.decoder))
    assert (shrunk**2).sum() < ((centre - Z) ** 2).sum()
    assert (shrunk**2).sum() < (plain**2).sum()


def test_the_decoder_is_reproducible_and_independent_of_batches(head, public):
    release = fitted(head, public, "hybrid", 2)
    whole = shrink(release, public)
    batched = shrink(release, lambda: iter([public[:123], public[123:]]))
    assert np.array_equal(whole.matrix, batched.matrix)
    assert np.array_equal(whole.offset, batched.offset)
    assert not whole.unbiased


def test_a_release_of_symbols_is_an_error(head, public):
    with pytest.raises(InvalidInput, match="posterior"):
        shrink(fitted(head, public, "response", 2), public)
