"""Next day's energy of London households, one report per household: the paper's regression study.

A vector is a household's ``energy_mean`` of 16 consecutive complete days, the target the day after,
and the task the least-squares forecast. The first 3,000 households before 2013 are public; the
others, on days from 2013 on, are private, and each of them reports at most once in a draw, so the
guarantee of one report is the household's. Vectors are scaled with the public minimum and maximum
of every coordinate; targets, and with them the errors, stay in kWh per half-hour.

A draw follows the paper's public code, household for household. The seed permutes the private
households and cuts them into 130 disjoint rounds of equal size; those left over do not report. A
round goes through the days from the first. On each day that is at least 16 days after its last
date, the first household in the round's own random order that has a complete window and has not
reported yet reports, until the round has 20 dates. That is about 2,400 reports per draw.

**Which households are public** decides the level of the error. The paper says that they are
sampled at random, and the latest version of its code shuffles them. Taken in the order of their
identifiers, as its documentation has it, they give its published numbers: 2,547 private households,
an error without privacy of 0.0691, and with the random numbers of that code 17.629 and 1.052 for
Laplace, plain and reshaped, at ε = 0.5 (published 17.6293 and 1.0520); shuffled, the error without
privacy is 0.0657. ``tests/experiments/test_households.py`` checks this.

A task of one output has rank one: all other directions are stretched to λ_max, and their basis is
arbitrary. In our setting they are the principal axes, which make the ℓ1 radius 1 % smaller and the
coordinate-wise noise 4 % smaller than the basis that the paper's code happens to get.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import date
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from offaxis.errors import InvalidInput
from offaxis.geometry import Geometry, Layers, PublicVectors, measure
from offaxis.vectors import Vectors

DAYS: Final = 16
"""m: the number of days in a vector, and between the dates of a round."""

PUBLIC_HOUSEHOLDS: Final = 3000
PRIVATE_FROM: Final = date(2013, 1, 1)
ROUNDS: Final = 130
DATES: Final = 20
"""Most dates per round."""

Indices = NDArray[np.int64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Draw:
    """Private vectors and the energy of the day after, one row per report.

    Attributes
    ----------
    vectors : (n, 16) array
        Scaled as the public ones; values may fall outside [0, 1].
    targets : (n,) array
        Energy of the day after, kWh per half-hour.
    households, days : (n,) arrays
        Row of the household and column of the target day in the readings.
    rounds : (n,) array
        Index of the round.
    """

    vectors: Vectors = field(repr=False)
    targets: Vectors = field(repr=False)
    households: Indices = field(repr=False)
    days: Indices = field(repr=False)
    rounds: Indices = field(repr=False)


@dataclass(frozen=True, eq=False)
class Households:
    """Both sides of the study.

    Attributes
    ----------
    public : (n, 16) array
        Public vectors, scaled to [0, 1].
    public_targets : (n,) array
        Energy of the day after, kWh per half-hour.
    public_households : (n,) array
        Row of the household in the readings.
    low, high : (16,) arrays
        Public minimum and maximum of every coordinate, kWh per half-hour.
    model : Layers
        The forecast in kWh per half-hour from scaled vectors, fitted on the public windows.
    energy : (households, days) array
        All readings.
    private : (households, days) array of bool
        The private target days: those with a complete window on the private side.
    """

    public: Vectors = field(repr=False)
    public_targets: Vectors = field(repr=False)
    public_households: Indices = field(repr=False)
    low: Vectors = field(repr=False)
    high: Vectors = field(repr=False)
    model: Layers
    energy: NDArray[Any] = field(repr=False)
    private: Mask = field(repr=False)

    @cached_property
    def geometry(self) -> Geometry:
        """The task's geometry over the public vectors."""
        return measure(self.model, PublicVectors(self.public))

    def draw(self, seed: int) -> Draw:
        """Return one draw of households and dates; the same for the same seed."""
        pool = np.random.default_rng(seed).permutation(np.flatnonzero(self.private.any(axis=1)))
        size = pool.size // ROUNDS
        reports: list[tuple[int, int, int]] = []
        for index in range(ROUNDS):
            members = pool[index * size : (index + 1) * size]
            # The keys are those of the paper's code; the last one is its reports per date.
            left = np.random.default_rng([seed, index, 1]).permutation(members)
            taken, day = 0, 0
            while left.size and taken < DATES:
                later = np.flatnonzero(self.private[left, day:].any(axis=0))
                if not later.size:
                    break
                day += int(later[0])
                able = int(np.flatnonzero(self.private[left, day])[0])
                reports.append((int(left[able]), day, index))
                left, taken, day = np.delete(left, able), taken + 1, day + DAYS
        households, days, rounds = np.array(reports, dtype=np.int64).T
        inputs, targets = _windows(self.energy, households, days)
        scaled = (inputs - self.low) / (self.high - self.low)
        return Draw(scaled, targets, households, days, rounds)


def prepare(energy: NDArray[Any], first_day: date) -> Households:
    """Divide readings into the public and the private side, and fit the forecast on the public one.

    Parameters
    ----------
    energy : (households, days) array
        kWh per half-hour, NaN where a day is not complete; households in order of their
        identifiers, columns consecutive days.
    first_day : date
        The day of the first column.
    """
    split = (PRIVATE_FROM - first_day).days
    households, days = energy.shape
    if households < PUBLIC_HOUSEHOLDS + ROUNDS or not DAYS < split < days - DAYS * DATES:
        raise InvalidInput(
            f"the study needs more than {PUBLIC_HOUSEHOLDS} households, and days before and a year "
            f"after {PRIVATE_FROM}; got {households} households and {days} days from {first_day}"
        )
    usable = _complete(energy)
    rows, target_days = np.nonzero(usable[:PUBLIC_HOUSEHOLDS, :split])
    inputs, targets = _windows(energy, rows, target_days)
    low, high = inputs.min(axis=0), inputs.max(axis=0)
    public = (inputs - low) / (high - low)
    private = usable.copy()
    private[:PUBLIC_HOUSEHOLDS] = False
    private[:, :split] = False
    model = _least_squares(public, targets)
    return Households(public, targets, rows, low, high, model, energy, private)


def _complete(energy: NDArray[Any]) -> Mask:
    """Return for every day whether it and the 16 before it are complete."""
    counts = np.cumsum(~np.isnan(energy), axis=1, dtype=np.int32)
    before = np.pad(counts, ((0, 0), (DAYS + 1, 0)))[:, : energy.shape[1]]
    usable: Mask = counts - before == DAYS + 1
    return usable


def _windows(energy: NDArray[Any], households: Indices, days: Indices) -> tuple[Vectors, Vectors]:
    """Return the 16 days before each day, (n, 16), and the day itself, (n,)."""
    runs = np.lib.stride_tricks.sliding_window_view(energy, DAYS + 1, axis=1)
    windows = runs[households, days - DAYS].astype(np.float64)
    return windows[:, :DAYS], windows[:, DAYS]


def _least_squares(vectors: Vectors, targets: Vectors) -> Layers:
    centre, level = vectors.mean(axis=0), targets.mean()
    centred = vectors - centre
    weight = np.linalg.solve(centred.T @ centred, centred.T @ (targets - level))
    task = Layers.linear(weight[None], np.array([level - weight @ centre]))
    return replace(task, name="next day's energy from 16 days, least squares")
