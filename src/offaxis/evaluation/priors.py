"""Vectors drawn from what is publicly known of them, where there are no public vectors.

A prior is public knowledge that its user states: the range of a sensor, the length that a network
normalises to. It says where vectors may be, not where they are, so it should be wide. Maps, radii
and codebooks fitted to it are valid and their releases keep their guarantee; what they are worth is
known for the prior alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from offaxis.errors import InvalidInput
from offaxis.vectors import Vectors, as_array, as_integer, as_number, check_finite

DRAWN: Final = 6000
"""Vectors drawn from a prior where none are said."""


@dataclass(frozen=True, eq=False)
class Prior:
    """A wide public law of vectors; make one with :func:`wide_prior`.

    Attributes
    ----------
    shape : {"box", "ball", "gaussian"}
    centre, size : (m,) arrays
        Middle and half the width of a box; centre and radius of a ball; mean and deviations.
    """

    shape: Literal["box", "ball", "gaussian"]
    centre: Vectors
    size: Vectors

    @property
    def dim(self) -> int:
        """Dimension m of the vectors."""
        return int(self.centre.size)

    @property
    def words(self) -> str:
        """The prior in words, for the provenance of a release."""
        sizes = f"{self.size.min():g}" + (
            f" to {self.size.max():g}" if self.size.min() < self.size.max() else ""
        )
        centre = "" if not self.centre.any() else ", not centred at zero"
        return {
            "box": f"even in a box of half widths {sizes}{centre}",
            "ball": f"even in a ball of radius {sizes}{centre}",
            "gaussian": f"normal with deviations {sizes}{centre}",
        }[self.shape] + f", dimension {self.dim}"

    def draw(self, count: int = DRAWN, seed: int = 0) -> Vectors:
        """Draw vectors, (count, m), by a public seed."""
        rng = np.random.default_rng([seed, self.dim])
        if self.shape == "box":
            around = rng.uniform(-1, 1, (count, self.dim))
        else:
            around = rng.standard_normal((count, self.dim))
        if self.shape == "ball":
            around /= np.linalg.norm(around, axis=1, keepdims=True)
            around *= rng.random((count, 1)) ** (1 / self.dim)
        drawn: Vectors = self.centre + self.size * around
        return drawn


def wide_prior(
    dim: int,
    *,
    low: Any = None,
    high: Any = None,
    radius: float | None = None,
    scale: Any = None,
    centre: Any = 0.0,
) -> Prior:
    """Return a prior: a box, a ball, or a normal law of independent coordinates.

    Parameters
    ----------
    dim : int
        m.
    low, high : number or (m,) array
        The ends of a box.
    radius : float
        Of a ball, in which vectors lie evenly.
    scale : number or (m,) array
        Deviation of every coordinate.
    centre : number or (m,) array
        Of the ball or the normal law.

    Examples
    --------
    >>> import offaxis
    >>> prior = offaxis.wide_prior(3, low=0.0, high=[1.0, 1.0, 5.0])
    >>> prior.words
    'even in a box of half widths 0.5 to 2.5, not centred at zero, dimension 3'
    >>> drawn = prior.draw(100)  # in place of public vectors, to fit to
    >>> drawn.shape, bool((drawn >= 0).all())
    ((100, 3), True)
    """
    dim = as_integer(dim, "dim", 1)
    box = low is not None and high is not None
    if box + (radius is not None) + (scale is not None) != 1 or (
        not box and (low, high) != (None,) * 2
    ):
        raise InvalidInput(
            "a prior is a box (low and high), a ball (radius) or a normal law (scale): give one"
        )
    if box:
        bottom, top = _vector(low, dim, "low"), _vector(high, dim, "high")
        if not (bottom < top).all():
            raise InvalidInput(f"low must be below high, got low={low!r} and high={high!r}")
        return Prior("box", (bottom + top) / 2, (top - bottom) / 2)
    middle = _vector(centre, dim, "centre")
    if radius is not None:
        return Prior("ball", middle, _positive(as_number(radius, "radius"), dim, "radius"))
    return Prior("gaussian", middle, _positive(scale, dim, "scale"))


def read_prior(text: str, dim: int) -> Prior:
    """Read ``box:0,1``, ``ball:3`` or ``gaussian:2``."""
    kind, _, numbers = text.partition(":")
    try:
        values = [float(number) for number in numbers.split(",")]
    except ValueError:
        values = []
    if kind == "box" and len(values) == 2:
        return wide_prior(dim, low=values[0], high=values[1])
    if kind == "ball" and len(values) == 1:
        return wide_prior(dim, radius=values[0])
    if kind == "gaussian" and len(values) == 1:
        return wide_prior(dim, scale=values[0])
    raise InvalidInput(
        f"a prior is box:LOW,HIGH or ball:RADIUS or gaussian:DEVIATION, as in box:0,1, got {text!r}"
    )


def _vector(value: Any, dim: int, name: str) -> Vectors:
    array = as_array(value, name)
    check_finite(array, name)
    if array.shape not in ((), (dim,)):
        raise InvalidInput(f"{name} must be a number or {dim} of them, got shape {array.shape}")
    return np.broadcast_to(array, (dim,)).copy()


def _positive(value: Any, dim: int, name: str) -> Vectors:
    array = _vector(value, dim, name)
    if not (array > 0).all():
        raise InvalidInput(f"{name} must be positive, got {name}={value!r}")
    return array
