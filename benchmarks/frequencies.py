"""How well do reports tell the frequencies of k values? Next to theory, limits and two libraries.

    python -m benchmarks.frequencies [--sizes 2 10 100 1000 10000] [--rivals PYTHON] [--seed 0]

PYTHON is the interpreter of an environment with pure-ldp and multi-freq-ldpy (see
frequencies_rivals.py), which never enters ours. All estimators get the same people in the same
rounds; their values follow Zipf's law.

**Unbiased.** Columns, in units of one report: n E‖f̂ − f‖², where f are the shares of the people
present.

- ours: the mechanism that ``fit_answers`` chooses, and its bytes;
- theory: its known error; measured: that of real reports;
- / optimum: theory, over the error of subset selection, which no unbiased report beats;
- / limit: theory, over the limits of docs/proofs.md §25.6, max(D²/sinh²(ε/2), D/tanh²(ε/2))/k +
  1/k − 1 with D = k − 1, which hold for any reports, and are attained for large k and k = 2 only;
- best rival: the least measured error of all estimators of both libraries, over our theory, with
  its standard error. Less than one is chance;
- Hadamard: the known error of Hadamard response (Acharya, Sun, Zhang 2019) over our theory.

**Final** (``--final``). What the libraries return after they set negative shares to zero or
iterate, over the error of our ``projected()``, with 5,000 people. These errors depend on the number
of people and on their shares: where reports tell next to nothing, what shrinks most errs least.

**Post-processing** (``--final``). n E‖f̃ − f‖² of our estimates as they are, projected, and clipped
and rescaled to the sum one, as multi-freq-ldpy does.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from offaxis.learning import fit_answers
from offaxis.randomizers import SubsetSelection
from offaxis.release import Release
from offaxis.vectors import Vectors

EPSILONS: Final = (0.5, 1.0, 2.0, 5.0)
ROUNDS: Final = {2: (1500, 100), 10: (600, 100), 100: (100, 200), 1000: (10, 200), 10_000: (2, 200)}
"""Rounds and people per round: as many as a standard error of 2 to 4 % needs."""

_REPEATS: Final = 5

_RIVALS: Final = Path(__file__).with_name("frequencies_rivals.py")


@dataclass(eq=False)
class Cell:
    """One size and budget: the people, our release, and what was measured."""

    size: int
    epsilon: float
    rounds: list[Any]
    release: Release = field(init=False)

    def __post_init__(self) -> None:
        """Fit the release."""
        self.release = fit_answers(self.size, epsilon=self.epsilon)

    @property
    def theory(self) -> float:
        """The known error of our release."""
        return self.release.randomizer.expected_squared_error()

    def measured(self) -> tuple[float, float, float]:
        """Return our error, its standard error, and the error of projected shares."""
        errors, projected = [], []
        for symbols in self.rounds:
            shares = self.release.shares(self.release.privatize(answers=symbols))
            truth = np.bincount(symbols, minlength=self.size) / len(symbols)
            for found, out in ((shares.estimate, errors), (shares.projected(), projected)):
                out.append(len(symbols) * float(((found - truth) ** 2).sum()))
        mean = float(np.mean(errors))
        spread = float(np.std(errors)) / math.sqrt(len(errors))
        least = mean * math.sqrt(2 / (self.size * len(errors))) / 2
        return mean, max(spread, least), float(np.mean(projected))

    @property
    def optimum(self) -> float:
        """The least error of unbiased reports of one of k values."""
        return SubsetSelection(self.size, self.epsilon).expected_squared_error()

    @property
    def limit(self) -> float:
        """The limit of docs/proofs.md §25.6 for the people present."""
        d, half = self.size - 1, self.epsilon / 2
        return max((d / math.sinh(half)) ** 2, d / math.tanh(half) ** 2) / self.size + (
            1 / self.size - 1
        )

    @property
    def hadamard(self) -> float:
        """The known error of Hadamard response: half of K codewords, K the next power of two.

        The input is in the reported half with a = e^ε/(e^ε + 1), each other value with 1/2.
        """
        a = 1 / (1 + math.exp(-self.epsilon))
        return (a * (1 - a) + (self.size - 1) / 4) / (a - 0.5) ** 2


def people(size: int, count: int, rng: np.random.Generator) -> Vectors:
    """Draw values by Zipf's law, in a random order of the values."""
    shares = 1 / np.arange(1, size + 1)
    return rng.permutation(size)[rng.choice(size, count, p=shares / shares.sum())]


def rivals_of(cells: list[Cell], python: str) -> list[dict[str, Any]]:
    """Return what the estimators of both libraries measured on the same people."""
    settings = [
        {"size": c.size, "epsilon": c.epsilon, "rounds": [s.tolist() for s in c.rounds]}
        for c in cells
    ]
    done = subprocess.run(
        [python, str(_RIVALS)],
        input=json.dumps(settings),
        text=True,
        capture_output=True,
        check=True,
    )
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(ROUNDS), choices=ROUNDS)
    parser.add_argument("--rivals", metavar="PYTHON")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--final", action="store_true")
    arguments = parser.parse_args()
    rng = np.random.default_rng(arguments.seed)
    if arguments.final:
        print_post_processing(rng)
        cells = [
            Cell(size, epsilon, [people(size, 5000, rng) for _ in range(4)])
            for size in (10, 100)
            for epsilon in EPSILONS
        ]
        if arguments.rivals:
            print_final(cells, rivals_of(cells, arguments.rivals))
        return
    cells = []
    for size in arguments.sizes:
        rounds, count = ROUNDS[size]
        drawn = [people(size, count, rng) for _ in range(rounds)]
        cells += [Cell(size, epsilon, drawn) for epsilon in EPSILONS]
    found = rivals_of(cells, arguments.rivals) if arguments.rivals else []
    print_unbiased(cells, found)
    if found:
        print_rivals(cells, found)


def _of(found: list[dict[str, Any]], cell: Cell, key: str) -> list[dict[str, Any]]:
    own = [row for row in found if (row["size"], row["epsilon"]) == (cell.size, cell.epsilon)]
    return sorted((row for row in own if key in row), key=lambda row: row[key])


def print_unbiased(cells: list[Cell], found: list[dict[str, Any]]) -> None:
    """Print the errors of unbiased estimates."""
    print("| k, ε | ours | theory | measured | / optimum | / limit | best rival | Hadamard |")
    print("|---|---|--:|--:|--:|--:|---|--:|")
    for cell in cells:
        mean, error, _ = cell.measured()
        kind, size = cell.release.randomizer.kind, cell.release.randomizer.payload_size
        best = "—"
        if rows := _of(found, cell, "unbiased"):
            row = rows[0]
            ratio, spread = row["unbiased"] / cell.theory, row["unbiased_error"] / cell.theory
            best = f"{ratio:.2f} ± {spread:.2f} ({row['name']})"
        print(
            f"| {cell.size:,}, {cell.epsilon:g} | {kind}, {size:,} B | {cell.theory:,.4g} | "
            f"{mean:,.4g} ± {error:,.2g} | {cell.theory / cell.optimum:.4f} | "
            f"{cell.theory / cell.limit:.3f} | {best} | {cell.hadamard / cell.theory:.2f} |"
        )


def print_final(cells: list[Cell], found: list[dict[str, Any]]) -> None:
    """Print the errors of shares that are not negative."""
    print("| k, ε, people | ours, projected | best rivals, over ours |")
    print("|---|--:|---|")
    for cell in cells:
        _, _, projected = cell.measured()
        listed = ", ".join(
            f"{row['final'] / projected:.2f} ± {row['final_error'] / projected:.2f} ({row['name']})"
            for row in _of(found, cell, "final")[:3]
        )
        people_count = len(cell.rounds[0])
        print(f"| {cell.size:,}, {cell.epsilon:g}, {people_count} | {projected:,.4g} | {listed} |")


def print_post_processing(rng: np.random.Generator) -> None:
    """Print the errors of our shares after each post-processing."""
    print("| k, ε, people | unbiased | projected | clipped and rescaled |")
    print("|---|--:|--:|--:|")
    for size, epsilon in ((10, 1.0), (1000, 1.0), (1000, 4.0)):
        release = fit_answers(size, epsilon=epsilon)
        for count in (1000, 10_000, 100_000):
            errors = np.zeros(3)
            for _ in range(_REPEATS):
                symbols = people(size, count, rng)
                truth = np.bincount(symbols, minlength=size) / count
                shares = release.shares(release.privatize(answers=symbols))
                clipped = shares.estimate.clip(0)
                tried = (shares.estimate, shares.projected(), clipped / clipped.sum())
                errors += [count * float(((one - truth) ** 2).sum()) / _REPEATS for one in tried]
            listed = " | ".join(f"{error:,.4g}" for error in errors)
            print(f"| {size:,}, {epsilon:g}, {count:,} | {listed} |")
    print()


def print_rivals(cells: list[Cell], found: list[dict[str, Any]]) -> None:
    """Print the unbiased error of every estimator over our theory."""
    print("\n| estimator | " + " | ".join(f"{c.size:,}, {c.epsilon:g}" for c in cells) + " |")
    print("|---" + "|--:" * len(cells) + "|")
    for library, name in dict.fromkeys((row["library"], row["name"]) for row in found):
        values = []
        for cell in cells:
            rows = [
                r
                for r in _of(found, cell, "unbiased")
                if (r["library"], r["name"]) == (library, name)
            ]
            values.append(f"{rows[0]['unbiased'] / cell.theory:.3g}" if rows else "—")
        if any(value != "—" for value in values):
            print(f"| {library}: {name} | " + " | ".join(values) + " |")


if __name__ == "__main__":
    main()
