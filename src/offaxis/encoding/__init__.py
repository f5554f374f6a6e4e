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
from offaxis.encoding.questions import AnswersEncoder
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
from offaxis.encoding.second_moments import SecondMomentsEncoder

__all__ = [
    "ActiveDirections",
    "AffineEncoder",
    "Answers",
    "AnswersEncoder",
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
    "SecondMomentsEncoder",
    "ShiftEncoder",
    "active_directions",
    "optimal_frame",
    "public_radius",
    "reshape",
]
