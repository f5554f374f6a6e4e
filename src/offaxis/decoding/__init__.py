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
from offaxis.decoding.pairs import AnswersDecoder, CellsDecoder, MomentsDecoder, RightDecoder
from offaxis.decoding.posterior import PosteriorCodewordDecoder, PosteriorDecoder
from offaxis.decoding.second_moments import SecondMomentsDecoder
from offaxis.decoding.shares import HeavyHitter, ShareDifference, Shares, estimate_shares

__all__ = [
    "Aggregate",
    "AnswersDecoder",
    "CellsDecoder",
    "CodewordDecoder",
    "Decoder",
    "HeavyHitter",
    "KnownError",
    "LinearDecoder",
    "MomentsDecoder",
    "NetworkDecoder",
    "PosteriorCodewordDecoder",
    "PosteriorDecoder",
    "RightDecoder",
    "SecondMomentsDecoder",
    "ShareDifference",
    "Shares",
    "ShiftDecoder",
    "ShrinkageDecoder",
    "aggregate",
    "estimate_shares",
]
