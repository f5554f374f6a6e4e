"""How close the optimal channel for one number comes to the least error, on held-out windows.

The task is the forecast of households. A fifth of the public windows is held out, at random or by
household, and the channel is fitted to the others. Per budget: the change when the number of bins
is doubled, and the error on the held-out windows over the least error there, for both ways to hold
out. Errors are exact sums over symbols, without simulation.

    python -m benchmarks.scalar
"""

from __future__ import annotations

import numpy as np

from experiments.data import load
from experiments.households import prepare
from offaxis.evaluation import BUDGETS
from offaxis.mechanisms.scalar_channel import (
    AnswerPrior,
    ScalarChannel,
    optimal_channel,
    refined_channel,
)
from offaxis.vectors import Vectors

_SPLITS = 4
_SHARE = 5
"""One window or household in this many is held out."""


def error(channel: ScalarChannel, answers: Vectors, epsilon: float) -> float:
    """Return the root mean squared error of the channel for these answers."""
    others = np.exp(-epsilon)
    squares = (answers[:, None] - channel.decoded) ** 2
    cells = np.searchsorted(channel.edges, answers)
    own = squares[np.arange(answers.size), cells]
    mean = (own * (1 - others) + others * squares.sum(axis=1)) / (1 + others * (channel.size - 1))
    return float(np.sqrt(mean.mean()))


def ratios(answers: Vectors, units: np.ndarray, epsilon: float) -> tuple[list[float], list[float]]:
    """Return the error over the least error of held-out answers, and the least errors, by split."""
    relative, least = [], []
    for seed in range(_SPLITS):
        names = np.unique(units)
        chosen = np.random.default_rng(seed).permutation(names)[: names.size // _SHARE]
        held_out = np.isin(units, chosen)
        channel = refined_channel(answers[~held_out], epsilon)
        least.append(refined_channel(answers[held_out], epsilon).rmse)
        relative.append(error(channel, answers[held_out], epsilon) / least[-1])
    return relative, least


def main() -> None:
    """Print the table."""
    readings = load("lhsm")
    study = prepare(readings.energy, readings.first_day)
    answers = study.model.outputs(study.public)[:, 0]
    windows = np.arange(answers.size)
    print("    ε   least  bins  doubled   held-out windows   held-out households  (least error)")
    for epsilon in BUDGETS:
        channel = refined_channel(answers, epsilon)
        doubled = optimal_channel(AnswerPrior.of_answers(answers, 2 * channel.bins), epsilon)
        by_window, _ = ratios(answers, windows, epsilon)
        by_household, least = ratios(answers, study.public_households, epsilon)
        print(
            f"{epsilon:5g}  {channel.rmse:.4f}  {channel.bins:4d}  "
            f"{abs(doubled.rmse / channel.rmse - 1):7.2%}   {min(by_window):.3f} … "
            f"{max(by_window):.3f}      {min(by_household):.3f} … {max(by_household):.3f}      "
            f"({min(least):.3f} … {max(least):.3f})"
        )


if __name__ == "__main__":
    main()
