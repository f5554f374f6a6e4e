"""Populations are compared by scores: size, power, broken controls, and what cannot be compared.

Without a change, the share of p-values below x must be at most about x. Each check of it allows
counts that a binomial count with that share exceeds with probability 1e-6 (`_most`), and there are
about 100 of them: together their false-alarm rate is about 1e-4. They are seeded, so they do not
alarm by chance. Rounds are disjoint parts of one large sample of reports.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest
from scipy.stats import binom

import offaxis
from offaxis.errors import InvalidInput
from offaxis.learning.crowd_answers import p_value_of
from offaxis.learning.likelihoods import Likelihoods, Support, rows_of, support_of
from offaxis.learning.population import of_likelihoods
from offaxis.learning.population_fit import Scores, scores_of
from offaxis.simulation import draw_observations
from tests.checks import ALPHA

DIM = 4
CENTRES = 4 * np.eye(3, DIM)
EVEN, MOVED = (1 / 3, 1 / 3, 1 / 3), (0.6, 0.3, 0.1)
REPORTS = 200_000
ROUNDS = [(500, 500), (2_000, 2_000), (200, 3_800)]
SHARES = (0.001, 0.01, 0.05, 0.1, 0.5)
KINDS = {
    "vectors 0.5": {"epsilon": 0.5, "mechanism": "laplace"},
    "directions 0.5": {"epsilon": 0.5, "mechanism": "privunit2"},
    "directions 1": {"epsilon": 1, "mechanism": "privunit2"},
    "directions 4": {"epsilon": 4, "mechanism": "privunit2"},
    "symbols 2": {"epsilon": 2, "mechanism": "response", "size": 12},
}


def draw(count: int, seed: int, shares=EVEN, shift: float = 0.0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return CENTRES[rng.choice(3, count, p=shares)] + rng.standard_normal((count, DIM)) + shift


PUBLIC = draw(600, 0)


@lru_cache
def release_of(kind: str) -> offaxis.Release:
    return offaxis.fit(None, PUBLIC, reshaping="none", **KINDS[kind])


@lru_cache
def support_for(*kinds: str) -> Support:
    return support_of(PUBLIC, [release_of(kind) for kind in kinds], 20)


def observed_of(release: offaxis.Release, people: np.ndarray, seed: int = 1) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return draw_observations(release.randomizer, release.encode_private(people), rng)


def rows(release: offaxis.Release, support: Support, people: np.ndarray) -> np.ndarray:
    """Return the scores of all reports, (n, K)."""
    return scores_from(release, support, observed_of(release, people))


def scores_from(release: offaxis.Release, support: Support, observed: np.ndarray) -> np.ndarray:
    compute, spread = rows_of(release, support), support.spread
    blocks = (compute(observed[i : i + 1_000]) for i in range(0, len(observed), 1_000))
    return np.concatenate([b[:, : len(spread)].astype(np.float64) @ spread - 1 for b in blocks])


def moments(release: offaxis.Release, scores: np.ndarray) -> Scores:
    return Scores(release.hash, len(scores), scores.mean(axis=0), np.cov(scores.T))


@lru_cache
def unchanged(kind: str, shift: float = 0.0) -> np.ndarray:
    return rows(release_of(kind), support_for(kind), draw(REPORTS, 2, shift=shift))


def pairs_of(kind: str, scores: np.ndarray, sizes: tuple[int, int]):
    release, (own, earlier) = release_of(kind), sizes
    for place in range(0, len(scores) - sum(sizes) + 1, sum(sizes)):
        middle = place + own
        yield (
            moments(release, scores[place:middle]),
            moments(release, scores[middle : middle + earlier]),
        )


def _most(share: float, pairs: int) -> int:
    """Return the largest allowed count; 1.1 times the share, because the test is asymptotic."""
    return int(binom.isf(1e-6, pairs, 1.1 * share))


def check_size(found: np.ndarray) -> None:
    for share in SHARES:
        assert (found < share).sum() <= _most(share, len(found)), share
    # The test has power: small values do occur. 0.4, because the test is asymptotic.
    assert (found < 0.5).sum() >= binom.ppf(1e-6, len(found), 0.4)


# ---- Size and power


def test_scores_are_moments_of_rows():
    """For each release, whatever the order in which reports are added."""
    kinds = ("directions 4", "directions 1")
    support, people = support_for(*kinds), draw(1_500, 3)
    one, two = (release_of(kind) for kind in kinds)
    likelihoods = Likelihoods(support)
    given = [(one, people[:400]), (two, people[400:900]), (one, people[900:])]
    for release, part in given:
        likelihoods.add_observed(release, iter([observed_of(release, part)]))
    found = scores_of(likelihoods)
    assert [part.count for part in found] == [1_000, 500]
    for release, own in zip((one, two), found, strict=True):
        blocks = [rows(release, support, part) for other, part in given if other is release]
        expected = moments(release, np.concatenate(blocks))
        np.testing.assert_allclose(own.mean, expected.mean, atol=1e-5)
        np.testing.assert_allclose(own.covariance, expected.covariance, rtol=1e-4, atol=1e-6)
    fit = of_likelihoods(likelihoods).fit
    for own, kept in zip(found, fit.scores, strict=True):
        assert own.release == kept.release
        np.testing.assert_array_equal(own.mean, kept.mean)


@pytest.mark.parametrize("sizes", ROUNDS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_same_people_are_reported_at_the_stated_rate(kind, sizes):
    scores = unchanged(kind)
    check_size(np.array([p_value_of([a], [b]) for a, b in pairs_of(kind, scores, sizes)]))


def test_also_if_people_are_unlike_the_public_vectors():
    scores = unchanged("directions 4", -8.0)
    pairs = pairs_of("directions 4", scores, (500, 500))
    check_size(np.array([p_value_of([a], [b]) for a, b in pairs]))


def test_ignoring_the_error_of_the_earlier_round_alarms_too_often():
    """The broken control takes the earlier round for the truth."""
    pairs = list(pairs_of("directions 4", unchanged("directions 4"), (500, 500)))
    found = np.array([p_value_of([a], [replace(b, count=10**9)]) for a, b in pairs])
    for share in SHARES[1:]:
        assert (found < share).sum() > _most(share, len(pairs)), share


@pytest.mark.parametrize("kind", ["directions 4", "symbols 2"])
def test_other_people_are_found(kind):
    moved = rows(release_of(kind), support_for(kind), draw(20_000, 4, MOVED))
    pairs = zip(
        pairs_of(kind, moved, (2_000, 2_000)),
        pairs_of(kind, unchanged(kind), (2_000, 2_000)),
        strict=False,
    )
    found = [p_value_of([own], [earlier]) for (own, _), (earlier, _) in pairs]
    assert len(found) == 5
    assert max(found) < ALPHA


def test_other_numbers_of_reports_of_each_release_are_no_change():
    """People unlike the public vectors; the control mixes the reports of both releases."""
    kinds = ("directions 4", "directions 1")
    support, releases = support_for(*kinds), [release_of(kind) for kind in kinds]
    strong, weak = (
        iter(np.split(scores_from(release, support, observed_of(release, people, seed)), 80))
        for release, people, seed in zip(
            releases, np.split(draw(80_000, 5, shift=-8.0), 2), (2, 3), strict=True
        )
    )
    found, mixed = [], []
    for _ in range(16):
        first = [np.concatenate([next(strong) for _ in range(4)]), next(weak)]
        second = [next(strong), np.concatenate([next(weak) for _ in range(4)])]
        both = [
            [moments(r, s) for r, s in zip(releases, part, strict=True)] for part in (first, second)
        ]
        found.append(p_value_of(both[0], both[1][::-1]))  # in any order
        one, two = (moments(releases[0], np.concatenate(part)) for part in (first, second))
        mixed.append(p_value_of([one], [two]))
    check_size(np.array(found))
    assert (np.array(mixed) < 0.01).sum() > _most(0.01, 16)


# ---- Populations


def population_of(kind: str, people: np.ndarray, *, cells: int = 20):
    release = release_of(kind)
    likelihoods = Likelihoods(support_of(PUBLIC, [release], cells))
    likelihoods.add_observed(release, iter([observed_of(release, people)]))
    return of_likelihoods(likelihoods)


def test_populations_are_compared_by_their_scores():
    own, earlier = (population_of("directions 4", draw(1_000, seed)) for seed in (6, 7))
    change = own.compare(earlier)
    assert change.p_value == p_value_of(own.fit.scores, earlier.fit.scores)
    assert change.p_value == pytest.approx(earlier.compare(own).p_value)
    assert own.compare(own).p_value == 1


def test_reports_of_another_release_are_not_compared():
    """Also where the support is the same, as for two budgets."""
    own, other = (population_of(f"directions {e}", draw(1_000, 8)) for e in (4, 1))
    np.testing.assert_array_equal(own.support.parts, other.support.parts)
    with pytest.raises(InvalidInput, match="reports of the same releases"):
        own.compare(other)
    with pytest.raises(InvalidInput, match="the same support"):
        own.compare(population_of("directions 4", draw(1_000, 8), cells=10))


def test_scores_without_a_difference_are_no_change():
    flat = Scores("x", 10, np.zeros(3), np.zeros((3, 3)))
    assert p_value_of([flat], [flat]) == 1
    few = Scores("x", 1, np.ones(3), np.eye(3))
    assert p_value_of([few], [few]) == 1
