"""From observations back to vectors: post-processing, free of any privacy cost."""

from offaxis.decoding.aggregate import Aggregate, aggregate
from offaxis.decoding.decoder import Decoder, LinearDecoder, ShiftDecoder

__all__ = ["Aggregate", "Decoder", "LinearDecoder", "ShiftDecoder", "aggregate"]
