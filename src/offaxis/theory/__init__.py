"""What can be said about a release without trying it: risks and bounds, with their conditions."""

from offaxis.theory.ceiling import (
    AgreementCeiling,
    agreement_ceiling,
    answer_prior,
    label_accuracy_bound,
    reference_line,
)
from offaxis.theory.disagreement import DisagreementBound, disagreement_bound, flipping_tails
from offaxis.theory.discrepancy import Discrepancy, discrepancy, sampling_rate
from offaxis.theory.draws import Estimate
from offaxis.theory.limits import (
    fidelity_ceiling,
    least_mean_error,
    scalar_ceiling,
    sphere_mean_error,
    task_spectrum,
)
from offaxis.theory.remainder import RemainderBound, fourth_moments, remainder_bound
from offaxis.theory.risk import (
    FirstOrderRisk,
    first_order_risk,
    mean_gram,
    noise_risk,
    nonlinear_risk,
)
from offaxis.theory.sensitivity import Amplification, amplification

__all__ = [
    "AgreementCeiling",
    "Amplification",
    "DisagreementBound",
    "Discrepancy",
    "Estimate",
    "FirstOrderRisk",
    "RemainderBound",
    "agreement_ceiling",
    "amplification",
    "answer_prior",
    "disagreement_bound",
    "discrepancy",
    "fidelity_ceiling",
    "first_order_risk",
    "flipping_tails",
    "fourth_moments",
    "label_accuracy_bound",
    "least_mean_error",
    "mean_gram",
    "noise_risk",
    "nonlinear_risk",
    "reference_line",
    "remainder_bound",
    "sampling_rate",
    "scalar_ceiling",
    "sphere_mean_error",
    "task_spectrum",
]
