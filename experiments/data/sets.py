"""Loaded data sets: named arrays, one frozen class per kind of data set."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date
from typing import Any

import numpy as np
from numpy.typing import NDArray

Pixels = NDArray[np.uint8]
Labels = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Images:
    """Labelled images, split as their publishers split them.

    Attributes
    ----------
    train_images, test_images : (n, height, width) or (n, height, width, 3) uint8 arrays
        Pixels as published; 0 to 255, for digits 0 to 16.
    train_labels, test_labels : (n,) int64 arrays
        Class numbers.
    class_names : tuple of str
        Names of the classes.

    Examples
    --------
    >>> from experiments.data import Images, load
    >>> digits: Images = load("digits")
    >>> digits.train_images.shape, digits.test_labels.shape
    ((1437, 8, 8), (360,))
    """

    name: str
    train_images: Pixels = field(repr=False)
    train_labels: Labels = field(repr=False)
    test_images: Pixels = field(repr=False)
    test_labels: Labels = field(repr=False)
    class_names: tuple[str, ...] = tuple("0123456789")


@dataclass(frozen=True, eq=False)
class CorruptedImages:
    """The CIFAR-10 test images under one corruption at one severity, in their usual order.

    Examples
    --------
    ``load("cifar10-c", corruption="fog", severity=3)`` returns all 10,000 of them. Two black ones:

    >>> from experiments.data import CorruptedImages
    >>> black = np.zeros((2, 32, 32, 3), np.uint8)
    >>> CorruptedImages("fog", 3, black, np.array([3, 8]))
    CorruptedImages(corruption='fog', severity=3)
    """

    corruption: str
    severity: int
    images: Pixels = field(repr=False)
    labels: Labels = field(repr=False)


@dataclass(frozen=True, eq=False)
class MeterReadings:
    """Mean half-hourly energy of London households, one row per household, one column per day.

    Attributes
    ----------
    households : tuple of str
        Their identifiers, in order.
    first_day : date
        The day of the first column; columns are consecutive days.
    energy : (households, days) float32 array
        kWh per half-hour; NaN where a day is missing or lacks one of its 48 half-hours.
    step : float
        Readings are rounded to multiples of this many kWh; 0 if they are not rounded.

    Examples
    --------
    >>> from datetime import date
    >>> from experiments.data import MeterReadings
    >>> energy = np.array([[0.21, 0.34], [np.nan, 0.12]], np.float32)
    >>> readings = MeterReadings(("MAC000002", "MAC000003"), date(2012, 10, 13), energy)
    >>> readings
    MeterReadings(first_day=datetime.date(2012, 10, 13), step=0.0)
    >>> int(np.isnan(readings.energy).sum())  # days that lack a half-hour
    1
    """

    households: tuple[str, ...] = field(repr=False)
    first_day: date
    energy: NDArray[np.float32] = field(repr=False)
    step: float = 0.0


def images_from(name: str, arrays: dict[str, NDArray[Any]], class_names: tuple[str, ...]) -> Images:
    """Return the arrays of a cached file as images."""
    return Images(
        name,
        arrays["train_images"],
        arrays["train_labels"].astype(np.int64),
        arrays["test_images"],
        arrays["test_labels"].astype(np.int64),
        class_names,
    )
