"""From observations back to vectors: post-processing, free of any privacy cost."""

from offaxis.decoding.decoder import Decoder, LinearDecoder, ShiftDecoder

__all__ = ["Decoder", "LinearDecoder", "ShiftDecoder"]
