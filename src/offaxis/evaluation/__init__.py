"""What a release keeps of the task, and which release to choose; on public vectors alone."""

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
