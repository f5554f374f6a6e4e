"""What shuffling adds: certified bounds of the central ε next to an attack on the shuffled reports.

``python -m benchmarks.shuffling`` prints one row per number of people, budget and randomizer:

- *closed form*: Theorem 3.1 of Feldman, McMillan, Talwar 2021, where it applies;
- *clones*: the computed bound of any pure randomizer of this ε;
- *own*: the computed bound of the randomizer's own law, and its name;
- *attack*: a lower bound. All others have the same input, the attacker knows it and tests which of
  two inputs the last person has; ε_c below this figure is impossible at this δ;
- *own / attack*, and the seconds that the bound took.
"""

from __future__ import annotations

import argparse
import math
import time
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

import numpy as np

from offaxis.privacy import shuffled_epsilon
from offaxis.randomizers import KaryResponse, PrivUnit2, SubsetSelection

BUDGETS: Final = ("1/2", "1", "2", "4")
PEOPLE: Final = (10**3, 10**4, 10**5, 10**6)


def randomizers(epsilon: str) -> dict[str, Any]:
    """Return the randomizers of one block of the table."""
    budget = Fraction(epsilon)
    return {
        "response, k = 2": KaryResponse(2, budget),
        "response, k = 10": KaryResponse(10, budget),
        "response, k = 100": KaryResponse(100, budget),
        "subset, k = 10": SubsetSelection(10, budget),
        "subset, k = 100": SubsetSelection(100, budget),
        "privunit2, m = 64": PrivUnit2(64, 1.0, budget),
    }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--people", type=int, nargs="*", default=PEOPLE)
    parser.add_argument("--delta", default="1e-6")
    arguments = parser.parse_args()
    print("| n | ε | randomizer | closed form | clones | own | bound | attack | own / attack | s |")
    print("|---:|---:|---|---:|---:|---:|---|---:|---:|---:|")
    for people in arguments.people:
        for epsilon in BUDGETS:
            clones = shuffled_epsilon(epsilon, people, arguments.delta).epsilon
            formula = closed_form(float(Fraction(epsilon)), people, float(arguments.delta))
            for name, randomizer in randomizers(epsilon).items():
                start = time.perf_counter()
                own = shuffled_epsilon(randomizer, people, arguments.delta)
                seconds = time.perf_counter() - start
                attacked = attack(instance(randomizer), people, float(arguments.delta))
                assert own.epsilon is not None  # all of them are pure
                cells = [f"{people:,}", epsilon, name, "–" if formula is None else f"{formula:.4g}"]
                cells += [f"{clones:.4g}", f"{own.epsilon:.4g}", own.bound, f"{attacked:.4g}"]
                cells += [f"{own.epsilon / attacked:.3f}", f"{seconds:.2f}"]
                print(f"| {' | '.join(cells)} |", flush=True)


def closed_form(epsilon: float, people: int, delta: float) -> float | None:
    """Return the ε_c of Theorem 3.1 of Feldman, McMillan, Talwar 2021, or None."""
    if epsilon > math.log(people / (16 * math.log(2 / delta))):
        return None
    factor = math.exp(epsilon)
    spread = 8 * math.sqrt(factor * math.log(4 / delta) / people) + 8 * factor / people
    return min(epsilon, math.log1p((factor - 1) / (factor + 1) * spread))


# ---- Attacks


@dataclass(frozen=True)
class Instance:
    """Kinds of reports, and their chances given two inputs and given the others' input."""

    first: np.ndarray
    second: np.ndarray
    others: np.ndarray


def instance(randomizer: Any) -> Instance:
    """Return the laws of two inputs and of others whose near reports overlap theirs least."""
    blanket = randomizer.blanket
    factor = math.exp(float(blanket.epsilon))
    # Shares of the public law: near x, near x', near the others' input, or not, for each of them.
    shares = np.array([[float(share) for share in row] for row in _shares(randomizer)]).ravel()
    near = np.array([[b >> 2 & 1, b >> 1 & 1, b & 1] for b in range(8)], dtype=bool)
    laws = [shares * np.where(near[:, who], factor, 1.0) for who in range(3)]
    used = shares > 0
    return Instance(*(law[used] / law.sum() for law in laws))


def _shares(randomizer: Any) -> list[list[Fraction]]:
    """Return shares of (x only, neither, …) in the order of the bits (x, x', other)."""
    if randomizer.kind in ("response", "subset"):
        k, d = randomizer.size, randomizer.named
        third = k > 2  # otherwise the others have x'
        chance = []
        for bits in range(8):
            held = (bits >> 2 & 1, bits >> 1 & 1, bits & 1)
            if third:
                share = Fraction(math.comb(k - 3, d - sum(held)) if d >= sum(held) else 0)
            else:
                share = Fraction(int(held[1] == held[2] and held[0] != held[1]))
            chance.append(share / math.comb(k, d))
        return [chance]
    # Opposite directions, whose near directions are the two sides of the same c of N/2 pairs. The
    # others' vector is zero: one side of c pairs that do not depend on x.
    near = Fraction(randomizer.near, randomizer.directions)
    covered = 2 * near * near / 2
    rest = 1 - 2 * near
    return [
        [rest - near + 2 * covered, near - 2 * covered]
        + [near - covered, covered]
        + [near - covered, covered]
        + [Fraction(0)] * 2
    ]


def attack(kinds: Instance, people: int, delta: float) -> float:
    """Return an ε_c that the shuffled reports do not have at this δ: a lower bound.

    The best test sums likelihood weights over all reports. Here the weights are rounded to a
    lattice, which makes it another valid test; its error rates are computed by a Fourier transform.
    Both orders of the two inputs count.
    """
    swapped = Instance(kinds.second, kinds.first, kinds.others)
    return max(_largest(kinds, people, delta), _largest(swapped, people, delta))


def _largest(kinds: Instance, people: int, delta: float) -> float:
    low, high = 0.0, float(np.log(np.max(kinds.first / kinds.second)))
    if advantage(kinds, people, 0.0) <= delta:
        return 0.0
    while high - low > 3e-4 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if advantage(kinds, people, middle) > delta else (low, middle)
    return low


def advantage(kinds: Instance, people: int, central: float) -> float:
    """Return the largest Pr[sum >= θ | x] − e^{ε_c} Pr[sum >= θ | x'] over thresholds θ.

    The error of the transform, about 1e-13, is subtracted.
    """
    factor = math.exp(central)
    weights = (kinds.first - factor * kinds.second) / kinds.others
    largest = float(np.abs(weights).max())
    step = largest / min(1000.0, max(24.0, 2e4 / math.sqrt(people)))
    steps = np.rint(weights / step).astype(np.int64)
    mean = float(kinds.others @ steps)
    deviation = math.sqrt(people * float(kinds.others @ (steps - mean) ** 2))
    reach = int(12 * deviation + 50 * largest / step)
    size = 1 << math.ceil(math.log2(2 * reach))
    rates = np.zeros(size)
    np.add.at(rates, steps % size, kinds.others)
    others = np.fft.irfft(np.fft.rfft(rates) ** (people - 1), size)
    difference = np.zeros(size)
    for weight, first, second in zip(steps, kinds.first, kinds.second, strict=True):
        difference += (first - factor * second) * np.roll(others, int(weight))
    # Sums are known modulo the size; unroll them around their mean.
    centred = np.roll(difference, size // 2 - int(people * mean))
    return float(np.cumsum(centred[::-1]).max()) - 1e-11


if __name__ == "__main__":
    main()
