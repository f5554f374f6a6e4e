"""From a private vector to what the randomizer sees: a public map fitted before."""

from offaxis.encoding.encoder import AffineEncoder, Encoder, ShiftEncoder
from offaxis.encoding.radius import public_radius
from offaxis.encoding.reshaping import Reshaping, reshape

__all__ = ["AffineEncoder", "Encoder", "Reshaping", "ShiftEncoder", "public_radius", "reshape"]
