"""From observations back to vectors: post-processing, free of any privacy cost."""

from offaxis.decoding.aggregate import Aggregate, aggregate
from offaxis.decoding.codeword import CodewordDecoder
from offaxis.decoding.decoder import (
    Decoder,
    LinearDecoder,
    ShiftDecoder,
    ShrinkageDecoder,
)
from offaxis.decoding.network import NetworkDecoder
from offaxis.decoding.posterior import PosteriorCodewordDecoder, PosteriorDecoder, posterior
from offaxis.decoding.shrinkage import shrink

__all__ = [
    "Aggregate",
    "CodewordDecoder",
    "Decoder",
    "LinearDecoder",
    "NetworkDecoder",
    "PosteriorCodewordDecoder",
    "PosteriorDecoder",
    "ShiftDecoder",
    "ShrinkageDecoder",
    "aggregate",
    "posterior",
    "shrink",
]
