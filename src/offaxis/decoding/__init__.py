"""Decoders: from observations back to vectors. Post-processing, at no privacy cost."""

from offaxis.decoding.aggregate import Aggregate, aggregate
from offaxis.decoding.decoders import (
    CodewordDecoder,
    Decoder,
    LinearDecoder,
    NetworkDecoder,
    ShiftDecoder,
    ShrinkageDecoder,
)
from offaxis.decoding.posterior import PosteriorCodewordDecoder, PosteriorDecoder

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
]
