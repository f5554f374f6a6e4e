"""Functions with faults found in published code, rebuilt from their formulas, and sound ones.

Every fault promises what its authors promised. None is copied code. :data:`WILD` lists the faulty
functions with what they promise and between which inputs; :func:`sound` those that keep it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

import offaxis
from offaxis.auditing import AnyVector, Pairs
from offaxis.randomizers import make
from offaxis.randomizers.base import Ball, Box, FiniteSet
from offaxis.sampling.entropy import Entropy
from offaxis.sampling.laplace import DiscreteLaplace


@dataclass(frozen=True, eq=False)
class Target:
    """A function, its promise, and what is wrong with it."""

    name: str
    fault: str
    function: Callable[[Any], Any]
    domain: Any
    epsilon: Any
    delta: float | None = None
    batched: bool = False
    reports: int = 10_000
    """Outputs of the main test that are enough by far."""
    found_by: tuple[str, ...] = field(default=())
    """Statistics of which at least one must find it."""

    def audit(self, **settings: Any) -> offaxis.auditing.AuditResult:
        """Audit it against its promise."""
        return offaxis.audit(
            self.function,
            epsilon=self.epsilon,
            delta=self.delta,
            domain=self.domain,
            batched=self.batched,
            **settings,
        )


DIM = 4


def analytic_sigma(epsilon: float, delta: float, sensitivity: float) -> float:
    """Return the least σ of Gaussian noise for (ε, δ) (Balle and Wang 2018), by bisection."""

    def cdf(t: float) -> float:
        return math.erfc(-t / math.sqrt(2)) / 2

    def profile(sigma: float) -> float:
        half, shift = sensitivity / (2 * sigma), epsilon * sigma / sensitivity
        return cdf(half - shift) - math.exp(epsilon) * cdf(-half - shift)

    low, high = 1e-3 * sensitivity, 1e3 * sensitivity
    for _ in range(200):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if profile(middle) > delta else (low, middle)
    return high


def clip_norm_for_sensitivity() -> Target:
    """(a) The norm is clipped to C, and σ is computed for C; a replaced vector moves it by 2C."""
    rng, sigma = np.random.default_rng(), analytic_sigma(1.0, 1e-5, sensitivity=1.0)

    def gaussian(X: np.ndarray) -> np.ndarray:
        lengths = np.linalg.norm(X, axis=1, keepdims=True)
        clipped = X / np.maximum(lengths, 1.0)
        return np.round(clipped + rng.normal(scale=sigma, size=X.shape), 9)

    fault = "σ for the clip norm C, replacement moves 2C"
    domain = Ball(DIM, 10.0, 2)
    return Target("gaussian-clip", fault, gaussian, domain, 1.0, 1e-5, True, 1_200_000)


def classical_gaussian(epsilon: float = 8.0, delta: float = 0.05) -> Target:
    """(b) σ = Δ √(2 ln(1.25/δ))/ε is proved for ε < 1 only; far above, it is too small."""
    rng = np.random.default_rng()
    sigma = 2 * math.sqrt(2 * math.log(1.25 / delta)) / epsilon

    def gaussian(X: np.ndarray) -> np.ndarray:
        return np.round(np.clip(X, -1, 1) + rng.normal(scale=sigma, size=X.shape), 9)

    fault = f"σ = Δ√(2 ln(1.25/δ))/ε at ε = {epsilon:g}"
    return Target(
        "gaussian-classical", fault, gaussian, (-1.0, 1.0), epsilon, delta, True, 32_000_000
    )


def percentile_sensitivity() -> Target:
    """(c) The sensitivity of a mean from the 95th percentile of the data, which are not clipped."""
    rng = np.random.default_rng()

    def mean(rows: np.ndarray) -> float:
        bound = np.percentile(np.abs(rows), 95)
        return round(float(rows.mean() + rng.laplace(scale=2 * bound / len(rows))), 9)

    ages = np.random.default_rng(0).uniform(20, 60, 50)
    rich = ages.copy()
    rich[-1] = 5000.0
    younger = ages.copy()
    younger[0] = 20.0
    pairs = Pairs([(ages, younger), (ages, rich)])
    return Target("percentile", "sensitivity from a percentile, no clipping", mean, pairs, 1.0)


def floored_normalisation() -> Target:
    """(d) A cap mechanism on x / max(‖x‖, 1e-10): a tiny vector is not made a direction.

    The output is t·u + √(1 − t²)·w with w orthogonal to u, and t ≥ γ with probability
    e^ε/(e^ε + 1) at γ = 0 (Duchi, Jordan, Wainwright 2018; Bhowmick et al. 2018).
    """
    rng, share = np.random.default_rng(), 1 / (1 + math.exp(-1.0))

    def cap(x: np.ndarray) -> np.ndarray:
        u = x / max(float(np.linalg.norm(x)), 1e-10)
        v = rng.standard_normal(DIM)
        v /= np.linalg.norm(v)
        t = abs(v[0]) * (1 if rng.random() < share else -1)
        w = rng.standard_normal(DIM)
        w -= (w @ u) * u / max(u @ u, 1e-300) if u.any() else 0.0
        w /= np.linalg.norm(w)
        return np.round(t * u + math.sqrt(1 - t * t) * w, 6)

    fault = "x / max(‖x‖, 1e-10): tiny vectors stay tiny"
    return Target("floored-norm", fault, cap, Ball(DIM, 1.0, 2), 1.0)


def averaged_filter(window: int = 8) -> Target:
    """(e) Noise for a mean over a window, as if each reading were another person's."""
    rng = np.random.default_rng()

    def smooth(readings: np.ndarray) -> float:
        mean = float(np.clip(readings, -1, 1).mean())
        return round(mean + rng.laplace(scale=2 / window), 9)

    fault = "noise/window, though one person gives all readings"
    return Target("averaged-filter", fault, smooth, Box(window, 1.0), 1.0)


def float_laplace() -> Target:
    """(f) Laplace noise from four uniform floats, added in floating point (Holohan et al. 2021)."""
    rng = np.random.default_rng()

    def laplace(x: float) -> float:
        a, b, c, d = rng.random(4).tolist()
        noise = math.log(1 - a) * math.cos(math.pi * b) + math.log(1 - c) * math.cos(math.pi * d)
        return x - noise

    fault = "floats: the lowest bits tell"
    return Target("float-laplace", fault, laplace, (0.0, 1.0), 1.0, found_by=("low-bits",))


def _words() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    return {f"word{i}": rng.standard_normal(8) for i in range(40)}


def _sanitizer(
    noise: Callable[[np.random.Generator], np.ndarray],
) -> tuple[Callable[[str], str], list[str], Callable[[str, str], float]]:
    rng, words = np.random.default_rng(), _words()
    names, table = list(words), np.stack(list(words.values()))

    def sanitize(word: str) -> str:
        noisy = words[word] + noise(rng)
        return names[int(np.argmin(np.square(table - noisy).sum(axis=1)))]

    return sanitize, names, lambda a, b: float(np.linalg.norm(words[a] - words[b]))


def sanitizer_wrong_radius() -> Target:
    """(g) A random direction with a radius of Exp(ε) instead of Gamma(d, 1/ε): far too near."""
    epsilon = 0.5

    def noise(rng: np.random.Generator) -> np.ndarray:
        direction = rng.standard_normal(8)
        return direction / np.linalg.norm(direction) * rng.exponential(1 / epsilon)

    sanitize, names, distance = _sanitizer(noise)
    promised = lambda a, b: epsilon * distance(a, b)  # noqa: E731
    fault = "radius Exp(ε) instead of Gamma(d, 1/ε)"
    return Target("sanitizer-radius", fault, sanitize, names, promised)


def sanitizer_local() -> Target:
    """(g) A sound metric sanitizer whose ε per distance is stated as ε between any two words."""
    epsilon = 1.0

    def noise(rng: np.random.Generator) -> np.ndarray:
        direction = rng.standard_normal(8)
        return direction / np.linalg.norm(direction) * rng.gamma(8, 1 / epsilon)

    sanitize, names, _ = _sanitizer(noise)
    fault = "ε per distance, stated as ε between any two words"
    return Target("sanitizer-local", fault, sanitize, names, epsilon)


def coordinatewise_metric() -> Target:
    """(g) Laplace noise of scale 1/ε per coordinate, promised as ε times the ℓ2 distance."""
    rng = np.random.default_rng()

    def noisy(X: np.ndarray) -> np.ndarray:
        return np.round(X + rng.laplace(scale=1.0, size=X.shape), 9)

    fault = "per coordinate 1/ε, promised for ℓ2"
    promised = lambda x, y: float(np.linalg.norm(x - y))  # noqa: E731
    domain = Ball(DIM, 1.0, 2)
    return Target("metric-coordinates", fault, noisy, domain, promised, None, True, 40_000)


WILD: tuple[Callable[[], Target], ...] = (
    clip_norm_for_sensitivity,
    classical_gaussian,
    percentile_sensitivity,
    floored_normalisation,
    averaged_filter,
    float_laplace,
    sanitizer_wrong_radius,
    sanitizer_local,
    coordinatewise_metric,
)


# ---- Functions that keep their promise


def geometric() -> Callable[[int], int]:
    """Return two-sided geometric noise of ε = 1 on integers that differ by one."""
    noise = DiscreteLaplace(0)  # scale 1

    def noisy(x: int) -> int:
        return int(x + noise.draw(1, Entropy())[0])

    return noisy


def _observed(kind: str, dim: int, epsilon: float, delta: float | None) -> Any:
    randomizer = make(kind, dim=dim, radius=1.0, epsilon=epsilon, delta=delta)
    return lambda X: list(randomizer.read(randomizer.report(X, Entropy())))


@cache
def sound() -> dict[str, Target]:
    """Return functions without a fault, by name: exact releases and discrete noise."""
    rng = np.random.default_rng(0)
    public = rng.standard_normal((300, 6)) @ rng.standard_normal((6, 6))
    head = rng.standard_normal((4, 6))
    targets = []
    for kind, delta in (
        ("laplace", None),
        ("gaussian", 1e-5),
        ("privunit2", None),
        ("privunitg", None),
        ("duchi", None),
        ("piecewise", None),
        ("response", None),
        ("subset", None),
    ):
        release = offaxis.fit(head, public, epsilon=2, mechanism=kind, delta=delta)
        targets.append(
            Target(kind, "none", release.privatize, AnyVector(6), 2.0, delta, batched=True)
        )
    for kind, delta in (("laplace", None), ("gaussian", 1e-5)):
        decoded = _observed(kind, 3, 1.0, delta)
        targets.append(
            Target(f"{kind}, numbers", "none", decoded, AnyVector(3), 1.0, delta, batched=True)
        )
    coin = np.random.default_rng()

    def response(x: int) -> int:
        return x if coin.random() < math.e / (math.e + 4) else int((x + coin.integers(1, 5)) % 5)

    targets.append(Target("response, five labels", "none", response, FiniteSet(5), 1.0))
    targets.append(Target("geometric", "none", geometric(), [0, 1], 1.0))
    return {target.name: target for target in targets}
