"""Trends from sequences: unbiased, and intervals that count people, not reports."""

from __future__ import annotations

import numpy as np
import pytest

import offaxis
from offaxis.client.sequences import first_reports, next_reports
from offaxis.errors import BiasedDecoder, InvalidInput, InvalidReport
from offaxis.learning import expected_error, trend
from offaxis.learning.trends import _near
from offaxis.sampling.entropy import Entropy

PERIOD, ROUNDS, CLASSES = 20, 50, 3


@pytest.fixture(scope="module")
def classes():
    public = np.random.default_rng(0).standard_normal((300, CLASSES))
    single = offaxis.fit(np.eye(CLASSES), public, epsilon=3, mechanism="class-response")
    return offaxis.memoise(single, draws=3, period=PERIOD)


def crowd(rng, people: int, rounds: int = ROUNDS) -> np.ndarray:
    """Return the symbols of people (rounds, people), whose mix moves slowly."""
    symbols = np.empty((rounds, people), dtype=int)
    symbols[0] = rng.integers(0, CLASSES, people)
    for t in range(1, rounds):
        moves = rng.random(people) < 0.02
        symbols[t] = np.where(moves, rng.integers(0, 2, people), symbols[t - 1])
    return symbols


def collect(release, symbols):
    """Return the reports of every round, and the people who drew in it."""
    people, days, drew = [None] * symbols.shape[1], {}, {}
    points = 5.0 * np.eye(release.input_dim)
    for number, today in enumerate(symbols):
        vectors = {at: points[x] for at, x in enumerate(today)}
        days[number], people = next_reports(release, people, number, vectors)
        drew[number] = [at for at, state in enumerate(people) if state.drawn == number]
    return days, drew


def window_shares(symbols, drew, number: int, half: int) -> np.ndarray:
    """Return what an estimate is about: the shares of the rounds of drawing, by number of draws."""
    rounds = [s for s in drew if drew[s]]
    if all(abs(s - number) > half for s in rounds):
        number = min(rounds, key=lambda s: abs(s - number))
    near = [s for s in rounds if abs(s - number) <= half]
    weights = np.array([len(drew[s]) for s in near], dtype=float)
    shares = np.array([np.bincount(symbols[s], minlength=CLASSES) for s in near])
    return weights @ shares / weights.sum() / symbols.shape[1]


@pytest.fixture(scope="module")
def crowds(classes):
    """Forty crowds of 250 people, with their reports."""
    rng = np.random.default_rng(3)
    return [
        (symbols, *collect(classes, symbols)) for symbols in (crowd(rng, 250) for _ in range(40))
    ]


@pytest.mark.parametrize("keep", [1.0, 0.6])
def test_intervals_cover_what_they_are_about(classes, crowds, keep):
    """Coverage of 95 % intervals over 40 crowds, at rounds whose windows share no draw.

    At least 480 intervals of three dependent shares: below 90 % less than once in 10^6 runs, if
    a third of them counts as independent. Counting every report as a person is a broken control.
    """
    rng = np.random.default_rng(3)
    covered, naive = [], []
    for symbols, everything, drew in crowds:
        days = {
            number: [report for report in reports if rng.random() < keep]
            for number, reports in everything.items()
        }
        estimated = trend(classes, days, window=9)
        low, high = estimated.interval(0.95)
        reports = sum(len(day) for day in days.values())
        for number in (4, 13, 22, 31):
            truth = window_shares(symbols, drew, number, 4)
            at = number
            covered.append((low[at] <= truth) & (truth <= high[at]))
            share = estimated.draws[at] / reports * ROUNDS
            error = estimated.standard_error[at] * np.sqrt(share / PERIOD)
            naive.append(np.abs(estimated.estimate[at] - truth) <= 1.96 * error)
    assert np.mean(covered) > 0.90
    assert np.mean(naive) < 0.8


def one_cohort(release, symbols, shown):
    """Return the reports of people who draw in round 0; ``shown`` has who reports in each round."""
    points = 5.0 * np.eye(release.input_dim)
    first = {at: points[x] for at, x in enumerate(symbols)}
    reports, people = next_reports(release, [None] * len(symbols), 0, first)
    days = {0: [reports[at] for at in shown[0]]}
    for number, who in enumerate(shown[1:], start=1):
        more, states = next_reports(release, [people[at] for at in who], number, {})
        for at, state in zip(who, states, strict=True):
            people[at] = state
        days[number] = more
    return days


def test_the_error_of_a_cohort_is_the_closed_form():
    """Also where the part that is drawn anew is ten times the part that repeats."""
    public = np.random.default_rng(0).standard_normal((300, 4))
    single = offaxis.fit(np.eye(4), public, epsilon=1, mechanism="class-response")
    release = offaxis.memoise(single, draws=1, period=200)
    people, rounds = 300, 30
    symbols = np.repeat(np.arange(4), people // 4)
    days = one_cohort(release, symbols, [range(people)] * rounds)
    values = np.array([0.0, 1.0, 5.0, -2.0])
    layer = (np.ones((4, 4)) + (np.e - 1) * np.eye(4)) / (np.e + 3)
    numbers = np.column_stack([np.eye(4), values])
    unbiased = np.linalg.inv(layer @ layer) @ numbers  # of each reported symbol
    held = layer.mean(axis=0) @ (layer @ unbiased) ** 2 - numbers.mean(axis=0) ** 2
    whole = layer.mean(axis=0) @ unbiased**2 - numbers.mean(axis=0) ** 2
    expected = np.sqrt((held + (whole - held) / rounds) / people)
    shares, means = trend(release, days), trend(release, days, values=values)
    assert shares.standard_error[0] == pytest.approx(expected[:4], rel=0.15)
    assert means.standard_error[0] == pytest.approx(expected[4:], rel=0.15)
    assert (whole[0] - held[0]) / held[0] > 5


def test_intervals_hold_whoever_reports_in_whichever_rounds():
    """Two groups with different answers report in alternate rounds: 60 crowds.

    Below 85 % less than once in 10^6 runs if the coverage is 95 %. Told from the differences
    between rounds, as in earlier versions, the error was half as large, and 63 % were covered.
    """
    public = np.random.default_rng(0).standard_normal((300, 2))
    single = offaxis.fit(np.eye(2), public, epsilon=2, mechanism="class-response")
    release = offaxis.memoise(single, draws=1, period=100)
    rng, groups = np.random.default_rng(4), [range(0, 200, 2), range(1, 200, 2)]
    covered = []
    for _ in range(60):
        symbols = (rng.random(200) < np.tile([0.1, 0.9], 100)).astype(int)
        days = one_cohort(release, symbols, [range(200), *[groups[n % 2] for n in range(30)]])
        low, high = trend(release, days, window=1).interval(0.95)
        covered.append(low[0, 0] <= 1 - symbols.mean() <= high[0, 0])
    assert np.mean(covered) > 0.85


@pytest.mark.parametrize(("epsilon", "instant"), [(1, 1), (4, 2), (2, 6)])
def test_the_error_of_a_mean_is_what_means_scatter_by(epsilon, instant):
    """400 means of three coordinates: within 15 %, 7 standard deviations of the scatter."""
    rng = np.random.default_rng(7)
    public = rng.standard_normal((300, 3))
    single = offaxis.fit(None, public, epsilon=epsilon, goal="means")
    release = offaxis.memoise(single, draws=1, period=60, instant=instant)
    vectors, rounds, crowds, people = 0.5 * public[:50] + [0.5, 0.0, -0.5], 4, 400, 50
    first = dict(enumerate(np.tile(vectors, (crowds, 1))))
    reports, states = next_reports(release, [None] * (crowds * people), 0, first)
    days = {0: reports}
    for number in range(1, rounds):
        days[number], states = next_reports(release, states, number, {})
    estimates, errors = [], []
    for start in range(0, crowds * people, people):
        found = trend(release, {n: days[n][start : start + people] for n in days}, window=1)
        estimates.append(found.estimate[0])
        errors.append(found.standard_error[0])
    # Vectors are fixed here: what they scatter by is not part of this scatter.
    between = vectors.var(axis=0) / people
    scatter = np.sqrt(np.var(estimates, axis=0) + between)
    assert np.sqrt(np.mean(np.square(errors), axis=0)) == pytest.approx(scatter, rel=0.15)


def test_intervals_cover_a_burst_that_few_rounds_have(classes):
    """The noise of a report depends on its symbol: each window has its own variance.

    One variance for all rounds covered 39 to 90 % here, the more symbols the less.
    """
    rng = np.random.default_rng(11)
    public = rng.standard_normal((1000, 30))
    single = offaxis.fit(np.eye(30), public, epsilon=4, mechanism="class-response")
    release = offaxis.memoise(single, draws=0, period=20)
    covered = []
    for _ in range(6):
        symbols = np.tile(rng.integers(1, 30, 300), (50, 1))
        symbols[20:30] = 0
        days, drew = collect(release, symbols)
        estimated = trend(release, days, window=9)
        low, high = estimated.interval(0.95)
        for at in (21, 25, 29):
            people = [(s, i) for s in drew if abs(s - at) <= 4 for i in drew[s]]
            truth = np.mean([symbols[s, i] == 0 for s, i in people])
            covered.append(low[at, 0] <= truth <= high[at, 0])
    assert np.mean(covered) > 0.7, "of 18 dependent intervals; the pooled variance has 0.55"


def test_answers_of_unknown_age_are_left_out(classes):
    randomizer = classes.randomizer
    held = randomizer.hold(np.zeros(50, dtype=int), Entropy())
    head = first_reports(classes, np.eye(CLASSES))[0][0][:12]
    old, new = (
        [head + payload for payload in randomizer.show(held, [age] * 50, Entropy())]
        for age in (65_535, 3)
    )
    estimated = trend(classes, {70_000: old + new, 70_001: old})
    assert estimated.draws.tolist() == [50.0, 50.0]
    with pytest.raises(InvalidInput, match="no reports"):
        trend(classes, {70_000: old})


def test_a_change_is_found_and_its_size_is_right(classes):
    rng = np.random.default_rng(5)
    symbols = np.zeros((45, 2000), dtype=int)
    symbols[22:, :1200] = 2
    symbols[:, 1200:] = rng.integers(0, CLASSES, 800)
    days, _ = collect(classes, symbols)
    estimated = trend(classes, days, window=5)
    change = estimated.change(0, 40)
    low, high = change.interval(1 - 1e-6)
    assert low[2] > 0.3
    assert low[2] < 0.6 + 0.1
    assert high[0] < -0.3
    assert ((low <= [-0.6, 0, 0.6]) & (high >= [-0.6, 0, 0.6])).all()
    with pytest.raises(InvalidInput, match="share draws"):
        estimated.change(10, 12)
    with pytest.raises(InvalidInput, match="no estimates"):
        estimated.change(0, 99)


def test_a_reference_carries_the_daily_movement(classes):
    """All people switch every round; a public series that does so, too, leaves a constant."""
    rng = np.random.default_rng(6)
    base = rng.integers(0, CLASSES, 3000)
    symbols = np.array([(base + t) % CLASSES for t in range(30)])
    days, _ = collect(classes, symbols)
    public = {t: np.roll(np.bincount(base[:500], minlength=CLASSES) / 500, t) for t in range(30)}
    truth = np.array([np.bincount(today, minlength=CLASSES) / base.size for today in symbols])
    referred = trend(classes, days, reference=public)
    plain = trend(classes, days)
    assert np.abs(referred.estimate - truth).mean() < 0.03
    assert referred.estimate.shape == plain.estimate.shape == (30, CLASSES)
    with pytest.raises(InvalidInput, match="no numbers for round 29"):
        trend(classes, days, reference={t: public[t] for t in range(29)})


def test_values_turn_shares_into_means(classes):
    symbols = np.tile(np.repeat([0, 1, 2], 1000), (12, 1))
    days, _ = collect(classes, symbols)
    shares = trend(classes, days)
    values = np.array([1.0, 2.0, 6.0])
    means = trend(classes, days, values=values)
    assert means.estimate[:, 0] == pytest.approx(shares.estimate @ values)
    assert means.names == ("0",)
    low, high = means.interval(1 - 1e-6)
    assert (low[:, 0] < 3).all()
    assert (high[:, 0] > 3).all()
    with pytest.raises(InvalidInput, match="one row for each of 3 symbols"):
        trend(classes, days, values=[1.0, 2.0])


def test_means_of_vectors():
    rng = np.random.default_rng(2)
    public = rng.standard_normal((500, 3))
    single = offaxis.fit(None, public, epsilon=6, goal="means")
    release = offaxis.memoise(single, draws=2, period=10, instant=6)
    people: list = [None] * 3000
    vectors = 0.3 * rng.standard_normal((3000, 3)) + [0.5, 0.0, -0.5]
    days = {}
    for number in range(8):
        reports, people = next_reports(release, people, number, dict(enumerate(vectors)))
        days[number] = reports
    estimated = trend(release, iter(days.items()))
    low, high = estimated.interval(1 - 1e-6)
    assert ((low <= vectors.mean(axis=0)) & (vectors.mean(axis=0) <= high)).all()
    assert (high - low)[0].max() < 0.6, "everybody drew in the first round"
    with pytest.raises(InvalidInput, match="releases of symbols"):
        trend(release, days, values=np.ones(3))


def test_estimates_from_new_answers_do_not_depend_on_who_goes_on_reporting(classes):
    """People of class 0 stop after their first report: 2,000 of them, six standard errors."""
    symbols = np.repeat([0, 1, 2], 2000)
    days = one_cohort(classes, symbols, [range(6000), *[range(2000, 6000)] * 5])
    biased = trend(classes, days, window=1)
    unbiased = trend(classes, days, window=1, new_only=True)
    assert abs(unbiased.estimate[0, 0] - 1 / 3) < 6 * unbiased.standard_error[0, 0]
    assert biased.estimate[0, 0] < 1 / 3 - 6 * biased.standard_error[0, 0]
    assert unbiased.standard_error[0, 0] > biased.standard_error[0, 0]


def test_a_report_of_an_impossible_age_stops_nothing(classes):
    symbols = np.zeros(40, dtype=int)
    days = one_cohort(classes, symbols, [range(40)] * 3)
    held = classes.randomizer.hold(symbols[:1], Entropy())
    head = days[0][0][:12]
    forged = [head + payload for payload in classes.randomizer.show(held, [60_000], Entropy())]
    reference = dict.fromkeys(range(3), np.ones(3) / 3)
    for options in ({}, {"reference": reference}, {"new_only": True}):
        expected = trend(classes, days, **options)
        found = trend(classes, days | {1: days[1] + forged}, **options)
        assert np.array_equal(found.estimate, expected.estimate)


def test_answers_from_before_the_reference_are_left_out(classes):
    days = one_cohort(classes, np.zeros(40, dtype=int), [range(40)] * 3)
    with pytest.raises(InvalidInput, match="no reports"):
        trend(classes, {1: days[1]}, reference={1: np.zeros(3)})
    with pytest.raises(InvalidInput, match="reference"):
        trend(classes, days, reference=dict.fromkeys(range(3), np.nan))


PHASES = {0: 200, **dict.fromkeys(range(10, 30), 10)}


@pytest.mark.parametrize(
    ("drawn", "number", "expected"),
    [
        # All draw in round 0, and ten in every round from 10 to 29. Windows have 9 rounds.
        (PHASES, 0, (0, 0)),
        (PHASES, 5, (0, 0)),
        (PHASES, 10, (10, 15)),
        (PHASES, 20, (16, 24)),
        # After the last draw: more than its last rounds.
        (PHASES, 80, (24, 29)),
        # A study that grows: 1,000 draws are enough.
        ({t: 40 * t + 1 for t in range(40)}, 20, (16, 24)),
        ({t: 40 * t + 1 for t in range(40)}, 60, (39, 39)),
        # Few people: what there is.
        ({0: 5, 50: 8}, 10, (0, 0)),
        ({0: 5, 50: 8}, 40, (50, 50)),
    ],
)
def test_a_round_with_few_draws_has_the_nearest_window_with_enough(drawn, number, expected):
    at, people = np.array(list(drawn)), np.array(list(drawn.values()), dtype=float)
    near = _near(np.arange(100), at, people, 4)
    window = at[near[number]]
    assert (window.min(), window.max()) == expected


def test_a_trend_shows_its_size(classes):
    days = one_cohort(classes, np.zeros(40, dtype=int), [range(40)] * 3)
    assert repr(trend(classes, days)) == (
        "Trend(rounds 0 to 2, 3 estimates of each, window of 9, 40 to 40 draws)"
    )


@pytest.mark.parametrize("goal", ["answers", "means"])
def test_the_error_that_is_expected_is_the_one_that_trends_state(goal):
    """In the middle of a study of 600 people, 5 periods long."""
    rng = np.random.default_rng(8)
    public = rng.standard_normal((500, 3))
    if goal == "answers":
        single = offaxis.fit(np.eye(3), public, epsilon=2, mechanism="class-response")
    else:
        single = offaxis.fit(None, public, epsilon=2, goal="means")
    release = offaxis.memoise(single, draws=0, period=12)
    people: list = [None] * 600
    vectors = dict(enumerate(rng.standard_normal((600, 3)) - public.mean(axis=0)))
    days = {}
    for number in range(60):
        days[number], people = next_reports(release, people, number, vectors)
    found = trend(release, days)
    stated = np.sqrt(np.square(found.standard_error[20:40]).mean())
    assert stated == pytest.approx(expected_error(release, 600), rel=0.15)
    assert expected_error(release, 2400) == pytest.approx(expected_error(release, 600) / 2)
    with pytest.raises(InvalidInput, match="people"):
        expected_error(release, 0)


def test_input_that_has_no_trend(classes):
    public = np.random.default_rng(0).standard_normal((100, CLASSES))
    single = offaxis.fit(np.eye(CLASSES), public, epsilon=1, mechanism="class-response")
    with pytest.raises(InvalidInput, match=r"offaxis\.memoise"):
        trend(single, {0: single.privatize(public)})
    with pytest.raises(InvalidInput, match="no reports"):
        trend(classes, {})
    with pytest.raises(InvalidInput, match="no reports"):
        trend(classes, {0: []})
    days, _ = collect(classes, np.zeros((2, 30), dtype=int))
    for rounds in (list(days.values()), [days[0]]):
        with pytest.raises(InvalidInput, match="mapping from numbers to reports"):
            trend(classes, rounds)
    for number in (-1, 2**63, "3", True):
        with pytest.raises(InvalidInput, match="number must be an integer"):
            trend(classes, {number: days[0]})
    for window in (0, 2, 11, True):
        with pytest.raises(InvalidInput, match="window"):
            trend(classes, days, window=window)
    with pytest.raises(InvalidReport, match="belongs to release"):
        trend(classes, {0: single.privatize(public)})
    biased = offaxis.fit(None, public, epsilon=1, mechanism="privunit2", reshaping="centre")
    with pytest.raises(BiasedDecoder):
        trend(offaxis.memoise(biased, draws=1, period=9), {0: []})
