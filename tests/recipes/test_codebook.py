"""Codebooks: cells in the task's metric, exact symbols, unbiased histograms."""

from __future__ import annotations

import numpy as np
import pytest

import offaxis
from offaxis.errors import InvalidInput
from offaxis.geometry import Layers
from tests.checks import ALPHA, mean_p_value

RNG = np.random.default_rng(5)
PLACES = np.array([[4.0, 0, 0], [-4.0, 0, 0], [0, 4.0, 0]])
LABELS = RNG.integers(0, 3, 900)
PUBLIC = PLACES[LABELS] + 0.3 * RNG.standard_normal((900, 3)) * [1, 1, 30]
TASK = Layers.linear(PLACES[:, :] * [1, 1, 0])


def fitted(name="response", epsilon=3, **settings):
    return offaxis.fit(TASK, PUBLIC, epsilon=epsilon, randomizer=name, **settings)


def test_the_task_decides_which_vectors_share_a_codeword():
    release = fitted()
    symbols = release.encoder.encode(PUBLIC)
    assert release.encoder.output_dim == 3
    for label in range(3):
        assert len(set(symbols[label == LABELS])) == 1
    # Without the task the third coordinate, which varies most, decides instead.
    plain = fitted(reshaping="none", size=3)
    assert any(len(set(plain.encoder.encode(PUBLIC[k == LABELS]))) > 1 for k in range(3))


@pytest.mark.parametrize("name", ["response", "subset"])
@pytest.mark.parametrize("reshaping", ["jacobian", "centre", "none"])
def test_codewords_are_means_of_their_cells(name, reshaping):
    release = fitted(name, reshaping=reshaping, size=5)
    symbols = release.encoder.encode(PUBLIC)
    for symbol in range(release.encoder.output_dim):
        cell = PUBLIC[symbols == symbol]
        np.testing.assert_allclose(release.decoder.codewords[symbol], cell.mean(axis=0))
        assert release.decoder.prior[symbol] == pytest.approx(len(cell) / len(PUBLIC))


def test_the_encoder_finds_the_nearest_codeword():
    release = fitted(reshaping="none", size=6)
    # Lloyd's cells are those of their centres, which here are nearly the means.
    distances = ((PUBLIC[:, None] - release.decoder.codewords) ** 2).sum(axis=2)
    nearest = distances.argmin(axis=1) == release.encoder.encode(PUBLIC)
    assert nearest.mean() > 0.97


@pytest.mark.parametrize("name", ["response", "subset"])
def test_means_of_reports_estimate_the_mean_codeword(name):
    release = fitted(name, epsilon=1, size=8)
    reports = release.privatize(PUBLIC[:600])
    wanted = release.decoder.codewords[release.encoder.encode(PUBLIC[:600])].mean(axis=0)
    mean = release.aggregate(reports)
    assert (np.abs(mean.estimate - wanted) <= 5.5 * mean.standard_error + 1e-9).all()
    # The twin counts reports as they come, which pulls towards the middle.
    assert mean_p_value(release.decode(release.privatize(PUBLIC[LABELS == 0])), PLACES[0]) < ALPHA


def test_reports_are_integers_of_few_bytes():
    assert fitted(size=200).report_size == 13
    assert fitted("subset", size=20).report_size == 12 + -(
        -fitted("subset", size=20).randomizer.size // 8
    )


def test_the_same_public_vectors_give_the_same_codebook():
    assert fitted(size=7) == fitted(size=7)


@pytest.mark.parametrize("size", [0, -1, 5000, 2.5, "many", True])
def test_a_bad_size_is_named(size):
    with pytest.raises(InvalidInput, match="number of codewords"):
        fitted(size=size)


def test_a_size_where_there_is_none_is_refused():
    with pytest.raises(InvalidInput, match="takes no size"):
        fitted("laplace", size=3)


def test_a_task_that_tells_nothing_apart_has_no_codebook():
    same = np.tile([0.0, 0.0, 1.0], (50, 1)) * np.arange(50)[:, None]
    with pytest.raises(InvalidInput, match="tells apart"):
        offaxis.fit(TASK, same, epsilon=1, randomizer="response")
