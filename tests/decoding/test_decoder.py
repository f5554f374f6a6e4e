import numpy as np
import pytest

from offaxis.decoding import LinearDecoder, ShiftDecoder
from offaxis.errors import InvalidInput


def test_a_linear_decoder_need_not_be_square():
    decoder = LinearDecoder(np.arange(6.0).reshape(3, 2), np.ones(3))
    assert (decoder.input_dim, decoder.output_dim) == (2, 3)
    assert decoder.decode(np.array([[1.0, 1.0]])).tolist() == [[2.0, 6.0, 10.0]]


def test_affine_decoders_pass_means_through():
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
def test_a_map_that_does_not_fit_is_refused(offset):
    with pytest.raises(InvalidInput):
        LinearDecoder(np.ones((3, 2)), offset)
