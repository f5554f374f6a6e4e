"""What is known of a vector before any report: the public mean, as well as the maps tell it."""

from __future__ import annotations

import numpy as np

from offaxis.decoding.codeword import CodewordDecoder
from offaxis.decoding.decoder import Decoder
from offaxis.decoding.posterior import PosteriorDecoder
from offaxis.encoding.argmax import ArgmaxEncoder
from offaxis.encoding.encoder import AffineEncoder, Encoder, ShiftEncoder
from offaxis.vectors import Vectors


def public_mean(encoder: Encoder, decoder: Decoder) -> Vectors:
    """Return the public mean, (m,): of what the decoder names, or what the encoder is centred on.

    Zero where the maps tell nothing: nothing was fitted, or the decoder answers something else
    than a vector.
    """
    with np.errstate(all="ignore"):
        if isinstance(decoder, CodewordDecoder | PosteriorDecoder):
            mean = decoder.prior_mean
        elif isinstance(encoder, AffineEncoder | ShiftEncoder | ArgmaxEncoder):
            mean = encoder.centre
        else:
            mean = decoder.decode(np.zeros((1, decoder.input_dim)))[0]
    # Files may hold any numbers.
    usable = mean.size == encoder.input_dim and np.isfinite(mean).all()
    return mean if usable else np.zeros(encoder.input_dim)
