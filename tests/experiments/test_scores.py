from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments import engine
from experiments.methods import METHODS
from experiments.scores import Accuracy, Explained, MeanError, Metric, Rmse, score_for
from experiments.sources import agreement, fidelity, means, metric_root, open_source
from offaxis.errors import BiasedDecoder, InvalidInput
from offaxis.evaluation.utility import TaskScorer
from tests.experiments import tiny_study as tiny

METRICS: tuple[Metric, ...] = ("accuracy", "rmse", "explained", "mean error")


def test_ties_go_to_the_first_output_as_with_argmax() -> None:
    outputs = np.array([[1.0, 0.0, 2.0], [1.0, 3.0, 0.0]])
    labels = np.array([1, 1, 0])
    assert Accuracy().add(outputs, labels) == (outputs.argmax(0) == labels).sum() == 2


@given(st.sampled_from(METRICS), st.integers(0, 30), st.integers(0, 2**32 - 1))
def test_a_score_does_not_depend_on_the_division_into_blocks(
    metric: Metric, cut: int, seed: int
) -> None:
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


def test_scores_equal_values_computed_by_hand() -> None:
    clean = np.array([[1.0, 0.0], [3.0, 0.0]])
    outputs = np.array([[1.0, 3.0], [2.0, 0.0]])
    at_mean = np.array([2.0, 0.0])
    assert Rmse().finish(Rmse().add(outputs[:1], clean[:, 0]), 2) == 0.0
    explained, mean = Explained(at_mean), MeanError(at_mean)
    # The errors are 2² and 0, the spread 1 and 1; the mean is off by (0, 1).
    assert explained.finish(explained.add(outputs, clean), 2) == 1 - 4 / 2
    assert mean.finish(mean.add(outputs, clean), 2) == 1.0


@pytest.mark.parametrize("metric", ["explained", "mean error"])
def test_always_answering_the_public_mean_explains_nothing(metric: Metric) -> None:
    source = tiny.source(400)
    setting = fidelity(source) if metric == "explained" else means(source, 400)
    clean, at_mean = setting.sample(0).answers, setting.scoring.outputs(source.geometry.mean[None])
    outputs = np.tile(at_mean.T, (1, 400))
    score = setting.score.finish(setting.score.add(outputs, clean), 400)
    gap, spread = (clean - at_mean).mean(axis=0), ((clean - at_mean) ** 2).sum(axis=1).mean()
    assert score == pytest.approx(0.0 if metric == "explained" else gap @ gap / spread)


def test_the_root_has_the_gram_of_the_task() -> None:
    source = tiny.source(10)
    root = metric_root(source).weights[0]
    np.testing.assert_allclose(root.T @ root, source.geometry.gram, atol=1e-10)


@pytest.mark.parametrize("goal", ["answers", "vectors"])
@pytest.mark.parametrize("made", [tiny.source, tiny.changing_source])
def test_derived_settings_measure_the_predicted_quantity(goal: str, made: object) -> None:
    """Within seven standard errors of the scorer: one false alarm in 10^11 runs."""
    source = made()  # type: ignore[operator]
    setting = agreement(source) if goal == "answers" else fidelity(source)
    method = replace(METHODS["PrivUnit2+PA"], percentile=80.0)
    scores = engine.measure_row(setting, method, [4.0], seeds=30)
    assert scores is not None
    scorer = TaskScorer(source.task, source.geometry.gram, source.geometry.mean, goal)  # type: ignore[arg-type]
    vectors = np.concatenate([source.sample(seed).vectors for seed in range(30)])
    utility = scorer(method.make(source, [4.0])[4.0], vectors)  # type: ignore[arg-type]
    scale = np.std(scores[4.0], ddof=1) / np.sqrt(30)
    assert abs(np.mean(scores[4.0]) - utility.score) < 7 * np.hypot(utility.error, scale)
    # The broken control: three times the budget.
    broken = scorer(method.make(source, [12.0])[12.0], vectors)  # type: ignore[arg-type]
    assert abs(np.mean(scores[4.0]) - broken.score) > 7 * np.hypot(broken.error, scale)


def test_without_privacy_nothing_is_lost() -> None:
    clean = METHODS["No randomization"]
    source = tiny.source(50)
    settings = ((agreement(source), 1), (fidelity(source), 1), (means(source, 20), 0))
    for setting, expected in settings:
        scores = engine.measure_row(setting, clean, [1.0], seeds=2)
        assert scores is not None
        assert scores[1.0] == pytest.approx((expected, expected))


def test_means_are_decoded_with_the_mean_decoder() -> None:
    """The error of a mean falls as 1/people, although single reports are decoded with bias."""
    source = tiny.source(2600)
    errors = []
    for people in (25, 2500):
        scores = engine.measure_row(means(source, people), METHODS["Laplace+PA"], [8.0], seeds=40)
        assert scores is not None
        errors.append(np.mean(scores[8.0]))
    assert 0.004 < errors[1] / errors[0] < 0.04
    with pytest.raises(BiasedDecoder):
        engine.measure_row(means(source, 5), METHODS["PrivUnit2+PA"], [8.0], seeds=1)
    setting = means(source, 5)
    with pytest.raises(InvalidInput, match="people must be from 1 to 2600"):
        means(source, 2601).sample(0)
    assert not np.array_equal(setting.sample(0).vectors, setting.sample(1).vectors)


def test_derived_settings_have_distinct_names_and_fingerprints() -> None:
    names = ["plane", "agreement plane", "fidelity plane", "means 100 plane", "means 200 plane"]
    settings = [open_source(name) for name in names]
    assert [setting.name for setting in settings] == names
    assert len({setting.fingerprint for setting in settings}) == len(names)
    assert len({id(setting.side) for setting in settings}) == 1
    assert [setting.unit for setting in settings] == ["item"] * len(names)
    for name in ("means plane", "means x plane", "fidelity"):
        with pytest.raises(InvalidInput, match="no setting"):
            open_source(name)
