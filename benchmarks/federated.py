"""Local gradients: the error of the permuted and the direct form at the same budget.

    python -m benchmarks.federated

Gradients of a linear model with d weights at N samples per client: x · (residual), on synthetic
data with unit features. Public gradients come from 4,000 samples of the same distribution. Error:
the mean over 200 clients of ‖decoded − mean gradient‖², divided by the mean of ‖mean gradient‖² (an
estimate of zero scores 1; an unbiased estimate is averaged over clients later, so errors above 1
are usual). Also prints the stated and the true ε of Flower's LocalDpMod.
"""

from __future__ import annotations

import math

import numpy as np

from experiments.permuted_gradients import PermutedGradients
from offaxis.federated import DirectGradient
from offaxis.randomizers.gaussian import log_delta

CLIENTS = 200
PUBLIC = 4_000


def gradients(count: int, dim: int, rng: np.random.Generator) -> np.ndarray:
    """Return per-sample gradients (count, dim) of a squared loss, away from the optimum."""
    features = rng.normal(0, 1, (count, dim)) / np.sqrt(dim)
    residual = features @ np.linspace(-1, 1, dim) * 2 + rng.normal(0, 0.5, count)
    return features * residual[:, None]


def error(mechanism: DirectGradient | PermutedGradients, clients: list[np.ndarray]) -> float:
    """Return the relative squared error of one client's decoded mean gradient."""
    means = np.array([rows.mean(axis=0) for rows in clients])
    decoded = np.array([mechanism.decode(mechanism.report(rows)) for rows in clients])
    return float(((decoded - means) ** 2).sum() / (means**2).sum())


def local_table() -> None:
    """Print the errors of both forms, for several d, N and ε."""
    print("| d | N | ε of a client | permuted, Laplace | direct, Laplace | direct, PrivUnit2 |")
    print("|---|---|---|---|---|---|")
    for dim, samples, epsilon in [
        (4, 16, 1), (4, 16, 4), (4, 16, 8), (4, 64, 4), (16, 16, 4), (16, 64, 8), (64, 16, 8),
    ]:  # fmt: skip
        rng = np.random.default_rng([dim, samples])
        public = gradients(PUBLIC, dim, rng)
        clients = [gradients(samples, dim, rng) for _ in range(CLIENTS)]
        mechanisms = [
            PermutedGradients.fit(public, samples=samples, epsilon=epsilon),
            DirectGradient.fit(public, samples=samples, epsilon=epsilon, mechanism="laplace"),
            DirectGradient.fit(public, samples=samples, epsilon=epsilon),
        ]
        assert len({mechanism.guarantee.epsilon for mechanism in mechanisms}) == 1
        cells = " | ".join(f"{error(mechanism, clients):.3g}" for mechanism in mechanisms)
        print(f"| {dim} | {samples} | {epsilon} | {cells} |", flush=True)


def true_epsilon(sigma: float, delta: float) -> float:
    """Return the true ε of Gaussian noise with this σ, for sensitivity 1."""
    low, high = 1e-3, 1e3
    while high - low > 1e-6 * low:
        middle = (low + high) / 2
        if log_delta(1 / sigma, middle) > math.log(delta):
            low = middle
        else:
            high = middle
    return high


def classical_table(delta: float = 1e-5) -> None:
    """Print the true ε of σ = Δ√(2 ln(1.25/δ))/ε, the noise of Flower's LocalDpMod."""
    print("\n| stated ε (δ = 1e-5) | true ε | true ε if Δ is the clipping norm |")
    print("|---|---|---|")
    for stated in (0.5, 1, 5, 8, 10, 15, 20):
        sigma = math.sqrt(2 * math.log(1.25 / delta)) / stated
        true, doubled = true_epsilon(sigma, delta), true_epsilon(sigma / 2, delta)
        print(f"| {stated} | {true:.2f} | {doubled:.2f} |")


if __name__ == "__main__":
    local_table()
    classical_table()
