"""The bundled features with their ReLU head, and reshaped releases fitted to them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest

import offaxis
from experiments.data import load_cifar10_features
from experiments.data.features import DemoData
from offaxis.geometry import Geometry, PublicVectors, measure
from offaxis.theory import (
    DisagreementBound,
    Estimate,
    RemainderBound,
    disagreement_bound,
    nonlinear_risk,
    remainder_bound,
)

BUDGETS = (5, 200, 5000)
"""Reports leave the activation cell nearly always, mostly, and rarely."""

STRETCHES = (2, 1000)

DRAWS = 40

Fit = Callable[[float, float], offaxis.Release]
Measure = Callable[[float, float], tuple[Estimate, RemainderBound, DisagreementBound]]


@pytest.fixture(scope="session")
def features() -> DemoData:
    return load_cifar10_features()


@pytest.fixture(scope="session")
def some(features: DemoData) -> np.ndarray:
    return features.vectors[:300]


@pytest.fixture(scope="session")
def geometry(features: DemoData) -> Geometry:
    return measure(features.head, PublicVectors(features.public))


@pytest.fixture(scope="session")
def fitted(features: DemoData, geometry: Geometry) -> Fit:
    @cache
    def fit(epsilon: float, lambda_max: float) -> offaxis.Release:
        shape = offaxis.Jacobian(lambda_max=lambda_max)
        return offaxis.fit(
            geometry, features.public, epsilon=epsilon, reshaping=shape, mechanism="laplace"
        )

    return fit


@pytest.fixture(scope="session")
def measured(features: DemoData, some: np.ndarray, fitted: Fit) -> Measure:
    """Return a function of ε and λ_max: the nonlinear risk and both bounds, from the same draws."""

    @cache
    def everything(
        epsilon: float, lambda_max: float
    ) -> tuple[Estimate, RemainderBound, DisagreementBound]:
        release = fitted(epsilon, lambda_max)
        return tuple(
            function(release, features.head, some, draws=DRAWS, seed=1)
            for function in (nonlinear_risk, remainder_bound, disagreement_bound)
        )

    return everything
