"""scikit-learn: vectors released in a pipeline, and a search over what costs no privacy."""

from offaxis.errors import MissingExtra, installing

try:
    import sklearn.frozen  # noqa: F401 - new in 1.6
except ImportError as error:
    raise MissingExtra(
        f"offaxis.faces.sklearn needs scikit-learn 1.6 or newer: {installing('sklearn')}"
    ) from error

from offaxis.faces.sklearn.releasing import released
from offaxis.faces.sklearn.settings import free_settings
from offaxis.faces.sklearn.simulated import SimulatedScore, SimulatedVectors
from offaxis.faces.sklearn.vectors import PrivateVectors

__all__ = ["PrivateVectors", "SimulatedScore", "SimulatedVectors", "free_settings", "released"]
