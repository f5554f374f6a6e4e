"""Private gradients: the error of the local and central forms at the same budget.

    python -m benchmarks.federated

Gradients of a linear model with d weights at N samples per client: x · (residual), on synthetic
data with unit features. Public gradients come from 4,000 samples of the same distribution. Error:
the mean over 200 clients of ‖decoded − mean gradient‖², divided by the mean of ‖mean gradient‖² (an
estimate of zero scores 1; an unbiased estimate is averaged over clients later, so errors above 1
are usual). The second table has the error of the mean over all 200 clients, for the baselines of
the paper's appendix: per-sample randomization, noise on the mean, and the central extension. The
third one prints the stated and the true ε of Flower's LocalDpMod.
"""

from __future__ import annotations

import math

import numpy as np

from experiments.federated_gradients import (
    CentralPermutedGradients,
    NoisyMeanGradient,
    PermutedGradients,
    PerSampleGradients,
    Protects,
)
from offaxis.federated import DirectGradient
from offaxis.federated.local import GradientMechanism
from offaxis.randomizers.gaussian import log_delta

CLIENTS = 200
PUBLIC = 4_000


def gradients(count: int, dim: int, rng: np.random.Generator) -> np.ndarray:
    """Return per-sample gradients (count, dim) of a squared loss, away from the optimum."""
    features = rng.normal(0, 1, (count, dim)) / np.sqrt(dim)
    residual = features @ np.linspace(-1, 1, dim) * 2 + rng.normal(0, 0.5, count)
    rows: np.ndarray = features * residual[:, None]
    return rows


def error(mechanism: GradientMechanism, clients: list[np.ndarray]) -> float:
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
        mechanisms: list[GradientMechanism] = [
            PermutedGradients.fit(public, samples=samples, epsilon=epsilon),
            DirectGradient.fit(public, samples=samples, epsilon=epsilon, mechanism="laplace"),
            DirectGradient.fit(public, samples=samples, epsilon=epsilon),
        ]
        assert len({mechanism.guarantee.epsilon for mechanism in mechanisms}) == 1
        cells = " | ".join(f"{error(mechanism, clients):.3g}" for mechanism in mechanisms)
        print(f"| {dim} | {samples} | {epsilon} | {cells} |", flush=True)


def mean_error(decoded: np.ndarray, clients: list[np.ndarray]) -> float:
    """Return the relative squared error of an estimate of the mean over all clients."""
    true = np.concatenate(clients).mean(axis=0)
    return float(((decoded - true) ** 2).sum() / (true**2).sum())


def baselines_table(repeats: int = 40, delta: float = 1e-5) -> None:
    """Print the error of the mean over all clients for every form; means over repeats."""
    settings = [(4, 16, 1), (4, 16, 8), (16, 16, 8)]
    print("\n| form | protects | d, N, ε = " + " | ".join(map(str, settings)) + " |")
    print("|---|---|" + "---|" * len(settings))
    table: dict[tuple[str, str], list[float]] = {}
    for dim, samples, epsilon in settings:
        rng = np.random.default_rng([dim, samples, 1])
        public = gradients(PUBLIC, dim, rng)
        clients = [gradients(samples, dim, rng) for _ in range(CLIENTS)]
        everything = np.concatenate(clients)
        local: dict[tuple[str, str], GradientMechanism] = {
            ("per sample, Laplace", "client"): PerSampleGradients.fit(
                public, samples=samples, epsilon=epsilon, protects="client"
            ),
            ("permuted, Laplace", "client"): PermutedGradients.fit(
                public, samples=samples, epsilon=epsilon
            ),
            ("direct, Laplace", "client"): DirectGradient.fit(
                public, samples=samples, epsilon=epsilon, mechanism="laplace"
            ),
            ("direct, PrivUnit2", "client"): DirectGradient.fit(
                public, samples=samples, epsilon=epsilon
            ),
            ("per sample, Laplace", "one sample"): PerSampleGradients.fit(
                public, samples=samples, epsilon=epsilon, protects="sample"
            ),
        }
        for row, mechanism in local.items():
            errors = []
            for _ in range(repeats):
                bundles = [mechanism.report(rows) for rows in clients]
                decoded = np.mean([mechanism.decode(bundle) for bundle in bundles], axis=0)
                errors.append(mean_error(decoded, clients))
            table.setdefault(row, []).append(float(np.mean(errors)))
        units: tuple[tuple[str, Protects], ...] = (("client", "client"), ("one sample", "sample"))
        for unit, protects in units:
            noisy = NoisyMeanGradient.fit(
                public, samples=samples, epsilon=epsilon, protects=protects
            )
            errors = [
                mean_error(
                    np.mean([noisy.simulate(rows, rng) for rows in clients], axis=0), clients
                )
                for _ in range(repeats)
            ]
            row = ("noisy mean of bounded gradients, Laplace (simulated)", unit)
            table.setdefault(row, []).append(float(np.mean(errors)))
        for unit, replaced in (("client", samples), ("one sample", 1)):
            for stretch in (1.0, 1000.0):
                central = CentralPermutedGradients.fit(
                    public, rows=len(everything), replaced=replaced, epsilon=epsilon, delta=delta,
                    stretch=stretch,
                )  # fmt: skip
                errors = [
                    mean_error(central.decode(central.simulate(everything, rng)), clients)
                    for _ in range(repeats)
                ]
                row = (f"central permuted, λ_max/λ₁ = {stretch:g}", unit)
                table.setdefault(row, []).append(float(np.mean(errors)))
            # Noise on the mean itself: the limit of a large stretch, and the same clipping.
            direct = mean_error(_clipped_mean(everything, central.clip), clients)
            noise = dim * central.direct_variance / (everything.mean(axis=0) ** 2).sum()
            row = ("central, noise on the mean (computed)", unit)
            table.setdefault(row, []).append(direct + float(noise))
    for (form, unit), values in table.items():
        cells = " | ".join(f"{value:.3g}" for value in values)
        print(f"| {form} | {unit} | {cells} |", flush=True)


def _clipped_mean(rows: np.ndarray, clip: float) -> np.ndarray:
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    mean: np.ndarray = (rows * np.minimum(1, clip / norms)).mean(axis=0)
    return mean


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
    baselines_table()
    classical_table()
