"""Local gradients: what the permuted and the direct form tell the server, at the same budget.

    python -m benchmarks.federated

Gradients of a linear model with d weights at N samples a client: x · (residual), on synthetic data
with unit features. Public ones come from 4,000 samples of the same law. Error: the mean over 200
clients of ‖decoded − mean gradient‖², over the mean of ‖mean gradient‖² (1 is what "zero" would
score; an unbiased estimate is averaged over clients later, so errors above 1 are usual). Also
prints what Flower's LocalDpMod promises and keeps.
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


def error(recipe: DirectGradient | PermutedGradients, clients: list[np.ndarray]) -> float:
    """Return the relative squared error of one client's decoded mean gradient."""
    wanted = np.array([rows.mean(axis=0) for rows in clients])
    found = np.array([recipe.decode(recipe.report(rows)) for rows in clients])
    return float(((found - wanted) ** 2).sum() / (wanted**2).sum())


def local_table() -> None:
    """Print both forms, for several d, N and ε."""
    print("| d | N | ε of a client | permuted, Laplace | direct, Laplace | direct, PrivUnit2 |")
    print("|---|---|---|---|---|---|")
    for dim, samples, epsilon in [
        (4, 16, 1), (4, 16, 4), (4, 16, 8), (4, 64, 4), (16, 16, 4), (16, 64, 8), (64, 16, 8),
    ]:  # fmt: skip
        rng = np.random.default_rng([dim, samples])
        public = gradients(PUBLIC, dim, rng)
        clients = [gradients(samples, dim, rng) for _ in range(CLIENTS)]
        made = [
            PermutedGradients.fit(public, samples=samples, epsilon=epsilon),
            DirectGradient.fit(public, samples=samples, epsilon=epsilon, mechanism="laplace"),
            DirectGradient.fit(public, samples=samples, epsilon=epsilon),
        ]
        assert len({recipe.guarantee.epsilon for recipe in made}) == 1
        cells = " | ".join(f"{error(recipe, clients):.3g}" for recipe in made)
        print(f"| {dim} | {samples} | {epsilon} | {cells} |", flush=True)


def true_epsilon(sigma: float, delta: float) -> float:
    """Return the ε that Gaussian noise of this size really has, for sensitivity 1."""
    low, high = 1e-3, 1e3
    while high - low > 1e-6 * low:
        middle = (low + high) / 2
        if log_delta(1 / sigma, middle) > math.log(delta):
            low = middle
        else:
            high = middle
    return high


def classical_table(delta: float = 1e-5) -> None:
    """Print the ε that σ = Δ√(2 ln(1.25/δ))/ε really gives: what Flower's LocalDpMod adds."""
    print("\n| stated ε (δ = 1e-5) | true ε | true ε if Δ is the clipping norm |")
    print("|---|---|---|")
    for stated in (0.5, 1, 5, 8, 10, 15, 20):
        sigma = math.sqrt(2 * math.log(1.25 / delta)) / stated
        kept, doubled = true_epsilon(sigma, delta), true_epsilon(sigma / 2, delta)
        print(f"| {stated} | {kept:.2f} | {doubled:.2f} |")


if __name__ == "__main__":
    local_table()
    classical_table()
