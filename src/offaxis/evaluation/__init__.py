"""Measure the utility of a release for a task and choose a release, with public vectors only."""

from offaxis.evaluation.metrics import (
    BUDGETS,
    ClippingBias,
    Evaluation,
    SweepCell,
    clipping_bias,
    evaluate,
    sweep,
)
from offaxis.evaluation.recommend import best_decoder, tune

__all__ = [
    "BUDGETS",
    "ClippingBias",
    "Evaluation",
    "SweepCell",
    "best_decoder",
    "clipping_bias",
    "evaluate",
    "sweep",
    "tune",
]
