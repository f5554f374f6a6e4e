"""How randomizers and reshapings are called where people read."""

from __future__ import annotations

from typing import Final

TITLES: Final = {
    "laplace": "Laplace",
    "gaussian": "Gaussian",
    "spherical-laplace": "Laplace (spherical)",
    "privunit2": "PrivUnit2",
    "privunitg": "PrivUnitG",
    "privunitg-sphere": "PrivUnitG (sphere)",
    "privunit2-mean": "PrivUnit2 (means)",
    "privunitg-mean": "PrivUnitG (means)",
    "projunit": "ProjUnit",
    "projunit-mean": "ProjUnit (means)",
    "duchi": "Duchi",
    "piecewise": "Piecewise",
    "hybrid": "Hybrid",
    "response": "Codebook, k-ary response",
    "subset": "Codebook, subset selection",
    "class-response": "Class codebook, k-ary response",
    "scalar-response": "Intervals of the answer, k-ary response",
    "coordinatewise-laplace": "Coordinate-wise Laplace",
    "coordinatewise-gaussian": "Coordinate-wise Gaussian",
    "instance-optimal": "Instance-optimal",
    "plan": "PLAN",
    "task-aware": "Task-aware",
    "task-aware-network": "Task-aware (network)",
}
SHAPE_TITLES: Final = {"none": "plain", "jacobian": "reshaped"}
