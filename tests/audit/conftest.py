"""One release of every randomizer, small enough to be audited often."""

from __future__ import annotations

import numpy as np
import pytest

import offaxis
from offaxis.geometry import Layers
from offaxis.recipes import NAMES
from tests.checks import delta_for

EPSILON = 2
KINDS = {name: {"delta": delta_for(name)} for name in NAMES}


@pytest.fixture(scope="session")
def audited(head: Layers, public: np.ndarray) -> dict[str, offaxis.Release]:
    """Return releases by the name of their randomizer."""
    return {
        name: offaxis.fit(head, public, epsilon=EPSILON, randomizer=name, **more)
        for name, more in KINDS.items()
    }
