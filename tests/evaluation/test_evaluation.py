"""``evaluate`` and ``sweep``: metrics, seeds, exact reports and rejected targets."""

from __future__ import annotations

import numpy as np
import pytest

import offaxis
from offaxis.errors import InvalidInput
from offaxis.evaluation import BUDGETS, evaluate, sweep


@pytest.fixture(scope="module")
def labels(head, public):
    return head.outputs(public).argmax(1)


def test_clean_scores_against_the_models_answers_are_perfect(release, head, public, labels):
    result = evaluate(release, head, public, labels, seeds=2)
    assert result.clean == {"output_rmse": 0.0, "agreement": 1.0, "accuracy": 1.0}
    assert result.runs["accuracy"].shape == (2,)
    assert result.mean("accuracy") < 1
    assert result.std("accuracy") >= 0


def test_a_seed_is_reproducible_and_another_one_differs(release, head, public):
    runs = [evaluate(release, head, public, seeds=2, seed=s).runs["output_rmse"] for s in (1, 1, 2)]
    assert np.array_equal(runs[0], runs[1])
    assert not np.array_equal(runs[0], runs[2])


def test_exact_reports_score_like_simulated_ones(release, head, public):
    """Two means of 8 × 500 answers: six standard errors, a false alarm in 10⁸ runs."""
    exact = evaluate(release, head, public, seeds=8, exact=True)
    simulated = evaluate(release, head, public, seeds=8)
    error = np.sqrt(2 * 0.25 / (8 * len(public)))
    assert abs(exact.mean("agreement") - simulated.mean("agreement")) < 6 * error


def test_real_targets_give_an_rmse(release, head, public):
    result = evaluate(release, head, public, head.outputs(public), seeds=1)
    assert result.clean["rmse"] == 0
    assert result.mean("rmse") == pytest.approx(result.mean("output_rmse"))


def test_a_single_output_has_no_agreement(public):
    weight = np.ones((1, 6))
    release = offaxis.fit(weight, public, epsilon=1, mechanism="laplace")
    evaluation = evaluate(release, weight, public, (public.sum(1) > 0).astype(int), seeds=1)
    assert "agreement" not in evaluation.runs
    assert evaluation.clean["accuracy"] == 1.0


@pytest.mark.parametrize(
    "targets", [np.zeros(3, int), np.full(500, 3), np.full(500, -1), np.ones((500, 2)), ["a"] * 500]
)
def test_targets_that_do_not_fit_are_rejected(release, head, public, targets):
    with pytest.raises(InvalidInput):
        evaluate(release, head, public, targets, seeds=1)


def test_zero_repetitions_are_rejected(release, head, public):
    with pytest.raises(InvalidInput, match="seeds"):
        evaluate(release, head, public, seeds=0)


def test_a_sweep_covers_every_cell_once(head, public, labels):
    progress = []
    cells = sweep(
        head,
        public,
        public,
        labels,
        mechanisms=["laplace", "gaussian"],
        epsilons=[1, 5],
        seeds=2,
        progress=progress.append,
        reshapings=["none", offaxis.Jacobian(order=1)],
    )
    assert len(cells) == 8
    assert len({(cell.mechanism, cell.reshaping, cell.epsilon) for cell in cells}) == 8
    assert sum(progress) == 16
    assert len(BUDGETS) == 12


def test_a_cell_of_a_sweep_is_the_release_of_its_settings(head, public):
    cells = sweep(
        head,
        public,
        public,
        mechanisms=["laplace"],
        epsilons=[5],
        reshapings=["centre", offaxis.Jacobian(lambda_max=10)],
        percentiles=[50],
        seeds=2,
    )
    centred, reshaped = (
        evaluate(
            offaxis.fit(head, public, epsilon=5, mechanism="laplace", percentile=50, **kwargs),
            head,
            public,
            seeds=2,
        )
        for kwargs in ({"reshaping": "centre"}, {"reshaping": offaxis.Jacobian(lambda_max=10)})
    )
    for cell, expected in zip(cells, (centred, reshaped), strict=True):
        assert np.array_equal(cell.evaluation.runs["agreement"], expected.runs["agreement"])
    assert [(cell.percentile, cell.reshaping.name) for cell in cells] == [
        (50, "centre"),
        (50, "jacobian"),
    ]
