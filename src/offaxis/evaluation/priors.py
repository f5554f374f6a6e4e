"""Priors: stand-ins for public vectors, drawn from public knowledge about them.

A prior is public knowledge that the user states: the range of a sensor, the length that a network
normalises to. It states where vectors may be, not where they are, so it should be wide. Maps, radii
and codebooks fitted to it are valid, and releases keep their guarantee; their utility is known for
the prior only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from offaxis.errors import InvalidInput
from offaxis.vectors import Vectors, as_array, as_integer, as_number, check_finite

DRAWN: Final = 6000
"""Number of vectors drawn from a prior by default."""


@dataclass(frozen=True, eq=False)
class Prior:
    """A wide public law of vectors; make one with :func:`wide_prior`.

    Attributes
    ----------
    shape : {"box", "ball", "gaussian"}
    centre, size : (m,) arrays
        Centre and half widths of a box; centre and radius of a ball; mean and standard deviations.
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
        """Draw vectors, (count, m), from a public seed."""
        rng = np.random.default_rng([seed, self.dim])
        if self.shape == "box":
            offsets = rng.uniform(-1, 1, (count, self.dim))
        else:
            offsets = rng.standard_normal((count, self.dim))
        if self.shape == "ball":
            offsets /= np.linalg.norm(offsets, axis=1, keepdims=True)
            offsets *= rng.random((count, 1)) ** (1 / self.dim)
        drawn: Vectors = self.centre + self.size * offsets
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
        Dimension m of the vectors.
    low, high : number or (m,) array
        Bounds of a box; vectors are uniform in it.
    radius : float
        Radius of a ball; vectors are uniform in it.
    scale : number or (m,) array
        Standard deviation of every coordinate of a normal law.
    centre : number or (m,) array
        Centre of the ball or the normal law.

    Examples
    --------
    >>> import offaxis
    >>> prior = offaxis.wide_prior(3, low=0.0, high=[1.0, 1.0, 5.0])
    >>> prior.words
    'even in a box of half widths 0.5 to 2.5, not centred at zero, dimension 3'
    >>> vectors = prior.draw(100)  # fit to these instead of public vectors
    >>> vectors.shape, bool((vectors >= 0).all())
    ((100, 3), True)
    """
    dim = as_integer(dim, "dim", 1)
    box = low is not None and high is not None
    half_a_box = not box and (low is not None or high is not None)
    if box + (radius is not None) + (scale is not None) != 1 or half_a_box:
        raise InvalidInput(
            "a prior is a box (low and high), a ball (radius) or a normal law (scale): give one"
        )
    if box:
        lower, upper = _vector(low, dim, "low"), _vector(high, dim, "high")
        if not (lower < upper).all():
            raise InvalidInput(f"low must be below high, got low={low!r} and high={high!r}")
        return Prior("box", (lower + upper) / 2, (upper - lower) / 2)
    mean = _vector(centre, dim, "centre")
    if radius is not None:
        return Prior("ball", mean, _positive(as_number(radius, "radius"), dim, "radius"))
    return Prior("gaussian", mean, _positive(scale, dim, "scale"))


def read_prior(text: str, dim: int) -> Prior:
    """Return the prior written as ``box:0,1``, ``ball:3`` or ``gaussian:2``."""
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
