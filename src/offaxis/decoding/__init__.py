"""Decoders: from observations back to vectors. Post-processing, at no privacy cost."""

from offaxis.decoding.aggregate import Aggregate, KnownError, aggregate
from offaxis.decoding.decoders import (
    CodewordDecoder,
    Decoder,
    LinearDecoder,
    NetworkDecoder,
    ShiftDecoder,
    ShrinkageDecoder,
)
from offaxis.decoding.pairs import CellsDecoder, MomentsDecoder, RightDecoder
from offaxis.decoding.posterior import PosteriorCodewordDecoder, PosteriorDecoder
from offaxis.decoding.shares import ShareDifference, Shares, estimate_shares

__all__ = [
    "Aggregate",
    "CellsDecoder",
    "CodewordDecoder",
    "Decoder",
    "KnownError",
    "LinearDecoder",
    "MomentsDecoder",
    "NetworkDecoder",
    "PosteriorCodewordDecoder",
    "PosteriorDecoder",
    "RightDecoder",
    "ShareDifference",
    "Shares",
    "ShiftDecoder",
    "ShrinkageDecoder",
    "aggregate",
    "estimate_shares",
]
