"""Mechanisms of the literature beside PrivUnit2's rank form: errors of one report of a vector.

    python -m benchmarks.rivals_means [--draws 1000] [--no-cost]

The first table: the squared error of one report of a point on the unit sphere, at the default size
of PrivUnit2's rank form. *bits* are those of a report without its public nonce; the rotated simplex
has as many bits as fit both PrivUnit2's report and m + 1 vertices, and *PrivUnit2 then* is ours cut
to these. SQKR and MVU have their best form within PrivUnit2's bits; more do not help them. All are
unbiased, so the error of a mean of n people is 1/n of it.

The second: the errors of measured draws in the same settings. The third: errors when only few bits
are allowed. The fourth: one number of [−1, 1], where MVU's table competes with the randomizers of a
box. The last: the time and the bytes of exact reports at 1,024 dimensions.
"""

from __future__ import annotations

import argparse
import math
import time
from typing import Any

import numpy as np

from experiments.rivals import FastProjUnit, Mvu, RotatedSimplex, Sqkr
from experiments.rivals.tables import best_table
from offaxis.privacy.guarantee import exact_epsilon
from offaxis.randomizers import Duchi, Hybrid, Piecewise, PrivUnit2, ProjUnit
from offaxis.sampling.entropy import Entropy
from offaxis.simulation import draw_observations
from offaxis.theory import sphere_mean_error

DIMS = (64, 256, 1024)
BUDGETS = (1.0, 2.0, 5.0, 7.5)
FEW_BITS = (1, 2, 3, 4, 6, 8)


def main() -> None:
    """Print all tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--no-cost", action="store_true")
    arguments = parser.parse_args()
    print_equal_bits()
    print_measured(arguments.draws)
    for epsilon in (1.0, 5.0):
        print_few_bits(256, epsilon)
    print_numbers()
    if not arguments.no_cost:
        print_cost(1024, 5.0)


def cut(dim: int, epsilon: float, directions: int) -> PrivUnit2:
    """Return PrivUnit2 with a number of directions and the best number of near ones."""
    pairs = directions // 2
    low, high = 1, pairs
    while low < high:  # the mean has one maximum in the number of near directions
        middle = (low + high) // 2
        below, above = (PrivUnit2(dim, 1.0, epsilon, directions, c) for c in (middle, middle + 1))
        low, high = (middle + 1, high) if below.mean < above.mean else (low, middle)
    return PrivUnit2(dim, 1.0, epsilon, directions, low)


def best_mvu(dim: int, epsilon: float, bits: float) -> Mvu | None:
    """Return the best number of coefficients and bits each, within ``bits``."""
    forms = [
        Mvu(dim, 1.0, epsilon, sampled=k, bits=b)
        for b in (1, 2, 3)
        for k in range(1, 7)
        if k * b <= bits and epsilon / k <= 8
    ]
    return min(forms, key=lambda form: form.expected_squared_error()) if forms else None


def best_sqkr(dim: int, epsilon: float, bits: float) -> Sqkr:
    """Return SQKR with at most ``bits`` signs."""
    best = Sqkr(dim, 1.0, epsilon)
    return best if best.sampled <= bits else Sqkr(dim, 1.0, epsilon, sampled=int(bits))


def settings(dim: int, epsilon: float) -> dict[str, Any]:
    """Return every mechanism of the first table."""
    ours = PrivUnit2(dim, 1.0, epsilon)
    bits = math.log2(ours.directions)
    vertices = 1 << min(int(bits), (dim + 1).bit_length() - 1)
    return {
        "PrivUnit2": ours,
        "rotated simplex": RotatedSimplex(dim, 1.0, epsilon, directions=vertices),
        "PrivUnit2 then": cut(dim, epsilon, vertices),
        "FastProjUnit": FastProjUnit(dim, 1.0, epsilon),
        "our ProjUnit": ProjUnit(dim, 1.0, epsilon),
        "SQKR": best_sqkr(dim, epsilon, bits),
        "MVU": best_mvu(dim, epsilon, bits),
    }


def _bits(name: str, mechanism: Any) -> str:
    if isinstance(mechanism, Mvu):
        return f"{mechanism.sampled} × {mechanism.bits}"
    if isinstance(mechanism, Sqkr):
        return f"{mechanism.sampled}"
    if isinstance(mechanism, RotatedSimplex):
        return f"{mechanism.information_bits:.0f}"
    if name == "PrivUnit2 then":
        return ""
    return f"{math.log2(mechanism.directions):.1f}"


def _shown(name: str, mechanism: Any) -> str:
    bits = _bits(name, mechanism)
    error = f"{mechanism.expected_squared_error():.4g}"
    return f"{error} ({bits})" if bits else error


def _heading(names: list[str]) -> None:
    print("\n| " + " | ".join(names) + " |\n|" + "--:|" * len(names), flush=True)


def print_equal_bits() -> None:
    """Print expected errors, and the bits of a report in brackets."""
    _heading(["m", "ε", "optimum", *settings(64, 1.0)])
    for dim in DIMS:
        for epsilon in BUDGETS:
            cells = [_shown(*item) for item in settings(dim, epsilon).items()]
            optimum = f"{sphere_mean_error(dim, epsilon):.4g}"
            print(f"| {dim:,} | {epsilon:g} | {optimum} | {' | '.join(cells)} |", flush=True)


def print_measured(draws: int) -> None:
    """Print measured errors with their standard errors, next to the expected ones."""
    _heading(["m", "ε", "mechanism", "expected", "measured", "standard error"])
    rng = np.random.default_rng(0)
    for dim in DIMS:
        point = rng.standard_normal(dim)
        W = np.tile(point / np.linalg.norm(point), (draws, 1))
        for epsilon in (1.0, 5.0):
            for name, mechanism in settings(dim, epsilon).items():
                V = draw_observations(mechanism, W, rng)
                errors = ((V - W) ** 2).sum(axis=1)
                expected = mechanism.expected_squared_error()
                print(
                    f"| {dim:,} | {epsilon:g} | {name} | {expected:.4g} | {errors.mean():.4g} | "
                    f"{errors.std() / math.sqrt(draws):.2g} |",
                    flush=True,
                )


def print_few_bits(dim: int, epsilon: float) -> None:
    """Print expected errors when a report has few bits besides its nonce."""
    print(f"\nm = {dim}, ε = {epsilon:g}, optimum {sphere_mean_error(dim, epsilon):.4g}")
    _heading(["bits", "PrivUnit2", "rotated simplex", "FastProjUnit", "SQKR", "MVU"])
    for bits in FEW_BITS:
        size = 1 << bits
        inner = cut(FastProjUnit(dim, 1.0, epsilon).projected, epsilon, size)
        fast = FastProjUnit(dim, 1.0, epsilon, inner.directions, inner.near, inner.dim)
        forms = (
            cut(dim, epsilon, size),
            RotatedSimplex(dim, 1.0, epsilon, directions=size),
            fast,
            best_sqkr(dim, epsilon, bits),
            best_mvu(dim, epsilon, bits),
        )
        cells = ["–" if form is None else f"{form.expected_squared_error():.4g}" for form in forms]
        print(f"| {bits} | {' | '.join(cells)} |", flush=True)


def print_numbers(draws: int = 100_000) -> None:
    """Print the worst and the mean variance over [−1, 1], of one number."""
    print("\nOne number of [−1, 1]: worst variance (mean over the interval)")
    _heading(["ε", "MVU, 1 bit", "2 bits", "3 bits", "Duchi", "piecewise", "hybrid"])
    x, rng = np.linspace(-1, 1, 21), np.random.default_rng(0)
    for epsilon in (0.5, 1.0, 2.0, 3.0, 5.0, 7.5):
        cells = []
        for bits in (1, 2, 3):
            fine = np.linspace(-1, 1, 841)
            variance = best_table(exact_epsilon(epsilon), bits).second_moment(fine) - fine**2
            cells.append(f"{variance.max():.3g} ({variance.mean():.3g})")
        for cls in (Duchi, Piecewise, Hybrid):
            W = np.repeat(x, draws)[:, None]
            V = draw_observations(cls(1, 1.0, epsilon), W, rng)[:, 0].reshape(x.size, draws)
            measured = ((V - x[:, None]) ** 2).mean(axis=1)
            mean = np.trapezoid(measured, x) / 2
            cells.append(f"{measured.max():.3g} ({mean:.3g})")
        print(f"| {epsilon:g} | {' | '.join(cells)} |", flush=True)


def print_cost(dim: int, epsilon: float, people: int = 50) -> None:
    """Print the CPU milliseconds of one report and of reading it, and the bytes with the nonce."""
    points = np.random.default_rng(0).standard_normal((people, dim))
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    print(f"\nm = {dim:,}, ε = {epsilon:g}")
    _heading(["mechanism", "bytes", "CPU ms per report", "CPU ms per reading"])
    for name, mechanism in settings(dim, epsilon).items():
        mechanism.read(mechanism.report(points[:2], Entropy()))
        started = time.process_time()
        payloads = mechanism.report(points, Entropy())
        reported = time.process_time()
        mechanism.read(payloads)
        read = time.process_time()
        spent = (reported - started) * 1e3 / people, (read - reported) * 1e3 / people
        size = mechanism.payload_size
        print(f"| {name} | {size} | {spent[0]:.2f} | {spent[1]:.2f} |", flush=True)


if __name__ == "__main__":
    main()
