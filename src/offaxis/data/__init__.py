"""Real data: a slice that travels with the package, and sets that are fetched, checked, cached."""

from offaxis.data.cifar10_c import CORRUPTIONS
from offaxis.data.cifar10_features import CLASS_NAMES, DemoData, load_cifar10_features
from offaxis.data.library import NAMES, Got, get, load
from offaxis.data.sets import CorruptedImages, Images, MeterReadings
from offaxis.data.shelf import Entry, shelf

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
