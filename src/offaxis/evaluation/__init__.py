"""What a release keeps of the task, measured on vectors whose answers are known."""

from offaxis.evaluation.choosing import best_decoder, with_decoder
from offaxis.evaluation.clipping import ClippingBias, clipping_bias
from offaxis.evaluation.metrics import Evaluation, evaluate
from offaxis.evaluation.sweep import BUDGETS, Row, sweep
from offaxis.evaluation.tuning import Trial, Tuned, tune

__all__ = [
    "BUDGETS",
    "ClippingBias",
    "Evaluation",
    "Row",
    "Trial",
    "Tuned",
    "best_decoder",
    "clipping_bias",
    "evaluate",
    "sweep",
    "tune",
    "with_decoder",
]
