"""Decoders of pairs hold public facts and decode nothing; variances of sums of shares are exact."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import offaxis
from offaxis.decoding import CellsDecoder, MomentsDecoder, RightDecoder, Shares
from offaxis.encoding.pairs import Classes, Number
from offaxis.errors import BiasedDecoder, InvalidInput
from offaxis.learning import cells, fit_check, fit_pairs, principal
from offaxis.randomizers import KaryResponse, SubsetSelection
from offaxis.simulation import draw_observations
from tests.checks import ALPHA, mean_p_value

PUBLIC = np.random.default_rng(0).standard_normal((300, 4))

# ---- What a decoder holds


@pytest.mark.parametrize("answers", [None, 3, Number(0, 1), [Classes(3, name="a"), Number(0, 1)]])
def test_the_moments_are_those_of_the_public_features(answers):
    features = principal(PUBLIC)
    release, x = fit_pairs(features, answers, epsilon=1), features.of(PUBLIC)
    assert isinstance(release.decoder, MomentsDecoder)
    np.testing.assert_allclose(release.decoder.second, x.T @ x / 300, atol=1e-12)
    np.testing.assert_allclose(release.decoder.mean, x.mean(axis=0), atol=1e-12)
    assert release.decoder.input_dim == release.encoder.output_dim


def test_the_shares_are_those_of_the_public_cells():
    features = cells(PUBLIC, 5)
    release = fit_pairs(features, Classes(3, optional=True), epsilon=1)
    assert isinstance(release.decoder, CellsDecoder)
    counts = np.bincount(features.cells_of(PUBLIC), minlength=5)
    np.testing.assert_allclose(release.decoder.shares, counts / 300, atol=1e-5)
    assert release.decoder.input_dim == release.encoder.output_dim == 20


@pytest.mark.parametrize(
    ("make", "arrays"),
    [
        (MomentsDecoder, (np.eye(2) / 2, np.zeros(3), [1.0])),
        (MomentsDecoder, (np.array([[0.5, 0.1], [0.2, 0.5]]), np.zeros(2), [1.0])),
        (MomentsDecoder, (np.diag([0.5, -0.1]), np.zeros(2), [1.0])),
        (MomentsDecoder, (np.eye(2), np.zeros(2), [1.0])),
        (MomentsDecoder, (np.eye(2) / 2, np.zeros(2), [1.5])),
        (MomentsDecoder, (np.eye(2) / 2, np.zeros(2), [0.0])),
        (MomentsDecoder, (np.eye(2) / 2, np.zeros(2), [1.0, 1.0])),
        (MomentsDecoder, (np.full((2, 2), np.nan), np.zeros(2), [1.0])),
        (CellsDecoder, ([0.5, 0.6], [2.0])),
        (CellsDecoder, ([1.0, 0.0], [2.0])),
        (CellsDecoder, ([1.5, -0.5], [2.0])),
        (CellsDecoder, ([0.5, 0.5], [2.5])),
        (CellsDecoder, ([0.5, 0.5], [0.0])),
        (CellsDecoder, ([0.5, np.nan], [2.0])),
        (RightDecoder, ([3.0],)),
        (RightDecoder, ([2.0, 2.0],)),
    ],
)
def test_facts_that_cannot_be_are_an_error(make, arrays):
    with pytest.raises(InvalidInput):
        make(*(np.array(array) for array in arrays))


def releases() -> list[offaxis.Release]:
    linear, table = principal(PUBLIC), cells(PUBLIC, 3)
    return [
        fit_pairs(linear, epsilon=1),
        fit_pairs(linear, 3, epsilon=1),
        fit_pairs(table, 3, epsilon=1),
        fit_check(np.eye(3, 4), PUBLIC, epsilon=1),
    ]


@pytest.mark.parametrize("release", releases(), ids=lambda release: release.encoder.kind)
def test_reports_of_pairs_decode_to_no_vector_and_have_no_mean(release):
    answers = None if not release.asked else np.arange(5) % 3
    reports = release.privatize(PUBLIC[:5], answers=answers)
    for decode in (release.decode, release.decode_mean, release.aggregate):
        with pytest.raises(BiasedDecoder):
            decode(reports)
    with pytest.raises(BiasedDecoder, match=r"offaxis\.learn"):
        release.decode(reports[0])
    assert not release.supports_mean
    assert not release.decoder.unbiased
    with pytest.raises(BiasedDecoder):
        offaxis.simulate(release, release.pairs(PUBLIC[:5], answers), rng=np.random.default_rng(0))


# ---- The shares of sums of symbols

FORMS = [
    KaryResponse(2, Fraction(1)),
    KaryResponse(5, Fraction(2)),
    SubsetSelection(4, Fraction(1), chosen=2),
    SubsetSelection(5, Fraction(3), chosen=1),
    SubsetSelection(7, Fraction(1, 2), chosen=3),
]


def drawn(form: Any, people: int, seed: int) -> Shares:
    rng = np.random.default_rng(seed)
    symbols = rng.choice(form.size, people, p=rng.dirichlet(np.ones(form.size)))
    named = (draw_observations(form, symbols, rng) > 0).sum(axis=0)
    return Shares(named.astype(np.int64), form)


@given(
    st.sampled_from(FORMS),
    st.integers(2, 50),
    st.integers(0, 1000),
    st.lists(st.floats(-5, 5), min_size=7, max_size=7),
)
def test_the_variance_of_a_sum_is_the_quadratic_form_of_the_covariance(form, people, seed, weights):
    shares, w = drawn(form, people, seed), np.array(weights[: form.size])
    expected = w @ shares.covariance() @ w
    assert shares.variance(w) == pytest.approx(max(expected, 0.0), rel=1e-9, abs=1e-9)


@given(st.sampled_from(FORMS), st.integers(2, 50), st.integers(0, 1000))
def test_the_variance_of_one_share_is_its_squared_error_and_of_all_zero(form, people, seed):
    shares = drawn(form, people, seed)
    for symbol, error in enumerate(shares.standard_error):
        one = np.eye(form.size)[symbol]
        assert shares.variance(one) == pytest.approx(error**2, abs=1e-9)
    assert shares.variance(np.ones(form.size)) == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("form", FORMS[:3], ids=str)
def test_the_variance_is_unbiased_by_enumeration_of_all_reports(form):
    """Three people of one law, before a negative estimate is cut at zero."""
    sets = [np.isin(range(form.size), s) for s in combinations(range(form.size), form.named)]
    share = np.arange(1, form.size + 1) / np.arange(1, form.size + 1).sum()
    odds = np.array([np.where(s, math.e ** float(form.epsilon), 1.0) for s in sets])
    law = odds @ share / odds[:, 0].sum()
    assert law.sum() == pytest.approx(1)
    w = np.array([1.0, -1.0, 0.0, 1.0, 0.0])[: form.size]
    mean, second, reported = 0.0, 0.0, 0.0
    for chosen in product(range(len(sets)), repeat=3):
        chance = float(np.prod(law[list(chosen)]))
        shares = Shares(np.sum([sets[i] for i in chosen], axis=0), form)
        total = float(w @ shares.estimate)
        mean, second = mean + chance * total, second + chance * total**2
        reported += chance * float(w @ shares.covariance() @ w)
    assert mean == pytest.approx(w @ share, abs=1e-12)
    assert reported == pytest.approx(second - mean**2, abs=1e-9)


def test_the_variance_of_simulated_sums_is_as_stated():
    """Squared deviations against the reported variance: false alarm ALPHA."""
    form, rng = SubsetSelection(6, Fraction(1), chosen=2), np.random.default_rng(0)
    share, w = np.array([0.3, 0.3, 0.2, 0.1, 0.1, 0.0]), np.array([1, 1, 1, 1, 0.5, 0])
    symbols = rng.choice(6, (2_000, 200), p=share)
    named = (draw_observations(form, symbols.ravel(), rng) > 0).reshape(2_000, 200, 6).sum(axis=1)
    parts = [Shares(counts, form) for counts in named]
    deviations = np.array([(w @ part.estimate - w @ share) ** 2 for part in parts])
    variances = np.array([part.variance(w) for part in parts])
    assert mean_p_value(deviations - variances, 0.0) > ALPHA
    # Broken control: symbols counted as if they were named independently.
    alone = np.array([(w * part.standard_error) @ (w * part.standard_error) for part in parts])
    assert mean_p_value(deviations - alone, 0.0) < ALPHA


def test_weights_are_checked():
    shares = drawn(FORMS[1], 10, 0)
    for wrong in (np.ones(4), np.ones((1, 5)), ["a"] * 5):
        with pytest.raises(InvalidInput):
            shares.variance(wrong)
    grouped = Shares(np.array([[3, 2], [1, 4]]), FORMS[0], groups=("a", "b"))
    with pytest.raises(InvalidInput, match="without groups"):
        grouped.variance(np.ones(2))
    assert Shares(np.array([1, 0]), FORMS[0]).variance(np.ones(2)) == math.inf
