"""Models from reports: unbiased moments, the stated posterior, and networks that say the same.

People are simulated with a fixed seed where many reports are needed. A statistical check raises a
false alarm with probability ALPHA unless it states another one.
"""

from __future__ import annotations

import copy
import math
import pickle

import numpy as np
import pytest
from scipy import stats
from scipy.special import softmax

import offaxis
from offaxis.encoding.pairs import simplex
from offaxis.errors import InvalidInput, InvalidReport, OffaxisError
from offaxis.geometry import Layers
from offaxis.learning import (
    Classes,
    Number,
    PairSums,
    ReportClassifier,
    ReportRegressor,
    accuracy,
    cells,
    fit_check,
    fit_pairs,
    learn,
    principal,
    random_features,
)
from offaxis.learning.moments import Moments, logistic, posterior_mean
from offaxis.learning.sums import FOLDS, pair_sums
from offaxis.learning.tables import Table, projected
from offaxis.simulation import draw_observations
from tests.checks import ALPHA, mean_p_value, with_optional_numbers

RNG = np.random.default_rng(0)
PUBLIC = RNG.standard_normal((1000, 4))
LINEAR, TABLE = principal(PUBLIC), cells(PUBLIC, 4)
NAMES = np.array(["no", "perhaps", "yes"])

CENTRES = 6 * np.eye(8)
CLUSTERS = CENTRES[np.arange(2000) % 8] + 0.5 * RNG.standard_normal((2000, 8))


def simulated(release, vectors, answers=None, *, labels=None, named=None, seed=1) -> PairSums:
    """Return the sums of simulated reports, with public labels if given."""
    rows = vectors if answers is None else release.pairs(vectors, answers)
    encoded = release.encoder.encode(rows)
    observed = draw_observations(release.randomizer, encoded, np.random.default_rng(seed))
    sums = PairSums(release, labels)
    sums.add_observed(observed, None if named is None else np.asarray(named, dtype=float))
    return sums


def classes_of_people(people):
    """Return one of three classes, with noise, that depends on the first two coordinates."""
    logits = people[:, :2] @ np.array([[2.0, -1.0, 0.0], [0.0, 1.0, -2.0]]) + [0.5, 0.0, 0.0]
    drawn = np.random.default_rng(2).gumbel(size=logits.shape)
    return (logits + drawn).argmax(axis=1)


# ---- Moments and tables are unbiased

CROWD = RNG.standard_normal((24, 4))
KIND = classes_of_people(CROWD)
LEVEL = np.clip(CROWD[:, 2], -1.5, 1.5)
BOTH = [Classes(3, name="kind", optional=True), Number(-1.5, 1.5, name="level")]


def code(classes):
    return simplex(3)[classes]


SETTINGS = {
    "classes": (3, {"answer": KIND}, None, 0, code(KIND)),
    "number": (Number(-1.5, 1.5), {"answer": LEVEL}, None, 0, LEVEL[:, None] / 1.5),
    "several, classes": (
        BOTH,
        {"kind": [None if y == 2 else y for y in KIND], "level": LEVEL},
        None,
        0,
        np.where(KIND[:, None] == 2, 0, code(KIND)),
    ),
    "several, number": (BOTH, {"kind": KIND, "level": LEVEL}, None, 1, LEVEL[:, None] / 1.5),
    "public classes": (None, KIND, Classes(3), 0, code(KIND)),
    "public number": (None, LEVEL, Number(-1.5, 1.5), 0, LEVEL[:, None] / 1.5),
}


@pytest.mark.parametrize("setting", SETTINGS)
def test_moments_are_unbiased_with_the_stated_noise(setting):
    """Groups of 240 people, ten of each kind: E M̂ = E[a(y) xᵀ], and its squared error as stated."""
    answers, given, labels, place, codes = SETTINGS[setting]
    release = fit_pairs(LINEAR, answers, epsilon=4)
    encoder = release.encoder
    truth = codes.T @ LINEAR.of(CROWD) / 24
    rows = CROWD if labels is not None else release.pairs(CROWD, given)
    encoded = np.tile(encoder.encode(rows), (2400, 1))
    observed = draw_observations(release.randomizer, encoded, np.random.default_rng(3))
    estimates, noise = [], []
    for group in observed.reshape(240, 240, -1):
        sums = PairSums(release, labels)
        sums.add_observed(group, None if labels is None else np.tile(given, 10).astype(float))
        moments = Moments.of(sums, labels or release.asked[place], encoder)
        estimates.append(moments.cross.ravel())
        noise.append(moments.noise)
    estimates = np.array(estimates)
    assert mean_p_value(estimates, truth.ravel()) > ALPHA
    shifted = np.roll(codes, 1, axis=1) if codes.shape[1] > 1 else 0.7 * codes
    wrong = (shifted.T @ LINEAR.of(CROWD) / 24).ravel()
    assert mean_p_value(estimates, wrong) < ALPHA  # broken control
    # People are fixed, so their spread is no error; noise counts it, at most 1 in 1/A².
    squared = ((estimates - truth.ravel()) ** 2).mean(axis=1) * 240
    length = 1 / release.randomizer.mean**2
    assert 1 - 1.5 / length < squared.mean() / np.mean(noise) < 1.1
    if setting.startswith("several"):
        assert squared.mean() > 1.5 * np.mean(noise) / 2  # broken control: no factor 2


@pytest.mark.parametrize("form", ["moments", "cells", "public moments", "public cells"])
def test_exact_reports_give_what_is_simulated(form):
    """The reports of devices, by the same z-test on groups."""
    features = LINEAR if "moments" in form else TABLE
    private = not form.startswith("public")
    release = fit_pairs(features, 3 if private else None, epsilon=4)
    people, answers = np.tile(CROWD, (200, 1)), np.tile(KIND, 200)
    reports = release.privatize(people, answers=answers) if private else release.privatize(people)
    estimates = []
    for start in range(0, 4800, 48):
        part = slice(start, start + 48)
        sums = pair_sums(
            release, reports[part], None if private else answers[part], None if private else 3
        )
        asked = sums.labels or release.asked[0]
        if "moments" in form:
            estimates.append(Moments.of(sums, asked, release.encoder).cross.ravel())
        else:
            estimates.append(Table.of(sums, asked, release.encoder).shares().ravel())
    if "moments" in form:
        truth = (code(KIND).T @ LINEAR.of(CROWD) / 24).ravel()
    else:
        truth = np.zeros((4, 3))
        np.add.at(truth, (TABLE.cells_of(CROWD), KIND), 1 / 24)
        truth = truth.ravel()
    assert mean_p_value(np.array(estimates), truth) > ALPHA
    assert mean_p_value(np.array(estimates), np.roll(truth, 1)) < ALPHA  # broken control


@pytest.mark.parametrize("asked", [Classes(3), Classes(3, optional=True), [*BOTH[:1], Classes(2)]])
def test_tables_are_unbiased_with_the_stated_variance(asked):
    """For one answer of several, too; the others are summed over. 300 groups of 120 people."""
    several = isinstance(asked, list)
    release = fit_pairs(TABLE, asked, epsilon=3)
    kinds = [None if y == 2 and release.asked[0].optional else int(y) for y in KIND]
    answers = {"kind": kinds, "answer": KIND % 2} if several else {"answer": kinds}
    truth = np.zeros((4, 3))
    for cell, kind in zip(TABLE.cells_of(CROWD), kinds, strict=True):
        if kind is not None:
            truth[cell, kind] += 1 / 24
    encoded = release.encoder.encode(release.pairs(CROWD, answers))
    rng = np.random.default_rng(4)
    drawn = encoded[rng.integers(24, size=(300, 120))]
    observed = draw_observations(release.randomizer, drawn.ravel(), rng).reshape(300, 120, -1)
    mask = (np.arange(12).reshape(4, 3) % 2).astype(float)
    totals, stated, tables, entries = [], [], [], []
    for group in observed:
        sums = PairSums(release)
        sums.add_observed(group)
        table = Table.of(sums, release.asked[0], release.encoder)
        tables.append(table.shares().ravel())
        totals.append(float((table.shares() * mask).sum()))
        stated.append(table.variance(mask))
        entries.append(table.noise_of_entries().ravel())
    tables, totals = np.array(tables), np.array(totals)
    assert mean_p_value(tables, truth.ravel()) > ALPHA
    assert mean_p_value(tables, np.roll(truth.ravel(), 1)) < ALPHA  # broken control
    deviations = (totals - (truth * mask).sum()) ** 2
    assert mean_p_value(deviations - np.array(stated), 0.0) > ALPHA
    assert mean_p_value(deviations - 0.4 * np.array(stated), 0.0) < ALPHA  # broken control
    by_entry = (tables - truth.ravel()) ** 2
    assert mean_p_value(by_entry - np.array(entries), 0.0) > ALPHA
    assert mean_p_value(by_entry - 0.4 * np.array(entries), 0.0) < ALPHA  # broken control


def test_tables_of_public_labels_have_the_stated_variance():
    """300 groups of 120 people, with 60, 36 and 24 of each class, whatever their cells."""
    release = fit_pairs(TABLE, epsilon=3)
    rng, named = np.random.default_rng(4), np.repeat([0, 1, 2], [60, 36, 24])
    pools = [np.flatnonzero(kind == KIND) for kind in range(3)]
    tables, entries, truth = [], [], np.zeros((4, 3))
    for kind, share in enumerate([0.5, 0.3, 0.2]):
        cell = TABLE.cells_of(CROWD[pools[kind]])
        truth[:, kind] = share * np.bincount(cell, minlength=4) / len(cell)
    for _ in range(300):
        people = CROWD[[rng.choice(pools[kind]) for kind in named]]
        symbols = release.encoder.encode(people)
        sums = PairSums(release, 3)
        sums.add_observed(draw_observations(release.randomizer, symbols, rng), named.astype(float))
        table = Table.of(sums, sums.labels, release.encoder)
        tables.append(table.shares().ravel())
        entries.append(table.noise_of_entries().ravel())
    tables, entries = np.array(tables), np.array(entries)
    assert mean_p_value(tables, truth.ravel()) > ALPHA
    squared = (tables - truth.ravel()) ** 2
    assert mean_p_value(squared - entries, 0.0) > ALPHA
    assert mean_p_value(squared - 0.4 * entries, 0.0) < ALPHA  # broken control


def test_folds_are_disjoint_and_add_up():
    release = fit_pairs(LINEAR, 3, epsilon=2)
    sums = simulated(release, PUBLIC, classes_of_people(PUBLIC))
    moments = Moments.of(sums, release.asked[0], release.encoder)
    whole = np.einsum("f,fwd->wd", moments.counts, moments.folds) / 1000
    np.testing.assert_allclose(whole, moments.cross)
    assert moments.counts.tolist() == [1000 / FOLDS] * FOLDS


# ---- From moments to coefficients


def problem(seed: int, d: int = 5, w: int = 2, size: float = 0.3):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((400, d)) * rng.uniform(0.2, 0.6, d)
    second = x.T @ x / 400
    return size * rng.standard_normal((w, d)) @ second, second


@pytest.mark.parametrize("variance", [1e-6, 1e-4, 1e-3, 1e-2, 1.0])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_coefficients_are_the_posterior_mean(seed, variance):
    """By linear solves, averaged over τ by quadrature: half at zero, half even in ln τ."""
    cross, second = problem(seed)
    rng = np.random.default_rng(seed)
    cross += math.sqrt(variance) * rng.standard_normal(cross.shape)
    largest = np.linalg.eigvalsh(second)[-1]
    logs, means = [], []
    taus = np.append(0.0, np.logspace(-4, 3, 3000) / math.sqrt(largest))
    for tau in taus:
        total = tau**2 * second @ second + variance * np.eye(5)
        law = stats.multivariate_normal(np.zeros(5), total)
        logs.append(law.logpdf(cross).sum())
        means.append(tau**2 * np.linalg.solve(total, second @ cross.T).T)
    weights = softmax(np.array(logs) + np.log(np.append(0.5, np.full(3000, 0.5 / 3000))))
    expected = np.einsum("t,twd->wd", weights, np.array(means))
    expected /= math.sqrt(max(1.0, np.einsum("wi,ij,wj->", expected, second, expected)))
    found = posterior_mean(cross, second, np.zeros(5), variance, np.zeros(2))
    # A sum over 141 values of τ instead of 3,000, with half a step more at either end.
    np.testing.assert_allclose(found.slopes, expected, atol=0.02 * np.abs(expected).max())
    assert found.evidence == pytest.approx(1 - weights[0], abs=5e-3)
    np.testing.assert_allclose(found.offset, 0, atol=1e-12)


def test_without_noise_coefficients_are_those_of_least_squares():
    """With a constant feature and with a known level, about the means."""
    rng = np.random.default_rng(0)
    x = LINEAR.of(PUBLIC)
    y = 0.1 + 0.3 * x[:, 0] - 0.2 * x[:, 1] + 0.05 * rng.standard_normal(1000)
    second, mean = x.T @ x / 1000, x.mean(axis=0)
    cross = (y @ x / 1000)[None]
    fit = np.linalg.lstsq(np.hstack([x[:, :4], np.ones((1000, 1))]), y, rcond=None)[0]
    for level in (None, np.array([y.mean()])):
        found = posterior_mean(cross, second, mean, 1e-12, level)
        np.testing.assert_allclose(found.slopes[0, :4], fit[:4], atol=1e-5)
        assert found.offset[0] == pytest.approx(fit[4], abs=1e-5)
        assert found.slopes[0, 4] == 0
        assert found.evidence > 0.999


def test_noise_alone_gives_no_coefficients_and_no_evidence():
    """More than 12 of 400 without any signal: a false alarm of 1e-4 if 1 % is the rate."""
    _, second = problem(0)
    rng = np.random.default_rng(0)
    found = [
        posterior_mean(0.01 * rng.standard_normal((2, 5)), second, np.zeros(5), 1e-4, np.zeros(2))
        for _ in range(400)
    ]
    assert sum(part.evidence > 0.95 for part in found) <= 12
    assert np.mean([part.evidence for part in found]) < 0.5
    cross, second = problem(1, size=1.0)
    assert posterior_mean(cross, second, np.zeros(5), 1e-6, np.zeros(2)).evidence > 0.999


def test_codes_of_length_one_limit_what_is_explained():
    cross, second = problem(0, size=100.0)
    found = posterior_mean(cross, second, np.zeros(5), 1e-8, np.zeros(2))
    assert np.einsum("wi,ij,wj->", found.slopes, second, found.slopes) == pytest.approx(1)


@pytest.mark.parametrize("classes", [2, 3, 6])
def test_the_logistic_model_of_exact_moments_is_that_of_scikit_learn(classes):
    linear_model = pytest.importorskip("sklearn.linear_model")
    rng = np.random.default_rng(classes)
    x = LINEAR.of(rng.standard_normal((1500, 4)))
    y = (3 * x @ rng.standard_normal((5, classes)) + rng.gumbel(size=(1500, classes))).argmax(
        axis=1
    )
    moments = np.eye(classes)[y].T @ x / 1500
    weight, bias = logistic(x, moments)
    peer = linear_model.LogisticRegression(
        C=1 / (1500 * 1e-6), fit_intercept=False, tol=1e-9, max_iter=5000
    ).fit(x, y)
    expected = peer.predict_proba(x)
    np.testing.assert_allclose(softmax(x @ weight.T + bias, axis=1), expected, atol=5e-3)
    # Broken control: moments of other answers.
    wrong, bias = logistic(x, np.roll(moments, 1, axis=0))
    assert np.abs(softmax(x @ wrong.T + bias, axis=1) - expected).max() > 0.1


def test_projections_are_the_nearest_probabilities():
    """Against all faces of the simplex."""
    rows = np.random.default_rng(0).standard_normal((50, 3)) * 2
    found = projected(rows)
    assert (found >= 0).all()
    np.testing.assert_allclose(found.sum(axis=1), 1)
    grid = np.array([(i, j, 200 - i - j) for i in range(201) for j in range(201 - i)]) / 200
    for row, own in zip(rows, found, strict=True):
        best = ((grid - row) ** 2).sum(axis=1).min()
        assert ((own - row) ** 2).sum() <= best + 1e-9


# ---- What is learnt

PEOPLE = np.random.default_rng(5).standard_normal((30_000, 4))
CHOSEN = classes_of_people(PEOPLE)


def best_linear(features, people, classes):
    """Return the accuracy of least squares on clean vectors and answers."""
    x = features.of(people)
    weight = np.linalg.lstsq(x, np.eye(3)[classes], rcond=None)[0]
    return ((x @ weight).argmax(axis=1) == classes).mean()


@pytest.mark.parametrize("method", ["least squares", "logistic"])
@pytest.mark.parametrize("private", [True, False])
def test_a_model_comes_close_to_the_best_linear_one(method, private):
    release = fit_pairs(LINEAR, NAMES.tolist() if private else None, epsilon=4)
    if private:
        sums = simulated(release, PEOPLE, CHOSEN)
    else:
        sums = simulated(release, PEOPLE, labels=NAMES.tolist(), named=CHOSEN)
    public = PUBLIC if method == "logistic" else None
    model = learn(release, sums, method=method, public=public)
    assert isinstance(model, ReportClassifier)
    found, best = model.score(PEOPLE, NAMES[CHOSEN]), best_linear(LINEAR, PEOPLE, CHOSEN)
    assert best - 0.02 < found < best + 0.02
    assert model.evidence_
    assert model.report_count_ == 30_000
    probabilities = model.predict_proba(PEOPLE)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    if method == "least squares":
        np.testing.assert_allclose(model.decision_function(PEOPLE).sum(axis=1), 1)
    shares = np.bincount(CHOSEN) / 30_000
    np.testing.assert_allclose(probabilities.mean(axis=0), shares, atol=0.04)


def test_public_labels_need_fewer_people():
    """Mean squared distance to the coefficients of exact answers, over ten runs."""
    x = LINEAR.of(PEOPLE[:2000])
    exact = np.linalg.lstsq(x, np.eye(3)[CHOSEN[:2000]], rcond=None)[0].T[:, :4]
    exact -= exact.mean(axis=0)
    errors = {}
    for private in (True, False):
        release = fit_pairs(LINEAR, 3 if private else None, epsilon=2)
        errors[private] = []
        for seed in range(10):
            people, named = PEOPLE[:2000], CHOSEN[:2000]
            if private:
                sums = simulated(release, people, named, seed=seed)
            else:
                sums = simulated(release, people, labels=3, named=named, seed=seed)
            own = ReportClassifier(release).fit(sums).coef_[:, :4]
            errors[private].append(((own - exact) ** 2).sum())
    assert np.mean(errors[False]) < 0.7 * np.mean(errors[True])


@pytest.mark.parametrize("intercept", [True, False])
def test_the_luck_of_public_labels_does_not_outweigh_the_slopes(intercept):
    """Of equally common classes and 1,000 people, a model answers either one about equally often.

    Over 40 runs at ε = 1/2 the share of an answer is off by 0.02 or 0.03 on average, ± 0.006. With
    the shares of the sample as they are it is off by 0.2: then models give one answer to all.
    """
    rng = np.random.default_rng(5)
    vectors = rng.standard_normal((4000, 8))
    kind = (vectors[:, 0] > 0).astype(int)
    release = fit_pairs(principal(vectors[:1000], intercept=intercept), epsilon="1/2")
    off = []
    for seed in range(40):
        chosen = np.random.default_rng(seed).integers(4000, size=1000)
        people, named = vectors[chosen], kind[chosen]
        model = learn(
            release, simulated(release, people, labels=Classes(2), named=named, seed=seed)
        )
        off.append(abs(model.predict(vectors).mean() - 0.5))
    assert np.mean(off) < 0.08


def test_a_level_of_a_sample_is_shrunk_unless_it_is_clear():
    second, mean = np.eye(3) / 3, np.zeros(3)
    cross = np.zeros((2, 3))
    for level, least, most in [(0.01, 0.0, 0.004), (-0.02, 0.0, 0.01), (0.1, 0.095, 0.1)]:
        found = posterior_mean(cross, second, mean, 1e-3, np.array([level, 0.0]), 1e-4)
        assert least <= found.offset[0] / np.sign(level) <= most
        assert found.offset[1] == 0
    known = posterior_mean(cross, second, mean, 1e-3, np.array([0.01, 0.0]))
    assert known.offset[0] == 0.01


def test_cells_learn_the_answer_of_every_cluster():
    table = cells(CLUSTERS, 8)
    answers = np.arange(2000) % 8 % 3
    for labels in (None, Classes(NAMES.tolist())):
        release = fit_pairs(table, None if labels else NAMES.tolist(), epsilon=3)
        sums = simulated(
            release,
            np.tile(CLUSTERS, (5, 1)),
            None if labels else np.tile(answers, 5),
            labels=labels,
            named=np.tile(answers, 5) if labels else None,
        )
        model = learn(release, sums)
        assert model.score(CLUSTERS, NAMES[answers]) > 0.99
        assert model.evidence_
        assert model.predict_proba(CLUSTERS).max(axis=1).mean() > 0.8


def test_exact_reports_are_learnt_from():
    """From devices to a model, with nothing simulated."""
    answers = np.where(PEOPLE[:4000, 0] > 0, "yes", "no")
    release = fit_pairs(LINEAR, ["no", "yes"], epsilon=2)
    model = learn(release, release.privatize(PEOPLE[:4000], answers=answers))
    assert model.score(PEOPLE, np.where(PEOPLE[:, 0] > 0, "yes", "no")) > 0.9
    wrong = np.where(answers == "yes", "no", "yes")
    model = learn(release, release.privatize(PEOPLE[:4000], answers=wrong))
    assert model.score(PEOPLE, np.where(PEOPLE[:, 0] > 0, "yes", "no")) < 0.1


def test_one_of_several_answers_is_predicted_as_if_it_were_alone():
    asked = [
        Classes(["low", "high"], name="a", optional=True),
        Number(-3, 3, name="b"),
        Classes(3, name="c"),
    ]
    high = PEOPLE[:, 0] > 0
    given = {
        "a": [None if i % 4 == 0 else int(h) for i, h in enumerate(high)],
        "b": PEOPLE[:, 1],
        "c": CHOSEN,
    }
    release = fit_pairs(LINEAR, asked, epsilon=6)
    sums = simulated(release, PEOPLE, given)
    assert learn(release, sums, answer="a").score(PEOPLE, np.where(high, "high", "low")) > 0.9
    assert learn(release, sums, answer="b").score(PEOPLE, PEOPLE[:, 1]) > 0.7
    best = best_linear(LINEAR, PEOPLE, CHOSEN)
    assert learn(release, sums, answer="c").score(PEOPLE, CHOSEN) > best - 0.03
    with pytest.raises(InvalidInput, match="'a', 'b', 'c'"):
        learn(release, sums)
    with pytest.raises(InvalidInput, match="no answer named 'd'"):
        learn(release, sums, answer="d")
    table = fit_pairs(TABLE, [asked[0], asked[2]], epsilon=6)
    sums = simulated(table, PEOPLE, {"a": given["a"], "c": CHOSEN})
    cell = TABLE.cells_of(PEOPLE)
    for name, truth, names in (("a", high.astype(int), ["low", "high"]), ("c", CHOSEN, range(3))):
        counts = np.zeros((4, len(names)))
        np.add.at(counts, (cell, truth), 1)
        predicted = learn(table, sums, answer=name).predict(PEOPLE)
        assert (predicted == np.array(names)[counts.argmax(axis=1)[cell]]).mean() > 0.95


def test_random_features_learn_what_is_not_linear():
    y = (PEOPLE[:, 0] * PEOPLE[:, 1] > 0).astype(int)
    curved = fit_pairs(random_features(PUBLIC, 30), 2, epsilon=6)
    straight = fit_pairs(LINEAR, 2, epsilon=6)
    assert learn(curved, simulated(curved, PEOPLE, y)).score(PEOPLE, y) > 0.75
    assert learn(straight, simulated(straight, PEOPLE, y)).score(PEOPLE, y) < 0.55


# ---- Numbers

REPORTS, RUNS = 500, 1000


def runs_of_a_number(private: bool):
    """Yield fitted models; people are drawn from the public vectors, so C has no error."""
    asked = Number(-2, 2)
    release = fit_pairs(LINEAR, asked if private else None, epsilon=4)
    y = np.clip(PUBLIC[:, 0], -2, 2)
    encoded = release.encoder.encode(release.pairs(PUBLIC, y) if private else PUBLIC)
    rng = np.random.default_rng(6)
    for _ in range(RUNS):
        who = rng.integers(1000, size=REPORTS)
        sums = PairSums(release, None if private else asked)
        observed = draw_observations(release.randomizer, encoded[who], rng)
        sums.add_observed(observed, None if private else y[who])
        yield ReportRegressor(release).fit(sums)


@pytest.mark.parametrize("private", [True, False])
def test_intervals_of_coefficients_cover(private):
    """95 % intervals in 1,000 runs: below 92 % or above 98.5 % once in 10⁵, coefficients together.

    The bounds on the side of 100 % allow for the error of public moments, which is zero here.
    """
    x = LINEAR.of(PUBLIC)
    truth = np.linalg.lstsq(x, np.clip(PUBLIC[:, 0], -2, 2), rcond=None)[0]
    covered, narrow, estimates, scaled = [], [], [], []
    for model in runs_of_a_number(private):
        low, high = model.interval(0.95)
        covered.append((low <= truth) & (truth <= high))
        low, high = model.interval(0.8)
        narrow.append((low <= truth) & (truth <= high))
        estimates.append(model.estimate_)
        scaled.append((model.estimate_ - truth) / model.standard_error_)
    assert 0.92 < np.mean(covered) < 0.985
    # Squared errors relative to the stated ones, a mean of 1,000 dependent sets of five.
    assert 0.7 < np.mean(np.square(scaled)) < 1.1
    assert np.mean(narrow) < 0.9  # broken control
    assert mean_p_value(np.array(estimates), truth) > ALPHA
    assert mean_p_value(np.array(estimates), 0.8 * truth) < ALPHA  # broken control


def test_what_a_model_explains_is_judged_by_other_reports():
    """Without a signal, 600 runs: unbiased for the models of the folds. In-sample is not."""
    release = fit_pairs(LINEAR, Number(-2, 2), epsilon=4)
    rng = np.random.default_rng(13)
    judged, true, own = [], [], []

    def gain(found, moments, cross):
        """Return 2⟨B, M⟩ − tr(BCBᵀ), about the means."""
        level = found.offset + found.slopes @ moments.mean
        covariance = moments.second - np.outer(moments.mean, moments.mean)
        centred = cross - np.outer(level, moments.mean)
        return float(
            2 * (found.slopes * centred).sum() - (found.slopes @ covariance * found.slopes).sum()
        )

    for seed in range(600):
        sums = simulated(release, PUBLIC[:500], rng.uniform(-2, 2, 500), seed=seed)
        moments = Moments.of(sums, release.asked[0], release.encoder)
        judged.append(moments.explained())
        others = [(500 * moments.cross - 100 * fold) / 400 for fold in moments.folds]
        models = [moments.posterior(part, 400) for part in others]
        true.append(np.mean([gain(part, moments, np.zeros((1, 5))) for part in models]))
        own.append(gain(moments.posterior(), moments, moments.cross))
    assert mean_p_value(np.array(judged) - np.array(true), 0.0) > ALPHA
    assert mean_p_value(np.array(own) - np.array(true), 0.0) < ALPHA


def test_errors_count_the_public_vectors_that_the_moments_are_of():
    features = principal(np.random.default_rng(7).standard_normal((25_000, 2)))
    x = features.of(features.sample)
    release = fit_pairs(features, Number(0, 1), epsilon=1)
    np.testing.assert_allclose(release.decoder.second, x.T @ x / len(x), atol=1e-9)
    assert release.provenance.settings["sampled"] == len(x) == 20_000
    moments = Moments.of(
        simulated(release, np.ones((50, 2)), np.ones(50)), release.asked[0], release.encoder
    )
    assert moments.public_count == 20_000


def test_a_regressor_predicts_in_units_of_the_answer():
    hours = np.clip(40 + 8 * PEOPLE[:, 0], 0, 80)
    release = fit_pairs(LINEAR, Number(0, 80), epsilon=6)
    model = learn(release, simulated(release, PEOPLE, hours))
    assert isinstance(model, ReportRegressor)
    x = LINEAR.of(PEOPLE)
    exact = np.linalg.lstsq(x, hours, rcond=None)[0]
    best = 1 - np.mean((x @ exact - hours) ** 2) / hours.var()
    assert best - 0.05 < model.score(PEOPLE, hours) < best + 0.01
    assert model.predict(PEOPLE).mean() == pytest.approx(hours.mean(), abs=1.0)
    np.testing.assert_allclose(model.coef_[:4], exact[:4], atol=2.0)
    deviation = (x @ exact).std()
    assert model.explained_deviation() == pytest.approx(deviation, rel=0.2)
    assert model.evidence_
    assert repr(model) == "ReportRegressor(5 features, from 30000 reports)"
    noise = learn(release, simulated(release, PEOPLE, hours[::-1]))
    assert noise.explained_deviation() < 0.3 * deviation
    assert not noise.evidence_


@pytest.mark.parametrize("private", [True, False])
def test_a_number_has_its_level_without_an_intercept(private):
    """Or is refused: with public labels, the collector knows the mean."""
    numbers, asked = 1 + 0.3 * PEOPLE[:, 0], Number(0, 10)
    features = principal(PUBLIC, intercept=False)
    if private:
        with pytest.raises(InvalidInput, match="intercept=True"):
            fit_pairs(features, asked, epsilon=4)
        return
    release = fit_pairs(features, None, epsilon=4)
    model = learn(release, simulated(release, PEOPLE, labels=asked, named=numbers))
    assert model.predict(PEOPLE).mean() == pytest.approx(1, abs=0.2)


def test_a_number_that_half_of_people_have_is_refused():
    numbers = np.clip(3 + 0.3 * PEOPLE[:, 0], 0, 4)
    some = [None if i % 2 else float(y) for i, y in enumerate(numbers)]
    with pytest.raises(InvalidInput, match="missing numbers"):  # before anybody has paid
        fit_pairs(LINEAR, [Classes(2, name="a"), Number(0, 4, optional=True)], epsilon=6)
    release = with_optional_numbers(fit_pairs(LINEAR, Number(0, 4), epsilon=6))
    with pytest.raises(InvalidInput, match="missing numbers"):
        learn(release, simulated(release, PEOPLE, some))


# ---- What a model is expected to be right on


def judged(strength: float, people: int, runs: int):
    """Return, per run, the expected accuracy, that of the models of the folds, and the plug-in.

    The answers of two classes follow eight cells with this probability.
    """
    table, rng = cells(CLUSTERS, 8), np.random.default_rng(8)
    release = fit_pairs(table, 2, epsilon=2)
    follows = rng.random(2000) < strength
    labels = np.where(follows, np.arange(2000) % 2, 1 - np.arange(2000) % 2)
    true = np.zeros((8, 2))
    np.add.at(true, (table.cells_of(CLUSTERS), labels), 1 / 2000)
    encoded = release.encoder.encode(release.pairs(CLUSTERS, labels))
    found, right, plugin = [], [], []
    for _ in range(runs):
        sums = PairSums(release)
        who = rng.integers(2000, size=people)
        sums.add_observed(draw_observations(release.randomizer, encoded[who], rng))
        fitted = Table.of(sums, release.asked[0], release.encoder)
        whole = fitted.shares()
        others = [whole * people - fitted.shares(fold) * fitted.counts[fold] for fold in range(5)]
        named = [part.argmax(axis=1) for part in others]
        right.append(np.mean([true[np.arange(8), part].sum() for part in named]))
        found.append(fitted.accuracy(0.95))
        plugin.append(whole.max(axis=1).sum())
    return found, np.array(right), np.array(plugin)


def test_the_expected_accuracy_of_cells_is_unbiased_for_other_people():
    """Whatever the signal. The plug-in takes the largest of noisy entries, and is rejected."""
    for strength in (0.5, 0.8):
        found, right, plugin = judged(strength, 400, 300)
        estimates = np.array([part.estimate for part in found])
        assert mean_p_value(estimates - right, 0.0) > ALPHA
        assert mean_p_value(plugin - right, 0.0) < ALPHA
        assert "none" in found[0].assumption


def test_intervals_of_the_expected_accuracy_cover_where_there_is_a_signal():
    """Below 90 % of 300 runs less than once in 10⁴, at a rate of 95 %."""
    found, right, plugin = judged(0.8, 2000, 300)
    covered = [part.low <= true <= part.high for part, true in zip(found, right, strict=True)]
    assert np.mean(covered) > 0.9
    reach = np.array([part.high - part.estimate for part in found])
    assert np.mean(np.abs(plugin - right) <= 0.5 * reach) < 0.9  # broken control


def test_intervals_of_the_expected_accuracy_cover_without_a_signal():
    """Models share reports, so the errors of the folds may add up. The bound is that above."""
    found, right, _ = judged(0.5, 400, 300)
    covered = [part.low <= true <= part.high for part, true in zip(found, right, strict=True)]
    assert np.mean(covered) > 0.9


def expected_and_reached(steep: float, people: int, runs: int):
    """Return the expected accuracy of models from moments, and the one they reach.

    With ``steep`` 1 the chances of three classes are linear in the features, from 0.06 to 0.76.
    """
    x = LINEAR.of(PUBLIC)
    slopes = np.array([[0.36, 0, 0, 0, 0], [-0.18, 0.18, 0, 0, 0], [-0.18, -0.18, 0, 0, 0]])
    chances = np.clip(1 / 3 + steep * x @ slopes.T, 0, None)
    chances /= chances.sum(axis=1, keepdims=True)
    release, rng = fit_pairs(LINEAR, 3, epsilon=4), np.random.default_rng(14)
    found, reached = [], []
    for seed in range(runs):
        who = rng.integers(1000, size=people)
        answers = (rng.random((people, 1)) > np.cumsum(chances[who], axis=1)).sum(axis=1)
        sums = simulated(release, PUBLIC[who], np.minimum(answers, 2), seed=seed)
        model = learn(release, sums)
        found.append(model.expected_accuracy(PUBLIC))
        reached.append(chances[np.arange(1000), model.predict(PUBLIC)].mean())
    return found, np.array(reached)


def test_the_expected_accuracy_of_moments_rests_on_its_assumption():
    """Linear chances: within 0.01 on average, and intervals cover. Steeper ones: too low."""
    found, reached = expected_and_reached(1.0, 2000, 100)
    estimates = np.array([part.estimate for part in found])
    assert abs(estimates.mean() - reached.mean()) < 0.01
    covered = [part.low <= true <= part.high for part, true in zip(found, reached, strict=True)]
    assert np.mean(covered) > 0.85  # 95 % if so stated: below once in 10⁴
    found, reached = expected_and_reached(5.0, 2000, 30)
    assert np.mean([part.estimate for part in found]) < reached.mean() - 0.05
    release = fit_pairs(LINEAR, 3, epsilon=4)
    model = learn(release, simulated(release, PEOPLE[:50], CHOSEN[:50]))
    with pytest.raises(InvalidInput, match=r"fit_check\(\)"):
        model.expected_accuracy()


def test_the_order_of_reports_does_not_matter_to_the_expected_accuracy():
    """People in turns: one of each of five kinds, then again, as many data sets are sorted."""
    centres = 6 * np.eye(5)
    kinds = np.arange(5000) % 5
    people = centres[kinds] + 0.3 * np.random.default_rng(9).standard_normal((5000, 5))
    release = fit_pairs(cells(people, 5), 5, epsilon=4)
    model = learn(release, simulated(release, people, kinds))
    assert model.score(people, kinds) > 0.99
    assert model.expected_accuracy().high > 0.95


def evidence_without_a_signal(people: int) -> float:
    """Return how often equally common answers, the same in all cells, count as evidence."""
    release, rng = fit_pairs(TABLE, 5, epsilon=1), np.random.default_rng(15)
    found = []
    for seed in range(60):
        answers = rng.integers(5, size=people)
        found.append(learn(release, simulated(release, PEOPLE[:people], answers, seed=seed)))
    return float(np.mean([model.evidence_ for model in found]))


def test_cells_without_a_signal_are_rarely_called_evidence():
    """Three deviations of χ²: about 1 %. More than six of 60 at that rate: 1e-6."""
    assert evidence_without_a_signal(1000) <= 0.1


@pytest.mark.parametrize("people", [3, 10, 20])
def test_few_reports_of_cells_are_rarely_called_evidence(people):
    assert evidence_without_a_signal(people) <= 0.1


def test_cells_with_a_signal_are_evidence():
    release = fit_pairs(TABLE, 2, epsilon=1)
    model = learn(release, simulated(release, PEOPLE, (PEOPLE[:, 0] > 0).astype(int)))
    assert model.evidence_


def test_the_expected_accuracy_is_about_people_with_an_answer():
    table = cells(CLUSTERS, 8)
    release = fit_pairs(table, Classes(2, optional=True), epsilon=4)
    labels = np.arange(2000) % 8 % 2
    some = [None if i % 3 else int(y) for i, y in enumerate(labels)]
    model = learn(release, simulated(release, np.tile(CLUSTERS, (5, 1)), some * 5))
    assert model.score(CLUSTERS, labels) > 0.99
    assert model.expected_accuracy().high > 0.95


def test_one_person_of_a_rare_class_does_not_hide_the_others():
    """Public labels: two classes of 1,000 people, and one person of a third."""
    table = cells(CLUSTERS, 8)
    release = fit_pairs(table, epsilon=3)
    labels = np.arange(2000) % 8 % 2
    named = np.append(labels[:-1], 2)
    model = learn(release, simulated(release, CLUSTERS, labels=3, named=named))
    assert model.score(CLUSTERS, labels) > 0.95


def test_rare_cells_do_not_hide_common_ones():
    """Mean over runs: a model should not be worse than the largest entry of every row."""
    shares = 0.5 ** np.arange(8)
    rng = np.random.default_rng(10)
    kinds = rng.choice(8, 6000, p=shares / shares.sum())
    people = 8 * np.eye(8)[kinds] + 0.5 * rng.standard_normal((6000, 8))
    table = cells(people, 8)
    release = fit_pairs(table, 2, epsilon=1)
    learnt, largest = [], []
    for seed in range(20):
        sums = simulated(release, people[:3000], kinds[:3000] % 2, seed=seed)
        model = learn(release, sums)
        learnt.append(model.score(people, kinds % 2))
        named = model._fitted.shares().argmax(axis=1)
        largest.append((named[table.cells_of(people)] == kinds % 2).mean())
    assert np.mean(learnt) > np.mean(largest) - 0.02


# ---- Networks


@pytest.fixture(scope="module")
def models():
    """Return a model of each form, from exact reports."""
    few, kinds = PEOPLE[:1500], NAMES[CHOSEN[:1500]]
    linear = fit_pairs(LINEAR, NAMES.tolist(), epsilon=4)
    table = fit_pairs(TABLE, NAMES.tolist(), epsilon=4)
    number = fit_pairs(LINEAR, Number(-3, 3), epsilon=4)
    curved = fit_pairs(random_features(PUBLIC, 10), NAMES.tolist(), epsilon=4)
    return {
        "moments": learn(linear, linear.privatize(few, answers=kinds)),
        "logistic": learn(
            linear, linear.privatize(few, answers=kinds), method="logistic", public=PUBLIC
        ),
        "random": learn(curved, curved.privatize(few, answers=kinds)),
        "cells": learn(table, table.privatize(few, answers=kinds)),
        "number": learn(number, number.privatize(few, answers=few[:, 0])),
    }


WILD = np.random.default_rng(11).standard_normal((20_000, 4))
WILD *= 10.0 ** np.random.default_rng(12).uniform(-6, 6, (20_000, 1))


@pytest.mark.parametrize("form", ["moments", "logistic", "random", "cells", "number"])
def test_the_network_says_what_the_model_says(models, form, tmp_path):
    model = models[form]
    model.save(tmp_path / "model.safetensors")
    loaded = Layers.load(tmp_path / "model.safetensors")
    assert loaded.identity() == model.layers_.identity()
    outputs = loaded.outputs(WILD)
    if form == "number":
        np.testing.assert_allclose(outputs[:, 0], model.predict(WILD), atol=1e-9)
        return
    assert loaded.answers == tuple(NAMES)
    np.testing.assert_array_equal(NAMES[outputs.argmax(axis=1)], model.predict(WILD))
    if form == "cells":
        # Close to a border between cells the outputs are smaller, in the same proportion.
        own = model.decision_function(WILD)
        scale = outputs.sum(axis=1, keepdims=True) / own.sum(axis=1, keepdims=True)
        np.testing.assert_allclose(outputs, scale * own, atol=1e-9)
        assert (np.abs(scale - 1) < 1e-6).mean() > 0.999
    else:
        np.testing.assert_allclose(outputs, model.decision_function(WILD), atol=1e-9)


@pytest.mark.parametrize("form", ["moments", "cells"])
def test_a_model_serves_as_the_next_task(models, form):
    """As the head of a release, as directions of features, and in a check."""
    model = models[form]
    answers = offaxis.fit(model.layers_, PUBLIC, epsilon=8, mechanism="class-response")
    assert answers.answers.names == tuple(NAMES)
    shares = answers.shares(answers.privatize(PEOPLE[:3000])).estimate
    truth = [(model.predict(PEOPLE[:3000]) == name).mean() for name in NAMES]
    np.testing.assert_allclose(shares, truth, atol=0.1)
    vectors = offaxis.fit(model.layers_, PUBLIC, epsilon=8)
    assert vectors.decode(vectors.privatize(PEOPLE[:3])).shape == (3, 4)
    if form == "moments":
        assert principal(PUBLIC, rank=2, heads=model).size == 2 + 1
    check = fit_check(model, PUBLIC, epsilon=6)
    reports = check.privatize(PEOPLE[:3000], answers=NAMES[CHOSEN[:3000]])
    right = model.score(PEOPLE[:3000], NAMES[CHOSEN[:3000]])
    assert accuracy(check, reports).estimate == pytest.approx(right, abs=0.06)


@pytest.mark.parametrize("form", ["moments", "cells", "number"])
def test_huge_vectors_have_the_answer_of_their_direction(models, form):
    directions = np.clip(PEOPLE[:50], -3, 3)
    with np.errstate(all="ignore"):
        huge = models[form].predict(5e307 * directions)
    if form == "number":
        assert np.isfinite(huge).all()
    else:
        far = models[form].predict(1e60 * directions)
        np.testing.assert_array_equal(huge, far)


def test_a_model_of_many_cells_says_that_it_has_no_network(tmp_path):
    release = fit_pairs(cells(PUBLIC, 150), 2, epsilon=4)
    model = learn(release, simulated(release, PEOPLE[:2000], CHOSEN[:2000] % 2))
    assert len(model.predict(PEOPLE[:5])) == 5
    with pytest.raises(InvalidInput, match="128"):
        model.save(tmp_path / "model.safetensors")


# ---- In the manner of scikit-learn


def test_estimators_behave_like_those_of_scikit_learn(models):
    base = pytest.importorskip("sklearn.base")
    from sklearn.exceptions import NotFittedError
    from sklearn.model_selection import cross_val_score
    from sklearn.pipeline import make_pipeline
    from sklearn.utils.validation import check_is_fitted

    release = models["moments"].release
    reports = release.privatize(PEOPLE[:500], answers=CHOSEN[:500])
    model = ReportClassifier(release, method="logistic", public=PUBLIC)
    assert set(model.get_params()) == {"release", "answer", "method", "public"}
    twin = base.clone(model)
    assert twin.release == release
    assert twin.method == "logistic"
    np.testing.assert_array_equal(twin.public, PUBLIC)
    with pytest.raises(NotFittedError):
        check_is_fitted(model)
    assert repr(model) == "ReportClassifier(not fitted)"
    assert model.fit(reports) is model
    check_is_fitted(model)
    assert base.is_classifier(model)
    assert base.is_regressor(models["number"])
    assert model.n_features_in_ == 4
    assert model.set_params(method=None).method is None
    with pytest.raises(InvalidInput, match="no setting 'depth'"):
        model.set_params(depth=3)
    pipeline = make_pipeline(ReportClassifier(release)).fit(reports)
    assert pipeline.predict(PEOPLE[:5]).shape == (5,)
    assert pipeline.score(PEOPLE, NAMES[CHOSEN]) > 0.3

    # Reports are split, and vectors judge.
    scores = cross_val_score(
        ReportClassifier(release),
        reports,
        scoring=lambda model, *_: model.score(PEOPLE, NAMES[CHOSEN]),
    )
    assert scores.shape == (5,)
    assert np.isfinite(scores).all()
    opened = fit_pairs(LINEAR, epsilon=2)
    vectors = opened.privatize(PEOPLE[:100])
    with pytest.raises(InvalidInput):  # a report is no vector to predict for
        cross_val_score(
            ReportClassifier(opened), vectors, CHOSEN[:100] % 2, cv=2, error_score="raise"
        )


@pytest.mark.parametrize("form", ["moments", "cells", "number"])
def test_models_can_be_copied_and_pickled(models, form):
    model = models[form]
    for same in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        np.testing.assert_array_equal(same.predict(PEOPLE[:50]), model.predict(PEOPLE[:50]))
        assert repr(same) == repr(model)


def test_a_release_from_a_file_gives_the_same_model(models, tmp_path):
    for form in ("moments", "cells"):
        release = models[form].release
        release.save(tmp_path / "pairs.release")
        loaded = offaxis.load(tmp_path / "pairs.release", expect=release.hash)
        reports = loaded.privatize(PEOPLE[:200], answers=CHOSEN[:200])
        one, other = learn(release, reports), learn(loaded, reports)
        np.testing.assert_array_equal(one.predict(PEOPLE[:99]), other.predict(PEOPLE[:99]))


def test_a_failed_fit_leaves_the_model_as_it_was(models):
    model = copy.deepcopy(models["moments"])
    before = model.predict(PEOPLE[:50])
    with pytest.raises(InvalidReport):
        model.fit([b"no report"])
    np.testing.assert_array_equal(model.predict(PEOPLE[:50]), before)


def test_classes_are_named_as_people_were_asked():
    names = ["ü", "日本 ", "🙂", " "]
    release = fit_pairs(LINEAR, names, epsilon=8)
    model = learn(release, simulated(release, PEOPLE[:4000], CHOSEN[:4000]))
    assert model.classes_.tolist() == names
    assert set(model.predict(PEOPLE[:1000])) <= set(names)
    assert model.layers_.answers == tuple(names)
    numbered = fit_pairs(LINEAR, 3, epsilon=8)
    model = learn(numbered, simulated(numbered, PEOPLE[:4000], CHOSEN[:4000]))
    assert model.classes_.tolist() == [0, 1, 2]
    truth = CHOSEN[:4000]
    for labels in (truth, truth.astype(float), truth.astype(str), truth.tolist()):
        assert model.score(PEOPLE[:4000], labels) > 0.5


def test_names_that_differ_in_a_zero_at_the_end_stay_different():
    """NumPy would drop it, so such a name is refused."""
    with pytest.raises(InvalidInput, match="names of classes"):
        fit_pairs(LINEAR, ["a", "a\0"], epsilon=8)


# ---- Odd people, few people


@pytest.mark.parametrize("features", [LINEAR, TABLE])
def test_one_class_only_and_classes_nobody_has(features):
    release = fit_pairs(features, 4, epsilon=6)
    people = PEOPLE[:8000]
    same = learn(release, simulated(release, people, np.full(8000, 2)))
    assert (same.predict(people) == 2).all()
    assert same.predict_proba(people)[:, 2].mean() > 0.9
    two = learn(release, simulated(release, people, (people[:, 0] > 0) * 2))
    assert set(two.predict(people)) == {0, 2}
    opened = fit_pairs(features, epsilon=6)
    sums = simulated(opened, people, labels=5, named=np.full(8000, 3))
    assert (learn(opened, sums).predict(people) == 3).all()


def test_as_many_classes_as_can_be_asked():
    from offaxis.encoding.pairs import MOST_CLASSES

    for features in (LINEAR, TABLE):
        release = fit_pairs(features, MOST_CLASSES, epsilon=8)
        answers = np.arange(400) % MOST_CLASSES
        model = learn(release, simulated(release, PEOPLE[:400], answers))
        assert np.isfinite(model.predict_proba(PEOPLE[:5])).all()
        assert len(model.classes_) == MOST_CLASSES
    with pytest.raises(InvalidInput, match="cross moments"):
        fit_pairs(random_features(PUBLIC, 80), MOST_CLASSES, epsilon=8)


@pytest.mark.parametrize("count", [1, 2, 3, 5, 11])
@pytest.mark.parametrize("form", ["moments", "cells", "number", "public moments", "public cells"])
def test_few_reports_give_finite_models(form, count):
    """Fewer than features, than folds, than classes."""
    asked = Number(0, 1) if form == "number" else 3
    features = TABLE if "cells" in form else LINEAR
    private = not form.startswith("public")
    release = fit_pairs(features, asked if private else None, epsilon=1)
    answers = np.arange(count) % 3 / (2 if form == "number" else 1)
    given = answers if form == "number" else answers.astype(int)
    reports = release.privatize(PEOPLE[:count], answers=given if private else None)
    model = learn(
        release, reports, labels=None if private else given, answers=None if private else asked
    )
    assert model.report_count_ == count
    if form == "number":
        found = [model.predict(PEOPLE), model.coef_, *model.interval(), model.explained_deviation()]
    else:
        found = [model.predict_proba(PEOPLE)]
    assert all(np.isfinite(part).all() for part in found)


@pytest.mark.parametrize("asked", [3, Number(0, 1)])
def test_one_report_is_no_evidence(asked):
    release = fit_pairs(LINEAR, asked, epsilon=1)
    model = learn(release, release.privatize(PEOPLE[:1], answers=[1]))
    assert not model.evidence_


@pytest.mark.parametrize("low", [0.0, -1e20, 1e20 - 2e5])
def test_ranges_of_any_size_give_finite_models(low):
    high = {0.0: 1e-290, -1e20: 1e20}.get(low, 1e20)
    release = fit_pairs(LINEAR, Number(low, high), epsilon=8)
    numbers = low + (high - low) * (0.5 + np.clip(PEOPLE[:3000, 0] / 8, -0.5, 0.5))
    model = learn(release, simulated(release, PEOPLE[:3000], numbers))
    predicted = model.predict(PEOPLE[:3000])
    assert np.isfinite(predicted).all()
    assert ((predicted >= low - (high - low)) & (predicted <= high + (high - low))).all()
    if low <= 0:
        assert np.corrcoef(predicted / high, numbers / high)[0, 1] > 0.9


# ---- What is refused


def test_what_cannot_be_learnt_is_an_error():
    private, number = fit_pairs(LINEAR, 3, epsilon=2), fit_pairs(LINEAR, Number(0, 1), epsilon=2)
    opened, table = fit_pairs(LINEAR, epsilon=2), fit_pairs(TABLE, 3, epsilon=2)
    reports = private.privatize(PEOPLE[:50], answers=CHOSEN[:50])
    numbers = number.privatize(PEOPLE[:50], answers=CHOSEN[:50] / 2)
    vectors = opened.privatize(PEOPLE[:50])
    symbols = table.privatize(PEOPLE[:50], answers=CHOSEN[:50])
    means = offaxis.fit(None, PUBLIC, epsilon=1, goal="means")
    for arguments, more, message in [
        ((private, []), {}, "no reports"),
        ((private, numbers), {}, "belongs to release"),
        ((private, reports), {"labels": CHOSEN[:50]}, "private answers"),
        ((private, reports), {"answers": 3}, "pass labels"),
        ((private, reports), {"answer": "height"}, "no answer named"),
        ((private, reports), {"method": "trees"}, "method must be"),
        ((private, reports), {"method": "logistic"}, "public"),
        ((number, numbers), {"method": "logistic"}, "least squares"),
        ((table, symbols), {"method": "logistic"}, "one method"),
        ((opened, vectors), {}, "pass public labels"),
        ((opened, vectors), {"labels": CHOSEN[:49]}, "fewer labels"),
        ((opened, vectors), {"labels": [*CHOSEN[:50].tolist(), 1]}, "more labels"),
        ((opened, vectors), {"labels": [np.nan, *CHOSEN[:49]]}, "some public labels are missing"),
        ((means, means.privatize(PUBLIC)), {}, "releases of pairs"),
        ((3, []), {}, "got an object of type int"),
    ]:
        with pytest.raises((InvalidInput, InvalidReport), match=message):
            learn(*arguments, **more)
    with pytest.raises(InvalidInput, match="ReportRegressor"):
        ReportClassifier(number).fit(numbers)
    with pytest.raises(InvalidInput, match="ReportClassifier"):
        ReportRegressor(private).fit(reports)


def test_vectors_to_predict_for_are_checked(models):
    for model in models.values():
        for wrong in (PEOPLE[:, :3], np.full((1, 4), np.nan), [["a"] * 4], np.zeros((0, 4)), []):
            with pytest.raises(InvalidInput):
                model.predict(wrong)
        assert model.predict(PEOPLE[0]).shape == (1,)
        pandas = pytest.importorskip("pandas")
        frame = pandas.DataFrame(PEOPLE[:9].astype(np.float32))
        np.testing.assert_array_equal(model.predict(frame), model.predict(frame.to_numpy()))
    for level in (0, 1, 2, "high", None):
        with pytest.raises(InvalidInput):
            models["cells"].expected_accuracy(level=level)
        with pytest.raises(InvalidInput):
            models["number"].interval(level)
    with pytest.raises(InvalidInput, match="labels"):
        models["moments"].score(PEOPLE[:5], NAMES[[0, 1]])


def test_a_model_that_is_not_learnt_says_so(tmp_path):
    classifier = ReportClassifier(fit_pairs(LINEAR, 3, epsilon=2))
    regressor = ReportRegressor(fit_pairs(LINEAR, Number(0, 1), epsilon=2))
    for call in (
        lambda: classifier.predict(PEOPLE[:1]),
        lambda: classifier.predict_proba(PEOPLE[:1]),
        lambda: classifier.score(PEOPLE[:1], [0]),
        lambda: classifier.expected_accuracy(PUBLIC),
        lambda: classifier.save(tmp_path / "model.safetensors"),
        lambda: regressor.predict(PEOPLE[:1]),
        lambda: regressor.interval(),
        lambda: regressor.explained_deviation(),
    ):
        with pytest.raises(InvalidInput, match="not been learnt"):
            call()


def test_public_vectors_of_another_dimension_are_an_error(models):
    release = models["moments"].release
    sums = simulated(release, PEOPLE[:100], CHOSEN[:100])
    with pytest.raises(OffaxisError):
        learn(release, sums, method="logistic", public=PUBLIC[:, :3])
    with pytest.raises(OffaxisError):
        models["moments"].expected_accuracy(PUBLIC[:, :3])


def test_public_vectors_that_do_nothing_are_refused(models):
    release = models["moments"].release
    with pytest.raises(InvalidInput, match="public"):
        learn(release, simulated(release, PEOPLE[:100], CHOSEN[:100]), public=PUBLIC)


@pytest.mark.parametrize("case", ["index", "bytes", "column", "short", "constant"])
def test_labels_to_score_with_are_checked(models, case):
    classifier, regressor, numbers = models["moments"], models["number"], PEOPLE[:99, 0]
    with np.errstate(all="ignore"):
        if case == "index":  # people may answer by index, so the same labels are an answer here
            assert classifier.score(PEOPLE, CHOSEN) > 0.4
        elif case == "constant":
            score = regressor.score(PEOPLE[:99], np.ones(99))
            assert np.isfinite(score)
        else:
            call, labels = {
                "bytes": (classifier, NAMES[CHOSEN[:99]].astype(bytes)),
                "column": (regressor, numbers[:, None]),
                "short": (regressor, numbers[:-1]),
            }[case]
            with pytest.raises(InvalidInput):
                call.score(PEOPLE[:99], labels)


@pytest.mark.parametrize("features", [LINEAR, TABLE])
def test_sequences_are_refused(features):
    single = fit_pairs(features, 2, epsilon=2)
    with pytest.raises(InvalidInput):
        PairSums(offaxis.memoise(single, draws=2, period=20))
