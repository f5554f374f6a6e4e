"""Shares: unbiased, with exact formulas, and intervals that cover whoever the people are."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy import stats

import offaxis
from offaxis.decoding import ShareDifference, Shares, estimate_shares
from offaxis.errors import InvalidInput, InvalidReport
from offaxis.geometry import Layers
from offaxis.randomizers import KaryResponse, Laplace, SubsetSelection
from offaxis.simulation import draw_observations
from tests.checks import ALPHA, mean_p_value

Form = KaryResponse | SubsetSelection


def response(size: int, epsilon: object) -> KaryResponse:
    return KaryResponse(size, Fraction(str(epsilon)))


def subset(size: int, epsilon: object, chosen: int = 0) -> SubsetSelection:
    extra = {"chosen": chosen} if chosen else {}
    return SubsetSelection(size, Fraction(str(epsilon)), **extra)


FORMS = [response(2, 1), response(3, "1/2"), response(3, 4), subset(4, 1, 2), subset(5, 2, 3)]


def law_of(form: Form) -> tuple[np.ndarray, np.ndarray]:
    """Return all sets that a report can name, (s, k), and their probabilities by symbol, (k, s)."""
    sets = np.array(
        [np.isin(range(form.size), named) for named in combinations(range(form.size), form.named)]
    )
    weights = np.where(sets.T, np.exp(float(form.epsilon)), 1.0)
    return sets, weights / weights.sum(axis=1, keepdims=True)


def outcomes(form: Form, laws: list[np.ndarray]) -> list[tuple[float, np.ndarray]]:
    """Return every possible count of named symbols with its probability, one law per report."""
    sets, _ = law_of(form)
    return [
        (
            float(np.prod([law[i] for law, i in zip(laws, drawn, strict=True)])),
            sets[list(drawn)].sum(axis=0),
        )
        for drawn in product(range(len(sets)), repeat=len(laws))
    ]


# ---- Formulas, by enumeration of all reports


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_estimates_are_unbiased_for_exactly_those_who_report(form):
    _, law = law_of(form)
    people = [0, 0, 1]
    mean = sum(p * Shares(c, form).estimate for p, c in outcomes(form, [law[x] for x in people]))
    true = np.bincount(people, minlength=form.size) / 3
    np.testing.assert_allclose(mean, true, atol=1e-12)


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_errors_and_covariances_are_unbiased_for_a_population(form):
    _, law = law_of(form)
    share = np.arange(form.size, dtype=float) / np.arange(form.size).sum()
    cases = [(p, Shares(c, form)) for p, c in outcomes(form, [share @ law] * 3)]
    mean = sum(p * s.estimate for p, s in cases)
    np.testing.assert_allclose(mean, share, atol=1e-12)
    true = sum(p * np.outer(s.estimate - share, s.estimate - share) for p, s in cases)
    np.testing.assert_allclose(sum(p * s.covariance() for p, s in cases), true, atol=1e-12)
    np.testing.assert_allclose(
        sum(p * s.standard_error**2 for p, s in cases), np.diag(true), atol=1e-12
    )
    for _, shares in cases:
        np.testing.assert_allclose(np.diag(shares.covariance()), shares.standard_error**2)
        np.testing.assert_allclose(shares.covariance().sum(axis=0), 0, atol=1e-12)
        assert shares.estimate.sum() == pytest.approx(1)


def test_the_formula_is_that_of_the_page():
    form, n = response(10, 2), 1000
    p, q = np.exp(2) / (np.exp(2) + 9), 1 / (np.exp(2) + 9)
    counts = np.array([199, *[89] * 9])
    shares = Shares(counts, form)
    np.testing.assert_allclose(shares.estimate, (counts / n - q) / (p - q))
    assert shares.estimate[0] == pytest.approx(0.354, abs=5e-4)


def test_one_report_has_an_infinite_error_and_an_interval():
    shares = Shares(np.array([1, 0, 0]), response(3, 1))
    assert np.isinf(shares.standard_error).all()
    assert np.isinf(shares.covariance()).all()
    low, high = shares.interval()
    assert (low == 0).all()
    assert (high == 1).all()


# ---- Coverage


def exact_coverage(form: Form, have: int, people: int, level: float, ends) -> float:
    """Return how often an interval covers if exactly ``have`` of the people have symbol 0."""
    a = form.own_chance
    b = (form.named - a) / (form.size - 1)
    own, rest = (
        stats.binom.pmf(np.arange(n + 1), n, p) for n, p in ((have, a), (people - have, b))
    )
    low, high = ends(form, np.arange(people + 1), people, level)
    share = have / people
    covered = (low <= share + 1e-12) & (share <= high + 1e-12)
    return float(np.convolve(own, rest)[covered].sum())


def least_coverage(form: Form, people: int, level: float, ends) -> float:
    return min(exact_coverage(form, have, people, level, ends) for have in range(people + 1))


def our_ends(form, counts, people, level):
    """Return the interval of symbol 0 for every count."""
    named, k = form.named, form.size
    ends = []
    for count in counts.tolist():
        rest = np.zeros(k - 1, dtype=int)
        for i in range(named * people - count):
            rest[i % (k - 1)] += 1
        shares = Shares(np.array([count, *rest]), form)
        ends.append([end[0] for end in shares.interval(level, simultaneous=False)])
    return np.array(ends).T


def without_noise(form, counts, people, level):
    """Broken control: the error of people's answers, without that of the noise."""
    low, high = form.levels
    share = low + (high - low) * counts / people
    clipped = share.clip(0, 1)
    reach = stats.norm.ppf((1 + level) / 2) * np.sqrt(clipped * (1 - clipped) / people)
    return share - reach, share + reach


@pytest.mark.parametrize("level", [0.5, 0.95])
@pytest.mark.parametrize(
    "form", [response(2, 1), response(4, "1/4"), response(4, 6), subset(6, 1, 2)], ids=str
)
def test_each_interval_covers_exactly_those_who_report(form, level):
    """Exact: for every number of people who have the symbol, no simulation."""
    for people in (1, 2, 5, 30):
        assert least_coverage(form, people, level, our_ends) >= level - 1e-12
    assert least_coverage(form, 30, level, without_noise) < level - 0.02


POPULATIONS = {
    "equal": np.full(6, 1 / 6),
    "one symbol": np.eye(6)[0],
    "steep": np.array([32, 16, 8, 4, 2, 1]) / 63,
    "none of some": np.array([0.5, 0.5, 0, 0, 0, 0]),
}
ROUNDS = 400


def least_rate_p_value(covered: int, rounds: int, level: float) -> float:
    """One-sided exact test that the coverage is at least the level."""
    return float(stats.binom.cdf(covered, rounds, level))


def rounds_of(form: Form, share: np.ndarray, people: int, seed: int) -> list[Shares]:
    rng = np.random.default_rng(seed)
    symbols = rng.choice(form.size, (ROUNDS, people), p=share)
    return [Shares((draw_observations(form, own, rng) > 0).sum(axis=0), form) for own in symbols]


def covers(ends, truth) -> bool:
    low, high = ends
    return bool(((low <= truth + 1e-12) & (truth <= high + 1e-12)).all())


@pytest.mark.parametrize("name", POPULATIONS)
@pytest.mark.parametrize(
    ("form", "people"),
    [(response(6, 1), 200), (response(6, 8), 200), (subset(6, 1, 2), 300)],
    ids=str,
)
def test_simultaneous_intervals_cover_every_population(form, people, name):
    """False alarm: at most ALPHA per case; the controls are rejected at the same threshold."""
    share = POPULATIONS[name]
    rounds = rounds_of(form, share, people, seed=1)
    covered = sum(covers(s.interval(0.95), share) for s in rounds)
    assert least_rate_p_value(covered, ROUNDS, 0.95) > ALPHA
    ends = [s.interval(0.95, simultaneous=False) for s in rounds]
    single = np.sum([(low <= share + 1e-12) & (share <= high + 1e-12) for low, high in ends], 0)
    assert least_rate_p_value(single.min(), ROUNDS, 0.95) > ALPHA / form.size
    if float(form.epsilon) > 2:
        return  # hardly any noise to leave out
    broken = sum(
        covers(without_noise(form, s.counts, people, 1 - 0.05 / form.size), share) for s in rounds
    )
    assert least_rate_p_value(broken, ROUNDS, 0.95) < ALPHA
    if name != "equal" and form.named == 1:  # equal shares are where counting has no bias
        counted = sum(covers(Shares(s.counts, response(6, 60)).interval(), share) for s in rounds)
        assert least_rate_p_value(counted, ROUNDS, 0.95) < ALPHA


def test_differences_cover_and_an_interval_of_one_side_does_not():
    """False alarm: at most ALPHA per case."""
    form = response(6, 1)
    for first, second in (("steep", "equal"), ("one symbol", "none of some"), ("equal", "equal")):
        truth = POPULATIONS[first] - POPULATIONS[second]
        pairs = list(
            zip(
                rounds_of(form, POPULATIONS[first], 200, 2),
                rounds_of(form, POPULATIONS[second], 300, 3),
                strict=True,
            )
        )
        covered = sum(covers(ShareDifference(*pair).interval(0.95), truth) for pair in pairs)
        assert least_rate_p_value(covered, ROUNDS, 0.95) > ALPHA
        # Broken control: the second group taken as known.
        broken = 0
        for one, other in pairs:
            reach = stats.norm.ppf(1 - 0.025 / 6) * one.standard_error
            gap = one.estimate - other.estimate
            broken += covers((gap - reach, gap + reach), truth)
        assert least_rate_p_value(broken, ROUNDS, 0.95) < ALPHA


def test_differences_of_shares_are_those_of_the_parts():
    shares = Shares(np.array([[450, 350], [300, 500]]), response(2, 1), groups=("a", "b"))
    gap = shares.difference("a", "b")
    np.testing.assert_allclose(gap.estimate, shares.estimate[0] - shares.estimate[1])
    np.testing.assert_allclose(
        gap.standard_error**2, (shares.standard_error**2).sum(axis=0), rtol=1e-12
    )
    low, high = gap.interval()
    back = shares.difference("b", "a").interval()
    np.testing.assert_allclose(low, -back[1])
    np.testing.assert_allclose(high, -back[0])
    with pytest.raises(InvalidInput, match="same symbols"):
        ShareDifference(shares.of("a"), Shares(np.array([1, 2]), response(2, 1), names=["x", "y"]))
    with pytest.raises(InvalidInput, match=r"use shares\.difference"):
        ShareDifference(shares, shares)


# ---- Properties


@st.composite
def some_shares(draw) -> Shares:
    size = draw(st.integers(2, 7))
    epsilon = draw(st.sampled_from(["1/10", "1", "5", "40"]))
    groups = draw(st.integers(1, 3))
    counts = draw(
        arrays.arrays(np.int64, (groups, size), elements=st.integers(0, 300)).filter(
            lambda c: (c.sum(axis=1) > 0).all()
        )
    )
    return Shares(counts, response(size, epsilon), groups=tuple(range(groups)))


@given(some_shares())
def test_projections_are_shares_idempotent_and_nearest(shares):
    projected = shares.projected()
    assert (projected >= 0).all()
    np.testing.assert_allclose(projected.sum(axis=1), 1)
    inside = (shares.estimate >= 0).all(axis=1)
    np.testing.assert_allclose(projected[inside], shares.estimate[inside], atol=1e-9)
    # The nearest point p of a convex set has (x − p)·(v − p) ≤ 0 for all of its points v.
    gap = shares.estimate - projected
    for vertex in np.eye(projected.shape[1]):
        assert (np.sum(gap * (vertex - projected), axis=1) <= 1e-6 * (1 + np.abs(gap).max())).all()


@given(some_shares(), st.randoms(use_true_random=False))
def test_permuting_symbols_permutes_every_result(shares, random):
    order = list(range(shares.randomizer.size))
    random.shuffle(order)
    permuted = Shares(shares.counts[:, order], shares.randomizer, groups=shares.groups)
    for result in ("estimate", "standard_error"):
        np.testing.assert_allclose(getattr(permuted, result), getattr(shares, result)[:, order])
    np.testing.assert_allclose(permuted.projected(), shares.projected()[:, order], atol=1e-9)
    for end, expected in zip(permuted.interval(), shares.interval(), strict=True):
        np.testing.assert_allclose(end, expected[:, order])


@given(some_shares())
def test_merged_groups_are_one_group_and_intervals_hold_the_estimates(shares):
    merged = shares.merged()
    weights = shares.count / shares.count.sum()
    np.testing.assert_allclose(merged.estimate, weights @ shares.estimate, atol=1e-9)
    assert merged.count == shares.count.sum()
    assert merged.groups is None
    low, high = shares.interval()
    narrow_low, narrow_high = shares.interval(simultaneous=False)
    clipped = shares.estimate.clip(0, 1)
    assert ((low >= 0) & (low <= narrow_low) & (narrow_low <= clipped + 1e-12)).all()
    assert ((high <= 1) & (high >= narrow_high) & (narrow_high >= clipped - 1e-12)).all()
    assert (low < high).all()
    for index, group in enumerate(shares.groups or ()):
        np.testing.assert_array_equal(shares.of(group).counts, shares.counts[index])


@given(some_shares())
def test_counts_come_back_from_the_mean_of_observations(shares):
    again = Shares.from_mean(shares.estimate, shares.count, shares.randomizer, groups=shares.groups)
    np.testing.assert_array_equal(again.counts, shares.counts)


def test_two_symbols_are_one_statement():
    """Both shares of two symbols are known if one is: the same interval, single or together."""
    shares = Shares(np.array([70, 30]), response(2, 1))
    for end, single in zip(shares.interval(), shares.interval(simultaneous=False), strict=True):
        np.testing.assert_array_equal(end, single)
    low, high = shares.interval()
    np.testing.assert_allclose(low, 1 - high[::-1])


# ---- Reports


@pytest.fixture(scope="module")
def answers() -> offaxis.Release:
    public = np.random.default_rng(0).standard_normal((500, 4))
    return offaxis.fit(Layers.linear(np.eye(4)), public, epsilon=1, mechanism="class-response")


PEOPLE = np.random.default_rng(1).standard_normal((6000, 4)) + np.array([0.8, 0, 0, 0])


def test_shares_of_real_reports_are_unbiased_and_counted_answers_are_not(answers):
    """False alarm at most ALPHA: a z-test on the observations of 6,000 real reports."""
    reports = answers.privatize(PEOPLE)
    true = np.bincount(answers.encoder.encode(PEOPLE), minlength=4) / len(PEOPLE)
    shares = answers.shares(reports)
    observed = answers.observe(reports)
    np.testing.assert_allclose(shares.estimate, observed.mean(axis=0), rtol=1e-9)
    assert mean_p_value(observed, true) > ALPHA
    decoded = answers.decode(reports).argmax(axis=1)
    counted = decoded[:, None] == np.arange(4)
    assert mean_p_value(counted, true) < ALPHA
    low, high = shares.interval(1 - ALPHA)
    assert ((low <= true) & (true <= high)).all()
    assert shares.count == len(PEOPLE)


@pytest.mark.parametrize("mechanism", ["response", "subset", "scalar-response"])
def test_every_mechanism_of_symbols_has_shares(mechanism):
    public = np.random.default_rng(0).standard_normal((400, 3))
    task = Layers.linear(np.ones((1, 3)))
    settings: dict[str, Any] = {} if mechanism == "scalar-response" else {"size": 5}
    release = offaxis.fit(task, public, epsilon=3, mechanism=mechanism, **settings)
    reports: Any = release.privatize(public)
    shares = release.shares(iter(reports), iter(["a", "b"] * 200))
    np.testing.assert_allclose(
        shares.merged().estimate, release.observe(reports).mean(axis=0), rtol=1e-9, atol=1e-12
    )
    np.testing.assert_allclose(
        shares.of("b").estimate, release.observe(reports[1::2]).mean(axis=0), atol=1e-12
    )
    assert shares.groups == ("a", "b")
    assert shares.names == tuple(map(str, range(shares.randomizer.size)))


def test_shares_are_read_in_parts(answers, monkeypatch):
    reports = answers.privatize(PEOPLE[:50])
    expected = answers.shares(reports, groups=[i % 3 for i in range(50)])
    monkeypatch.setattr(offaxis.release, "_DECODE_ROWS", 7)
    again = answers.shares(reports, groups=(i % 3 for i in range(50)))
    np.testing.assert_array_equal(again.counts, expected.counts)
    assert again.groups == expected.groups == (0, 1, 2)


def test_vectors_have_no_shares():
    laplace: Any = Laplace(dim=3, radius=1.0, epsilon=Fraction(1))
    public = np.random.default_rng(0).standard_normal((100, 3))
    release = offaxis.fit(None, public, epsilon=2, mechanism="laplace", reshaping="none")
    with pytest.raises(InvalidInput, match=r"laplace randomizer hold vectors.*aggregate\(\)"):
        release.shares([])
    with pytest.raises(InvalidInput, match="randomizer of symbols, got Laplace"):
        estimate_shares([np.zeros((1, 3))], laplace)


def test_bad_reports_and_labels_are_rejected(answers):
    reports = answers.privatize(PEOPLE[:4])
    with pytest.raises(InvalidReport):
        answers.shares([*reports, b"not a report"])
    with pytest.raises((InvalidInput, InvalidReport)):
        answers.shares([])
    with pytest.raises(InvalidInput, match="one entry per report, got only 2"):
        answers.shares(reports, groups=["a", "b"])
    with pytest.raises(InvalidInput, match="got more than 4"):
        answers.shares(reports, groups=["a"] * 5)
    with pytest.raises(InvalidInput, match="got NaN at index 0"):
        answers.shares(reports, groups=[float("nan")] * 4)


@pytest.mark.parametrize(
    ("counts", "form", "settings", "message"),
    [
        ([1, 2], response(3, 1), {}, "shape"),
        ([1.0, 2.0, 3.0], response(3, 1), {}, "integers"),
        ([-1, 2, 3], response(3, 1), {}, "at least one report"),
        ([0, 0, 0], response(3, 1), {}, "at least one report"),
        ([3, 1, 0, 0], subset(4, 1, 2), {}, "2 different symbols"),
        ([1, 1, 1, 0], subset(4, 1, 2), {}, "2 different symbols"),
        ([1, 2, 3], response(3, 1), {"names": ["a"]}, "3 texts"),
        ([1, 2, 3], response(3, 1), {"names": ["a", "b", 3]}, "3 texts"),
        ([[1, 2, 3]], response(3, 1), {"groups": ("a", "b")}, "shape"),
    ],
)
def test_invalid_counts_are_rejected(counts, form, settings, message):
    with pytest.raises(InvalidInput, match=message):
        Shares(counts, form, **settings)


def test_invalid_levels_and_groups_are_rejected():
    shares = Shares(np.array([1, 2, 3]), response(3, 1))
    for level in (0, 1, -1, 2, float("nan")):
        with pytest.raises(InvalidInput, match="level"):
            shares.interval(level)
    with pytest.raises(InvalidInput, match="not grouped"):
        shares.of("a")
    grouped = Shares(np.array([[1, 2, 3]]), response(3, 1), groups=("a",))
    with pytest.raises(InvalidInput, match="no report belongs to group 'b'"):
        grouped.difference("a", "b")
    with pytest.raises(ValueError, match="read-only"):
        shares.counts[0] = 7
