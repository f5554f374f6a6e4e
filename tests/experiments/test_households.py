from __future__ import annotations

from dataclasses import fields, replace
from datetime import date
from itertools import pairwise

import numpy as np
import pytest

from experiments import data, engine
from experiments.households import DAYS, PRIVATE_FROM, Draw, Households, prepare
from experiments.methods import CLEAN, METHODS
from experiments.reference_protocol import reference_shape
from experiments.sources import PublicTask, Setting, open_source
from experiments.without_guarantee import Unprotected
from offaxis.encoding import reshape
from offaxis.errors import InvalidInput
from offaxis.evaluation import BUDGETS
from offaxis.randomizers.gaussian import noise_scale

# Table "Main results for Linear Regression (m = 16) on the LHSM" of the paper, RMSE by budget.
PUBLISHED = {
    "Laplace (l1)": "17.63 8.815 5.878 4.409 3.528 2.941 2.522 2.208 1.964 1.768 1.183 .892",
    "Laplace+PA": "1.0520 .5387 .3729 .2935 .2482 .2197 .2006 .1872 .1774 .1700 .1511 .1439",
    "PrivUnit2": "3.9709 2.0035 1.3492 1.0252 .8348 .7097 .6222 .5577 .5083 .4710 .3619 .3155",
    "PrivUnit2+PA": ".9048 .4776 .3437 .2822 .2490 .2282 .2150 .2058 .1991 .1945 .1826 .1780",
}


@pytest.fixture(scope="module")
def readings():
    return data.load("lhsm")


@pytest.fixture(scope="module")
def study(readings) -> Households:
    return prepare(readings.energy, readings.first_day)


@pytest.fixture(scope="module")
def small(study: Households) -> Households:
    return replace(study, public=study.public[::300], public_targets=study.public_targets[::300])


@pytest.fixture(scope="module")
def draws(study: Households) -> list[Draw]:
    return [study.draw(seed) for seed in range(5)]


def test_a_draw_is_about_2400_finite_vectors_with_their_targets(draws):
    for draw in draws:
        assert 2350 < len(draw.vectors) <= 130 * 19
        assert draw.targets.shape == (len(draw.vectors),)
        assert np.isfinite(draw.vectors).all()
        assert np.isfinite(draw.targets).all()


def test_the_target_is_the_day_after_the_window(study, draws, readings):
    draw = draws[2]
    kwh = draw.vectors * (study.high - study.low) + study.low
    for row in range(0, len(kwh), 19):
        meter, day = readings.energy[draw.households[row]], draw.days[row]
        assert kwh[row] == pytest.approx(meter[day - DAYS : day], abs=1e-6)
        assert draw.targets[row] == meter[day]


def test_a_household_reports_once(draws):
    for draw in draws:
        assert np.unique(draw.households).size == draw.households.size


def test_dates_of_a_round_are_a_window_apart(draws):
    for draw in draws:
        for index in range(130):
            days = draw.days[draw.rounds == index]
            assert days.size <= 19
            assert np.diff(days).min() >= DAYS


def test_a_round_takes_the_first_possible_date_each_time(study, draws):
    draw = draws[0]
    for index in range(0, 130, 13):
        days = draw.days[draw.rounds == index]
        members = draw.households[draw.rounds == index]
        possible = np.flatnonzero(study.private[members].any(axis=0))
        assert days[0] == possible[0]
        left = members
        for first, second in pairwise(days):
            left = left[1:]  # those that report later, and perhaps others
            able = np.flatnonzero(study.private[left].any(axis=0))
            assert second <= able[able >= first + DAYS][0]


def test_private_windows_are_on_the_private_side(draws, readings):
    split = (PRIVATE_FROM - readings.first_day).days
    assert min(draw.households.min() for draw in draws) >= 3000
    assert min(draw.days.min() for draw in draws) == split, "the first private day is used"


def test_the_public_side_does_not_depend_on_the_private_one(study, readings):
    split = (PRIVATE_FROM - readings.first_day).days
    other = readings.energy.copy()
    rng = np.random.default_rng(0)
    other[3000:] = rng.random(other[3000:].shape)
    other[:, split:] = rng.random(other[:, split:].shape)
    again = prepare(other, readings.first_day)
    assert np.array_equal(again.public, study.public)
    assert again.model.identity() == study.model.identity()


def test_the_private_side_does_not_depend_on_public_readings(study, readings):
    split = (PRIVATE_FROM - readings.first_day).days
    other = readings.energy.copy()
    other[:3000] = np.nan
    other[:, : split - DAYS] = np.nan
    again = replace(study, energy=other)
    assert np.array_equal(again.draw(1).vectors, study.draw(1).vectors)


def test_public_vectors_are_complete_and_fill_the_unit_interval(study):
    assert study.public.shape == (600_014, DAYS)
    assert np.isfinite(study.public_targets).all()
    assert (study.public.min(axis=0) == 0).all()
    assert (study.public.max(axis=0) == 1).all()


def test_the_forecast_is_least_squares(study):
    error = study.model.outputs(study.public)[:, 0] - study.public_targets
    assert error.mean() == pytest.approx(0, abs=1e-12)
    assert error @ study.public / error.size == pytest.approx(np.zeros(DAYS), abs=1e-12)


def test_private_households_are_as_many_as_published(study):
    assert int(study.private.any(axis=1).sum()) == 2547


def test_with_the_random_numbers_of_the_public_code_published_errors_are_met(study):
    """Published for Laplace at ε = 0.5: 17.6293 ± 0.3513 plain, 1.0520 ± 0.0245 reshaped.

    The draws of households, the noise generator of every report and its order are those of the
    paper's public code. Shuffled households, a broken control, do not give the published error.
    """
    epsilon, weight, bias = 0.5, study.model.weights[0][0], study.model.biases[0][0]
    centre = study.public.mean(axis=0)
    plain = float(np.percentile(np.abs(study.public).sum(axis=1), 90))
    shape = reference_shape(study.geometry, 1000.0)
    root = np.sqrt(shape.stretch)
    encode = (shape.basis / root).T
    inner = float(np.percentile(np.abs((study.public - centre) @ encode.T).sum(axis=1), 90))
    ball = float(np.percentile(np.linalg.norm(study.public, axis=1), 90))
    sigma = noise_scale(2 * ball, epsilon, 1e-5)
    errors = []
    for seed in range(20):
        draw = study.draw(seed)
        squares, reports = [], dict.fromkeys(range(130), 0)
        for z, target, index in zip(draw.vectors, draw.targets, draw.rounds, strict=True):
            key = [seed, int(index), reports[int(index)], 0]
            reports[int(index)] += 1
            noise = np.random.default_rng(key).laplace(size=DAYS)
            decoded = z * min(1, plain / max(np.abs(z).sum(), 1e-10)) + 2 * plain / epsilon * noise
            w = encode @ (z - centre)
            w = w * min(1, inner / np.abs(w).sum()) + 2 * inner / epsilon * noise
            normal = sigma * np.random.default_rng(key).standard_normal(DAYS)
            gaussian = z * min(1, ball / max(np.linalg.norm(z), 1e-10)) + normal
            three = (decoded, shape.basis @ (root * w) + centre, gaussian)
            squares.append([(weight @ v + bias - target) ** 2 for v in three])
        errors.append(np.sqrt(np.mean(squares, axis=0)))
    means, deviations = np.mean(errors, axis=0), np.std(errors, axis=0, ddof=1)
    assert means[:2] == pytest.approx([17.6293, 1.0520], rel=5e-4)
    assert deviations[:2] == pytest.approx([0.3513, 0.0245], rel=5e-3)
    # Published for AGM: 11.6732. That row is not of this run.
    assert means[2] == pytest.approx(11.3716, rel=5e-4)


def test_shuffled_households_do_not_give_the_published_error(readings):
    shuffled = readings.energy[np.random.default_rng(0).permutation(len(readings.energy))]
    errors = _clean_errors(prepare(shuffled, readings.first_day))
    assert np.mean(errors) == pytest.approx(0.0657, abs=5e-5)


def test_draws_repeat_by_seed_and_differ_between_seeds(study, draws):
    again, other = study.draw(4), study.draw(5)
    for name in (f.name for f in fields(Draw)):
        assert np.array_equal(getattr(again, name), getattr(draws[4], name))
    assert not np.array_equal(again.households, other.households)
    assert not np.array_equal(again.days, other.days)


def test_readings_without_a_private_year_are_an_error(readings):
    with pytest.raises(InvalidInput, match="2013-01-01"):
        prepare(readings.energy[:, :600], readings.first_day)
    with pytest.raises(InvalidInput, match="2015"):
        prepare(readings.energy, date(2015, 1, 1))


def test_for_one_output_both_allocations_agree(small):
    capped, gap = (reshape(small.geometry, order=1, allocation=rule) for rule in ("capped", "gap"))
    assert capped.stretch == pytest.approx(gap.stretch)
    assert capped.stretch[1:] == pytest.approx(1000)
    assert (capped.stretch**-0.5).sum() == pytest.approx(DAYS)


def errors(label, folder):
    """Return the mean error of a row of the published protocol at every budget, over 20 draws."""
    row = engine.Row(label, "", "lhsm", replace(METHODS[label], protocol="published"), BUDGETS)
    return [outcome.mean for outcome in engine.run([row], folder)]


def _clean_errors(study: Households) -> list[float]:
    errors = []
    for seed in range(20):
        draw = study.draw(seed)
        gaps = study.model.outputs(draw.vectors)[:, 0] - draw.targets
        errors.append(float(np.sqrt(np.mean(gaps**2))))
    return errors


def test_without_privacy_the_error_is_the_published_one(study, tmp_path):
    assert np.mean(_clean_errors(study)) == pytest.approx(0.0691, abs=5e-5)
    assert errors(CLEAN, tmp_path) == pytest.approx([0.0691] * 12, abs=5e-5)


@pytest.mark.parametrize("label", PUBLISHED)
def test_laplace_and_privunit_agree_with_the_paper_at_every_budget(label, tmp_path):
    """Measured: within 1.1 %. 48,000 reports leave a deviation of 0.4 % in an error."""
    published = [float(value) for value in PUBLISHED[label].split()]
    assert errors(label, tmp_path) == pytest.approx(published, rel=0.03)


def test_the_unit_of_protection_is_a_user():
    assert open_source("lhsm").unit == "user"


def test_every_row_protects_a_user_or_is_marked(small):
    side = PublicTask(small.model, small.public)
    source = Setting("lhsm", side, lambda seed: (small.public, small.public_targets), unit="user")
    for label, method in METHODS.items():
        for made in method.make(source, [2.0]).values():
            if isinstance(made, Unprotected):
                assert method.mark_at(10.0) == made.label == "no guarantee", label
            else:
                assert (made.guarantee.epsilon, made.guarantee.unit) == (2, "user"), label
