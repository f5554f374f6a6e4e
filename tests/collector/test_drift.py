"""Drift: rounds like the public vectors are left alone at the stated rate, others are caught.

Without drift p-values below x must come in a share of at most about x. Each check below allows what
a binomial count with that share exceeds once in 10⁶ (`_most`), so all of them together alarm
falsely about once in 10⁵ runs; they are seeded, so they do not.
"""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy.stats import binom

import offaxis
from offaxis.collector.drift import FALSE_ALARM, Profile, drift_facts
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
    """Allow a tenth more than the share, for the tests are only right for many reports."""
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
    observed = Moments()
    seen = draw_observations(release.randomizer, release.encoder.encode(vectors), rng)
    observed.add(seen, np.ones(len(seen)))
    return observed


def _p_values(release, population, drifted=lambda vectors: vectors, rounds=ROUNDS):
    """Give p-values of rounds, each ten with a profile of their own public sample."""
    rng = np.random.default_rng(3)
    values = []
    for at in range(rounds):
        if at % 10 == 0:
            public = population(rng, 400)
            profile = profile_of(release, public, seed=at)
        seen = _observed(release, drifted(population(rng, 1500)), rng)
        values.append(drift_facts(release, profile, seen)["p_value"])
    return np.array(values)


def test_without_drift_warnings_come_at_the_stated_rate(fitted, population):
    values = _p_values(fitted, population)
    for share in (FALSE_ALARM, 0.01, 0.1, 0.5):
        assert (values < share).sum() <= _most(share), share
    # Nor is the test asleep: small values do come.
    assert (values < 0.5).sum() > ROUNDS / 10


def test_a_profile_taken_for_the_truth_would_alarm_too_often(population, head):
    """The broken twin: a small public sample whose own error is not counted."""
    from dataclasses import replace

    from offaxis.collector.drift import Traces

    rng = np.random.default_rng(4)
    public = population(rng, 2000)
    release = offaxis.fit(head, public, epsilon=8, mechanism="response", size=12)
    alarms = 0
    for at in range(60):
        profile = profile_of(release, population(rng, 60), seed=at)
        sure = tuple(
            replace(one, profile=Traces(0.0, 0.0), crossed=0.0) for one in profile.expectations
        )
        seen = _observed(release, population(rng, 4000), rng)
        alarms += drift_facts(release, replace(profile, expectations=sure), seen)["warning"]
    assert alarms > _most(FALSE_ALARM)


def test_drifted_rounds_are_caught(fitted, population):
    shifted = _p_values(fitted, population, lambda vectors: vectors + 3.0, rounds=20)
    assert (shifted < FALSE_ALARM).all()


def test_a_change_of_spread_alone_is_caught(population):
    public = population(np.random.default_rng(5), 2000)
    release = offaxis.fit(None, public, epsilon=20, reshaping="none", percentile=100)
    centre = public.mean(axis=0)
    values = _p_values(release, population, lambda z: centre + 0.5 * (z - centre), rounds=20)
    assert (values < FALSE_ALARM).all()


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


def test_too_few_reports_or_no_profile_and_nothing_is_said(fitted, population):
    rng = np.random.default_rng(8)
    seen = _observed(fitted, population(rng, 100), rng)
    profile = profile_of(fitted, population(rng, 400))
    for one in (None, profile):
        facts = drift_facts(fitted, one, seen)
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


def test_the_collector_warns(server, for_means, public):
    profile = profile_of(for_means, public).to_json().encode()
    server.publish(for_means)
    path = f"/v1/releases/{for_means.hash}/profile"
    assert server.ask("admin", "PUT", path, b"{}").kind == "invalid-release"
    assert server.ask("admin", "PUT", path, profile).status == 204
    rng = np.random.default_rng(10)
    people = public[rng.integers(0, len(public), 2000)]
    for name, vectors, moved in (("same", people, False), ("moved", people + 5.0, True)):
        server.open(for_means, name)
        server.batch(name, [(new_id(), report) for report in for_means.privatize(vectors)])
        facts = server.ask("analyst", "GET", f"/v1/rounds/{name}/drift").json
        # Reports have no seed: at the rate of the warning itself this would alarm too often.
        assert (facts["p_value"] < ALPHA) is moved, facts
        assert facts["warning"] is (facts["p_value"] < FALSE_ALARM)
    shown = server.ask("admin", "GET", "/metrics").body.decode()
    assert 'offaxis_drift_warning{round="moved"} 1.0' in shown
