"""Checks of a public model: unbiased whoever the people are, with intervals that cover."""

from __future__ import annotations

import math

import numpy as np
import pytest

import offaxis
from offaxis.errors import InvalidInput, InvalidReport
from offaxis.geometry import Layers
from offaxis.learning import (
    Classes,
    Number,
    ReportClassifier,
    accuracy,
    cells,
    fit_check,
    fit_pairs,
    learn,
    principal,
)
from offaxis.simulation import draw_observations
from tests.checks import ALPHA, mean_p_value

RNG = np.random.default_rng(0)
PUBLIC = RNG.standard_normal((200, 3))
PEOPLE = RNG.standard_normal((3000, 3))
MODEL = Layers.linear(np.eye(3))
SAID = PEOPLE.argmax(axis=1)
NAMES = ("cat", "dog", "owl")
LABELS = np.where(RNG.random(3000) < 0.7, SAID, (SAID + 1) % 3)
"""The model is right for about 70 % of people."""

RIGHT = float((LABELS == SAID).mean())


def test_the_estimate_is_unbiased_and_within_the_stated_deviation():
    """500 checks of the same people; the deviation is at most 1/(2 tanh(ε/2) √n)."""
    release = fit_check(MODEL, PUBLIC, epsilon=1)
    symbols = release.encoder.encode(release.pairs(PEOPLE[:300], LABELS[:300]))
    right, rng = symbols.mean(), np.random.default_rng(1)
    drawn = draw_observations(release.randomizer, np.tile(symbols, 500), rng)
    estimates = drawn[:, 1].reshape(500, 300).mean(axis=1)
    assert mean_p_value(estimates, right) > ALPHA
    bound = 1 / (2 * math.tanh(0.5) * math.sqrt(300))
    assert estimates.std() < 1.1 * bound
    assert estimates.std() > 0.8 * bound  # the bound is nearly met at this budget
    # Broken control: the bits as they arrive, which tend to one half.
    bits = (drawn[:, 1] > 0).reshape(500, 300).mean(axis=1)
    assert mean_p_value(bits, right) < ALPHA


@pytest.mark.parametrize("epsilon", [0.5, 2, 8])
def test_reports_of_devices_tell_the_accuracy(epsilon):
    """Five standard errors: 1e-6. Broken control: the labels of other people."""
    release = fit_check(MODEL, PUBLIC, epsilon=epsilon)
    found = accuracy(release, release.privatize(PEOPLE, answers=LABELS))
    assert abs(found.estimate - RIGHT) < 5 * found.standard_error
    low, high = found.interval(0.999999)
    assert low <= RIGHT <= high
    assert found.standard_error <= 1.02 / (2 * math.tanh(epsilon / 2) * math.sqrt(3000))
    assert repr(found) == f"accuracy {found.estimate:.3f} ± {found.standard_error:.3f}"
    others = accuracy(release, release.privatize(PEOPLE, answers=(SAID + 1) % 3))
    assert abs(others.estimate - RIGHT) > 5 * others.standard_error


def test_intervals_cover_for_any_number_of_people():
    """Clopper and Pearson: at least 95 % for every n. Below 92 % of 1,000, once in 10⁵ at most."""
    rng = np.random.default_rng(2)
    release = fit_check(MODEL, PUBLIC, epsilon=1)
    for people, right in ((3, 1.0), (20, 0.9), (200, 0.5)):
        covered, narrow = [], []
        for _ in range(330):
            symbols = (rng.random(people) < right).astype(np.int64)
            observed = draw_observations(release.randomizer, symbols, rng)
            shares = offaxis.decoding.estimate_shares([observed], release.randomizer)
            low, high = shares.interval(0.95)
            covered.append(low[1] <= right <= high[1])
            narrow.append(abs(shares.estimate[1] - right) < 0.5 * (high[1] - low[1]) / 2)
        assert np.mean(covered) > 0.92
        assert np.mean(narrow) < 0.9  # broken control: half as wide


# ---- Models


def right_of(release, answers) -> float:
    """Return the share of people whose report is drawn for a right answer."""
    return float(release.encoder.encode(release.pairs(PEOPLE, answers)).mean())


def test_a_check_asks_what_the_model_answers():
    named = Layers([np.eye(3)], [np.zeros(3)], answers=NAMES)
    release = fit_check(named, PUBLIC, epsilon=1, unit="user", statement="a public corpus")
    assert release.asked == (Classes(NAMES),)
    assert (release.unit, release.provenance.statement) == ("user", "a public corpus")
    assert release.provenance.public.count == 200
    assert right_of(release, np.array(NAMES)[LABELS]) == pytest.approx(RIGHT)
    assert fit_check(MODEL, PUBLIC, epsilon=1).asked == (Classes(3),)
    own = fit_check(MODEL, PUBLIC, Classes(["x", "y", "z"], name="animal"), epsilon=1)
    assert right_of(own, np.array(["x", "y", "z"])[LABELS]) == pytest.approx(RIGHT)
    assert release.shares(release.privatize(PEOPLE[:9], answers=["cat"] * 9)).names == (
        "wrong",
        "right",
    )


def test_names_in_another_order_stand_for_the_same_answers():
    """Or are refused."""
    named = Layers([np.eye(3)], [np.zeros(3)], answers=NAMES)
    try:
        release = fit_check(named, PUBLIC, list(reversed(NAMES)), epsilon=1)
    except InvalidInput:
        return
    assert right_of(release, np.array(NAMES)[LABELS]) == pytest.approx(RIGHT)


def test_networks_and_models_of_scikit_learn_are_checked():
    linear_model = pytest.importorskip("sklearn.linear_model")
    from sklearn.neural_network import MLPClassifier

    names = np.array(NAMES)
    few, truth = PEOPLE[:400], names[LABELS[:400]]
    network = MLPClassifier((5,), max_iter=30, random_state=0, tol=0.05).fit(few, truth)
    for model in (linear_model.LogisticRegression().fit(few, truth), network):
        release = fit_check(model, PUBLIC, epsilon=1)
        assert right_of(release, names[LABELS]) == pytest.approx(
            model.score(PEOPLE, names[LABELS]), abs=1e-3
        )


@pytest.mark.parametrize("make", [principal, lambda public: cells(public, 6)])
def test_models_from_reports_are_checked(make):
    release = fit_pairs(make(PUBLIC), NAMES, epsilon=6)
    model = learn(release, release.privatize(PEOPLE, answers=LABELS))
    check = fit_check(model, PUBLIC, epsilon=1)
    names = np.array(NAMES)[LABELS]
    assert right_of(check, names) == pytest.approx(model.score(PEOPLE, names))


def test_a_number_is_right_within_a_distance():
    weight = np.array([[1.0, -2.0, 0.5]])
    numbers = PEOPLE @ weight[0] + RNG.standard_normal(3000)
    for within in (0.1, 1.0, 100.0):
        release = fit_check(weight, PUBLIC, Number(-50, 50), within=within, epsilon=1)
        truth = np.mean(np.abs(numbers - PEOPLE @ weight[0]) <= within)
        assert right_of(release, numbers) == pytest.approx(truth)
        assert release.provenance.settings["within"] == within


def test_a_number_that_is_clipped_is_compared_as_it_is_clipped():
    release = fit_check(np.ones((1, 3)), PUBLIC, Number(-1, 1), within=0.5, epsilon=1)
    rows = release.pairs([[0.6, 0, 0], [0.4, 0, 0], [1.6, 0, 0]], [9.0, 9.0, 9.0])
    assert release.encoder.encode(rows).tolist() == [1, 0, 0]


# ---- What is refused


@pytest.mark.parametrize(
    ("model", "answers", "more"),
    [
        (MODEL, 2, {}),
        (MODEL, 4, {}),
        (MODEL, Number(0, 1), {"within": 0.1}),
        (MODEL, Classes(3, optional=True), {}),
        (MODEL, [Classes(3, name="a"), Classes(3, name="b")], {}),
        (MODEL, 3, {"within": 0.1}),
        (MODEL, 3, {"statement": 5}),
        (MODEL, 3, {"statement": "a" * 20_000}),
        (np.ones((1, 3)), None, {}),
        (np.ones((1, 3)), 2, {}),
        (np.ones((1, 3)), Number(0, 1), {}),
        (np.ones((1, 3)), Number(0, 1), {"within": 0}),
        (np.ones((1, 3)), Number(0, 1), {"within": -1.0}),
        (np.ones((1, 3)), Number(0, 1), {"within": math.nan}),
        (np.ones((1, 3)), Number(0, 1), {"within": "much"}),
        (np.ones((3, 4)), 3, {}),
        (lambda Z: Z, None, {}),
        (lambda Z: Z, 3, {}),
        (MODEL, ["a"], {}),
    ],
)
def test_what_cannot_be_checked_is_an_error(model, answers, more):
    with pytest.raises(InvalidInput):
        fit_check(model, PUBLIC, answers, epsilon=1, **more)


def test_a_model_that_is_not_learnt_cannot_be_checked():
    model = ReportClassifier(fit_pairs(principal(PUBLIC), 3, epsilon=1))
    with pytest.raises(InvalidInput):
        fit_check(model, PUBLIC, epsilon=1)


def test_only_reports_of_a_check_tell_an_accuracy():
    check = fit_check(MODEL, PUBLIC, epsilon=1)
    pairs = fit_pairs(principal(PUBLIC), 3, epsilon=1)
    reports = pairs.privatize(PEOPLE[:10], answers=LABELS[:10])
    with pytest.raises(InvalidInput, match=r"fit_check\(\)"):
        accuracy(pairs, reports)
    for wrong in (reports, [], [b""], None, 5, "text"):
        with pytest.raises(InvalidReport):
            accuracy(check, wrong)
    with pytest.raises(InvalidInput, match=r"accuracy\(\)"):
        learn(check, check.privatize(PEOPLE[:10], answers=LABELS[:10]))
    found = accuracy(check, check.privatize(PEOPLE[:10], answers=LABELS[:10]))
    for level in (0, 1, 2, "high"):
        with pytest.raises(InvalidInput):
            found.interval(level)


def test_one_report_has_no_standard_error_but_an_interval():
    check = fit_check(MODEL, PUBLIC, epsilon=1)
    found = accuracy(check, check.privatize(PEOPLE[0], answers=0))
    assert found.standard_error == math.inf
    low, high = found.interval()
    assert (low, high) == (0.0, 1.0)


@pytest.mark.parametrize("secret", ["a-private-answer", 87654321, 0.87654321, None])
def test_a_wrong_answer_is_an_error_that_does_not_contain_it(secret):
    check = fit_check(MODEL, PUBLIC, epsilon=1)
    with pytest.raises(InvalidInput) as caught:
        check.privatize(PEOPLE[0], answers=[secret])
    assert "a-private-answer" not in str(caught.value)
    assert "87654321" not in str(caught.value)


def test_many_dimensions_take_no_covariance(monkeypatch):
    """At 10,000 dimensions it takes 3 GB."""
    from offaxis.geometry.public import PublicMoments

    added, add = [], PublicMoments.add
    monkeypatch.setattr(
        PublicMoments, "add", lambda self, batch: (added.append(len(batch)), add(self, batch))
    )
    fit_check(MODEL, PUBLIC, epsilon=1)
    assert not added
