"""Every source of random numbers draws the laws that it names.

A check raises a false alarm with probability ALPHA, and rejects a broken control.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from scipy import special, stats

from offaxis.errors import InvalidInput
from offaxis.simulation.draws import Draws, draws_from
from offaxis.simulation.randomizers import cosine, deviate
from tests.checks import ALPHA, counts_p_value, law_p_value

COUNT = 20_000


def _numpy() -> Draws:
    return draws_from(np.random.default_rng(1), np.zeros(1))


def _single() -> Draws:
    return draws_from(torch.Generator().manual_seed(1), torch.zeros(1))


def _double() -> Draws:
    return draws_from(torch.Generator().manual_seed(2), torch.zeros(1).double())


def _jax() -> Draws:
    return draws_from(jax.random.key(1), jnp.zeros(1))


SOURCES = [_numpy, _single, _double, _jax]


@pytest.fixture(params=SOURCES, ids=lambda make: make.__name__[1:])
def draws(request: pytest.FixtureRequest) -> Draws:
    return request.param()


def _integers(draws: Draws, value: int) -> Any:
    """Return COUNT copies of an integer, as an array of the library of the source."""
    return draws.integers(1, COUNT) + value


LAWS = {
    "normal": (lambda draws: draws.normal(COUNT), stats.norm(), stats.norm(0, 1.15)),
    "laplace": (lambda draws: draws.laplace(COUNT), stats.laplace(), stats.laplace(0, 1.25)),
    "uniform": (lambda draws: draws.uniform(COUNT), stats.uniform(), stats.uniform(0.05, 1)),
    "chi square": (lambda draws: draws.chi_square(7, COUNT), stats.chi2(7), stats.chi2(7.7)),
    "beta": (
        lambda draws: draws.beta(_integers(draws, 2), _integers(draws, 31)),
        stats.beta(2, 31),
        stats.beta(2, 26),
    ),
    "beta, many": (
        lambda draws: draws.beta(_integers(draws, 40), _integers(draws, 200_000)),
        stats.beta(40, 200_000),
        stats.beta(43, 200_000),
    ),
}


@pytest.mark.parametrize("law", LAWS)
def test_every_source_draws_the_law_it_names(draws: Draws, law: str) -> None:
    draw, right, wrong = LAWS[law]
    sample = draw(draws)
    assert sample.dtype == draws.dtype
    sample = np.asarray(sample, dtype=float)
    assert law_p_value(sample, right.cdf) > ALPHA
    assert law_p_value(sample, wrong.cdf) < ALPHA


def test_signs_and_integers_are_uniform(draws: Draws) -> None:
    signs = np.asarray(draws.signs(COUNT // 8, 8), dtype=float)
    assert set(np.unique(signs)) == {-1.0, 1.0}
    pairs = (signs[:, 0] + signs[:, 1] / 3).round(2)
    assert counts_p_value(np.unique(pairs, return_counts=True)[1], np.full(4, 0.25)) > ALPHA
    numbers = np.asarray(draws.integers(10, COUNT))
    counts = np.bincount(numbers, minlength=10)
    assert counts_p_value(counts, np.full(10, 0.1)) > ALPHA
    assert counts_p_value(counts, np.r_[np.full(5, 0.12), np.full(5, 0.08)]) < ALPHA


def test_only_the_chosen_elements_are_redrawn(draws: Draws) -> None:
    before = draws.integers(100, COUNT) + 100
    chosen = before % 2 == 0
    original, mask = np.asarray(before).copy(), np.asarray(chosen)
    after = np.asarray(draws.redrawn(before, chosen, 10))
    assert np.array_equal(after[~mask], original[~mask])
    counts = np.bincount(after[mask], minlength=10)
    assert counts_p_value(counts, np.full(10, 0.1)) > ALPHA


def test_subsets_and_their_members_are_uniform(draws: Draws) -> None:
    member, last = (np.asarray(part) for part in draws.subsets(5, 2, COUNT))
    assert (member.sum(axis=1) == 2).all()
    assert member[np.arange(COUNT), last].all()
    other = (member @ np.arange(5)) - last
    counts = np.unique(5 * last + other, return_counts=True)[1]
    assert counts.size == 20
    assert counts_p_value(counts, np.full(20, 0.05)) > ALPHA
    # Broken control: the member is always the smaller one.
    smaller = np.minimum(last, other)
    assert counts_p_value(np.bincount(smaller, minlength=4) + 10, np.full(4, 0.25)) < ALPHA


def test_two_draws_of_one_source_differ_and_the_seed_repeats_them() -> None:
    for make in SOURCES:
        draws, again = make(), make()
        first, second = (np.asarray(draws.normal(50)) for _ in range(2))
        assert not np.isin(first, second).any()
        assert np.array_equal(first, np.asarray(again.normal(50)))


@pytest.mark.parametrize("dim", [2, 3, 64, 4096])
def test_quantiles_on_a_device_agree_with_scipy(dim: int) -> None:
    tails = np.concatenate([np.linspace(1e-4, 1, 999), 10.0 ** -np.arange(5, 12)])
    shape = (dim - 1) / 2
    expected = 1 - 2 * special.betaincinv(shape, shape, tails / 2)
    np.testing.assert_allclose(cosine(tails, dim), expected)
    np.testing.assert_allclose(cosine(torch.tensor(tails), dim), expected, atol=2e-9)
    np.testing.assert_allclose(cosine(jnp.asarray(tails), dim), expected, atol=3e-6)
    np.testing.assert_allclose(deviate(torch.tensor(tails)), deviate(tails), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(deviate(jnp.asarray(tails)), deviate(tails), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("rng", "beside"),
    [
        (0, np.zeros(1)),
        (None, torch.zeros(1)),
        (np.random.RandomState(0), np.zeros(1)),
        (torch.Generator(), np.zeros(1)),
        (torch.Generator(), torch.zeros(1, device="meta")),
        (torch.Generator(), jnp.zeros(1)),
        (jax.random.key(0), torch.zeros(1)),
        (jax.random.key(0), np.zeros(1)),
    ],
)
def test_a_generator_of_another_kind_is_rejected(rng: Any, beside: Any) -> None:
    with pytest.raises(InvalidInput, match="Generator"):
        draws_from(rng, beside)
