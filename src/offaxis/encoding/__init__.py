"""Encoders: public maps, fitted in advance, from a private vector to the randomizer's input."""

from offaxis.encoding.answers import Answers, ModelEncoder
from offaxis.encoding.encoders import (
    AffineEncoder,
    ArgmaxEncoder,
    BoxEncoder,
    Encoder,
    Frame,
    NetworkEncoder,
    ShiftEncoder,
)
from offaxis.encoding.pairs import Classes, Number
from offaxis.encoding.radius import public_radius
from offaxis.encoding.reshaping import (
    ActiveDirections,
    FittedReshaping,
    Jacobian,
    Optimal,
    active_directions,
    optimal_frame,
    reshape,
)

__all__ = [
    "ActiveDirections",
    "AffineEncoder",
    "Answers",
    "ArgmaxEncoder",
    "BoxEncoder",
    "Classes",
    "Encoder",
    "FittedReshaping",
    "Frame",
    "Jacobian",
    "ModelEncoder",
    "NetworkEncoder",
    "Number",
    "Optimal",
    "ShiftEncoder",
    "active_directions",
    "optimal_frame",
    "public_radius",
    "reshape",
]
