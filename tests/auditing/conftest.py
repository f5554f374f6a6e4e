"""One small release per mechanism, fast to audit."""

from __future__ import annotations

import numpy as np
import pytest

import offaxis
from offaxis.geometry import Layers
from tests.checks import delta_for

EPSILON = 2


class Audited(dict):
    """Releases by the name of their mechanism, fitted on first use."""

    def __init__(self, head: Layers, public: np.ndarray) -> None:
        self._task = head, public

    def __missing__(self, name: str) -> offaxis.Release:
        self[name] = offaxis.fit(
            *self._task, epsilon=EPSILON, mechanism=name, delta=delta_for(name)
        )
        return self[name]


@pytest.fixture(scope="session")
def audited(head: Layers, public: np.ndarray) -> Audited:
    """Return releases by the name of their mechanism."""
    return Audited(head, public)
