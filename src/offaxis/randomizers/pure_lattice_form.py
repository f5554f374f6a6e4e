"""Pure noise on a lattice: what Laplace noise on the ℓ1 and on the ℓ2 ball share.

Contract: for every two inputs and every report y,
``Pr[report = y | w] <= exp(ε) Pr[report = y | w']``.

With t = 2**b a public noise scale and R = floor(ε t / 2), the ball of radius ρ is laid on the
lattice of step ρ / R (lattice_form.py). Two inputs differ by at most 2R in the ball's norm, and the
law of the noise falls by at most e^{‖k‖/t} over a distance ‖k‖ in that norm: the loss is at most
2R / t <= ε, as an exact rational. Rounding costs no sensitivity because in the local model the
sensitivity is the diameter of the encoded set.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import ClassVar, Final, Literal

from offaxis.errors import InvalidInput
from offaxis.privacy.guarantee import Guarantee, decimal
from offaxis.randomizers.base import CHOOSE
from offaxis.randomizers.domain import Ball
from offaxis.randomizers.lattice_form import LatticeForm
from offaxis.randomizers.payload import Width, largest_magnitude
from offaxis.vectors import as_integer

_FINE: Final = 32
"""Steps a coordinate that the bound should leave on average: truncation then costs a percent."""


@dataclass(frozen=True)
class PureLatticeForm(LatticeForm):
    """Noise of scale 2**log2_scale on the lattice of a ball of ``radius`` in R^dim.

    Parameters
    ----------
    dim : int
    radius : float
        ρ; inputs outside the ball are clipped onto it.
    epsilon : number
        Promised ε, read exactly.
    log2_scale : int, optional
        b of the lattice; chosen from epsilon and dim when not given.
    """

    order: ClassVar[Literal[1, 2]]

    log2_scale: int = CHOOSE

    def __post_init__(self) -> None:
        """Fix the lattice and check, exactly, that it keeps the promise."""
        super().__post_init__()
        if self.log2_scale == CHOOSE:
            object.__setattr__(self, "log2_scale", self._choose_log2_scale())
        scale = as_integer(self.log2_scale, "log2_scale", 0, self.widest_log2_scale(4))
        object.__setattr__(self, "log2_scale", scale)
        if self.bound < 1:
            raise InvalidInput(
                f"log2_scale={scale} leaves the ball no lattice point but zero at "
                f"epsilon={decimal(self.epsilon)}; use a larger log2_scale or epsilon"
            )
        if self.realised_epsilon > self.epsilon:
            raise InvalidInput(f"the lattice gives ε={self.realised_epsilon} > {self.epsilon}")

    @property
    @abstractmethod
    def tail(self) -> int:
        """Noise scales to keep free above the bound: clamping a coordinate is rarer than e**-43."""

    def widest_log2_scale(self, width: Width) -> int:
        """Return the largest b with bound and tails inside the payload, and a bound to be checked.

        (ε/2 + tail) 2**b <= largest, and for the ℓ2 ball m·R² <= m·(ε/2)² 4**b below 2**63.
        """
        room = math.floor(largest_magnitude(width) / (self.epsilon / 2 + self.tail))
        if self.order == 2:
            checkable = math.floor(math.isqrt(((1 << 63) - 1) // self.dim) / (self.epsilon / 2))
            room = min(room, checkable)
        return room.bit_length() - 1

    def _choose_log2_scale(self) -> int:
        """Return the b of three bytes a coordinate, or of four where three are too coarse."""
        narrow = self.widest_log2_scale(3)
        if (self.epsilon * (1 << narrow) / 2) ** self.order >= _FINE**self.order * self.dim:
            return narrow
        return self.widest_log2_scale(4)

    @cached_property
    def bound(self) -> int:
        """R: the largest norm of an encoded vector, in lattice steps."""
        return math.floor(self.epsilon * self.noise_steps / 2)

    @property
    def noise_steps(self) -> int:
        """The scale t of the noise: its law falls by e every t steps."""
        return 1 << self.log2_scale

    @cached_property
    def width(self) -> Width:
        """Three bytes a coordinate where bound and tails fit, four otherwise."""
        return 3 if self.log2_scale <= self.widest_log2_scale(3) else 4

    @property
    def realised_epsilon(self) -> Fraction:
        """2R/t: the exact privacy loss of the integer mechanism, at most ``epsilon``."""
        return Fraction(2 * self.bound, self.noise_steps)

    @property
    def domain(self) -> Ball:
        """The ball."""
        return Ball(self.dim, self.radius, self.order)

    @property
    def guarantee(self) -> Guarantee:
        """Pure ε."""
        return Guarantee(self.epsilon)
