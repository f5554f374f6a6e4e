"""People who differ: closed forms, stated false-alarm rates, and what does not fit together.

Reports are drawn from the law of the exact ones unless a test is about reports themselves.
"""

from __future__ import annotations

import math
import pickle
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

import offaxis
from offaxis.decoding import Shares
from offaxis.errors import InvalidInput, InvalidReport
from offaxis.geometry import Layers
from offaxis.learning import evidence
from offaxis.learning.evidence import Evidence, contrasts, public_cells, shrunken_shares
from offaxis.learning.shift import (
    LEVEL,
    Comparison,
    adapt,
    fit_shift,
    observed,
    recentre,
    reweight,
)
from offaxis.randomizers import KaryResponse, PrivUnit2
from offaxis.simulation import draw_observations
from tests.checks import ALPHA

RNG = np.random.default_rng(0)
DIM, CLASSES = 8, 5
CENTRES = 4 * np.linalg.qr(RNG.standard_normal((DIM, DIM)))[0][:CLASSES]


def draw(rng, count: int, shares=None) -> tuple[np.ndarray, np.ndarray]:
    """Return vectors of five clusters with one class each, and the classes."""
    labels = rng.choice(CLASSES, count, p=shares)
    return CENTRES[labels] + rng.standard_normal((count, DIM)), labels


PUBLIC, LABELS = draw(RNG, 2_000)
HEAD = Layers.linear(CENTRES, -(CENTRES**2).sum(axis=1) / 2)
DEEP = Layers([np.eye(DIM), CENTRES], [np.full(DIM, 9.0), HEAD.biases[0] - CENTRES.sum(axis=1) * 9])
UNEVEN = np.array([0.5, 0.2, 0.15, 0.1, 0.05])


@pytest.fixture(scope="module")
def release():
    return fit_shift(HEAD, PUBLIC, epsilon=2)


def compare(release, people, seed: int = 0, public=PUBLIC, model=HEAD) -> Comparison:
    """Compare people with public vectors by simulated reports."""
    rng = np.random.default_rng(seed)
    encoded = release.encoder.encode(people)
    return Comparison(model, release, draw_observations(release.randomizer, encoded, rng), public)


def right(model, vectors, labels) -> float:
    return float((model.outputs(vectors).argmax(axis=1) == labels).mean())


# ---- The release


@pytest.mark.parametrize("rank", [1, 4, 8])
def test_a_report_is_about_the_direction_of_whitened_coordinates_and_a_constant(rank):
    release = fit_shift(HEAD, PUBLIC, epsilon="1/2", rank=rank)
    assert str(release.guarantee) == "ε = 0.5, pure"
    assert isinstance(release.randomizer, PrivUnit2)
    assert (release.randomizer.dim, release.randomizer.target) == (rank + 1, "direction")
    lifted = release.encoder.encode(PUBLIC)
    np.testing.assert_allclose(lifted[:, -1], math.sqrt(rank) / 2)
    np.testing.assert_allclose(lifted[:, :-1].mean(axis=0), 0, atol=1e-9)
    np.testing.assert_allclose(np.cov(lifted[:, :-1].T, bias=True), np.eye(rank), atol=1e-9)
    assert not release.supports_mean


def test_the_directions_that_the_model_reads_come_first():
    """Even those of least variance: here the head reads the last two coordinates only."""
    public = RNG.standard_normal((500, 6)) * [9, 8, 7, 6, 0.2, 0.1]
    head = np.zeros((3, 6))
    head[:, 4:] = [[1, 0], [0, 1], [-1, -1]]
    forward = fit_shift(head, public, epsilon=1, rank=4).encoder.weights[0][:-1]
    assert np.linalg.matrix_rank(forward[:2, 4:] * [0.2, 0.1], tol=0.5) == 2
    assert np.abs(forward[2:, :2] * [9, 8]).max(axis=1).min() > 0.9  # then the largest variance


def test_the_release_survives_files_and_pickle(release, tmp_path):
    release.save(tmp_path / "shift.release")
    loaded = offaxis.load(tmp_path / "shift.release", expect=release.hash)
    reports = loaded.privatize(PUBLIC[:200])
    assert compare(pickle.loads(pickle.dumps(loaded)), PUBLIC).adaptation.verdict == "unchanged"
    assert observed(release, reports).shape == (200, 9)


def test_a_decoded_report_is_a_vector(release):
    """The mean of decoded reports points to the cluster of the people."""
    decoded = release.decode(release.privatize(np.tile(CENTRES[2], (2_000, 1))))
    apart = decoded.mean(axis=0) - PUBLIC.mean(axis=0)
    assert (CENTRES @ apart).argmax() == 2


def test_constant_and_repeated_coordinates_are_left_out():
    public = np.column_stack([PUBLIC, PUBLIC[:, :2], np.ones(len(PUBLIC))])
    head = np.column_stack([CENTRES, np.zeros((CLASSES, 3))])
    release = fit_shift(head, public, epsilon=2)
    assert release.encoder.output_dim == DIM + 1
    people = public + np.append(1.5 * np.eye(DIM)[0], [1.5, 0, 0])
    shift = compare(release, people, public=public, model=head).recentring.shift
    assert abs(shift[-1]) < 1e-9
    assert shift[0] == pytest.approx(shift[DIM], rel=1e-6)


@pytest.mark.parametrize(
    ("model", "public", "settings", "message"),
    [
        (HEAD, np.ones((50, DIM)), {}, "all equal"),
        (HEAD, PUBLIC, {"rank": 9}, "fewer than rank=9"),
        (HEAD, PUBLIC, {"rank": 0}, "rank must be an integer"),
        (HEAD, PUBLIC[:, :3], {}, "dimension 8"),
        (CENTRES[:1], PUBLIC, {}, "classifier"),
        (lambda Z: np.sin(Z), PUBLIC, {}, "fully connected network"),
    ],
)
def test_what_cannot_be_fitted_is_refused(model, public, settings, message):
    with pytest.raises(InvalidInput, match=message):
        fit_shift(model, public, epsilon=1, **settings)


# ---- Likelihoods


@pytest.mark.parametrize("epsilon", [0.5, 2, 6])
def test_the_tabulated_density_is_that_of_the_randomizer(epsilon):
    release = fit_shift(HEAD, PUBLIC, epsilon=epsilon)
    evidence = compare(release, PUBLIC[:100]).evidence
    u = release.encoder.encode(PUBLIC[:100])
    exact = release.randomizer.log_density(evidence.reports, u)
    u = u / np.linalg.norm(u, axis=1, keepdims=True)
    tabulated = np.log(np.diag(evidence._ratios(slice(None), u)))
    np.testing.assert_allclose(tabulated, exact, atol=2e-3 * epsilon)


def test_scores_are_derivatives_of_the_likelihood(release):
    evidence = compare(release, PUBLIC[:500]).evidence
    at = np.append(0.3 * RNG.standard_normal(DIM), -0.2)
    step = 1e-2
    for place, direction in enumerate(np.eye(DIM + 1)):
        up, down = (np.log(evidence._moved_by(at + s * direction).density) for s in (step, -step))
        slope = (up - down) / (2 * step)
        np.testing.assert_allclose(evidence._moved_by(at).scores[:, place], slope, atol=2e-2)


def test_the_fitted_mix_meets_the_conditions_of_a_maximum(release):
    """Mean f_c/f is 1 for cells with a share and at most 1 for the others."""
    evidence = compare(release, draw(RNG, 3_000, UNEVEN)[0]).evidence
    shares = evidence.mixed.fitted
    slopes = (evidence._cells / evidence.mixed.density[:, None]).mean(axis=0)
    assert slopes.max() < 1.001
    np.testing.assert_allclose(slopes[shares > 0.01], 1, atol=2e-3)
    assert shares.sum() == pytest.approx(1)


def test_the_parts_of_a_large_number_of_reports_add_up(release, monkeypatch):
    people = PUBLIC[:700] + 0.5
    whole = compare(release, people).adaptation
    monkeypatch.setattr(evidence, "_NUMBERS", 100_000)
    parts = compare(release, people).adaptation
    assert parts.odds == pytest.approx(whole.odds, abs=1e-6)
    assert parts.fit == pytest.approx(whole.fit, abs=1e-6)


def test_estimates_of_the_move_scatter_as_their_information_says():
    """χ² of 24 estimates in 4 dimensions each; twice the information is a broken control."""
    rng = np.random.default_rng(3)
    public = rng.standard_normal((20_000, 3))
    release = fit_shift(np.eye(3), public, epsilon=3)
    coordinates = release.encoder.encode(public)[:, :-1]
    cells = public_cells(coordinates, np.zeros(len(public), dtype=int), 1, seed=0)
    everybody = replace(cells, shares=np.ones(1), cells=np.zeros(600, dtype=int))
    support = rng.choice(len(public), 600, replace=False)
    everybody = replace(
        everybody,
        coordinates=coordinates[support],
        weights=np.full(600, 1 / 600),
        table=np.ones((1, 1)),
    )
    truth = np.array([0.8, -0.5, 0.3, math.log(0.7)])
    total = 0.0
    for _ in range(24):
        drawn = everybody.coordinates[rng.integers(600, size=2_000)]
        moved = np.column_stack([0.7 * drawn + truth[:3], np.full(2_000, math.sqrt(3) / 2)])
        observations = draw_observations(release.randomizer, moved, rng)
        found = Evidence(release.randomizer, observations, everybody).moved
        # The prior of the scale has one hundredth of the information at most.
        apart = found.fitted - truth
        total += float(apart @ (found.scores.T @ found.scores) @ apart)

    def p_value(statistic: float) -> float:
        tail = stats.chi2(24 * 4)
        return float(2 * min(tail.sf(statistic), tail.cdf(statistic)))

    assert p_value(total) > ALPHA
    assert p_value(2 * total) < ALPHA


# ---- Verdicts


def test_the_verdict_is_right_and_helps(release):
    rng = np.random.default_rng(5)
    vectors, labels = draw(rng, 6_000)
    shift = 2.0 * (CENTRES[0] - CENTRES[1]) / np.linalg.norm(CENTRES[0] - CENTRES[1])
    moved = compare(release, vectors + shift).adaptation
    assert moved.verdict == "moved"
    assert right(moved.model, vectors + shift, labels) > right(HEAD, vectors + shift, labels) + 0.03
    np.testing.assert_allclose(moved.recentring.shift, shift, atol=0.5)

    mixed, labels = draw(rng, 6_000, UNEVEN)
    other = compare(release, mixed).adaptation
    assert other.verdict == "other mix"
    np.testing.assert_allclose(other.shares, UNEVEN, atol=0.12)
    assert right(other.model, mixed, labels) >= right(HEAD, mixed, labels)
    assert right(other.recentring.model, mixed, labels) < right(HEAD, mixed, labels)

    same = compare(release, vectors).adaptation
    assert (same.verdict, same.model) == ("unchanged", HEAD)


def test_people_whose_images_are_duller_are_not_taken_for_another_mix(release):
    """Contracted towards one point, as by noise: neither a plain shift nor a changed mix."""
    rng = np.random.default_rng(6)
    vectors, _ = draw(rng, 6_000)
    found = compare(release, 0.6 * vectors + 0.4 * CENTRES[3]).adaptation
    assert found.verdict == "moved"
    assert found.recentring.scale == pytest.approx(0.6, abs=0.1)
    expected = 0.4 * (CENTRES[3] - vectors.mean(axis=0))
    np.testing.assert_allclose(found.recentring.shift, expected, atol=0.3)


def test_the_odds_are_corrected_for_the_numbers_of_parameters():
    release = fit_shift(HEAD, PUBLIC, epsilon=2, rank=4)
    compared = compare(release, PUBLIC[:500] + 1.0)
    moved, mixed = (
        float(np.log(found.density).sum()) - count
        for found, count in (
            (compared.evidence.moved, 5),
            (compared.evidence.mixed, compared.evidence.public.shares.size - 1),
        )
    )
    assert compared.odds == pytest.approx(moved - mixed, abs=1e-9)
    assert compared.evidence.public.shares.size == 10


def test_few_reports_of_a_small_budget_change_nothing():
    release = fit_shift(HEAD, PUBLIC, epsilon="1/4")
    people = PUBLIC + 0.5
    found = compare(release, people[:400]).adaptation
    assert found.verdict in ("unchanged", "undecided")
    assert found.model is HEAD


def alarms(people_of, runs: int, epsilon: float, people: int) -> list[Comparison]:
    rng = np.random.default_rng(7)
    release = fit_shift(HEAD, PUBLIC, epsilon=epsilon)
    return [compare(release, people_of(rng, people), seed) for seed in range(runs)]


def drawn_from_public(rng, count: int) -> np.ndarray:
    return PUBLIC[rng.integers(len(PUBLIC), size=count)]


@pytest.fixture(scope="module")
def unchanged() -> list[Comparison]:
    """Compare 50 groups of people who are like the public."""
    return alarms(drawn_from_public, 50, 1, 500)


def test_unchanged_people_are_found_changed_as_often_as_stated(unchanged):
    """1 % stated; 6 or more alarms in 50 runs happen about once in 10^5. A shift is found."""
    same = [c.change for c in unchanged]
    assert sum(p <= LEVEL for p in same) < 6
    assert stats.kstest(same, "uniform", alternative="greater").pvalue > ALPHA
    control = alarms(lambda rng, n: drawn_from_public(rng, n) + CENTRES[0] / 2, 8, 1, 1_600)
    assert sum(c.change <= LEVEL for c in control) >= 6


def test_explained_populations_fail_the_test_of_fit_as_often_as_stated(unchanged):
    """5 % stated for the right explanation; 12 or more of 50 happen less than once in 10^5.

    For people who moved by three standard deviations it rejects that nothing changed.
    """
    p_values = [c.evidence.fit(c.evidence.moved) for c in unchanged]
    assert sum(p <= 0.05 for p in p_values) < 12
    assert 0.3 < np.mean(p_values) < 0.7  # 5 standard deviations: it is not merely cautious
    far = alarms(lambda rng, n: drawn_from_public(rng, n) + 3 * np.eye(DIM)[0], 5, 2, 600)
    assert all(c.evidence.fit(c.evidence.unchanged) < 1e-3 for c in far)


def test_people_whom_neither_explains_are_reported():
    """A class that no public vector has, far from all others: half of the people."""
    rng = np.random.default_rng(8)
    release = fit_shift(HEAD, PUBLIC, epsilon=4)
    vectors, _ = draw(rng, 4_000)
    vectors[::2] = -1.5 * CENTRES[0] + rng.standard_normal((2_000, DIM))
    found = compare(release, vectors).adaptation
    assert not found.explained
    assert "Neither a move nor another mix explains" in found.summary
    assert compare(release, draw(rng, 4_000, UNEVEN)[0]).adaptation.explained


# ---- Recentring


def test_recentring_is_the_model_of_the_shifted_vector(release):
    people = draw(RNG, 3_000)[0] + 0.7
    for head in (HEAD, DEEP):
        fitted = fit_shift(head, PUBLIC, epsilon=2)
        found = compare(fitted, people, model=head).recentring
        np.testing.assert_allclose(
            found.model.outputs(people), head.outputs(people - found.shift), atol=1e-9
        )
        assert found.model.identity() != head.identity()


def test_the_factor_is_one_less_the_share_of_noise(release):
    compared = compare(release, draw(RNG, 3_000)[0] + 0.4)
    found, fitted = compared.recentring, compared.evidence.moved
    information = fitted.scores.T @ fitted.scores + np.diag([0.0] * DIM + [4.0])
    noise = np.trace(np.linalg.inv(information)[:DIM, :DIM]) + DIM / len(PUBLIC)
    delta = fitted.fitted[:DIM]
    assert found.factor == pytest.approx(max(0, 1 - noise / (delta @ delta)))
    forward = release.encoder.weights[0][:-1]
    np.testing.assert_allclose(forward @ found.shift, found.factor * delta, atol=1e-9)
    assert repr(found).startswith("Recentring(distance ")


def test_people_identical_to_the_public_are_hardly_shifted(release):
    found = compare(release, PUBLIC).recentring
    assert np.linalg.norm(release.encoder.weights[0] @ found.shift) < 0.2
    assert found.scale == pytest.approx(1, abs=0.15)


# ---- Shares


def test_reweighting_adds_the_logarithm_of_the_ratio():
    old = np.bincount(LABELS, minlength=CLASSES) / len(LABELS)
    model = reweight(HEAD, UNEVEN, PUBLIC, labels=LABELS)
    np.testing.assert_allclose(model.biases[0] - HEAD.biases[0], np.log(UNEVEN / old))
    none = reweight(HEAD, np.eye(CLASSES)[1], PUBLIC, labels=LABELS)
    assert (none.biases[0] - HEAD.biases[0])[0] == pytest.approx(math.log(1 / 30))
    default = reweight(HEAD, UNEVEN, PUBLIC)  # a head whose probabilities are right
    np.testing.assert_allclose(default.biases[0], model.biases[0], atol=0.05)


@pytest.mark.parametrize("labels", [LABELS, None])
def test_reported_answers_are_corrected_for_the_errors_of_the_model(labels):
    """Nearly exact shares of answers give the shares of classes; the shares themselves do not."""
    rng = np.random.default_rng(9)
    blurred = HEAD.weights[0] * [[1.0], [0.4], [1.0], [1.0], [1.0]]
    head = Layers.linear(blurred, HEAD.biases[0])
    public, truth = 1.7 * PUBLIC / 2 + rng.standard_normal(PUBLIC.shape), LABELS
    if labels is None:  # then the classes are drawn from the probabilities
        chances = np.exp(head.outputs(public))
        chances /= chances.sum(axis=1, keepdims=True)
        truth = np.array([rng.choice(CLASSES, p=p) for p in chances])
    answers = head.outputs(public).argmax(axis=1)
    old = np.bincount(truth, minlength=CLASSES) / len(truth)
    confusion = np.array(
        [np.bincount(answers[truth == c], minlength=CLASSES) for c in range(CLASSES)]
    )
    reported = confusion.T @ (UNEVEN / old) / len(truth)
    randomizer = KaryResponse(CLASSES, epsilon=8)
    shares = Shares.from_mean(reported, 10**8, randomizer)
    assert np.abs(reported - UNEVEN).max() > 0.02
    model = reweight(head, shares, public, labels=labels)
    found = old * np.exp(model.biases[0] - head.biases[0])
    np.testing.assert_allclose(found, UNEVEN, atol=0.005 if labels is not None else 0.03)


def test_exact_reports_of_answers_reweight_the_model():
    rng = np.random.default_rng(10)
    release = offaxis.fit(HEAD, PUBLIC, epsilon=2, mechanism="class-response")
    people, _ = draw(rng, 4_000, UNEVEN)
    model = reweight(HEAD, release.shares(release.privatize(people)), PUBLIC)
    old = np.bincount(LABELS, minlength=CLASSES) / len(LABELS)
    np.testing.assert_allclose(np.exp(model.biases[0] - HEAD.biases[0]) * old, UNEVEN, atol=0.08)


def test_shrinking_is_the_posterior_mean_of_the_likeliest_prior():
    """Compared with the formulas in full matrices, over the same grid."""
    rng = np.random.default_rng(11)
    public = rng.dirichlet(np.full(4, 5.0))
    basis = contrasts(4)
    half = rng.standard_normal((3, 3))
    information = 300 * half @ half.T
    apart = basis.T @ (rng.dirichlet(np.full(4, 5.0)) - public)
    noise = np.linalg.inv(information)
    prior = basis.T @ (np.diag(public) - np.outer(public, public)) @ basis
    grid = np.append(0.0, np.geomspace(1e-5, 1e2, 141))
    law = [stats.multivariate_normal(np.zeros(3), noise + t * prior).logpdf(apart) for t in grid]
    tau = grid[int(np.argmax(law))]
    mean = public + basis @ (tau * prior @ np.linalg.solve(noise + tau * prior, apart))
    found = shrunken_shares(apart, information, public)
    assert 0 < tau < 100
    assert mean.min() > 0
    np.testing.assert_allclose(found, mean, atol=1e-9)


@pytest.mark.parametrize(
    ("shares", "settings", "message"),
    [
        ([0.5, 0.5], {}, "5 numbers"),
        ([0.5, 0.6, -0.1, 0, 0], {}, "sum to 1"),
        ([np.nan] * 5, {}, "finite"),
        (UNEVEN, {"labels": LABELS[:9]}, "one per public vector"),
        (UNEVEN, {"labels": LABELS + 1}, "0 to 4"),
        (Shares(np.full(4, 99), KaryResponse(4, 1)), {}, "all 5 answers"),
        (Shares(np.full((1, 5), 99), KaryResponse(5, 1), groups=("a",)), {}, "one group"),
        (Shares(np.full(5, 3), KaryResponse(5, 1)), {}, "too few"),
    ],
)
def test_shares_that_do_not_fit_are_refused(shares, settings, message):
    with pytest.raises(InvalidInput, match=message):
        reweight(HEAD, shares, PUBLIC, **settings)


# ---- What belongs together


def test_exact_reports_adapt_a_model(release):
    people = draw(np.random.default_rng(12), 3_000)[0] + 1.0
    reports = release.privatize(people)
    found = adapt(HEAD, release, iter(reports), PUBLIC)
    assert found.count == 3_000
    assert found.verdict == "moved"
    assert found.recentring.distance == recentre(HEAD, release, reports, PUBLIC).distance
    assert found.summary.startswith("3,000 reports at ε = 2. The people have moved, by ")
    assert "no comfort" not in found.summary
    assert repr(found).startswith("Adaptation(moved, 3000 reports, log odds ")


def test_a_pass_at_a_small_budget_is_said_to_be_no_comfort():
    release = fit_shift(HEAD, PUBLIC, epsilon=1)
    found = compare(release, PUBLIC).adaptation
    assert found.explained
    assert "no comfort: this test misses most" in found.summary
    undecided = replace(found, verdict="undecided")
    assert "The model is left as it is" in undecided.summary


def test_only_what_belongs_together_is_compared(release):
    reports = release.privatize(PUBLIC[:100])
    other = fit_shift(HEAD, PUBLIC, epsilon=3)
    with pytest.raises(InvalidReport):
        adapt(HEAD, other, reports, PUBLIC)
    with pytest.raises(InvalidInput, match="another model"):
        adapt(DEEP, release, reports, PUBLIC)
    with pytest.raises(InvalidInput, match="other public vectors"):
        adapt(HEAD, release, reports, PUBLIC[1:])
    with pytest.raises(InvalidInput, match=r"89 reports are too few .* at least 90"):
        adapt(HEAD, release, reports[:89], PUBLIC)
    assert adapt(HEAD, release, reports[:90], PUBLIC).count == 90
    means = offaxis.fit(None, PUBLIC, epsilon=2, goal="means")
    with pytest.raises(InvalidInput, match="fit_shift"):
        adapt(HEAD, means, means.privatize(PUBLIC[:100]), PUBLIC)


@pytest.mark.parametrize("outputs", [2, 60])
def test_cells_are_ten_to_forty_whatever_the_number_of_answers(outputs):
    rng = np.random.default_rng(13)
    public = rng.standard_normal((3_000, 4))
    head = rng.standard_normal((outputs, 4))
    release = fit_shift(head, public, epsilon=2)
    compared = compare(release, public, public=public, model=head)
    cells = compared.evidence.public
    assert 10 <= cells.shares.size <= 40
    assert cells.weights.sum() == pytest.approx(1)
    expected = np.bincount((public @ head.T).argmax(axis=1), minlength=outputs) / len(public)
    np.testing.assert_allclose(cells.answers, expected, atol=1e-12)
    assert compared.adaptation.verdict == "unchanged"


def test_a_model_with_one_answer_for_everybody_is_left_alone_or_recentred():
    head = Layers.linear(np.eye(2, DIM), np.array([100.0, 0.0]))
    release = fit_shift(head, PUBLIC, epsilon=2)
    found = compare(release, draw(RNG, 3_000, UNEVEN)[0], model=head)
    np.testing.assert_allclose(found.shares, [1.0, 0.0])
    np.testing.assert_allclose(found.reweighted.biases[0], head.biases[0])


def test_people_of_one_class_only_are_another_mix(release):
    people, labels = draw(np.random.default_rng(14), 4_000, np.eye(CLASSES)[2])
    found = compare(release, people).adaptation
    assert found.verdict in ("other mix", "undecided")
    assert right(found.model, people, labels) >= right(HEAD, people, labels)
    assert found.shares[2] > 0.9


def test_vanishing_and_huge_vectors_are_people_too(release):
    people = PUBLIC.copy()
    people[:20] *= 1e-300
    people[20:40] *= 1e200
    found = adapt(HEAD, release, release.privatize(people), PUBLIC)
    assert np.isfinite(found.model.biases[0]).all()
    assert 0 <= found.fit <= 1
