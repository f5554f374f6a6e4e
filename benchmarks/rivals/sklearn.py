"""scikit-learn's fits to the same vectors: they ignore the task, so they are a lower bound."""

from __future__ import annotations

from sklearn.covariance import EmpiricalCovariance
from sklearn.decomposition import PCA

from offaxis.vectors import Vectors


def covariance(Z: Vectors) -> Vectors:
    """Return the covariance of the vectors."""
    matrix: Vectors = EmpiricalCovariance().fit(Z).covariance_
    return matrix


def whitening(Z: Vectors) -> PCA:
    """Fit a whitening map."""
    return PCA(whiten=True).fit(Z)
