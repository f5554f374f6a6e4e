"""Second moments: unbiased, with errors as stated, from direct reports and from additive noise.

Tests with a p-value fail by chance with probability ALPHA = 1e-6 each and reject a broken control.
"""

from __future__ import annotations

import io
import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom, chi2

import offaxis
from offaxis.auditing import audit
from offaxis.card import averages
from offaxis.client import Reporter
from offaxis.decoding import SecondMomentsDecoder
from offaxis.encoding import SecondMomentsEncoder
from offaxis.encoding.second_moments import matrix_of, products, svec
from offaxis.errors import BiasedDecoder, InvalidInput, InvalidReport
from offaxis.learning import (
    SecondMomentSums,
    fit_pairs,
    fit_second_moments,
    principal,
    second_moments,
)
from offaxis.learning.second_moments import MOST_RANK
from offaxis.learning.spectra import SecondMoments
from offaxis.privacy.ledger import Ledger, Limit
from offaxis.randomizers import Gaussian, PrivUnit2, SphericalLaplace
from offaxis.release import Release
from offaxis.sampling.entropy import Entropy
from offaxis.simulation.randomizers import draw_observations
from offaxis.vectors import Vectors, row_norms
from tests.auditing.broken_controls import with_broken_control
from tests.checks import ALPHA

SCALES = np.array([3.0, 2.0, 1.0])


def vectors(count: int, seed: int) -> Vectors:
    return np.random.default_rng(seed).standard_normal((count, 3)) * SCALES


@pytest.fixture(scope="module")
def public() -> Vectors:
    return vectors(2_000, 0)


@pytest.fixture(scope="module")
def release(public: Vectors) -> Release:
    return fit_second_moments(public, rank=2, epsilon=4)


def simulated(release: Release, people: Vectors, seed: int) -> SecondMoments:
    sums = SecondMomentSums(release)
    rng = np.random.default_rng(seed)
    encoded = release.encoder.encode(people)
    sums.add_observed(draw_observations(release.randomizer, encoded, rng))
    return sums.estimate()


def p_value(estimate: Vectors, expected: Vectors, errors: Vectors) -> float:
    """The probability of a larger Mahalanobis distance than that of the estimate."""
    gap = estimate - expected
    return float(chi2.sf(gap @ np.linalg.solve(errors, gap), gap.size))


# ---- The map


def test_svec_keeps_inner_products():
    rng = np.random.default_rng(0)
    first, second = (part + part.T for part in rng.standard_normal((2, 5, 5)))
    assert np.isclose(svec(first) @ svec(second), (first * second).sum())
    assert np.allclose(matrix_of(svec(first)), first)
    w = rng.standard_normal((4, 3))
    assert np.allclose(products(w), svec(w[:, :, None] * w[:, None, :]))


@pytest.mark.parametrize("rank", [1, 2, 3, 9])
def test_no_encoding_is_longer_than_stated_and_the_height_is_the_best(rank):
    rng = np.random.default_rng(rank)
    encoder = SecondMomentsEncoder.of(np.eye(rank), np.zeros(rank), radius=2.5)
    sizes = np.concatenate([[0.0], np.linspace(0, 3, 50), [1e-300, 1e300, 1.7e308]])
    Z = rng.choice([-1.0, 1.0], (len(sizes), rank)) * sizes[:, None] / math.sqrt(rank)
    lengths = row_norms(encoder.encode(Z), 2)
    assert np.isfinite(lengths).all()
    assert lengths.max() <= encoder.reach * (1 + 1e-12)
    assert np.isclose(lengths.max(), encoder.reach)
    for height in encoder.sizes[1] * np.array([0, 0.5, 0.9, 1.1, 1.5]):
        sizes = np.array([2.5, min(height, 6.25), encoder.sizes[2]])
        other = SecondMomentsEncoder(encoder.matrix, encoder.centre, sizes)
        assert other.reach >= encoder.reach * (1 - 1e-12)


def test_no_other_public_matrix_is_better():
    """The longest svec(w wᵀ − C) over 20,000 directions is longer than with the best C = hI."""
    rng = np.random.default_rng(1)
    w = rng.standard_normal((20_000, 3))
    w = np.vstack([w / np.linalg.norm(w, axis=1)[:, None], np.zeros((1, 3))])
    best = row_norms(products(w) - svec(np.eye(3) / 3), 2).max()
    for _ in range(50):
        other = np.eye(3) / 3 + 0.2 * matrix_of(rng.standard_normal(6))
        assert row_norms(products(w) - svec(other), 2).max() > best


def test_encodings_are_those_of_clipped_coordinates(release):
    encoder, Z = release.encoder, vectors(50, 1) * 3
    w = (Z - encoder.centre) @ encoder.matrix.T
    w *= np.minimum(1, encoder.sizes[0] / np.linalg.norm(w, axis=1))[:, None]
    moments = encoder.moments_of(encoder.encode(Z))
    assert np.allclose(moments, np.hstack([products(w), w]))
    decoder = release.decoder
    assert np.allclose(encoder.matrix @ decoder.back, np.eye(2))


# ---- Unbiased, and not without clipping


@dataclass(frozen=True)
class RadiusOfTheVector(PrivUnit2):
    """Every device takes the length of its own vector for the public radius."""

    def report(self, W: Vectors, entropy: Any) -> list[bytes]:
        return PrivUnit2.report(
            self, W * (self.radius / np.maximum(row_norms(W, 2), 1e-300))[:, None], entropy
        )


class Unclipped(SecondMomentsEncoder):
    """Coordinates are not clipped, so the randomizer clips what is too long."""

    def coordinates(self, Z: Vectors) -> Vectors:
        w: Vectors = (Z - self.centre) @ self.matrix.T
        return w


@pytest.mark.parametrize("broken", [RadiusOfTheVector, Unclipped])
def test_exact_reports_are_unbiased_and_broken_ones_are_not(release, broken):
    """Most people are well inside the ball, or most are clipped."""
    inside = broken is RadiusOfTheVector
    people = vectors(12_000, 2) * (np.array([0.5, 0.5, 1]) if inside else np.array([6.0, 3.0, 1.0]))
    people += np.array([0.0, 1.0 if inside else 4.0, 0.0])
    encoder = release.encoder
    w = encoder.coordinates(people)
    expected = np.concatenate([svec(np.cov(w.T)), w.mean(axis=0)])

    def p_of(reporting: Release) -> float:
        sums = SecondMomentSums(release)
        sums.add_observed(reporting.randomizer.read(_payloads(reporting, people)))
        found = sums.estimate()
        estimate = np.concatenate([svec(found.covariance), found.mean])
        return p_value(estimate, expected, found._errors)

    assert p_of(release) > ALPHA
    if inside:
        assert p_of(with_broken_control(release, broken)) < ALPHA
    else:
        unclipped = broken(encoder.matrix, encoder.centre, encoder.sizes)
        assert p_of(replace(release, encoder=unclipped)) < ALPHA


def _payloads(release: Release, people: Vectors) -> list[bytes]:
    return release.randomizer.report(release.encoder.encode(people), Entropy())


ADDITIVE = {
    "laplace": {"reshaping": "none"},
    "gaussian": {"reshaping": "jacobian", "delta": "1e-6"},
    "spherical-laplace": {"reshaping": offaxis.Optimal(rank=2)},
    "coordinatewise-laplace": {},
}


@pytest.mark.parametrize("name", ADDITIVE)
def test_noise_is_subtracted(public, name):
    head = np.array([[1.0, 0.5, 0.0], [0.0, 1.0, -1.0]])
    fitted = offaxis.fit(head, public, epsilon=4, mechanism=name, **ADDITIVE[name])
    people = vectors(20_000, 3) * np.array([1.2, 0.5, 1.0])
    found = simulated(fitted, people, 4)
    w = fitted.randomizer.domain.project(fitted.encoder.encode(people))
    errors = found._errors[: found.mean.size * (found.mean.size + 1) // 2][:, : -found.mean.size]
    truth = svec(np.cov(w.T).reshape(w.shape[1], -1))
    assert p_value(svec(found.covariance), truth, errors) > ALPHA
    noise = fitted.randomizer.expected_squared_error() / fitted.randomizer.dim
    naive = svec(found.covariance + noise * np.eye(found.mean.size))
    assert p_value(naive, truth, errors) < ALPHA
    forward = getattr(fitted.encoder, "matrix", np.eye(3))
    assert np.allclose(forward @ found.back, np.eye(found.mean.size), atol=1e-6)


def test_exact_reports_with_noise_have_the_covariance(public):
    fitted = offaxis.fit(None, public, epsilon=8, reshaping="none", mechanism="spherical-laplace")
    reports = fitted.privatize(vectors(4_000, 5))
    found = second_moments(fitted, reports)
    w = fitted.randomizer.domain.project(fitted.encoder.encode(vectors(4_000, 5)))
    gap = (found.covariance - np.cov(w.T)) / found.covariance_error
    assert np.abs(gap).max() < 6.1  # six numbers; 1e-8 each


# ---- Errors


def test_the_error_is_that_of_the_formula(public):
    """The trace of the covariance of reports is (L/A)² less the squared length of their mean."""
    release = fit_second_moments(public, epsilon=2)
    encoder, randomizer = release.encoder, release.randomizer
    encoded = encoder.encode(vectors(20_000, 6))
    observed = draw_observations(randomizer, encoded, np.random.default_rng(7))
    length = encoder.reach / randomizer.mean
    assert np.allclose((observed**2).sum(axis=1), length**2)
    found = simulated(release, vectors(20_000, 6), 7)
    mean = encoded.mean(axis=0)
    scale = np.ones(mean.size)
    scale[-encoder.rank :] = encoder.sizes[2]
    stated = (length**2 - mean @ mean) / 20_000
    # Before centring, which moves the errors of means of size 0.03 little.
    assert np.isclose((np.diag(found._errors) * scale**2).sum(), stated, rtol=0.02)


def test_direct_reports_need_fewer_people_than_reports_of_the_vector():
    """docs/proofs.md: at ε = 1 and nine coordinates, by more than a factor of nine."""
    d, dim = 9, 9 * 10 // 2 - 1
    means = [PrivUnit2(k, 1.0, 1).mean for k in (d, dim)]
    of_vectors, direct = (1 - 1 / d) / means[0] ** 4, (1 - 1 / d) / means[1] ** 2
    assert 9 < of_vectors / direct < 12


@pytest.mark.parametrize(
    ("epsilon", "gaussian", "spherical"),
    [("0.5", 4918, 2277), (1, 1476, 565), (2, 447, 138), (4, 134, 31.5)],
)
def test_what_subtracting_noise_costs(epsilon, gaussian, spherical):
    """docs/proofs.md, with the share of an isotropic error that second moments have."""
    encoder = SecondMomentsEncoder.of(np.eye(9), np.zeros(9), radius=1.0)
    direct = PrivUnit2(54, encoder.reach, epsilon, target="vector")
    error = (encoder.reach / direct.mean) ** 2 * 45 / 54
    variance = Gaussian(9, 1.0, epsilon, "1e-6").expected_squared_error() / 9
    assert np.isclose(90 * variance**2 / error, gaussian, rtol=0.005)
    noise = SphericalLaplace(9, 1.0, epsilon)
    # Normal noise of random variance χ²₁₀ t²: E χ⁴ = 10·12.
    square = 10 * 12 * noise.scale**4
    total = 36 * 2 * square + 9 * (3 * square - (noise.expected_squared_error() / 9) ** 2)
    assert np.isclose(total / error, spherical, rtol=0.005)


def test_intervals_cover_as_stated_and_those_of_half_the_error_do_not(release):
    """300 rounds of five numbers: at least the quantile of 1e-6 of 300 rounds of one number."""
    people = vectors(30_000, 8) * np.array([1.0, 1.4, 1.0])
    w = release.encoder.coordinates(people)
    truth = np.concatenate([svec(np.cov(w.T)), w.mean(axis=0)])
    rng = np.random.default_rng(9)
    inside, narrow = np.zeros(5), np.zeros(5)
    rounds = 300
    for seed in range(rounds):
        found = simulated(release, people[rng.integers(len(people), size=400)], 100 + seed)
        low, high = found.interval(0.95)
        mean_low, mean_high = found.mean_interval(0.95)
        low = np.concatenate([svec(low), mean_low])
        high = np.concatenate([svec(high), mean_high])
        inside += (low <= truth) & (truth <= high)
        middle, half = (low + high) / 2, (high - low) / 4
        narrow += np.abs(middle - truth) <= half
    least, most = binom.ppf([ALPHA, 1 - ALPHA], rounds, 0.95)
    assert (inside >= least).all(), inside
    assert (inside <= most).all(), inside
    assert (narrow < least).all(), narrow


def test_eigenvalues_are_corrected_for_their_bias():
    """Over 4,000 draws of normal errors: the raw one is biased by nine errors of the mean."""
    covariance, deviation = np.diag([4.0, 2.0, 1.0]), 0.35
    rng = np.random.default_rng(10)
    errors = np.zeros((9, 9))
    errors[:6, :6] = deviation**2 * np.eye(6)
    values, raw, inside = [], [], 0
    draws = 4_000
    for _ in range(draws):
        second = svec(covariance) + deviation * rng.standard_normal(6)
        found = SecondMoments.of(10_000, second, np.zeros(3), errors, np.eye(3), np.zeros(3))
        leading = found.principal(1)
        values.append(leading.values[0])
        raw.append(leading.values[0] + leading.bias[0])
        low, high = leading.interval(0.95)
        inside += int(low[0] <= 4 <= high[0])
    assert deviation < leading.standard_error[0] < 1.1 * deviation
    assert abs(np.mean(values) - 4) < 5 * deviation / math.sqrt(draws)
    assert np.mean(raw) - 4 > 5 * deviation / math.sqrt(draws)
    assert inside >= binom.ppf(ALPHA, draws, 0.94)


def test_errors_of_directions_are_those_of_perturbations():
    rng = np.random.default_rng(11)
    back = np.linalg.qr(rng.standard_normal((5, 3)))[0] * [3.0, 2.0, 1.0]
    errors, covariance = np.zeros((9, 9)), np.diag([1.2, 0.9, 0.8])
    root = rng.standard_normal((6, 6)) * 0.005
    errors[:6, :6] = root @ root.T
    values, angles = [], []
    found = SecondMoments.of(1_000, svec(covariance), np.zeros(3), errors, back, np.zeros(5))
    exact = found.principal()
    for _ in range(2_000):
        moved = covariance + matrix_of(root @ rng.standard_normal(6))
        eigenvalues, turns = np.linalg.eigh(back @ moved @ back.T)
        values.append(eigenvalues[::-1][:3])
        cosines = (turns[:, ::-1][:, :3].T * exact.directions).sum(axis=1)
        angles.append(np.arccos(np.minimum(np.abs(cosines), 1)))
    assert exact.apart.all()
    assert np.allclose(np.std(values, axis=0), exact.standard_error, rtol=0.1)
    assert np.allclose(np.sqrt(np.mean(np.square(angles), axis=0)), exact.angle, rtol=0.1)
    along = found.along(exact.directions)
    assert np.allclose(along.estimate, exact.values + exact.bias)
    assert np.allclose(along.standard_error, exact.standard_error, rtol=0.01)


def test_eigenvalues_that_are_not_apart_are_said_to_be():
    errors = 0.01 * np.eye(9)
    found = SecondMoments.of(
        *(1_000, svec(np.diag([5.0, 1.01, 1.0])), np.zeros(3), errors, np.eye(3), np.zeros(3))
    )
    assert found.principal().apart.tolist() == [True, False, False]
    assert found.principal().angle[1] == math.pi / 2


# ---- What is found


def test_changes_of_people_are_found(release, public):
    people = vectors(6_000, 12) * np.array([0.5, 1.5, 1.0]) + np.array([3.0, 0.0, 0.0])
    found = second_moments(release, release.privatize(people))
    low, high = found.shift.interval(1 - 1e-8)
    w = release.encoder.coordinates(people)
    moved = w.mean(axis=0) - found.public_mean
    assert ((low < moved) & (moved < high)).all()
    assert low[0] > 0  # by a deviation of about 25 standard errors
    leading = found.principal(1)
    assert abs(leading.directions[0, 1]) > 0.9
    assert found.vector_covariance.shape == (3, 3)
    assert np.linalg.matrix_rank(found.vector_covariance) == 2
    assert np.abs(found.vector_mean - [3, 0, 0]).max() < 1  # seven standard errors
    frame = found.to_frame()
    assert list(frame.columns) == ["kind", "first", "second", "estimate", "standard_error"]
    assert len(frame) == 5
    assert found.public_covariance is not None
    assert np.allclose(
        found.public_covariance, np.cov(release.encoder.coordinates(public).T, bias=True)
    )


def test_a_floor_makes_the_covariance_positive():
    second = svec(np.array([[1.0, 0.9], [0.9, 0.1]]))
    found = SecondMoments.of(500, second, np.zeros(2), 1e-6 * np.eye(5), np.eye(2), np.zeros(2))
    assert np.linalg.eigvalsh(found.covariance)[0] < 0
    assert (found.principal().values < 0).any()
    assert np.linalg.eigvalsh(found.positive())[0] > -1e-9
    assert np.linalg.eigvalsh(found.positive(0.5))[0] > 0.5 - 1e-9


def test_clipping_is_undone_for_people_like_the_public(public):
    """Whitened, the public has the identity: unclipped estimates tell it, others fall short."""
    release = fit_second_moments(public, epsilon=4, percentile=70)
    people = public[np.random.default_rng(18).integers(len(public), size=20_000)]
    found = simulated(release, people, 19)
    whole = found.unclipped()
    truth = svec(np.eye(3))
    assert p_value(svec(whole.covariance), truth, whole._errors[:6, :6]) > ALPHA
    assert p_value(whole.mean, np.zeros(3), whole._errors[6:, 6:]) > ALPHA
    assert p_value(svec(found.covariance), truth, found._errors[:6, :6]) < ALPHA
    assert np.allclose(whole.shift.estimate, whole.mean)
    # The errors are those of a linear map of the estimate.
    scale = whole.covariance_error / found.covariance_error
    assert (scale > 1).all()
    noisy = offaxis.fit(None, public, epsilon=8, reshaping="none", mechanism="spherical-laplace")
    with pytest.raises(InvalidInput, match="fit_second_moments know"):
        simulated(noisy, people, 20).unclipped()


def test_the_radius_follows_the_tails_and_the_number_of_people(public):
    def kept(vectors: Vectors, epsilon: Any, people: int | None = None) -> Any:
        release = fit_second_moments(vectors, epsilon=epsilon, people=people)
        return release.provenance.settings["percentile"]

    heavy = np.random.default_rng(21).standard_t(3, (4_000, 3))
    assert kept(public, 1) == 90
    assert kept(heavy, 4) > kept(public, 4, 1_000)
    assert kept(public, 8, 1_000_000) > 97
    with pytest.raises(InvalidInput, match="not both"):
        fit_second_moments(public, epsilon=1, people=10, percentile=90)


def test_sums_merge_and_survive_storage(release):
    reports = release.privatize(vectors(400, 15))
    whole = second_moments(release, iter(reports))
    first, second = SecondMomentSums(release), SecondMomentSums(release)
    first.add(reports[:300])
    second.add(reports[300:])
    first.merge(SecondMomentSums.from_bytes(second.to_bytes(), release))
    assert np.allclose(second_moments(release, first).covariance, whole.covariance)
    assert np.allclose(second_moments(release, first).covariance_error, whole.covariance_error)
    with pytest.raises(InvalidReport):
        first.add([*reports[:3], b"x"])
    assert first.count == 400


def test_damaged_sums_are_rejected(release, public):
    sums = SecondMomentSums(release)
    sums.add(release.privatize(vectors(10, 16)))
    stored = sums.to_bytes()
    other = fit_second_moments(public, rank=2, epsilon=3)
    with pytest.raises(InvalidInput, match="another release"):
        SecondMomentSums.from_bytes(stored, other)
    with pytest.raises(InvalidInput, match="another release"):
        sums.merge(SecondMomentSums(other))
    with pytest.raises(InvalidInput, match="another release"):
        second_moments(other, sums)
    for damaged in (b"", stored[:-30], b"XX" + stored[2:]):
        with pytest.raises(InvalidInput, match="no sums"):
            SecondMomentSums.from_bytes(damaged, release)
    with np.load(io.BytesIO(stored)) as content:
        arrays = dict(content)
    for changes in (
        {"count": np.array([-1])},
        {"count": np.array([1.5])},
        {"totals": 1e6 + arrays["totals"]},
        {"totals": arrays["totals"][:3]},
        {"squares": arrays["squares"] * np.nan},
    ):
        stream = io.BytesIO()
        np.savez(stream, **(arrays | changes))
        with pytest.raises(InvalidInput, match="no sums"):
            SecondMomentSums.from_bytes(stream.getvalue(), release)
    stream = io.BytesIO()  # 80 MB in 80 kB
    np.savez_compressed(stream, **(arrays | {"squares": np.zeros(10**7)}))
    with pytest.raises(InvalidInput, match="compressed arrays are not read"):
        SecondMomentSums.from_bytes(stream.getvalue(), release)


# ---- Bad input


def test_bad_input_is_rejected_with_the_fix(public, release):
    with pytest.raises(InvalidInput, match="vary in 3 directions, fewer than rank=4"):
        fit_second_moments(public, rank=4, epsilon=1)
    with pytest.raises(InvalidInput, match="rank"):
        fit_second_moments(public, rank=MOST_RANK + 1, epsilon=1)
    with pytest.raises(InvalidInput, match="equal"):
        fit_second_moments(np.ones((50, 3)), epsilon=1)
    with pytest.raises(InvalidInput, match="percentile"):
        fit_second_moments(public, epsilon=1, percentile=0.5)
    with pytest.raises(InvalidInput, match="epsilon"):
        fit_second_moments(public, epsilon=-1)
    reports = release.privatize(vectors(120, 17))
    with pytest.raises(InvalidInput, match="99 reports are too few"):
        second_moments(release, reports[:99])
    other = fit_second_moments(public, rank=2, epsilon=3)
    with pytest.raises(InvalidReport):
        second_moments(other, reports)
    found = second_moments(release, reports)
    for wrong in (0, 1, -0.5):
        with pytest.raises(InvalidInput, match="level"):
            found.interval(wrong)
    with pytest.raises(InvalidInput, match="k must be"):
        found.principal(3)
    with pytest.raises(InvalidInput, match="of must be"):
        found.principal(of="people")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("privunit2", "directions, never lengths"),
        ("privunitg-mean", "directions, never lengths"),
        ("projunit", "directions, never lengths"),
        ("piecewise", "noise of piecewise depends on the vector"),
        ("response", "name a symbol"),
    ],
)
def test_releases_without_a_covariance_say_what_to_use(public, name, reason):
    fitted = offaxis.fit(np.eye(3), public, epsilon=4, mechanism=name)
    with pytest.raises(InvalidInput, match=reason) as error:
        SecondMomentSums(fitted)
    assert "fit_second_moments" in str(error.value)


def test_other_releases_are_rejected(public, release):
    with pytest.raises(InvalidInput):
        SecondMomentSums(fit_pairs(principal(public), 2, epsilon=2))
    narrow = replace(release, randomizer=PrivUnit2(5, 0.5, 4, target="vector"))
    with pytest.raises(InvalidInput, match="clips what the encoder gives"):
        SecondMomentSums(narrow)
    directed = replace(release, randomizer=PrivUnit2(5, 50.0, 4))
    with pytest.raises(InvalidInput, match="not unbiased"):
        SecondMomentSums(directed)
    many = np.random.default_rng(0).standard_normal((200, MOST_RANK + 1))
    wide = offaxis.fit(None, many, epsilon=4, reshaping="none", mechanism="spherical-laplace")
    with pytest.raises(InvalidInput, match="up to 64 coordinates"):
        SecondMomentSums(wide)


@pytest.mark.parametrize(
    "sizes", [[1.0, 0.5], [0.0, 0.0, 0.0], [2.0, 5.0, 1.0], [2.0, -1.0, 1.0], [2.0, 1.0, 0.0],
              [2.0, 1.0, 3.0], [np.nan, 1.0, 1.0]]
)  # fmt: skip
def test_impossible_sizes_are_rejected(sizes):
    with pytest.raises(InvalidInput):
        SecondMomentsEncoder(np.eye(2), np.zeros(2), np.array(sizes))


def test_impossible_public_moments_are_rejected():
    good = (np.eye(3, 2), np.zeros(3), np.zeros(2), np.eye(2))
    for place, bad in ((0, np.eye(3)), (1, np.zeros(2)), (2, np.zeros(3)), (3, -np.eye(2)),
                       (3, np.array([[1.0, 0.5], [0.0, 1.0]]))):  # fmt: skip
        with pytest.raises(InvalidInput):
            SecondMomentsDecoder(*good[:place], bad, *good[place + 1 :])


# ---- Files, devices, audits


def test_a_release_survives_its_file_and_a_device(release, tmp_path):
    path = tmp_path / "moments.release"
    release.save(path)
    loaded = offaxis.load(path, expect=release.hash)
    assert loaded == release
    assert "covariance" in averages(loaded)
    assert np.allclose(loaded.public_mean, release.encoder.centre)
    with Ledger(tmp_path / "ledger", Limit(4)) as ledger:
        assert len(Reporter(loaded, ledger).report(np.zeros(3))) == release.report_size
    with pytest.raises(BiasedDecoder, match="second_moments"):
        loaded.decode(loaded.privatize(np.zeros(3)))
    with pytest.raises(BiasedDecoder, match="second_moments"):
        loaded.aggregate([])
    for Z in (np.zeros(3), np.full(3, 1e308), np.full(3, 5e-324)):
        assert len(loaded.privatize(Z)) == loaded.report_size


@dataclass(frozen=True)
class OwnRadius(PrivUnit2):
    """Every device scales by its own length, and sends it in the clear for the collector."""

    @property
    def payload_size(self) -> int:
        return PrivUnit2.payload_size.fget(self) + 8  # type: ignore[attr-defined]

    def report(self, W: Vectors, entropy: Any) -> list[bytes]:
        lengths = row_norms(W, 2)
        unit = W * (self.radius / np.maximum(lengths, 1e-300))[:, None]
        parts = self.plain.report(unit, entropy)
        return [p + x.tobytes() for p, x in zip(parts, lengths, strict=True)]

    @property
    def plain(self) -> PrivUnit2:
        return PrivUnit2(self.dim, self.radius, self.epsilon, target="vector")

    def read(self, payloads: list[bytes]) -> Vectors:
        lengths = np.array([np.frombuffer(p[-8:])[0] for p in payloads])
        return self.plain.read([p[:-8] for p in payloads]) * (lengths / self.radius)[:, None]

    def log_likelihood(self, payloads: list[bytes], W: Vectors) -> Vectors:
        sent = np.array([np.frombuffer(p[-8:])[0] for p in payloads])
        own = row_norms(np.broadcast_to(W, (len(sent), self.dim)), 2)
        with np.errstate(divide="ignore"):
            besides = np.log(1.0 * np.isclose(sent, own, rtol=1e-12))
        return self.plain.log_likelihood([p[:-8] for p in payloads], W) + besides


def test_an_audit_finds_nothing_but_a_radius_that_is_computed_from_the_vector(public):
    release = fit_second_moments(public, rank=2, epsilon=1)

    def violations(tried: Release) -> set[str]:
        result = audit(tried, reports=1_000, false_alarm=ALPHA, rng=np.random.default_rng(0))
        return {finding.test for finding in result.by_verdict("violation")}

    assert not violations(release)
    assert "zero-pair" in violations(with_broken_control(release, OwnRadius))
