"""Codebooks: cells in the task's metric, exact symbols, unbiased histograms."""

from __future__ import annotations

import numpy as np
import pytest

import offaxis
from offaxis.errors import InvalidInput
from offaxis.geometry import Layers
from offaxis.randomizers.symbols import SymbolForm
from tests.checks import ALPHA, mean_p_value

RNG = np.random.default_rng(5)
PLACES = np.array([[4.0, 0, 0], [-4.0, 0, 0], [0, 4.0, 0]])
LABELS = RNG.integers(0, 3, 900)
PUBLIC = PLACES[LABELS] + 0.3 * RNG.standard_normal((900, 3)) * [1, 1, 30]
TASK = Layers.linear(PLACES[:, :] * [1, 1, 0])


def fitted(name="response", epsilon=3, **settings):
    return offaxis.fit(TASK, PUBLIC, epsilon=epsilon, mechanism=name, **settings)


def test_vectors_with_the_same_answer_share_a_codeword():
    release = fitted()
    symbols = release.encoder.encode(PUBLIC)
    assert release.encoder.output_dim == 3
    for label in range(3):
        assert len(set(symbols[label == LABELS])) == 1
    # Without the task, the third coordinate dominates because it varies most.
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


def test_the_encoder_finds_the_nearest_decoded_point():
    release = fitted(reshaping="none", size=6)
    # The posterior mean of a symbol is nearer to the mean than its codeword, most for small cells.
    mean, shares = PUBLIC.mean(axis=0), release.decoder.prior[:, None]
    reach = np.expm1(3) * shares
    decoded = mean + (release.decoder.codewords - mean) * reach / (reach + 1)
    symbols = release.encoder.encode(PUBLIC)
    for points, least in ((decoded, 0.99), (release.decoder.codewords, 0)):
        distances = ((PUBLIC[:, None] - points) ** 2).sum(axis=2)
        agreement = (distances.argmin(axis=1) == symbols).mean()
        assert least <= agreement <= (1 if least else 0.97)


@pytest.mark.parametrize("name", ["response", "subset"])
def test_the_number_of_codewords_grows_with_the_budget(name):
    rng = np.random.default_rng(0)
    ring = rng.standard_normal((4000, 2))
    counts = []
    for epsilon in (0.5, 3, 8):
        release = offaxis.fit(None, ring, epsilon=epsilon, mechanism=name, reshaping="none")
        assert isinstance(release.randomizer, SymbolForm)
        counts.append(release.randomizer.size)
    assert 2 <= counts[0] < counts[1] < counts[2] <= 4000 // 20


@pytest.mark.parametrize("name", ["response", "subset"])
def test_shares_of_cells_are_unbiased(name):
    release = fitted(name, epsilon=1, size=8)
    shares = release.shares(release.privatize(PUBLIC[:600]))
    cells = release.encoder.encode(PUBLIC[:600])
    true = np.bincount(cells, minlength=release.encoder.output_dim) / 600
    assert (np.abs(shares.estimate - true) <= 5.5 * shares.standard_error + 1e-9).all()
    # The broken control averages decoded reports, which is biased towards the centre.
    assert mean_p_value(release.decode(release.privatize(PUBLIC[LABELS == 0])), PLACES[0]) < ALPHA


def test_reports_have_few_bytes():
    assert fitted(size=200).report_size == 13
    assert fitted("subset", size=20).report_size == 12 + -(
        -fitted("subset", size=20).randomizer.size // 8
    )


def test_the_same_public_vectors_give_the_same_codebook():
    assert fitted(size=7) == fitted(size=7)


@pytest.mark.parametrize("size", [0, -1, 5000, 2.5, "many", True])
def test_a_bad_size_is_an_error(size):
    with pytest.raises(InvalidInput, match="number of codewords"):
        fitted(size=size)


def test_a_size_without_effect_is_an_error():
    with pytest.raises(InvalidInput, match="takes no size"):
        fitted("laplace", size=3)


def test_a_task_that_distinguishes_no_vectors_has_no_codebook():
    same = np.tile([0.0, 0.0, 1.0], (50, 1)) * np.arange(50)[:, None]
    with pytest.raises(InvalidInput, match="distinguishes"):
        offaxis.fit(TASK, same, epsilon=1, mechanism="response")
