"""Plans: what is expected before anybody is asked, and refusals."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_digits

import offaxis
from benchmarks import plans
from offaxis.errors import InvalidInput
from offaxis.learning import Classes, Number, cells, learn, plan_learning, principal
from offaxis.learning.features import CLUSTERED as LEAST_CLEAR
from offaxis.learning.features import choose

RNG = np.random.default_rng(0)
CENTRES = 6 * RNG.standard_normal((6, 8))
CLUSTERED = CENTRES[RNG.integers(6, size=1500)] + RNG.standard_normal((1500, 8))
SMOOTH = RNG.standard_normal((1500, 8))


def test_most_models_are_inside_the_interval_of_their_plan() -> None:
    """Each of 60 models is inside with 39/41; fewer than 50 would be a chance of 2e-5.

    Broken control: against the intervals for ten times as many people fewer than 50 are inside.
    """
    rows = plans.measure(3)
    assert sum(row.of for row in rows) == 60
    assert sum(row.inside for row in rows) >= 50
    few = [row for row in rows if row.people == 4_000]
    many = {row.kind: row for row in rows if row.people == 10_000 and row.epsilon == 2}
    assert sum(many[row.kind].low <= row.mean <= many[row.kind].high for row in few) < len(few)


def test_clustered_vectors_get_cells_and_others_directions() -> None:
    """Cells are for vectors that cluster, and answers that are classes."""
    assert plan_learning(CLUSTERED, answers=6, epsilon=1).features.kind == "cells"
    assert plan_learning(SMOOTH, answers=6, epsilon=1).features.kind == "linear"
    assert plan_learning(CLUSTERED, answers=Number(0, 1), epsilon=1).features.kind == "linear"
    both = [Classes(2, name="a"), Number(0, 1, name="b")]
    assert plan_learning(CLUSTERED, answers=both, epsilon=1).features.kind == "linear"


@pytest.mark.parametrize("labels", ["private", "public"])
@pytest.mark.parametrize("public", [CLUSTERED, SMOOTH], ids=["clustered", "smooth"])
def test_more_people_and_a_larger_budget_are_expected_to_help(public, labels) -> None:
    """Over factors of ten, expectations increase, and stay between guess and best."""
    plan = plan_learning(public, answers=6, epsilon=1, labels=labels)
    table = plan.table(people=[300, 3_000, 30_000, 300_000], epsilons=["1/2", 2, 8])
    for row in table:
        values = [cell.accuracy for cell in row]
        assert values == sorted(values)
        assert all(cell.low <= cell.accuracy <= cell.high for cell in row)
    for column in zip(*table, strict=True):
        assert [c.accuracy for c in column] == sorted(c.accuracy for c in column)
    assert table[-1][-1].accuracy == pytest.approx(plan.best, abs=0.02)
    assert plan.guess < plan.best <= 0.8 + 1e-9


def test_public_labels_take_fewer_people() -> None:
    """With six classes, labels that are public save most of the people."""
    private, known = (
        plan_learning(CLUSTERED, answers=6, epsilon=1, labels=labels).smallest_people(0.7)
        for labels in ("private", "public")
    )
    assert known is not None
    assert private is not None
    assert 2 * known < private


def test_the_smallest_numbers_reach_the_target_and_the_next_smaller_do_not() -> None:
    """smallest_people and smallest_epsilon agree with expected()."""
    plan = plan_learning(SMOOTH, answers=2, epsilon=1)
    people = plan.smallest_people(0.7)
    assert people is not None
    assert plan.expected(people).accuracy >= 0.7 > plan.expected(int(people * 0.8)).accuracy
    budget = plan.smallest_epsilon(0.7, people)
    assert budget is not None
    assert budget <= 1
    assert plan.expected(people, budget).accuracy >= 0.7
    assert plan.smallest_people(0.99) is None
    assert plan.smallest_epsilon(0.99, 1000) is None


def test_too_few_people_are_refused_with_the_number_it_takes() -> None:
    """The message names the number, the budget and the assumption; that number is accepted."""
    with pytest.raises(InvalidInput, match=r"it would take about [\d,]+ people") as caught:
        offaxis.plan_learning(CLUSTERED, answers=6, epsilon=1, people=200)
    assert "assumed: people's vectors" in str(caught.value)
    words = str(caught.value).split("it would take about ")[1]
    number = int(words.split(" ")[0].replace(",", ""))
    assert offaxis.plan_learning(CLUSTERED, answers=6, epsilon=1, people=number)
    with pytest.raises(InvalidInput, match="no number of people"):
        plan_learning(CLUSTERED, answers=6, epsilon=1, people=10_000, target=0.95)
    assert plan_learning(CLUSTERED, answers=6, epsilon=1, people=200, target=0.1)


def test_the_digits_of_few_people_are_refused_with_the_number_it_takes() -> None:
    """900 people at ε = 1: about 17,000 are needed, or 8,800 with nine directions.

    Images in random order have a clearness of 0.15 to 0.17, far from cells. The first 400 of the
    file are by few hands and cluster (0.216), so they get cells; 900 people are refused anyway.
    """
    images = load_digits().data / 16
    public = images[np.random.default_rng(0).permutation(len(images))[:400]]
    features = choose(public, 10)
    assert features.kind == "linear"
    assert features.settings["clearness"] < 0.9 * LEAST_CLEAR
    nine = principal(public, 9, intercept=False)
    for map_of, sample, low, high in [
        (features, public, 12_000, 24_000),
        (nine, public, 6_000, 12_500),
        (choose(images[:400], 10), images[:400], 2_000, 24_000),
    ]:
        with pytest.raises(InvalidInput, match="900 people at ε = 1 are too few") as caught:
            plan_learning(sample, answers=10, epsilon=1, people=900, features=map_of)
        words = str(caught.value).split("it would take about ")[1]
        assert low < int(words.split(" ")[0].replace(",", "")) < high


def test_a_plan_with_public_labels_knows_their_shares_from_its_people() -> None:
    """Classes of 90 and 10 %, at a budget so low that nothing else is learnt."""
    related = (np.arange(1500) % 10 == 0).astype(int)
    plan = plan_learning(SMOOTH, answers=2, epsilon="1/10", labels="public", related=related)
    assert plan.expected(2_000).accuracy > 0.88
    assert plan.guess == pytest.approx(0.9)


def test_related_labels_are_the_signal() -> None:
    """A related task that is easy needs fewer people than one that is noise."""
    easy = (SMOOTH[:, 0] > 0).astype(int)
    noise = RNG.integers(2, size=len(SMOOTH))
    plan = plan_learning(SMOOTH, answers=2, epsilon=1, related=easy)
    assert plan.expected(20_000).accuracy > 0.85
    assert "related" in plan.assumption
    useless = plan_learning(SMOOTH, answers=2, epsilon=1, related=noise)
    assert useless.expected(20_000).accuracy < 0.6
    numbers = plan_learning(SMOOTH, answers=Number(-3, 3), epsilon=1, related=SMOOTH[:, 0])
    assert 0.5 < numbers.expected(50_000).accuracy <= numbers.best + 0.01


@pytest.mark.parametrize("count", [4_000, 4_001, 5_999, 20_001])
def test_related_labels_stay_with_their_vectors(count) -> None:
    """Whatever the number of public vectors; shifted labels would say nothing."""
    public = np.random.default_rng(2).standard_normal((count, 4))
    features = principal(public)
    related = (public[:, 0] > 0).astype(int)
    plan = plan_learning(public, answers=2, epsilon=2, related=related, features=features)
    assert plan.best > 0.95
    number = plan_learning(
        public, answers=Number(-4, 4), epsilon=2, related=public[:, 0], features=features
    )
    assert number.best > 0.8


def test_a_range_that_is_too_wide_takes_more_people() -> None:
    """The deviation of the answers decides; the plan says which one it assumes."""
    asked, wide = Number(30, 70, name="age"), Number(-200, 300, name="age")
    same = plan_learning(SMOOTH, answers=asked, epsilon=1)
    assert same.deviation == 10
    stated = plan_learning(SMOOTH, answers=asked, epsilon=1, deviation=10)
    assert stated.expected(10_000) == same.expected(10_000)
    plan = plan_learning(SMOOTH, answers=wide, epsilon=1, deviation=10)
    assert "a standard deviation of 10" in plan.assumption
    assert plan.expected(10_000).accuracy < same.expected(10_000).accuracy - 0.2


@pytest.mark.parametrize(
    ("answers", "settings", "message"),
    [
        (2, {"deviation": 1}, "leave it out for classes"),
        (Number(0, 8), {"deviation": 5}, "above 0 and at most 4"),
        (Number(0, 8), {"deviation": 0}, "above 0"),
        (Number(0, 8), {"deviation": float("nan")}, "deviation"),
        (Number(0, 8), {"deviation": 1, "related": [1] * 1500}, "leave out deviation"),
        (2, {"features": "cells"}, "features are a map"),
        (Number(0, 8, optional=True), {}, "missing numbers"),
        (Number(0, 1), {"related": [0.5] * 1500}, "all related numbers count as 0.5"),
        (Number(0, 1), {"related": [7.0, 8.0] * 750}, "all related numbers count as 1"),
    ],
)
def test_what_a_plan_cannot_assume_is_refused(answers, settings, message) -> None:
    """Each with its reason."""
    with pytest.raises(InvalidInput, match=message):
        plan_learning(SMOOTH, answers=answers, epsilon=1, **settings)


def test_the_plan_is_what_the_release_does() -> None:
    """The release of a plan learns, from exact reports, what the plan expects."""
    plan = plan_learning(CLUSTERED, answers=6, epsilon=2, people=4_000, signal=0.9)
    rng = np.random.default_rng(1)
    group = plan.features.cells_of(CLUSTERED)
    chosen = rng.integers(len(CLUSTERED), size=4_000)
    answers = np.where(rng.random(4_000) < 0.9, group[chosen] % 6, rng.integers(6, size=4_000))
    model = learn(plan.release, plan.release.privatize(CLUSTERED[chosen], answers=answers))
    right = (model.predict(CLUSTERED) == group % 6).mean()
    assert right > 0.9  # every cell is named rightly, with a chance of failure below 1e-6


def test_the_table_and_the_figure_show_the_assumption(tmp_path) -> None:
    """What people read says what is assumed."""
    plan = plan_learning(SMOOTH, answers=["no", "yes"], epsilon="3/2", signal=0.9)
    text = str(plan)
    assert "Assumed: people's vectors are like the public ones" in text
    assert "90%" in text
    assert "nobody asked" in text
    figure = plan.figure(tmp_path / "plan.png")
    assert (tmp_path / "plan.png").stat().st_size > 10_000
    labels = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert labels == ["ε = 0.5", "ε = 1", "ε = 1.5", "ε = 2", "ε = 4"]
    assert plan_learning(SMOOTH, answers=Number(0, 9), epsilon=1).assumption.endswith(
        "a linear function of the features and noise, with R² = 0.8 without privacy and a standard "
        "deviation of 2.25"
    )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"answers": None}, "say what is asked"),
        ({"signal": 0.4}, "no better than guessing"),
        ({"signal": 1.5}, "signal is between 0 and 1"),
        ({"signal": float("nan")}, "signal"),
        ({"signal": 0.9, "related": [0, 1] * 750}, "leave out signal"),
        ({"related": [0, 1]}, "2 related labels and 1500 public vectors"),
        ({"related": [0, 7] * 750}, "answer"),
        ({"related": [0, np.nan] * 750}, "some related labels are missing"),
        ({"answers": 600}, "at most 512 classes, got 600: .*fit_answers"),
        ({"target": 0.7}, "pass people"),
        ({"people": 3}, "people"),
        ({"labels": "secret"}, "'private' or 'public'"),
        ({"epsilon": 0}, "epsilon|ε"),
        ({"features": cells(CLUSTERED), "answers": Number(0, 1)}, "cells take classes"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, message) -> None:
    """Each with its reason."""
    given = {"answers": 2, "epsilon": 1, **settings}
    with pytest.raises(InvalidInput, match=message):
        plan_learning(SMOOTH, **given)


def test_other_features_are_planned_for() -> None:
    """A map that is passed is used."""
    features = principal(SMOOTH, 3, intercept=False)
    plan = plan_learning(SMOOTH, answers=2, epsilon=1, features=features)
    assert plan.features is features
    assert plan.release.encoder.features == 3
