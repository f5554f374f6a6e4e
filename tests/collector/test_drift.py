"""Drift: rounds like the public vectors raise warnings at the stated rate; others are detected.

Without drift, the share of p-values below x must be at most about x. Each check below allows counts
that a binomial count with that share exceeds with probability 1e-6 (`_most`). All of them together
have a false-alarm rate of about 1e-5; they are seeded, so they do not alarm by chance.
"""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binom

import offaxis
from offaxis.collector.drift import FALSE_ALARM, Profile, Traces, drift_facts
from offaxis.decoding.aggregate import Moments
from offaxis.errors import InvalidInput
from offaxis.evaluation.profiles import profile_of
from offaxis.simulation import draw_observations
from tests.checks import ALPHA
from tests.collector.running import new_id

DIM = 6
ROUNDS = 300
KINDS = {
    "laplace": {},
    "gaussian": {"delta": 1e-5},
    "response": {"size": 12},
    "subset": {"size": 12},
}


def _most(share: float) -> int:
    """Return the largest allowed count; 1.1 times the share, because the tests are asymptotic."""
    return int(binom.isf(1e-6, ROUNDS, 1.1 * share))


@pytest.fixture(scope="module")
def population():
    mix = np.random.default_rng(1).standard_normal((DIM, DIM))

    def draw(rng: np.random.Generator, count: int) -> np.ndarray:
        return rng.standard_normal((count, DIM)) @ mix + 0.5

    return draw


@pytest.fixture(scope="module")
def releases(population, head):
    public = population(np.random.default_rng(2), 2000)
    return {
        kind: offaxis.fit(head, public, epsilon=2, mechanism=kind, **more)
        for kind, more in KINDS.items()
    }


@pytest.fixture(params=KINDS)
def fitted(request, releases):
    return releases[request.param]


def _observed(release, vectors, rng) -> Moments:
    moments = Moments()
    observations = draw_observations(release.randomizer, release.encoder.encode(vectors), rng)
    moments.add(observations, np.ones(len(observations)))
    return moments


def _p_values(release, population, drift=lambda vectors: vectors, rounds=ROUNDS):
    """Return p-values of rounds, with a new public sample and profile for every ten."""
    rng = np.random.default_rng(3)
    p_values = []
    for i in range(rounds):
        if i % 10 == 0:
            public = population(rng, 400)
            profile = profile_of(release, public, seed=i)
        moments = _observed(release, drift(population(rng, 1500)), rng)
        p_values.append(drift_facts(release, profile, moments)["p_value"])
    return np.array(p_values)


def test_without_drift_warnings_occur_at_the_stated_rate(fitted, population):
    p_values = _p_values(fitted, population)
    for share in (FALSE_ALARM, 0.01, 0.1, 0.5):
        assert (p_values < share).sum() <= _most(share), share
    # The test has power: small values do occur.
    assert (p_values < 0.5).sum() > ROUNDS / 10


def test_ignoring_the_error_of_the_profile_alarms_too_often(population, head):
    """The broken control ignores the sampling error of a small public sample."""
    rng = np.random.default_rng(4)
    public = population(rng, 2000)
    release = offaxis.fit(head, public, epsilon=8, mechanism="response", size=12)
    alarms = 0
    for i in range(60):
        profile = profile_of(release, population(rng, 60), seed=i)
        broken = tuple(
            replace(part, profile=Traces(0.0, 0.0), crossed=0.0) for part in profile.expectations
        )
        moments = _observed(release, population(rng, 4000), rng)
        alarms += drift_facts(release, replace(profile, expectations=broken), moments)["warning"]
    assert alarms > _most(FALSE_ALARM)


def test_drift_is_detected(fitted, population):
    p_values = _p_values(fitted, population, lambda vectors: vectors + 3.0, rounds=20)
    assert (p_values < FALSE_ALARM).all()


def test_a_change_of_spread_alone_is_detected(population):
    public = population(np.random.default_rng(5), 2000)
    release = offaxis.fit(
        None, public, epsilon=20, reshaping="none", percentile=100, mechanism="laplace"
    )
    centre = public.mean(axis=0)
    p_values = _p_values(release, population, lambda z: centre + 0.5 * (z - centre), rounds=20)
    assert (p_values < FALSE_ALARM).all()


@pytest.mark.parametrize("kind", ["response", "subset"])
def test_symbol_shares_are_those_of_the_exact_law(releases, kind, population):
    fitted, rng = releases[kind], np.random.default_rng(7)
    public = population(np.random.default_rng(6), 400)
    profile = profile_of(fitted, public)
    symbols = np.tile(fitted.encoder.encode(public), 500)
    low, high = fitted.randomizer.levels
    named = (draw_observations(fitted.randomizer, symbols, rng) - low) / (high - low)
    (shares,) = profile.expectations
    error = np.sqrt(shares.expected / len(symbols))
    assert (np.abs(named.mean(axis=0) - shares.expected) < 6 * error).all()
    covariance = np.cov(named[:50_000].T) / np.sqrt(np.outer(shares.scale, shares.scale))
    assert np.trace(covariance) == pytest.approx(shares.report.trace, rel=0.02)
    assert np.sum(covariance**2) == pytest.approx(shares.report.squared, rel=0.05)


def test_too_few_reports_or_a_missing_profile_give_no_result(fitted, population):
    rng = np.random.default_rng(8)
    moments = _observed(fitted, population(rng, 100), rng)
    profile = profile_of(fitted, population(rng, 400))
    for available in (None, profile):
        facts = drift_facts(fitted, available, moments)
        assert (facts["warning"], facts["p_value"]) == (False, None)
    with pytest.raises(InvalidInput, match="50"):
        profile_of(fitted, population(rng, 49))


def test_profiles_are_read_strictly(fitted, for_means, population):
    profile = profile_of(fitted, population(np.random.default_rng(9), 100))
    text = profile.to_json()
    assert Profile.from_json(text, fitted).to_json() == text
    with pytest.raises(InvalidInput):
        Profile.from_json(text, for_means)
    document = json.loads(text)
    for key, value in (("public", 0), ("more", 1), ("expectations", []), ("release", "x")):
        with pytest.raises(InvalidInput):
            Profile.from_json(json.dumps(document | {key: value}), fitted)
    part = document["expectations"][0]
    for key, value in (("scale", ""), ("scale", "AAAAAAAAAAA="), ("report", [0, 1])):
        broken = document | {"expectations": [part | {key: value}, *document["expectations"][1:]]}
        with pytest.raises(InvalidInput):
            Profile.from_json(json.dumps(broken), fitted)


def test_the_collector_warns_of_drift(server, for_means, public):
    profile = profile_of(for_means, public).to_json().encode()
    server.publish(for_means)
    path = f"/v1/releases/{for_means.hash}/profile"
    assert server.request("admin", "PUT", path, b"{}").kind == "invalid-release"
    assert server.request("admin", "PUT", path, profile).status == 204
    rng = np.random.default_rng(10)
    people = public[rng.integers(0, len(public), 2000)]
    for name, vectors, moved in (("same", people, False), ("moved", people + 5.0, True)):
        server.open(for_means, name)
        server.batch(name, [(new_id(), report) for report in for_means.privatize(vectors)])
        facts = server.request("analyst", "GET", f"/v1/rounds/{name}/drift").json
        # Reports are not seeded, and the rate of the warning is too high for a test: use ALPHA.
        assert (facts["p_value"] < ALPHA) is moved, facts
        assert facts["warning"] is (facts["p_value"] < FALSE_ALARM)
    metrics = server.request("admin", "GET", "/metrics").body.decode()
    assert 'offaxis_drift_warning{round="moved"} 1.0' in metrics
