"""Populations as a user asks them: questions, warnings, and what is refused with the fix named."""

from __future__ import annotations

import math
import pickle
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

import offaxis
from offaxis.errors import InvalidInput, InvalidReport, ModelNeeded
from offaxis.learning import (
    Answer,
    Population,
    fit_answers,
    fit_pairs,
    population,
    principal,
    widened,
)
from offaxis.learning import likelihoods as module
from offaxis.learning.crowd_answers import normal_limits
from offaxis.learning.likelihoods import Likelihoods, check_release, support_of
from offaxis.learning.population import of_likelihoods
from offaxis.randomizers.memoised import MemoisedResponse
from offaxis.simulation import draw_observations
from tests.checks import ALPHA

DIM = 3
CENTRES = 4 * np.eye(DIM)
UNEVEN = np.array([0.6, 0.3, 0.1])


def draw(rng: np.random.Generator, count: int, shares: np.ndarray | None = None) -> np.ndarray:
    return CENTRES[rng.choice(DIM, count, p=shares)] + rng.standard_normal((count, DIM))


PUBLIC = draw(np.random.default_rng(0), 600)


def first(Z: np.ndarray) -> np.ndarray:
    return Z[:, 0]


def crowd_of(release: offaxis.Release, people: np.ndarray, public=PUBLIC, cells: int = 20):
    """Return the population of simulated reports."""
    likelihoods = Likelihoods(support_of(public, [release], cells))
    rng = np.random.default_rng(1)
    encoded = release.encode_private(people)
    likelihoods.add_observed(release, iter([draw_observations(release.randomizer, encoded, rng)]))
    return of_likelihoods(likelihoods)


@pytest.fixture(autouse=True)
def one_thread(monkeypatch):
    """Threads cost more than they save with so few reports."""
    monkeypatch.setattr(module, "_cores", lambda: 1)


@pytest.fixture(scope="module")
def release() -> offaxis.Release:
    return offaxis.fit(
        None, PUBLIC, epsilon=4, mechanism="privunit2", reshaping="centre", unit="user"
    )


@pytest.fixture(scope="module")
def reports(release) -> list[bytes]:
    return release.privatize(draw(np.random.default_rng(2), 1_200, UNEVEN))


@pytest.fixture(scope="module")
def exact(release, reports) -> Population:
    """Return the population of exact reports, which nobody can seed."""
    return population(release, reports, PUBLIC)


@pytest.fixture(scope="module")
def crowd(release) -> Population:
    return crowd_of(release, draw(np.random.default_rng(2), 1_200, UNEVEN))


@pytest.fixture(scope="module")
def strangers(release) -> Population:
    """Return the population of people of whom most are where no public vector is."""
    rng = np.random.default_rng(3)
    people = draw(rng, 6_000)
    people[rng.random(6_000) < 0.7] = [9, 9, -3]
    return crowd_of(release, people)


# ---- Answers


def test_exact_reports_answer_questions(exact):
    """False alarms: less than ALPHA for every interval."""
    crowd = exact
    shares = crowd.share(CENTRES)
    np.testing.assert_allclose(shares.estimate, UNEVEN, atol=0.15)
    assert shares.names == ("0", "1", "2")
    assert shares.estimate.sum() == pytest.approx(1)
    assert crowd.weights.min() >= 0
    assert crowd.weights.sum() == pytest.approx(1)
    low, high = crowd.mean().interval(1 - ALPHA)
    assert ((low < 4 * UNEVEN) & (high > 4 * UNEVEN)).all()
    assert crowd.fit.p_value > ALPHA
    assert crowd.summary.startswith("1,200 reports at ε = 4. ")
    assert repr(crowd).startswith("Population(1,200 reports, 20 cells, fit p = ")


def test_estimates_are_weighted_public_answers(crowd):
    weights, Z = crowd.weights, crowd.vectors
    np.testing.assert_allclose(crowd.mean().estimate, weights @ Z, atol=1e-9)
    assert crowd.mean(first).estimate == pytest.approx(weights @ Z[:, 0])
    edges = [-9.0, 0, 2, 9]
    expected = [weights[(Z[:, 0] >= a) & (Z[:, 0] < b)].sum() for a, b in pairwise(edges)]
    np.testing.assert_allclose(crowd.histogram(first, edges).estimate, expected, atol=1e-9)
    covariance = crowd.covariance()
    centred = Z - weights @ Z
    np.testing.assert_allclose(covariance.estimate, centred.T * weights @ centred, atol=1e-9)
    assert covariance.names[:4] == ("0, 0", "0, 1", "0, 2", "1, 0")
    median = crowd.quantile(first).estimate
    assert weights[Z[:, 0] < median].sum() < 0.5 <= weights[Z[:, 0] <= median].sum() + 1e-9


def test_accuracy_of_a_model(crowd):
    labels = (crowd.vectors @ CENTRES.T).argmax(axis=1)
    assert crowd.accuracy(CENTRES, labels).estimate == pytest.approx(1)
    assert crowd.accuracy(CENTRES, (labels + 1) % 3).estimate == pytest.approx(0)
    believed = crowd.accuracy(CENTRES)
    assert 0.9 < believed.estimate <= 1
    assert "probabilities" in believed.question
    for wrong in (labels[:-1], labels + 1, labels - 1, labels.astype(float), labels == 0):
        with pytest.raises(InvalidInput, match="labels are"):
            crowd.accuracy(CENTRES, wrong)


def test_intervals_and_tables(crowd):
    answer = crowd.share(CENTRES)
    narrow, wide = answer.interval(0.5), answer.interval(0.99)
    assert (wide[0] <= narrow[0]).all()
    assert (narrow[1] <= wide[1]).all()
    assert (wide[0] >= 0).all()
    for level in (0, 1, -1, math.nan, "high"):
        with pytest.raises(InvalidInput, match="level"):
            answer.interval(level)
    frame = answer.to_frame()
    assert list(frame["name"]) == ["0", "1", "2"]
    assert ((frame["low"] <= frame["high"]) & (frame["warning"] == answer.warning)).all()
    assert len(crowd.covariance().to_frame()) == 9
    assert crowd.mean(first).to_arrow().num_rows == 1
    assert "0: " in repr(answer)
    assert "and 30 more" in repr(crowd.histogram(first, 50))


def test_quantiles(crowd):
    levels = [0.1, 0.5, 0.9]
    several = crowd.quantile(first, levels)
    assert (np.diff(several.estimate) >= 0).all()
    for k, level in enumerate(levels):
        one = crowd.quantile(first, level)
        assert one.estimate == several.estimate[k]
        assert one.interval() == tuple(end[k] for end in several.interval())
    low, high = several.interval(0.999999)
    assert (low <= several.interval()[0]).all()
    assert (high >= several.interval()[1]).all()
    assert low.min() >= crowd.vectors[:, 0].min()
    assert several.standard_error.min() > 0
    # A public answer of few values has quantiles among these.
    rounded = crowd.quantile(lambda Z: np.round(Z[:, 0]), levels)
    assert set(np.ravel(rounded.interval())) <= set(np.round(crowd.vectors[:, 0]))
    for wrong in (0, 1, -0.1, 2, math.nan, [], [[0.5]], True, "0.5"):
        with pytest.raises(InvalidInput):
            crowd.quantile(first, wrong)


def test_quantile_intervals_hold_all_values_that_are_not_rejected(crowd):
    """Even where estimated chances fall: Woodruff's set need not be an interval."""
    values, levels = crowd.vectors[:, 0], (0.05, 0.5, 0.95)
    marks = np.unique(values)
    chances = (values[:, None] <= marks).astype(float)
    _, centre, error = crowd._linear(chances)
    for level in levels:
        low, high = crowd.quantile(first, level).interval()
        kept = marks[np.abs(centre - level) <= 1.9599 * error]
        assert kept.size == 0 or low <= kept.min()
        assert kept.size == 0 or kept.max() <= high


# ---- Questions that are unusual


@pytest.mark.parametrize(
    ("question", "message"),
    [
        (lambda Z: np.full(len(Z), np.nan), "no finite answer for 600 of 600"),
        (lambda Z: np.where(Z[:, 0] > 0, np.inf, 1), "no finite answer"),
        (lambda Z: Z[:-1, 0], "one number"),
        (lambda Z: [[1.0], [1.0, 2.0]] * 300, "the question fails"),
        (lambda Z: Z.T, "one number"),
        (lambda Z: 1.0, "one number"),
        (lambda Z: None, "one number"),
        (lambda Z: np.array(["a"] * len(Z)), "one number"),
        (lambda Z: Z[:, 0] + 1j, "one number"),
        (lambda Z: Z[:, :0], "numbers"),
        (lambda Z: Z[:, :, None], "numbers"),
        (np.eye(DIM), "function of vectors"),
        ("mean", "function of vectors"),
    ],
)
def test_wrong_questions_are_refused(crowd, question, message):
    with pytest.raises(InvalidInput, match=message):
        crowd.mean(question)


def test_ints_bools_and_constants_are_answers(crowd):
    positive = crowd.mean(lambda Z: Z[:, 0] > 0)
    assert positive.estimate == pytest.approx(crowd.mean(lambda Z: 1 * (Z[:, 0] > 0)).estimate)
    for constant in (0.1, 0, 1e9):
        answer = crowd.mean(lambda Z, c=constant: np.full(len(Z), c))
        assert answer.estimate == pytest.approx(constant)
        assert answer.interval() == pytest.approx((constant, constant))
    assert crowd.histogram(lambda Z: np.ones(len(Z)), 1).estimate == pytest.approx([1.0])
    assert crowd.quantile(lambda Z: np.ones(len(Z))).interval() == (1.0, 1.0)


def test_huge_and_tiny_values_keep_their_digits(crowd):
    plain = crowd.mean(first)
    for scale, offset in ((1e300, 0.0), (1e-300, 0.0), (1.0, 1e9)):
        answer = crowd.mean(lambda Z, s=scale, o=offset: s * Z[:, 0] + o)
        assert answer.standard_error == pytest.approx(scale * plain.standard_error, rel=1e-4)
        assert answer.estimate - offset == pytest.approx(scale * plain.estimate, rel=1e-4)


def test_a_question_cannot_change_the_population(crowd):
    def spoil(Z: np.ndarray) -> np.ndarray:
        Z *= 0
        return Z + np.arange(DIM)

    before = crowd.vectors.copy()
    crowd.mean(spoil)
    crowd.share(spoil)
    np.testing.assert_array_equal(crowd.vectors, before)


def test_models_without_answers_and_wrong_bins(crowd):
    with pytest.raises(InvalidInput, match="mean or histogram"):
        crowd.share(np.ones((1, DIM)))
    with pytest.raises(InvalidInput, match="public vectors of 3 numbers"):
        crowd.share(np.eye(5))
    with pytest.raises(InvalidInput, match="pass edges"):
        crowd.histogram(lambda Z: np.sign(Z[:, 0]) * 1.5e308)
    with pytest.raises(InvalidInput, match="finite"):
        crowd.share(lambda Z: np.log(np.minimum(Z[:, :2], 0)) * np.nan)
    for bins in (0, -1, 2.5, True, [1.0], [1.0, 1.0], [2.0, 1.0], [0, math.nan], 10**6, "auto"):
        with pytest.raises(InvalidInput):
            crowd.histogram(first, bins)
    with pytest.raises(InvalidInput, match="one number per vector"):
        crowd.histogram(lambda Z: Z)
    wide = replace(crowd, fit=replace(crowd.fit, support=_of_dimension(crowd.support, 200)))
    with pytest.raises(InvalidInput, match="too many numbers"):
        wide.covariance()


def _of_dimension(support, dim: int):
    return replace(support, vectors=np.zeros((len(support.vectors), dim)))


# ---- Too few reports


def test_the_number_of_people_that_would_do_is_right():
    release = offaxis.fit(None, PUBLIC, epsilon=0.5, mechanism="laplace", reshaping="centre")
    people = draw(np.random.default_rng(4), 200_000, UNEVEN)
    with pytest.raises(InvalidInput, match="too few for this question") as raised:
        crowd_of(release, people[:300]).mean(first)
    enough = int(str(raised.value).split("about ")[1].split(" ")[0].replace(",", ""))
    assert 300 < enough <= len(people)
    assert crowd_of(release, people[:enough]).mean(first).standard_error > 0
    with pytest.raises(InvalidInput, match="too few"):
        crowd_of(release, people[: enough // 6]).mean(first)


def test_too_few_reports_for_the_cells(release, reports):
    with pytest.raises(InvalidReport, match="no reports"):
        population(release, [], PUBLIC)
    with pytest.raises(InvalidInput, match=r"20 reports are too few.*at least 200 are needed"):
        population(release, reports[:20], PUBLIC)
    assert population(release, reports[:20], PUBLIC, cells=2).fit.count == 20


# ---- Warnings


def test_people_unlike_the_public_are_noticed_and_every_answer_says_so(strangers, crowd):
    assert not strangers.explained
    answers = [
        strangers.share(CENTRES),
        strangers.accuracy(CENTRES, (strangers.vectors @ CENTRES.T).argmax(axis=1)),
        strangers.mean(),
        strangers.mean(first),
        strangers.histogram(first),
        strangers.quantile(first),
        strangers.quantile(first, [0.1, 0.9]),
        strangers.covariance(),
    ]
    change = strangers.compare(crowd)
    answers += [change.share(CENTRES), change.mean(), change.histogram(first), change.cells()]
    for answer in answers:
        assert "No weights of the public vectors" in answer.warning
        assert "Warning: " in repr(answer)
        assert answer.to_frame()["warning"].str.contains("No weights").all()
    assert "No weights" in strangers.summary
    assert "widened" in strangers.warning
    assert "No weights" in change.warning
    assert not any("No weights" in part.warning for part in (crowd, crowd.mean(first)))


def test_all_people_in_one_cell_are_no_strangers(release, crowd):
    """Shares at the border, of people like the public vectors there."""
    rng = np.random.default_rng(5)
    people = CENTRES[0] + rng.standard_normal((4_000, DIM))
    found = crowd_of(release, people)
    shares = found.share(CENTRES)
    low, high = shares.interval()
    assert found.explained
    assert shares.estimate[0] > 0.9
    assert high[0] >= 0.98
    assert (low >= 0).all()
    assert found.weights.min() >= 0


def test_a_pass_at_a_small_budget_is_no_comfort():
    release = offaxis.fit(None, PUBLIC, epsilon=1, mechanism="privunit2", reshaping="centre")
    found = crowd_of(release, PUBLIC)
    assert found.explained
    assert "no comfort" in found.summary


def test_symbols_say_what_they_hide():
    """Two cells for three clusters: the shares of clusters inside a cell are the public ones."""
    release = offaxis.fit(None, PUBLIC, epsilon=2, mechanism="response", reshaping="centre", size=2)
    found = crowd_of(release, draw(np.random.default_rng(6), 3_000, UNEVEN))
    assert "cannot show" in found.summary
    names = release.encode_private(found.vectors)
    assert not found.mean(lambda Z: names).warning  # what is reported
    hidden = found.mean(lambda Z: np.sin(50 * Z[:, 1]))
    assert "inside the cells" in hidden.warning
    assert "inside the cells" in found.compare(found).mean(lambda Z: np.sin(50 * Z[:, 1])).warning


def test_an_answer_that_no_public_vector_has_is_unknown(crowd):
    """It used to be 0, from 0 to 0."""
    model = np.vstack([CENTRES, np.zeros((1, DIM))])  # the last answer never wins here

    def outputs(Z: np.ndarray) -> np.ndarray:
        return np.maximum(Z @ model.T, [-99, -99, -99, -1e9]) - [0, 0, 0, 1e6]

    answer, plain = crowd.share(outputs), crowd.share(CENTRES)
    low, high = answer.interval()
    assert (low[3], high[3]) == (0, 1)
    assert answer.standard_error[3] == 0.5
    assert "No public vector gives 3: how many" in answer.warning
    np.testing.assert_allclose(low[:3], plain.interval()[0])
    assert not plain.warning
    low, high = crowd.histogram(first, [90, 91, 92, 93, 94, 95, 96]).interval()
    assert (high[1:5] - low[1:5] == 1).all()


def test_limits_beyond_a_bound_are_no_certainty():
    """An estimate of −3 % ± 1 % used to have the interval from 0 to 0."""
    limits = normal_limits(np.array([-0.03, 0.5, 1.2]), np.array([0.01, 0.1, 0.05]))
    low, high = limits(2.0, 0.0, 1.0)
    np.testing.assert_allclose(low, [0, 0.3, 0.9])
    np.testing.assert_allclose(high, [0.02, 0.7, 1])
    assert normal_limits(-1.0, 0.5)(1.0, -math.inf, math.inf) == (-1.5, -0.5)


def test_questions_that_cells_hide_say_so(crowd):
    """For reports of directions, too."""
    hidden = crowd.mean(lambda Z: np.column_stack([Z[:, 0], np.sin(50 * Z[:, 1])]))
    assert "of '1' is inside the cells" in hidden.warning
    assert "inside the cells" in crowd.quantile(lambda Z: np.sin(50 * Z[:, 1])).warning
    assert not crowd.mean(first).warning


def test_budgets_beyond_what_was_measured_say_so():
    release = offaxis.fit(None, PUBLIC, epsilon=6, mechanism="privunit2", reshaping="centre")
    found = crowd_of(release, draw(np.random.default_rng(8), 2_000))
    assert "measured up to ε = 4" in found.share(CENTRES).warning


def test_few_reports_are_not_tested():
    """With 10 reports per cell, good populations were rejected in 10 % of rounds."""
    release = offaxis.fit(None, PUBLIC, epsilon=4, mechanism="privunit2", reshaping="centre")
    people = draw(np.random.default_rng(9), 500)
    few, enough = crowd_of(release, people[:499]), crowd_of(release, people)
    assert math.isnan(few.fit.p_value)
    assert "takes 500" in few.summary
    assert not math.isnan(enough.fit.p_value)
    assert "does not reject" in enough.summary


# ---- Releases and reports


def test_several_releases_and_rounds(release, reports, exact):
    rounds = population([release, release], [reports[:600], iter(reports[600:])], PUBLIC)
    np.testing.assert_allclose(rounds.fit.unshrunk, exact.fit.unshrunk, atol=1e-4)
    assert rounds.epsilons == (4.0,)
    other = offaxis.fit(None, PUBLIC, epsilon=1, mechanism="privunit2", reshaping="centre")
    more = other.privatize(draw(np.random.default_rng(7), 300, UNEVEN))
    both = population([release, other], [reports, more], PUBLIC)
    assert both.fit.count == 1_500
    assert sorted(both.epsilons) == [1.0, 4.0]
    assert "ε = 4, 1" in both.summary
    with pytest.raises(InvalidInput, match="the same support"):
        both.compare(population(release, reports, PUBLIC, cells=10))


@pytest.mark.parametrize("given", [None, [], "release", [None], 3])
def test_what_is_no_release_is_refused(given, reports):
    with pytest.raises(InvalidInput, match="pass a release"):
        population(given, reports, PUBLIC)


def test_lists_that_do_not_match(release, reports):
    with pytest.raises(InvalidInput, match="1 releases and 2 lists"):
        population([release], [reports, reports], PUBLIC)
    with pytest.raises((InvalidInput, InvalidReport)):
        population([release], reports[:1], PUBLIC)


def test_damaged_and_foreign_reports_are_refused(release, reports):
    other = offaxis.fit(None, PUBLIC, epsilon=3, mechanism="privunit2", reshaping="centre")
    damaged = reports[7][:-1]
    foreign = other.privatize(PUBLIC[0])
    for wrong in (damaged, foreign, b"", "text", None):
        with pytest.raises((InvalidReport, InvalidInput)):
            population(release, [*reports[:300], wrong], PUBLIC)
    with pytest.raises((InvalidReport, InvalidInput)):
        population(release, reports[0], PUBLIC)


def test_releases_that_say_nothing_of_vectors_are_refused(reports):
    cases = {
        "private answers together.*fit_pairs without answers": fit_pairs(
            principal(PUBLIC), ["no", "yes"], epsilon=2
        ),
        "private answers alone.*shares": fit_answers(["no", "yes"], epsilon=2),
        "projunit.*privunit": offaxis.fit(
            None, PUBLIC, epsilon=2, mechanism="projunit", reshaping="centre"
        ),
    }
    for message, release in cases.items():
        with pytest.raises(InvalidInput, match=message):
            population(release, reports, PUBLIC)


def test_sequences_are_refused():
    symbols = offaxis.fit(
        None, PUBLIC, epsilon=2, mechanism="response", reshaping="centre", unit="user"
    )
    memoised = MemoisedResponse(symbols.randomizer.size, epsilon=2, instant=1, draws=1, period=9)
    with pytest.raises(InvalidInput, match="report once"):
        check_release(replace(symbols, randomizer=memoised))


def test_a_model_that_is_not_in_the_file_is_asked_for(tmp_path):
    release = offaxis.fit(lambda Z: np.sin(Z), PUBLIC, epsilon=4)
    people = draw(np.random.default_rng(8), 400)
    made = release.privatize(people)
    found = population(release, made, PUBLIC)
    truth = np.bincount(np.sin(people).argmax(axis=1), minlength=3) / 400
    np.testing.assert_allclose(found.share(lambda Z: np.sin(Z)).estimate, truth, atol=0.15)
    release.save(tmp_path / "answers.release")
    with pytest.raises(ModelNeeded):
        population(offaxis.load(tmp_path / "answers.release"), made, PUBLIC)


# ---- Public vectors


def test_public_vectors_in_any_form(release, reports, exact):
    import pandas
    import pyarrow
    import torch

    frame = pandas.DataFrame(PUBLIC, columns=list("abc"))
    table = pyarrow.Table.from_pandas(frame)
    for public in (frame, table, torch.tensor(PUBLIC), lambda: iter([PUBLIC[:100], PUBLIC[100:]])):
        same = population(release, reports, public)
        np.testing.assert_array_equal(same.fit.shares, exact.fit.shares)
    single = population(release, reports, PUBLIC.astype(np.float32))
    np.testing.assert_allclose(single.share(CENTRES).estimate, UNEVEN, atol=0.15)


def test_public_vectors_that_are_wrong(release, reports):
    spoiled = PUBLIC.copy()
    spoiled[3, 1] = np.nan
    wrong = (
        PUBLIC[:0],
        [],
        PUBLIC[:1],
        PUBLIC[:5],
        np.ones((50, DIM)),
        spoiled,
        PUBLIC[:, :2],
        PUBLIC[0],
        iter([PUBLIC]),
        None,
        np.full((40, DIM), 1e300) * np.arange(40)[:, None],
    )
    for public in wrong:
        with pytest.raises(InvalidInput):
            population(release, reports, public)
    for cells in (1, 401, 2.5, True, None):
        with pytest.raises(InvalidInput, match="cells"):
            population(release, reports, PUBLIC, cells=cells)


def test_public_vectors_that_are_encoded_alike(reports):
    release = offaxis.fit(None, PUBLIC, epsilon=4, mechanism="privunit2", reshaping="centre")
    alike = release.encoder.centre + np.outer(np.linspace(1, 2, 50), [9.0, 0, 0])
    made = release.privatize(PUBLIC)
    with pytest.raises(InvalidInput, match="cannot tell"):
        population(release, made, alike * [1, 1, 1])


def test_repeated_rows_and_constant_columns():
    rng = np.random.default_rng(9)
    few = np.column_stack([rng.integers(3, size=300), np.full(300, 7.0)]).astype(float)
    release = offaxis.fit(None, few, epsilon=4, mechanism="laplace", reshaping="centre")
    found = crowd_of(release, few[rng.integers(300, size=2_000)], few)
    assert len(found.fit.shares) <= 3
    constant = found.mean(lambda Z: Z[:, 1])
    assert constant.estimate == pytest.approx(7)
    assert constant.standard_error == pytest.approx(0, abs=1e-9)
    covariance = found.covariance()
    np.testing.assert_allclose(covariance.estimate[1], 0, atol=1e-9)


@pytest.mark.parametrize(
    ("dim", "mechanism"), [(1, "laplace"), (1, "privunit2"), (300, "privunit2")]
)
def test_few_and_many_dimensions(dim, mechanism):
    rng = np.random.default_rng(10)
    centres = rng.standard_normal((2, dim)) * 3
    public = centres[rng.integers(2, size=300)] + rng.standard_normal((300, dim))
    release = offaxis.fit(None, public, epsilon=4, mechanism=mechanism, reshaping="centre")
    people = centres[rng.choice(2, 4_000, p=[0.8, 0.2])] + rng.standard_normal((4_000, dim))
    found = crowd_of(release, people, public)
    middle, axis = centres.mean(axis=0), centres[0] - centres[1]

    def side(Z: np.ndarray) -> np.ndarray:
        return (Z - middle) @ axis > 0

    answer = found.mean(side)
    low, high = answer.interval(0.9999)
    assert low <= side(people).mean() <= high
    assert answer.bounds == (0.0, 1.0)


@pytest.mark.parametrize("cells", [2, 400])
def test_few_and_many_cells(release, cells):
    rng = np.random.default_rng(11)
    public = draw(rng, 5_000 if cells == 400 else 600)
    found = crowd_of(release, draw(rng, 4_000, UNEVEN), public, cells)
    assert len(found.fit.shares) == min(cells, len(public) // 30)
    low, high = found.share(CENTRES).interval(0.9999)
    assert ((low <= UNEVEN) & (high >= UNEVEN)).all()


def test_thirty_public_vectors(release, reports):
    found = population(release, reports, PUBLIC[:30])
    assert len(found.fit.shares) == 2
    assert isinstance(found.mean(first), Answer)


def test_widened_vectors_explain_people_who_moved(release):
    rng = np.random.default_rng(12)
    people = draw(rng, 3_000, UNEVEN) * 0.5
    wide = widened(PUBLIC, size=1_200)
    assert crowd_of(release, people, wide).fit.p_value > crowd_of(release, people).fit.p_value / 2
    assert np.isfinite(wide).all()
    for settings in ({"size": 7}, {"spread": 0}, {"spread": -1}, {"spread": math.inf}):
        with pytest.raises(InvalidInput):
            widened(PUBLIC, **settings)
    with pytest.raises(InvalidInput):
        widened(PUBLIC[:0])
    assert widened(PUBLIC[:, :1], size=100).shape == (100, 1)


def test_populations_can_be_pickled(crowd):
    again = pickle.loads(pickle.dumps(crowd))
    np.testing.assert_array_equal(again.weights, crowd.weights)
    assert again.compare(crowd).p_value == pytest.approx(1)
    with pytest.raises(InvalidInput, match="another population"):
        crowd.compare(None)
