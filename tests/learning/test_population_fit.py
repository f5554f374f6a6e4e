"""Shares of public cells: closed forms, and coverage, size and power with stated false-alarm rates.

Reports are drawn from the law of the exact ones. Every round draws new public vectors, too: that
they are a sample is part of the error.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pytest
from scipy import optimize, stats

import offaxis
from offaxis.learning import likelihoods as likelihoods_module
from offaxis.learning.evidence import contrasts
from offaxis.learning.likelihoods import Likelihoods, support_of
from offaxis.learning.population import UNUSUAL, Population, of_likelihoods
from offaxis.learning.population_fit import LARGEST_SPREAD, _spread, fit_shares
from offaxis.simulation import draw_observations
from tests.checks import ALPHA

DIM = 3
CENTRES = 3.5 * np.eye(DIM)
UNEVEN = np.array([0.6, 0.3, 0.1])
ROUNDS = 32
TOLERATED = 0.08
"""Intervals of 95 % that miss in 8 % of the rounds are not rejected."""


def draw(rng: np.random.Generator, count: int, shares: np.ndarray | None = None) -> np.ndarray:
    """Return vectors of three clusters."""
    return CENTRES[rng.choice(DIM, count, p=shares)] + rng.standard_normal((count, DIM))


def scores(Z: np.ndarray) -> np.ndarray:
    return Z @ CENTRES.T


def curved(Z: np.ndarray) -> np.ndarray:
    return Z[:, 0] + np.abs(Z[:, 1])


@pytest.fixture(autouse=True)
def one_thread(monkeypatch):
    """Threads cost more than they save with so few reports."""
    monkeypatch.setattr(likelihoods_module, "_cores", lambda: 1)


PUBLIC = draw(np.random.default_rng(0), 600)
TRUTH = draw(np.random.default_rng(1), 1_000_000, UNEVEN)
TRUE = {
    "share": np.bincount(scores(TRUTH).argmax(axis=1)) / len(TRUTH),
    "mean": curved(TRUTH).mean(),
    "quantile": np.quantile(curved(TRUTH), 0.75),
    "histogram": np.histogram(curved(TRUTH), [-99, 1, 3, 99])[0] / len(TRUTH),
}


@lru_cache
def release_of(mechanism: str, epsilon: float) -> offaxis.Release:
    settings = {"size": 6} if mechanism in {"response", "subset"} else {}
    return offaxis.fit(
        None, PUBLIC, epsilon=epsilon, mechanism=mechanism, reshaping="centre", **settings
    )


def likelihoods_of(
    release: offaxis.Release,
    people: np.ndarray,
    rng: np.random.Generator,
    public: np.ndarray = PUBLIC,
    cells: int = 12,
) -> Likelihoods:
    likelihoods = Likelihoods(support_of(public, [release], cells))
    observed = draw_observations(release.randomizer, release.encode_private(people), rng)
    likelihoods.add_observed(release, iter([observed]))
    return likelihoods


def population_of(
    release: offaxis.Release, people: np.ndarray, seed: int, public: np.ndarray = PUBLIC
) -> Population:
    rng = np.random.default_rng([seed, 1])
    return of_likelihoods(likelihoods_of(release, people, rng, public))


# ---- Closed forms


@dataclass(frozen=True)
class Small:
    likelihoods: Likelihoods
    cells: np.ndarray


@pytest.fixture(scope="module")
def small() -> Small:
    """Return 2,000 reports and their likelihoods in three cells."""
    rng = np.random.default_rng(2)
    release = release_of("privunit2", 3.0)
    likelihoods = likelihoods_of(release, draw(rng, 2_000, UNEVEN), rng, cells=3)
    blocks = np.concatenate(list(likelihoods._blocks())).astype(np.float64)
    spread = likelihoods.support.spread
    return Small(likelihoods, blocks[:, : len(spread)] @ spread)


def test_shares_are_those_of_largest_likelihood(small):
    basis = contrasts(3)

    def loss(x: np.ndarray) -> float:
        density = small.cells @ (small.likelihoods.support.shares + basis @ x)
        return np.inf if density.min() <= 0 else -float(np.log(density).sum())

    best = optimize.minimize(loss, np.zeros(2), method="Nelder-Mead", options={"xatol": 1e-7})
    found = fit_shares(small.likelihoods)
    expected = small.likelihoods.support.shares + basis @ best.x
    np.testing.assert_allclose(found.unshrunk, expected, atol=1e-4)
    assert abs(found.unshrunk.sum() - 1) < 1e-9


def test_the_covariance_is_the_inverse_of_the_curvature(small):
    found, basis, step = fit_shares(small.likelihoods), contrasts(3), 1e-4

    def loss(x: np.ndarray) -> float:
        return -float(np.log(small.cells @ (found.unshrunk + basis @ x)).sum())

    unit = step * np.eye(2)
    hessian = [
        [(loss(a + b) - loss(a - b) - loss(b - a) + loss(-a - b)) / (4 * step * step) for b in unit]
        for a in unit
    ]
    numeric = basis @ np.linalg.inv(hessian) @ basis.T
    np.testing.assert_allclose(found.covariance, numeric, rtol=2e-3, atol=1e-8)


def test_shares_of_symbols_are_the_unbiased_ones():
    release, rng = release_of("response", 2.0), np.random.default_rng(3)
    symbols = release.encode_private(draw(rng, 4_000, UNEVEN))
    observed = draw_observations(release.randomizer, symbols, rng)
    likelihoods = Likelihoods(support_of(PUBLIC, [release], 20))
    likelihoods.add_observed(release, iter([observed]))
    found, support = fit_shares(likelihoods), likelihoods.support
    public = release.encode_private(support.vectors)
    of_cell = [int(public[support.cells[support.parts] == c][0]) for c in range(6)]
    np.testing.assert_allclose(found.unshrunk, observed.mean(axis=0)[of_cell], atol=1e-4)


def test_covariance_and_errors_are_those_of_repeated_rounds():
    """Of 120 rounds with one support; the control states half the error."""
    release, rng = release_of("response", 2.0), np.random.default_rng(4)
    support = support_of(PUBLIC, [release], 20)
    weights = np.array([0.4, 0.25, 0.15, 0.1, 0.05, 0.05])
    chosen, fits = rng.random(6), []
    for _ in range(120):
        cells = rng.choice(6, 2_000, p=weights)
        first = support.starts[np.searchsorted(support.cells, cells)]
        symbols = release.encode_private(support.vectors[first])
        likelihoods = Likelihoods(support)
        likelihoods.add_observed(
            release, iter([draw_observations(release.randomizer, symbols, rng)])
        )
        fits.append(fit_shares(likelihoods))
    errors = np.array([chosen @ (fit.unshrunk - weights) for fit in fits])
    stated = np.array([chosen @ fit.covariance @ chosen for fit in fits])

    def p_value(variances: np.ndarray) -> float:
        total = float((errors**2 / variances).sum())
        return 2 * min(stats.chi2.sf(total, len(errors)), stats.chi2.cdf(total, len(errors)))

    assert p_value(stated) > ALPHA
    assert p_value(stated / 4) < ALPHA
    # A question that is constant in parts, as here, has no other error but that of coarse cells.
    means = chosen[support.cells][:, None]
    assert fits[0].variance(means, np.zeros_like(means))[0] >= stated[0] * (1 - 1e-9)


def test_what_no_report_shows_keeps_a_large_error():
    """Duchi's law is linear in the vector: of 12 cells in one dimension it shows the mean."""
    rng = np.random.default_rng(5)
    public = rng.standard_normal((400, 1))
    release = offaxis.fit(None, public, epsilon=2, mechanism="duchi", reshaping="centre")
    people = public[rng.integers(400, size=3_000)] + 0.3
    crowd = of_likelihoods(likelihoods_of(release, people, rng, public))
    radius = float(release.randomizer.domain.radius)
    answer = crowd.mean(lambda Z: np.clip(Z[:, 0] - public.mean(), -radius, radius))
    low, high = answer.interval()
    true = np.clip(public + 0.3 - public.mean(), -radius, radius).mean()
    assert low < true < high
    assert high - low < 0.5
    with pytest.raises(offaxis.errors.InvalidInput, match="more people would hardly help"):
        crowd.mean(lambda Z: Z[:, 0] ** 2)


def test_the_spread_is_estimated_where_reports_show_it():
    """Scores with the variances λ + τλ²; directions without information change nothing."""
    rng = np.random.default_rng(6)
    information = np.full(400, 500.0)
    for tau in (0.003, 0.05):
        variances = information + tau * information**2
        simulated = rng.standard_normal(400) * np.sqrt(variances)
        found, least = _spread(simulated, np.diag(information), np.eye(400), 10_000, 0.0)
        assert found == pytest.approx(tau, rel=0.5)
        assert tau / 2 < least < found
        padded = np.append(simulated, 0.0), np.diag(np.append(information, 0.0))
        assert _spread(*padded, np.eye(401), 10_000, 0.0) == pytest.approx((found, least))
    assert max(_spread(np.zeros(2), np.zeros((2, 2)), np.eye(2), 100, 0.0)) <= LARGEST_SPREAD


# ---- Coverage, size and power


@lru_cache
def rounds_of(mechanism: str, epsilon: float) -> tuple[Population, ...]:
    crowds = []
    for seed in range(ROUNDS):
        rng = np.random.default_rng([seed, 7])
        public, people = draw(rng, 400), draw(rng, 1_500, UNEVEN)
        crowds.append(population_of(release_of(mechanism, epsilon), people, seed, public))
    return tuple(crowds)


def answers_of(crowd: Population) -> dict[str, offaxis.learning.Answer]:
    return {
        "share": crowd.share(scores),
        "mean": crowd.mean(curved),
        "quantile": crowd.quantile(curved, 0.75),
        "histogram": crowd.histogram(curved, [-99, 1, 3, 99]),
    }


def miss_p_value(misses: np.ndarray) -> float:
    """Return the p-value of intervals that miss in at most 8 % of rounds; of several, at worst."""
    worst = int(np.max(misses))
    return float(stats.binom.sf(worst - 1, ROUNDS, TOLERATED)) * np.size(misses)


CONFIGURATIONS = [
    *(("privunit2", epsilon) for epsilon in (0.5, 1.0, 2.0, 4.0)),
    *(("response", epsilon) for epsilon in (1.0, 4.0)),
]


@pytest.mark.parametrize(("mechanism", "epsilon"), CONFIGURATIONS)
def test_intervals_cover(mechanism, epsilon):
    """False alarms: at most ALPHA per question. The control takes a third of the error."""
    misses: dict[str, np.ndarray] = {}
    narrow = np.zeros(DIM)
    for crowd in rounds_of(mechanism, epsilon):
        try:
            answers = answers_of(crowd)
        except offaxis.errors.InvalidInput:
            assert epsilon == 0.5  # too few reports for some of the questions
            continue
        for name, answer in answers.items():
            low, high = (np.asarray(end) for end in answer.interval())
            missed = (TRUE[name] < low) | (high < TRUE[name])
            misses[name] = misses.get(name, 0) + missed
        centre, z = answers["share"].limits(0.0, -9.0, 9.0)[0], 1.96
        half = z * answers["share"].standard_error / 3
        narrow += np.abs(TRUE["share"] - centre) > half
    for name, counts in misses.items():
        assert miss_p_value(counts) > ALPHA, (name, counts)
    if epsilon > 0.5:
        assert miss_p_value(narrow) < ALPHA, narrow


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0, 4.0])
def test_the_test_of_fit_has_its_size(epsilon):
    """P-values up to .05 are at most as frequent; false alarms at most ALPHA."""
    rejected = sum(not crowd.explained for crowd in rounds_of("privunit2", epsilon))
    assert stats.binom.sf(rejected - 1, ROUNDS, 0.05) > ALPHA


def test_the_test_of_fit_has_its_size_at_100_000_and_finds_people_who_moved():
    """Six of eight good populations are rejected with a chance of 4e-7."""
    release, rejected, found = release_of("privunit2", 4.0), 0, 0
    for seed in range(8):
        rng = np.random.default_rng([seed, 8])
        public, people = draw(rng, 400), draw(rng, 100_000, UNEVEN)
        rejected += not population_of(release, people, seed, public).explained
        if seed < 4:  # opposite to all public vectors: only negative shares explain that
            moved = people[:10_000] - 3.0
            found += not population_of(release, moved, seed, public).explained
    assert rejected < 6
    assert found == 4  # the control


def test_the_test_of_fit_stays_calm_where_few_public_vectors_are_near_a_report():
    """At ε = 8 and 300 public vectors; without the second order it rejects nearly always."""
    release, rejected = release_of("privunit2", 8.0), 0
    for seed in range(10):
        rng = np.random.default_rng([seed, 9])
        public, people = draw(rng, 300), draw(rng, 6_000)
        rejected += not population_of(release, people, seed, public).explained
    assert rejected < 7


def test_symbols_show_no_fit():
    for mechanism in ("response", "subset"):
        crowd = population_of(
            release_of(mechanism, 2.0), draw(np.random.default_rng(1), 2_000, UNEVEN), 0
        )
        assert np.isnan(crowd.fit.p_value)
        assert crowd.explained
        assert not crowd.warning
        assert "cannot show" in crowd.summary


def test_people_like_few_public_vectors_are_not_unusual():
    """τ is large where reports do not show it. Control: its mean would warn too often."""
    mean = warned = 0
    for seed in range(12):
        rng = np.random.default_rng([300, seed])
        public, people = rng.standard_normal((300, DIM)), rng.standard_normal((1_000, DIM))
        release = offaxis.fit(None, public, epsilon=1.1, mechanism="privunit2", reshaping="centre")
        crowd = of_likelihoods(likelihoods_of(release, people, rng, public))
        warned += crowd.fit.least_spread > UNUSUAL
        mean += crowd.fit.spread > UNUSUAL
    assert stats.binom.sf(warned - 1, 12, 0.05) > ALPHA
    assert mean >= 6


# ---- Differences


def test_differences_have_size_and_power():
    """Same people: p <= .05 in 5 % of rounds at most. Other shares are found."""
    release, rng = release_of("privunit2", 2.0), np.random.default_rng(10)
    rejected = missed = 0
    rounds = 12
    for seed in range(rounds):
        crowds = [population_of(release, draw(rng, 1_500, UNEVEN), seed + k) for k in (0, 1000)]
        change = crowds[1].compare(crowds[0])
        rejected += change.p_value <= 0.05
        low, high = change.mean(curved).interval()
        missed += not low <= 0 <= high
    assert stats.binom.sf(rejected - 1, rounds, 0.05) > ALPHA
    assert stats.binom.sf(missed - 1, rounds, TOLERATED) > ALPHA
    other = population_of(release, draw(rng, 1_500, UNEVEN[::-1]), 1)
    change = other.compare(crowds[0])
    assert change.p_value < ALPHA  # the control
    low, high = change.share(scores).interval()
    assert low[2] > 0
    assert high[0] < 0
    cells, where = change.cells(), change.where()
    assert where.shape == (len(cells.names), DIM)
    grown = scores(where).argmax(axis=1)[np.argmax(cells.estimate)]
    assert grown == 2  # the cell that grew most is in the cluster that did
    assert abs(np.sum(cells.estimate)) < 1e-6


def test_a_difference_is_minus_that_of_the_other_way():
    release, rng = release_of("privunit2", 2.0), np.random.default_rng(11)
    one, two = (population_of(release, draw(rng, 1_000, UNEVEN), seed) for seed in (1, 2))
    forth, back = one.compare(two), two.compare(one)
    assert forth.p_value == pytest.approx(back.p_value)
    np.testing.assert_allclose(forth.mean().estimate, -back.mean().estimate)
    np.testing.assert_allclose(forth.mean().interval()[0], -back.mean().interval()[1])
    assert one.compare(one).p_value == pytest.approx(1.0)
    assert repr(forth).startswith("Difference(p = ")
