"""Decoders: what they compute, and which of them are unbiased in a mean."""

import numpy as np
import pytest

from offaxis.decoding import CodewordDecoder, LinearDecoder, ShiftDecoder, ShrinkageDecoder
from offaxis.errors import InvalidInput


def test_a_linear_decoder_need_not_be_square():
    decoder = LinearDecoder(np.arange(6.0).reshape(3, 2), np.ones(3))
    assert (decoder.input_dim, decoder.output_dim) == (2, 3)
    assert decoder.decode(np.array([[1.0, 1.0]])).tolist() == [[2.0, 6.0, 10.0]]


def test_affine_decoders_commute_with_means():
    rng = np.random.default_rng(0)
    decoder = LinearDecoder(rng.standard_normal((3, 2)), rng.standard_normal(3))
    V = rng.standard_normal((50, 2))
    assert decoder.unbiased
    assert np.allclose(decoder.decode(V).mean(0), decoder.decode(V.mean(0, keepdims=True))[0])


def test_a_shift_is_added():
    decoder = ShiftDecoder(np.array([1.0, 2.0]))
    assert decoder.decode(np.zeros((1, 2))).tolist() == [[1.0, 2.0]]
    assert decoder.unbiased
    assert (decoder.input_dim, decoder.output_dim) == (2, 2)


@pytest.mark.parametrize("offset", [np.zeros(2), np.array([np.nan, 0, 0])])
def test_a_map_that_does_not_fit_is_an_error(offset):
    with pytest.raises(InvalidInput):
        LinearDecoder(np.ones((3, 2)), offset)


def test_shrinkage_decodes_like_a_linear_map_and_is_marked_biased():
    matrix, offset = np.arange(6.0).reshape(3, 2), np.ones(3)
    V = np.random.default_rng(0).standard_normal((5, 2))
    shrinking = ShrinkageDecoder(matrix, offset)
    assert np.array_equal(shrinking.decode(V), LinearDecoder(matrix, offset).decode(V))
    assert not shrinking.unbiased
    assert shrinking.kind != LinearDecoder.kind


def test_the_codeword_is_that_of_the_most_common_reported_symbol():
    codewords = np.array([[1.0, 0], [2.0, 0], [3.0, 0]])
    decoder = CodewordDecoder(codewords, np.array([0.2, 0.5, 0.3]))
    observed = np.array([[1.2, -0.1, -0.1], [0.6, -0.2, 0.6], [0.5, 0.5, 0.5]])
    assert decoder.decode(observed)[:, 0].tolist() == [1, 3, 2]
    assert not decoder.unbiased
    with pytest.raises(InvalidInput, match="positive share"):
        CodewordDecoder(codewords, np.array([0.0, 0.5, 0.5]))
