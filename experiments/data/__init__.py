"""Data sets of the studies: bundled ones, and others that are fetched, checked and cached."""

from __future__ import annotations

from experiments.data.cifar10 import CORRUPTIONS
from experiments.data.features import CLASS_NAMES, DemoData, load_cifar10_features
from experiments.data.library import NAMES, DatasetStatus, GetResult, get, load, status
from experiments.data.sets import CorruptedImages, Images, MeterReadings

__all__ = [
    "CLASS_NAMES",
    "CORRUPTIONS",
    "NAMES",
    "CorruptedImages",
    "DatasetStatus",
    "DemoData",
    "GetResult",
    "Images",
    "MeterReadings",
    "get",
    "load",
    "load_cifar10_features",
    "status",
]
