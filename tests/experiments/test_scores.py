from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments import engine
from experiments.rows import MECHANISMS
from experiments.scores import Accuracy, Explained, MeanError, Metric, Rmse, score_for
from experiments.sources import agreement, fidelity, means, metric_root, open_source
from offaxis.errors import BiasedDecoder, InvalidInput
from offaxis.evaluation.utility import TaskScorer
from tests.experiments import tiny_study as tiny

METRICS: tuple[Metric, ...] = ("accuracy", "rmse", "explained", "mean error")


def test_ties_go_to_the_first_as_argmax_has_it() -> None:
    outputs = np.array([[1.0, 0.0, 2.0], [1.0, 3.0, 0.0]])
    labels = np.array([1, 1, 0])
    assert Accuracy().add(outputs, labels) == (outputs.argmax(0) == labels).sum() == 2


@given(st.sampled_from(METRICS), st.integers(0, 30), st.integers(0, 2**32 - 1))
def test_a_score_does_not_depend_on_the_blocks(metric: Metric, cut: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    outputs, clean = rng.standard_normal((2, 3, 30))
    answers = {"accuracy": rng.integers(0, 3, 30), "rmse": clean[0]}.get(metric, clean.T)
    score = score_for(metric, rng.standard_normal(3))
    whole = score.add(outputs, answers)
    parts = np.zeros(score.size)
    for piece in (slice(cut), slice(cut, None)):
        if outputs[:, piece].size:
            parts += score.add(outputs[:, piece], answers[piece])
    np.testing.assert_allclose(parts, whole, atol=1e-12)
    assert score.finish(whole, 30) == pytest.approx(score.finish(parts, 30))


def test_scores_by_hand() -> None:
    clean = np.array([[1.0, 0.0], [3.0, 0.0]])
    outputs = np.array([[1.0, 3.0], [2.0, 0.0]])
    usual = np.array([2.0, 0.0])
    assert Rmse().finish(Rmse().add(outputs[:1], clean[:, 0]), 2) == 0.0
    explained, mean = Explained(usual), MeanError(usual)
    # Lost 2² and 0, spread 1 and 1; the mean is off by (0, 1), and E of the spread is 1.
    assert explained.finish(explained.add(outputs, clean), 2) == 1 - 4 / 2
    assert mean.finish(mean.add(outputs, clean), 2) == 1.0


@pytest.mark.parametrize("metric", ["explained", "mean error"])
def test_always_answering_the_public_mean_explains_nothing(metric: Metric) -> None:
    source = tiny.source(400)
    asked = fidelity(source) if metric == "explained" else means(source, 400)
    clean, usual = asked.sample(0).answers, asked.scoring.outputs(source.geometry.mean[None])
    outputs = np.tile(usual.T, (1, 400))
    found = asked.score.finish(asked.score.add(outputs, clean), 400)
    gap, spread = (clean - usual).mean(axis=0), ((clean - usual) ** 2).sum(axis=1).mean()
    assert found == pytest.approx(0.0 if metric == "explained" else gap @ gap / spread)


def test_the_root_has_the_gram_of_the_task() -> None:
    source = tiny.source(10)
    root = metric_root(source).weights[0]
    np.testing.assert_allclose(root.T @ root, source.geometry.gram, atol=1e-10)


@pytest.mark.parametrize("goal", ["answers", "fidelity"])
@pytest.mark.parametrize("made", [tiny.source, tiny.changing_source])
def test_derived_settings_measure_what_is_predicted(goal: str, made: object) -> None:
    """Seven standard errors of the judge: one false alarm in 10^11 runs."""
    source = made()  # type: ignore[operator]
    asked = agreement(source) if goal == "answers" else fidelity(source)
    mechanism = replace(MECHANISMS["PrivUnit2+PA"], percentile=80.0)
    found = engine.measure_row(asked, mechanism, [4.0], seeds=30)
    assert found is not None
    judge = TaskScorer(source.task, source.geometry.gram, source.geometry.mean, goal)  # type: ignore[arg-type]
    vectors = np.concatenate([source.sample(seed).vectors for seed in range(30)])
    utility = judge(mechanism.make(source, [4.0])[4.0], vectors)  # type: ignore[arg-type]
    scale = np.std(found[4.0], ddof=1) / np.sqrt(30)
    assert abs(np.mean(found[4.0]) - utility.score) < 7 * np.hypot(utility.error, scale)
    # The twin: three times the budget.
    other = judge(mechanism.make(source, [12.0])[12.0], vectors)  # type: ignore[arg-type]
    assert abs(np.mean(found[4.0]) - other.score) > 7 * np.hypot(other.error, scale)


def test_without_privacy_nothing_is_lost() -> None:
    clean = MECHANISMS["No randomization"]
    source = tiny.source(50)
    for asked, wanted in ((agreement(source), 1), (fidelity(source), 1), (means(source, 20), 0)):
        found = engine.measure_row(asked, clean, [1.0], seeds=2)
        assert found is not None
        assert found[1.0] == pytest.approx((wanted, wanted))


def test_means_are_decoded_for_means() -> None:
    """The error of a mean falls as 1/people; single reports here are decoded with bias."""
    source = tiny.source(2600)
    mechanism = MECHANISMS["Laplace+PA"]
    errors = []
    for people in (25, 2500):
        found = engine.measure_row(means(source, people), mechanism, [8.0], seeds=40)
        assert found is not None
        errors.append(np.mean(found[8.0]))
    assert 0.004 < errors[1] / errors[0] < 0.04
    with pytest.raises(BiasedDecoder):
        engine.measure_row(means(source, 5), MECHANISMS["PrivUnit2+PA"], [8.0], seeds=1)
    asked = means(source, 5)
    with pytest.raises(InvalidInput, match="people must be from 1 to 2600"):
        means(source, 2601).sample(0)
    assert not np.array_equal(asked.sample(0).vectors, asked.sample(1).vectors)


def test_questions_have_names_and_fingerprints_of_their_own() -> None:
    names = ["plane", "agreement plane", "fidelity plane", "means 100 plane", "means 200 plane"]
    found = [open_source(name) for name in names]
    assert [each.name for each in found] == names
    assert len({each.fingerprint for each in found}) == len(names)
    assert len({id(each.side) for each in found}) == 1
    assert [each.unit for each in found] == ["item"] * len(names)
    for name in ("means plane", "means x plane", "fidelity"):
        with pytest.raises(InvalidInput, match="no setting"):
            open_source(name)
