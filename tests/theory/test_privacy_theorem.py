"""The privacy theorem on whole releases, its instantiations, and what breaks it.

The law of a report is that of the randomizer at the encoded vector, so likelihoods of the bytes are
compared for pairs of *vectors*, far outside the ball, inside it and at zero.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from scipy.special import betaincinv

import offaxis
from offaxis.privacy.composition import Cost, basic
from offaxis.sampling.entropy import Entropy
from tests.checks import ALPHA

EPSILON, DELTA = 2, Fraction(1, 100)
REPORTS = 3000
INSTANCES = ("laplace", "gaussian", "privunit2", "privunitg")
CONFIGURATIONS = ("none", 2.0, 1000.0)
"""No map, and the Jacobian map at two caps."""

DIM = 6


def fitted(head, public, mechanism: str, configuration: str | float) -> offaxis.Release:
    reshaping = "none" if configuration == "none" else offaxis.Jacobian(lambda_max=configuration)
    return offaxis.fit(
        head,
        public,
        epsilon=EPSILON,
        delta=DELTA if mechanism == "gaussian" else None,
        mechanism=mechanism,
        reshaping=reshaping,
    )


def matrix_and_centre(release: offaxis.Release) -> tuple[np.ndarray, np.ndarray]:
    """Return A and c of the encoder w = A(z − c), measured."""
    zero = release.encoder.encode(np.zeros((1, DIM)))
    matrix = (release.encoder.encode(np.eye(DIM)) - zero).T
    return matrix, -np.linalg.solve(matrix, zero[0])


def pairs(release: offaxis.Release) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return pairs of vectors; the first is the randomizer's worst pair, seen from outside."""
    matrix, centre = matrix_and_centre(release)
    far, other = (
        centre + 1e3 * np.linalg.solve(matrix, w) for w in release.randomizer.worst_pair()
    )
    rng = np.random.default_rng(1)
    near = [centre + 0.3 * rng.standard_normal((2, DIM)) for _ in range(3)]
    return [(far, other), (far, centre), (centre, other), *((one, two) for one, two in near)]


def losses(release: offaxis.Release, z: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Return log Pr[report | z] − log Pr[report | z'] of exact reports of z."""
    randomizer = release.randomizer
    at, elsewhere = (np.tile(release.encoder.encode(x[None]), (REPORTS, 1)) for x in (z, other))
    payloads = randomizer.report(at, Entropy())
    ratio = randomizer.log_likelihood(payloads, at)
    return ratio - randomizer.log_likelihood(payloads, elsewhere)


@pytest.mark.parametrize("configuration", CONFIGURATIONS)
@pytest.mark.parametrize("mechanism", ["laplace", "privunit2", "privunitg"])
def test_a_pure_instance_is_within_epsilon_for_all_vectors_and_reaches_it(
    head, public, mechanism, configuration
):
    """The likelihood is exact: no false alarm. PrivUnit gives zero a random direction."""
    release = fitted(head, public, mechanism, configuration)
    assert release.guarantee.pure
    largest = []
    for z, other in pairs(release):
        loss = losses(release, z, other)
        assert np.abs(loss).max() <= EPSILON * (1 + 1e-12)
        largest.append(loss.max())
    assert largest[0] >= EPSILON * (1 - 1e-3)


@pytest.mark.parametrize("configuration", CONFIGURATIONS)
def test_the_gaussian_instance_is_within_delta_for_all_vectors(head, public, configuration):
    """E max(0, 1 − e^{ε − loss}) ≤ δ, in five standard errors: alarm 3e-7 for each pair.

    The worst pair is near δ, and half of ε is a broken control that it contradicts.
    """
    release = fitted(head, public, "gaussian", configuration)
    assert release.guarantee.delta == DELTA

    def limits(loss: np.ndarray, epsilon: float) -> tuple[float, float]:
        excess = np.maximum(0.0, 1 - np.exp(epsilon - loss))
        error = 5 * excess.std() / np.sqrt(len(excess))
        return excess.mean() - error, excess.mean() + error

    all_losses = [losses(release, z, other) for z, other in pairs(release)]
    assert all(limits(loss, EPSILON)[0] <= DELTA for loss in all_losses)
    assert limits(all_losses[0], EPSILON)[1] >= DELTA
    assert limits(all_losses[0], EPSILON / 2)[0] > DELTA


@pytest.mark.parametrize("mechanism", INSTANCES)
def test_neither_basis_nor_scales_enter_the_calibration(head, public, mechanism):
    """The same parameters for every map; additive noise is a fixed multiple of the radius."""
    releases = [fitted(head, public, mechanism, c) for c in CONFIGURATIONS]
    for release in releases:
        assert release.guarantee.epsilon == EPSILON
        assert release.guarantee.delta == (DELTA if mechanism == "gaussian" else 0)
    radii = {release.randomizer.radius for release in releases}
    assert len(radii) == len(releases)  # the configurations do differ
    if mechanism in ("laplace", "gaussian"):
        relative = [release.randomizer.scale / release.randomizer.radius for release in releases]
        assert relative == pytest.approx([relative[0]] * 3, rel=1e-9)
        # The diameter 2ρ, not the radius: at most a lattice step above 2ρ/ε.
        if mechanism == "laplace":
            assert relative[0] == pytest.approx(2 / EPSILON, rel=1e-3)


# ---- One report per user, and several


@pytest.mark.parametrize("reports", [1, 2, 3])
def test_a_user_is_protected_at_the_sum_of_its_reports_and_not_at_less(head, public, reports):
    """User level: all vectors of a user are replaced. One report in total is ε; k reports are kε.

    The losses of independent reports add up. The broken control states ε for a user who reports
    twice: the worst pair contradicts it, in every report.
    """
    release = fitted(head, public, "laplace", 1000.0)
    epsilon, delta = basic([Cost(release.guarantee.epsilon, release.guarantee.delta, reports)])
    assert (epsilon, delta) == (reports * EPSILON, 0)
    z, other = pairs(release)[0]
    loss = sum(losses(release, z, other) for _ in range(reports))
    assert np.abs(loss).max() <= float(epsilon) * (1 + 1e-12)
    assert loss.max() > (reports - 0.01) * EPSILON


# ---- Assumptions that fail


def test_without_clipping_no_epsilon_holds(head, public):
    """A2: noise of the same scale on the encoded vectors as they are, ten radii from the centre."""
    release = fitted(head, public, "laplace", 1000.0)
    matrix, centre = matrix_and_centre(release)
    w = 10 * release.randomizer.worst_pair()[0]
    z, other = (centre + np.linalg.solve(matrix, x) for x in (w, -w))
    encoded = release.encoder.encode(np.array([z, other]))
    unclipped = np.abs(encoded[0] - encoded[1]).sum() / release.randomizer.scale
    assert unclipped == pytest.approx(10 * EPSILON, rel=1e-2)
    assert np.abs(losses(release, z, other)).max() <= EPSILON * (1 + 1e-12)


def test_a_centre_taken_from_the_private_vector_reveals_it(head, public):
    """A1: each report is ε as before, but the decoder adds a centre that no noise protects.

    The observer guesses by the side of the public centre. A lower limit on ε by Clopper and
    Pearson, at ALPHA/2 for each of both shares: false alarm ALPHA.
    """
    release = fitted(head, public, "laplace", 2.0)
    matrix, centre = matrix_and_centre(release)
    toward = release.randomizer.worst_pair()[0] @ matrix
    z, other = pairs(release)[0]

    def on_the_side(x: np.ndarray, private_centre: bool) -> int:
        vectors = np.tile(centre if private_centre else x, (REPORTS, 1))
        decoded = release.decode(release.privatize(vectors))
        shift = x - centre if private_centre else 0.0
        return int(((decoded + shift - centre) @ toward > 0).sum())

    def lowest(private_centre: bool) -> float:
        hits, alarms = (on_the_side(x, private_centre) for x in (z, other))
        p = betaincinv(hits, REPORTS - hits + 1, ALPHA / 2)
        q = betaincinv(alarms + 1, REPORTS - alarms, 1 - ALPHA / 2)
        return float(np.log(p / q))

    assert 1 < lowest(private_centre=False) <= EPSILON
    assert lowest(private_centre=True) > EPSILON


@pytest.mark.parametrize("mechanism", INSTANCES)
def test_decoding_is_a_function_of_the_bytes(head, public, mechanism):
    """A4: the same report gives the same vector, whatever it was made from."""
    release = fitted(head, public, mechanism, 1000.0)
    reports = release.privatize(public[:20])
    np.testing.assert_array_equal(release.decode(reports), release.decode(list(reports)))
    assert np.isfinite(release.decode(reports)).all()
