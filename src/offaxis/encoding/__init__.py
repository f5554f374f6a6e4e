"""From a private vector to what the randomizer sees: a public map fitted before."""

from offaxis.encoding.argmax import ArgmaxEncoder
from offaxis.encoding.box import BoxEncoder
from offaxis.encoding.encoder import AffineEncoder, Encoder, ShiftEncoder
from offaxis.encoding.frame import Frame
from offaxis.encoding.network import NetworkEncoder
from offaxis.encoding.optimal import ActiveDirections, active_directions, optimal_frame
from offaxis.encoding.radius import public_radius
from offaxis.encoding.reshaping import Reshaping, reshape

__all__ = [
    "ActiveDirections",
    "AffineEncoder",
    "ArgmaxEncoder",
    "BoxEncoder",
    "Encoder",
    "Frame",
    "NetworkEncoder",
    "Reshaping",
    "ShiftEncoder",
    "active_directions",
    "optimal_frame",
    "public_radius",
    "reshape",
]
