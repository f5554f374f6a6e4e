"""scikit-learn: release vectors in a pipeline, and search the settings that cost no privacy."""

from __future__ import annotations

from offaxis.errors import MissingExtra, installing

try:
    import sklearn.frozen  # noqa: F401 - new in 1.6
except ImportError as error:
    raise MissingExtra(
        f"offaxis.integrations.sklearn needs scikit-learn 1.6 or newer: {installing('sklearn')}"
    ) from error

from offaxis.integrations.sklearn.search import (
    SimulatedScore,
    SimulatedVectors,
    free_settings,
    released,
)
from offaxis.integrations.sklearn.vectors import PrivateVectors

__all__ = ["PrivateVectors", "SimulatedScore", "SimulatedVectors", "free_settings", "released"]
