"""Likelihoods of reports in parts: against the randomizers' own densities and drawn reports."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from scipy import stats

import offaxis
from offaxis.geometry import Layers
from offaxis.learning import cells, fit_pairs, fit_second_moments, fit_shift, principal
from offaxis.learning import likelihoods as module
from offaxis.learning.likelihoods import (
    LEAST_DENSITY,
    Likelihoods,
    Sample,
    Support,
    check_release,
    probes_of,
    rows_of,
    support_of,
)
from offaxis.learning.population_fit import fit_shares
from offaxis.randomizers import KaryResponse, LocalHashing, PrivUnit2, SubsetSelection
from offaxis.simulation import draw_observations
from tests.checks import ALPHA

RNG = np.random.default_rng(0)
CENTRES = 3 * np.eye(4)
PUBLIC = CENTRES[RNG.integers(4, size=240)] + RNG.standard_normal((240, 4))
HEAD = Layers.linear(CENTRES, -(CENTRES**2).sum(axis=1) / 2)


def fitted(mechanism: str) -> offaxis.Release:
    delta = "1e-6" if mechanism == "gaussian" else None
    return offaxis.fit(
        None, PUBLIC, epsilon=2, mechanism=mechanism, reshaping="centre", delta=delta
    )


OF_VECTORS = {
    name: lambda name=name: fitted(name)
    for name in (
        "laplace",
        "gaussian",
        "spherical-laplace",
        "privunit2",
        "privunit2-mean",
        "privunitg",
        "privunitg-mean",
        "privunitg-sphere",
        "duchi",
        "piecewise",
        "hybrid",
    )
} | {
    "pairs": lambda: fit_pairs(principal(PUBLIC, rank=3), None, epsilon=2),
    "shift": lambda: fit_shift(HEAD, PUBLIC, epsilon=2),
    "second moments": lambda: fit_second_moments(PUBLIC, rank=2, epsilon=2),
}

OF_SYMBOLS = {
    "response": lambda: fitted("response"),
    "subset": lambda: offaxis.fit(
        None, PUBLIC, epsilon=1, mechanism="subset", reshaping="centre", size=9
    ),
    "class": lambda: offaxis.fit(HEAD, PUBLIC, epsilon=2, mechanism="class-response"),
    "function": lambda: offaxis.fit(lambda Z: np.sin(Z[:, :3]), PUBLIC, epsilon=2),
    "cells": lambda: fit_pairs(cells(PUBLIC), None, epsilon=2),
}


def drawn(release: offaxis.Release, vectors: np.ndarray, seed: int = 1) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return draw_observations(release.randomizer, release.encode_private(vectors), rng)


def in_parts(support: Support, ratios: np.ndarray) -> np.ndarray:
    """Return the means over parts, relative to the public mean, computed one by one."""
    means = [ratios[:, support.parts == part].mean(axis=1) for part in range(len(support.cells))]
    return np.stack(means, axis=1) / ratios.mean(axis=1)[:, None]


# ---- Against densities


@pytest.mark.parametrize("name", OF_VECTORS)
def test_likelihoods_are_those_of_the_randomizer(name):
    release = OF_VECTORS[name]()
    check_release(release)
    support = support_of(PUBLIC, [release], 5)
    V = drawn(release, PUBLIC[:25])
    block = rows_of(release, support)(V)
    encoded = release.encode_private(support.vectors)
    inputs = np.concatenate([encoded, probes_of(release.randomizer)])
    density = [
        release.randomizer.log_density(np.broadcast_to(v, inputs.shape).copy(), inputs) for v in V
    ]
    ratios = np.exp(np.array(density) - np.max(density, axis=1, keepdims=True))
    J, P = len(encoded), len(support.cells)
    exact = in_parts(support, ratios[:, :J])
    probes = ratios[:, J:] / ratios[:, :J].mean(axis=1)[:, None]
    # Tables of the cosine: to 0.02 in ε, except at the jump of PrivUnit2's law.
    tabulated = "priv" in name or name in {"pairs", "shift", "second moments"}
    tolerance = 0.02 if tabulated else 1e-5
    assert np.mean(np.abs(np.log(block[:, :P] / exact)) > tolerance) <= 0.005 * tabulated
    assert np.mean(np.abs(np.log(block[:, P:] / probes)) > 2 * tolerance) <= 0.005 * tabulated


@pytest.mark.parametrize("name", OF_SYMBOLS)
def test_likelihoods_of_symbols_are_those_of_their_law(name):
    release = OF_SYMBOLS[name]()
    support = support_of(PUBLIC, [release], 5)
    V = drawn(release, PUBLIC[:50])
    block = rows_of(release, support)(V)
    symbols = release.encode_private(support.vectors)
    gain = np.exp(release.randomizer.strength)
    exact = in_parts(support, np.where(V[:, symbols] > 0, gain, 1.0))
    np.testing.assert_allclose(block[:, : len(support.cells)], exact, rtol=1e-5)
    assert (block[:, len(support.cells) :] == 1).all()  # no probes


@pytest.mark.parametrize("kind", [KaryResponse, SubsetSelection, LocalHashing])
def test_a_named_symbol_is_e_to_the_epsilon_times_as_likely(kind):
    """By drawn reports, with a false alarm of ALPHA; the control takes half of ε."""
    randomizer, rng = kind(6, 1.5), np.random.default_rng(3)
    named = []
    for symbol in (0, 1):
        V = draw_observations(randomizer, np.full(40_000, symbol), rng)
        named.append(int(((V[:, 0] > 0) & (V[:, 1] <= 0)).sum()))

    def p_value(strength: float) -> float:
        chance = 1 / (1 + np.exp(-strength))
        return float(stats.binomtest(named[0], sum(named), chance).pvalue)

    assert p_value(randomizer.strength) > ALPHA
    assert p_value(randomizer.strength / 2) < ALPHA


def test_likelihoods_average_to_one_over_reports_of_the_public():
    """E[f_c(v)/f(v)] = 1 for reports of public vectors; the control ignores a shift of them."""
    release = fitted("privunit2")
    support = support_of(PUBLIC, [release], 5)
    block = rows_of(release, support)

    def p_value(vectors: np.ndarray) -> float:
        found = block(drawn(release, np.repeat(vectors, 80, axis=0)))[:, : len(support.cells)]
        score = (found.mean(axis=0) - 1) / (found.std(axis=0) / np.sqrt(len(found)))
        return float(2 * stats.norm.sf(np.abs(score).max()) * score.size)

    assert p_value(support.vectors) > ALPHA
    assert p_value(support.vectors + 1.0) < ALPHA


@pytest.mark.parametrize("epsilon", [20, 60])
@pytest.mark.parametrize("mechanism", ["privunit2", "laplace", "privunitg", "response"])
def test_a_very_large_budget_gives_finite_numbers(mechanism, epsilon):
    release = offaxis.fit(None, PUBLIC, epsilon=epsilon, mechanism=mechanism, reshaping="centre")
    support = support_of(PUBLIC, [release], 5)
    likelihoods = Likelihoods(support)
    likelihoods.add_observed(release, iter([drawn(release, PUBLIC + 5)]))
    fit = fit_shares(likelihoods)
    for part in (fit.shares, fit.unshrunk, fit.covariance, fit.within, fit.spread):
        assert np.isfinite(part).all()
    assert fit.shares.min() >= 0
    assert LEAST_DENSITY < 1


# ---- Reports in files, samples, and merging


def reports_of(release: offaxis.Release, count: int, seed: int = 5) -> np.ndarray:
    return drawn(release, PUBLIC[np.random.default_rng(seed).integers(240, size=count)], seed)


def fit_of(release: offaxis.Release, *batches: np.ndarray):
    likelihoods = Likelihoods(support_of(PUBLIC, [release], 5))
    for batch in batches:
        likelihoods.add_observed(release, iter(batch))
    return fit_shares(likelihoods)


@pytest.mark.parametrize("name", ["privunit2", "laplace"])
def test_order_and_batches_and_rounds_change_nothing(monkeypatch, name):
    monkeypatch.setattr(module, "_KEPT", 300)
    release = fitted(name)
    V = reports_of(release, 1_000)
    shuffled = np.random.default_rng(6).permutation(V)
    one = fit_of(release, [V])
    others = [
        fit_of(release, [shuffled]),
        fit_of(release, [V[:1], V[1:500], V[500:]]),
        fit_of(release, [V[:400]], [V[400:]]),  # two rounds
    ]
    for other in others:
        assert other.count == 1_000
        np.testing.assert_allclose(other.unshrunk, one.unshrunk, atol=2e-5)
        np.testing.assert_allclose(other.covariance, one.covariance, rtol=1e-4, atol=1e-9)
        assert other.p_value == pytest.approx(one.p_value, abs=1e-3)
        assert other.spread == pytest.approx(one.spread, rel=1e-3)


def test_several_releases_know_more_than_one():
    one, two = fitted("privunit2"), fitted("laplace")
    support = support_of(PUBLIC, [one, two], 5)
    errors = []
    for releases in ([one], [two], [one, two]):
        likelihoods = Likelihoods(support)
        for release in releases:
            likelihoods.add_observed(release, iter([reports_of(release, 2_000)]))
        assert len(likelihoods.samples) == len(releases)
        errors.append(np.linalg.pinv(fit_shares(likelihoods).covariance, rcond=1e-9))
    # Information adds up, but for where it is evaluated.
    np.testing.assert_allclose(np.trace(errors[2]), np.trace(errors[0] + errors[1]), rtol=0.1)


def test_a_sample_is_small_and_does_not_depend_on_the_order(monkeypatch):
    monkeypatch.setattr(module, "_KEPT", 50)
    release = fitted("privunit2")
    V = reports_of(release, 400)
    whole, parts, other = Sample(release), Sample(release), Sample(release)
    whole.add(V)
    parts.add(V[200:300])
    parts.add(V[:200])
    other.add(V[300:])
    parts.merge(other)
    assert whole.count == parts.count == 400
    assert whole.rows.shape == (50, V.shape[1])
    np.testing.assert_array_equal(whole.rows, parts.rows)
    symbols = Sample(fitted("response"))
    symbols.add(np.zeros((10, 4)))
    assert symbols.rows is None


def test_likelihoods_are_in_a_file_that_is_closed(monkeypatch):
    monkeypatch.setattr(module, "_IN_MEMORY", 1 << 12)
    release, files = fitted("privunit2"), []
    V = reports_of(release, 600)
    for _ in range(20):
        likelihoods = Likelihoods(support_of(PUBLIC, [release], 5))
        likelihoods.add_observed(release, iter([V]))
        assert likelihoods._file._rolled  # on disk
        files.append(likelihoods._file)
    del likelihoods
    gc.collect()
    assert all(file.closed for file in files)


def test_an_error_in_a_batch_is_raised_and_nothing_hangs():
    release = fitted("privunit2")

    def batches():
        yield reports_of(release, 50)
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        Likelihoods(support_of(PUBLIC, [release], 5)).add_observed(release, batches())


# ---- Support


@pytest.mark.parametrize("rows", [30, 61, 240])
def test_cells_divide_all_vectors(rows):
    release = fitted("privunit2")
    support = support_of(PUBLIC[:rows], [release], 400)
    assert len(support.vectors) == rows
    assert {tuple(z) for z in support.vectors} == {tuple(z) for z in PUBLIC[:rows]}
    assert 2 <= len(support.shares) <= max(2, rows // 30)
    assert support.shares.sum() == pytest.approx(1)
    np.testing.assert_allclose(support.spread.sum(axis=0), 1)
    np.testing.assert_allclose(support.spread @ support.shares, support.part_shares)
    values = RNG.standard_normal((rows, 2))
    direct = [values[support.parts == part].mean(axis=0) for part in range(len(support.cells))]
    np.testing.assert_allclose(support.means(values), direct)


def test_supports_are_the_same_on_every_machine_and_thinned_out():
    release = fitted("privunit2")
    one, two = (support_of(source, [release], 7) for source in (PUBLIC, lambda: iter([PUBLIC])))
    np.testing.assert_array_equal(one.vectors, two.vectors)
    np.testing.assert_array_equal(one.parts, two.parts)
    many = support_of(np.repeat(PUBLIC, 30, axis=0), [release], 7)
    assert len(many.vectors) == module.MOST_VECTORS
    assert many.identity.count == 7_200


def test_the_law_of_short_vectors_is_mixed():
    """A vector of half the length is mirrored in a quarter of the reports."""
    release = fitted("privunit2-mean")
    assert isinstance(release.randomizer, PrivUnit2)
    radius = float(release.randomizer.radius)
    inputs = np.array([[radius, 0, 0, 0], [-radius, 0, 0, 0], [radius / 2, 0, 0, 0]])
    found = module._likelihoods(release.randomizer, inputs)(np.eye(4))
    np.testing.assert_allclose(found[:, 2], 0.75 * found[:, 0] + 0.25 * found[:, 1], rtol=1e-5)
