"""How randomizers and reshapings are called where people read."""

from __future__ import annotations

from typing import Final

TITLES: Final = {
    "laplace": "Laplace",
    "gaussian": "Gaussian",
    "privunit2": "PrivUnit2",
    "privunitg": "PrivUnitG",
    "privunitg-sphere": "PrivUnitG (sphere)",
    "privunit2-mean": "PrivUnit2 (means)",
    "privunitg-mean": "PrivUnitG (means)",
    "duchi": "Duchi",
    "piecewise": "Piecewise",
    "hybrid": "Hybrid",
}
SHAPE_TITLES: Final = {"none": "plain", "jacobian": "reshaped"}
