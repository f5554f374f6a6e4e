"""From observations back to vectors: post-processing, free of any privacy cost."""

from offaxis.decoding.aggregate import Aggregate, aggregate
from offaxis.decoding.codeword import CodewordDecoder
from offaxis.decoding.decoder import (
    Decoder,
    LinearDecoder,
    ShiftDecoder,
    ShrinkageDecoder,
    back_from,
)
from offaxis.decoding.network import NetworkDecoder

__all__ = [
    "Aggregate",
    "CodewordDecoder",
    "Decoder",
    "LinearDecoder",
    "NetworkDecoder",
    "ShiftDecoder",
    "ShrinkageDecoder",
    "aggregate",
    "back_from",
]
