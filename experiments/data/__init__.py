"""Real data: a slice that travels with the package, and sets that are fetched, checked, cached."""

from __future__ import annotations

from experiments.data.cifar10 import CORRUPTIONS
from experiments.data.features import CLASS_NAMES, DemoData, load_cifar10_features
from experiments.data.library import NAMES, Entry, Got, get, load, shelf
from experiments.data.sets import CorruptedImages, Images, MeterReadings

__all__ = [
    "CLASS_NAMES",
    "CORRUPTIONS",
    "NAMES",
    "CorruptedImages",
    "DemoData",
    "Entry",
    "Got",
    "Images",
    "MeterReadings",
    "get",
    "load",
    "load_cifar10_features",
    "shelf",
]
