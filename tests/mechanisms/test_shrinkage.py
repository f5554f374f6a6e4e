"""The best linear decoder: never worse than the public mean, whatever the linear task."""

from __future__ import annotations

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


def made(head, public, name, epsilon):
    delta = delta_for(name)
    return offaxis.fit(head, public, epsilon=epsilon, mechanism=name, delta=delta)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("epsilon", [0.05, 3])
def test_no_linear_task_is_answered_worse_than_by_the_public_mean(head, public, name, epsilon):
    release = made(head, public, name, epsilon)
    decoder = shrink(release, public)
    Z, V = observed(release, public)
    error, constant = decoder.decode(V) - Z, public.mean(axis=0) - Z
    # Every linear task at once: the largest share of the constant's error in any direction.
    root = np.linalg.cholesky(constant.T @ constant / len(Z))
    whitened = np.linalg.solve(root, error.T)
    worst = np.linalg.eigvalsh(whitened @ whitened.T / len(Z))[-1]
    assert worst < 1.02
    twin = release.decoder.decode(V) - Z
    assert (twin**2).sum() > (constant**2).sum()


@pytest.mark.parametrize("name", ["laplace", "gaussian", "privunit2", "privunitg-mean", "duchi"])
def test_no_other_affine_map_is_better(head, public, name):
    """Least squares on a million simulated numbers gains next to nothing."""
    release = made(head, public, name, 4)
    Z, V = observed(release, public)
    ours = ((shrink(release, public).decode(V) - Z) ** 2).sum()
    columns = np.column_stack([V, np.ones(len(V))])
    best = ((columns @ np.linalg.lstsq(columns, Z, rcond=None)[0] - Z) ** 2).sum()
    assert best <= ours < 1.005 * best


def test_without_budget_only_the_public_mean_is_left(head, public):
    release = made(head, public, "privunit2", 0.001)
    _, V = observed(release, public)
    assert np.abs(shrink(release, public).decode(V) - public.mean(axis=0)).max() < 0.2


@pytest.mark.parametrize("randomizer", [Laplace(2, 3.0, 4), PrivUnit2(2, 3.0, 4)])
def test_a_map_of_lower_rank_is_undone_as_far_as_the_public_vectors_tell(
    release, public, randomizer
):
    matrix, centre = np.random.default_rng(0).standard_normal((2, 6)), public.mean(axis=0)
    low = offaxis.Release(
        AffineEncoder(matrix, centre),
        randomizer,
        LinearDecoder(np.linalg.pinv(matrix), centre),
        release.provenance,
    )
    Z, V = observed(low, public)
    ours, plain = (d.decode(V) - Z for d in (shrink(low, public), low.decoder))
    assert (ours**2).sum() < ((centre - Z) ** 2).sum()
    assert (ours**2).sum() < (plain**2).sum()


def test_it_is_the_same_every_time_and_for_batches(head, public):
    release = made(head, public, "hybrid", 2)
    first = shrink(release, public)
    again = shrink(release, lambda: iter([public[:123], public[123:]]))
    assert np.array_equal(first.matrix, again.matrix)
    assert np.array_equal(first.offset, again.offset)
    assert not first.unbiased


def test_symbols_are_refused(head, public):
    with pytest.raises(InvalidInput, match="posterior"):
        shrink(made(head, public, "response", 2), public)
