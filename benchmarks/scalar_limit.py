"""The proved bound on the error of a number, next to errors that mechanisms achieve.

Root mean squared errors in units of the deviation, exact sums without simulation, for 4,000
answers of four laws:

- "bound": no ε-LDP report is better (:mod:`offaxis.theory.scalar_limit`);
- "searched": the best interval channel of at most 256 cells and 2,048 bins, as scalar-response
  releases it;
- "fine": k-ary response over equal shares of the answers, the best k up to one cell per answer;
- "laplace": noise of the scale range/ε, shrunk linearly to the mean.

A row where "searched" is above "fine" shows that the searched channel is not a limit.

    python -m benchmarks.scalar_limit
"""

from __future__ import annotations

import math

import numpy as np

from offaxis.mechanisms.scalar_channel import refined_channel
from offaxis.theory.scalar_limit import least_scalar_error
from offaxis.vectors import Vectors

_COUNT = 4000
_EPSILONS = (1, 5, 10, 12, 15, 18, 20, 30, 40)


def fine(answers: Vectors, epsilon: float) -> float:
    """Return the least error of k-ary response over k equal shares of the answers."""
    x = np.sort(answers) - answers.mean()
    others = math.exp(-epsilon)
    errors = []
    for k in np.unique(np.geomspace(2, x.size, 80).astype(int)):
        cells = np.arange(x.size) * k // x.size
        counts, sums = np.bincount(cells), np.bincount(cells, x)
        decoded = (1 - others) * sums / ((1 - others) * counts + others * x.size)
        own, every = np.mean((x - decoded[cells]) ** 2), k * np.mean(x**2) + (decoded**2).sum()
        errors.append(((1 - others) * own + others * every) / (1 + others * (k - 1)))
    return math.sqrt(min(errors))


def main() -> None:
    """Print the table."""
    rng = np.random.default_rng(0)
    laws = {
        "normal": rng.standard_normal(_COUNT),
        "uniform": rng.random(_COUNT),
        "two points": np.where(rng.random(_COUNT) < 0.3, 0.0, 1.0),
        "lognormal": rng.lognormal(size=_COUNT),
    }
    print("law           ε      bound   searched       fine    laplace")
    for name, answers in laws.items():
        deviation, span = float(answers.std()), float(np.ptp(answers))
        for epsilon in _EPSILONS:
            noise = 2 * (span / epsilon / deviation) ** 2
            columns = (
                least_scalar_error(answers, epsilon) / deviation,
                refined_channel(answers, epsilon).rmse / deviation,
                fine(answers, epsilon) / deviation,
                math.sqrt(noise / (1 + noise)),
            )
            print(f"{name:10s}  {epsilon:3d}  " + "  ".join(f"{value:9.3g}" for value in columns))


if __name__ == "__main__":
    main()
