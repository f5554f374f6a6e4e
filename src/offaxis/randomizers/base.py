"""What every randomizer shares: the interface, its parameters, the domains and the integer lattice.

A domain is what privacy rests on: the guarantee holds between any two *elements of the domain*. So
a randomizer brings every vector into its domain itself, and does not rely on any earlier step.
"""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Final, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from offaxis.errors import InvalidInput
from offaxis.privacy.guarantee import Guarantee, decimal, exact_epsilon
from offaxis.sampling.entropy import Entropy, RealEntropy, RecordEntropy
from offaxis.vectors import A, Vectors, as_batch, as_integer, namespace, row_norms, with_rows

# ---- Interface

Observations = NDArray[Any]
"""What the server reads from payloads: one row of numbers, or one symbol, per report."""


class Randomizer(Protocol):
    """A local randomizer: a small frozen object that carries its guarantee.

    The guarantee belongs to the randomizer alone. It accepts any finite input, brings it into its
    domain itself, and holds for any public map before or after it.

    Examples
    --------
    >>> from offaxis.randomizers import Laplace, Randomizer
    >>> from offaxis.sampling.entropy import Entropy
    >>> randomizer: Randomizer = Laplace(dim=2, radius=1.0, epsilon=2)
    >>> str(randomizer.guarantee), randomizer.unbiased, randomizer.domain
    ('ε = 2, pure', True, Ball(dim=2, radius=1.0, order=1))
    >>> W = np.array([[0.5, 0.25], [9.0, 9.0]])  # the second is clipped into the domain
    >>> payloads = randomizer.report(W, Entropy())  # real reports: no seed can reach them
    >>> [len(payload) for payload in payloads] == [randomizer.payload_size] * 2
    True
    >>> randomizer.read(payloads).shape
    (2, 2)
    """

    kind: ClassVar[str]
    wire_id: ClassVar[int]

    @property
    def domain(self) -> Domain:
        """The set between any two elements of which the guarantee holds."""
        ...

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of one report, computed from the parameters."""
        ...

    @property
    def unbiased(self) -> bool:
        """Whether E[observation | w] is w for every w in the ball of the domain's radius."""
        ...

    @property
    def payload_size(self) -> int:
        """Bytes of one payload, the same for every input."""
        ...

    def report(self, W: NDArray[Any], entropy: RealEntropy) -> list[bytes]:
        """Draw one exact payload per row, from the operating system's randomness."""
        ...

    def read(self, payloads: list[bytes]) -> Observations:
        """Turn payloads into observations, strictly: anything malformed is an error."""
        ...

    def log_density(self, V: Observations, W: NDArray[Any]) -> NDArray[np.float64]:
        """Return log Pr[observation V_i | input W_i], up to a constant independent of W."""
        ...

    def expected_squared_error(self) -> float:
        """Return E‖observation − w‖² for w on the boundary of the domain, analytically."""
        ...

    def worst_pair(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return two vectors of the domain that reports distinguish as well as any two."""
        ...

    def log_likelihood(self, payloads: list[bytes], W: NDArray[Any]) -> NDArray[np.float64]:
        """Return log Pr[payload i | row i of W], up to a constant independent of W.

        This is the likelihood of the bytes, not of the observation read from them: what an auditor
        who knows the code would compute.
        """
        ...


# ---- Parameters and input

CHOOSE: Final = -1
"""Value of an integer parameter that stands for the best choice given the other parameters."""

RADIUS_RANGE = (1e-100, 1e100)
"""Radii outside this range could overflow float64 inside an encoder; none of them is useful."""

LARGEST_DIM = 1 << 20
"""The largest number of coordinates of a release, in memory and in its file."""


@dataclass(frozen=True)
class VectorParameters(ABC):
    """The parameters of every randomizer of vectors: dimension, radius and budget.

    Parameters
    ----------
    dim : int
    radius : float
        ρ, the size of the domain.
    epsilon : number
        The guaranteed ε, read exactly.
    """

    dim: int
    radius: float
    epsilon: Fraction

    @property
    def resolution(self) -> float:
        """The largest change of a coordinate by rounding the input, before the noise."""
        raise NotImplementedError

    @property
    def rare(self) -> tuple[float, float] | None:
        """The order of the probability of rare far observations, and how long one can be.

        None if the noise has no rare part that some thousands of reports could miss. The length is
        that of an observation in the norm of the domain: ℓ∞ for a box, ℓ2 for a ball.
        """
        return None

    @property
    def reported_share(self) -> float:
        """The share of reports that carry a given coordinate."""
        return 1.0

    def __post_init__(self) -> None:
        """Read the parameters exactly."""
        object.__setattr__(self, "dim", check_dim(self.dim))
        object.__setattr__(self, "radius", check_radius(self.radius))
        object.__setattr__(self, "epsilon", exact_epsilon(self.epsilon))


def check_dim(dim: int) -> int:
    """Return the dimension as an int, or raise InvalidInput."""
    return as_integer(dim, "dim", 1, LARGEST_DIM)


def check_radius(radius: float, name: str = "radius") -> float:
    """Return the radius as a float, or raise InvalidInput."""
    low, high = RADIUS_RANGE
    if not low <= radius <= high:
        raise InvalidInput(f"{name} must be between {low} and {high}, got {name}={radius!r}")
    return float(radius)


def check_budget(epsilon: Fraction, largest: int, kind: str) -> None:
    """Reject an ε so large that it protects nobody and its exact digits take too long."""
    if epsilon > largest:
        raise InvalidInput(
            f"epsilon must be at most {largest} for {kind}, got epsilon={decimal(epsilon)}"
        )


def check_delta(delta: Any, name: str, *, needed: bool) -> None:
    """Reject a missing δ, and a δ that would have no effect."""
    if needed and delta is None:
        raise InvalidInput(
            f"{name!r} needs delta, for example delta=1e-5; for a pure guarantee use 'laplace'"
        )
    if not needed and delta is not None:
        raise InvalidInput(f"{name!r} is pure: it takes no delta, got delta={delta!r}")


def checked_copy(W: NDArray[Any], dim: int, *sources: RealEntropy) -> NDArray[np.float64]:
    """Check the entropy sources and return a checked copy of the input, as (n, dim) rows.

    The checked copy is what is released: the caller cannot change it afterwards.
    """
    for entropy in sources:
        require_entropy(entropy)
    batch, _ = as_batch(np.array(W, order="C"), dim)
    return batch


def require_entropy(entropy: RealEntropy) -> None:
    """Reject any substitute for the operating system's randomness on the path of a report."""
    if type(entropy) is not Entropy and type(entropy) is not RecordEntropy:
        raise TypeError(
            f"a report is drawn from offaxis.sampling.entropy.Entropy only, or in bulk jobs from a "
            f"RecordEntropy, got {type(entropy).__name__}; for seeded research use offaxis.simulate"
        )


# ---- Domains


@dataclass(frozen=True)
class Ball:
    """The ℓp ball ``{w in R^dim : ‖w‖_p <= radius}``, p = 1 or 2; diameter 2·radius."""

    dim: int
    radius: float
    order: Literal[1, 2]

    def __post_init__(self) -> None:
        """Reject another norm: rows would be clipped by a wrong one."""
        if self.order not in (1, 2):
            raise InvalidInput(f"the norm of a ball is 1 or 2, got {self.order!r}")

    def project(self, W: A) -> A:
        """Shrink every row radially onto the ball; rows inside it are unchanged.

        Each row depends on itself alone: one person's data never moves another person's vector.
        """
        norms = row_norms(W, self.order)
        share = self.radius / namespace(W).where(norms < self.radius, self.radius, norms)
        projected: A = W * share[:, None]
        # Below this share, the norm or the share is no longer a normal number.
        extreme = ~(share > extremes(W).share)
        if extreme.any():
            unit, _ = _rescale_safely(W[extreme])
            onto = unit * (self.radius / row_norms(unit, self.order)[:, None])
            projected = with_rows(projected, extreme, onto)
        return projected


@dataclass(frozen=True)
class Sphere:
    """The directions of R^dim; ``radius`` is only the scale of the output."""

    dim: int
    radius: float

    def directions(self, W: A) -> A:
        """Return unit directions; a zero row stays zero. The work is the same for every row.

        A tiny row is rescaled before its norm is computed, never divided by a floor: otherwise the
        length of the result would reveal it.
        """
        unit, peak = _rescale_safely(W)
        lengths = namespace(W).where(peak > 0, row_norms(unit, 2)[:, None], 1.0)
        directions: A = unit / lengths
        return directions


@dataclass(frozen=True)
class Box:
    """The box ``{w in R^dim : |w_i| <= radius}``."""

    dim: int
    radius: float

    def project(self, W: A) -> A:
        """Clip every coordinate separately."""
        clipped: A = namespace(W).clip(W, -self.radius, self.radius)
        return clipped


@dataclass(frozen=True)
class FiniteSet:
    """The symbols 0 … size-1."""

    size: int


Domain = Ball | Sphere | Box | FiniteSet


def opposite_poles(dim: int, radius: float) -> tuple[Vectors, Vectors]:
    """Return ±radius along the first axis: two vectors of a ball at the largest distance."""
    pole = np.zeros(dim)
    pole[0] = radius
    return pole, -pole


class _Extremes(NamedTuple):
    """Limits of fast arithmetic: the smallest share clipping keeps, norms with safe squares."""

    share: float
    low: float
    high: float
    zero: float


_DOUBLE: Final = _Extremes(1e-280, 1e-140, 1e140, 0.0)
_DOUBLE_ON_DEVICE: Final = _DOUBLE._replace(zero=2.0**-1022)
_SINGLE_ON_DEVICE: Final = _Extremes(1e-30, 1e-17, 1e17, 2.0**-126)


def extremes(W: Any) -> _Extremes:
    """Return the limits of fast arithmetic for an array's dtype and library."""
    if isinstance(W, np.ndarray):
        return _DOUBLE
    return _DOUBLE_ON_DEVICE if W.dtype.itemsize == 8 else _SINGLE_ON_DEVICE


def _rescale_safely(W: A) -> tuple[A, A]:
    """Divide each row by its largest magnitude, so that its norm cannot over- or underflow."""
    xp = namespace(W)
    peak = xp.max(xp.abs(W), axis=1, keepdims=True)
    positive = peak > 0
    # Two steps: 1 / peak itself overflows for subnormal rows.
    _, exponent = xp.frexp(xp.where(positive, peak, 1.0))
    unit = xp.ldexp(W, -exponent)
    scale = xp.where(positive, xp.max(xp.abs(unit), axis=1, keepdims=True), 1.0)
    return unit / scale, peak


# ---- Lattice: from real vectors to integers whose bound is checked in integers
#
# Float clipping leaves the ball by an ulp about half the time. Here an exact sum of integers has
# the last word, so the noise protects a bounded input without any appeal to floating point.

BOX_BOUND: Final = 1 << 20
"""R of the box: its half width in lattice steps."""


def onto_lattice(W: Vectors, ball: Ball, bound: int) -> NDArray[np.int64]:
    """Clip rows to the ball and truncate toward zero onto the lattice of step radius/bound.

    Returns integers with ``Σ|n_i| <= bound`` (p = 1) or ``Σ n_i² <= bound²`` (p = 2) in every row,
    for any finite W. Each row depends on itself alone.

    Raises
    ------
    InvalidInput
        If W is not finite. Nothing but the last check below stands between a float and the noise,
        so it is made in 64-bit integers, of every row, always.
    """
    allowed = bound**ball.order
    if bound < 1 or allowed * W.shape[1] >= 1 << 63:
        raise ValueError(f"a bound of {bound} cannot be checked in 64-bit integers")
    clipped = ball.project(W)
    if not np.isfinite(clipped).all():
        raise InvalidInput("a vector that is not finite cannot be mapped to the lattice")
    # Bounded as a float, so that no cast can wrap; inside the ball this changes nothing.
    steps = np.clip(np.trunc(clipped / ball.radius * bound), -bound, bound).astype(np.int64)
    for row in np.flatnonzero(_size(steps, ball.order) > allowed):
        _shrink(steps[row], ball.order, allowed)
    if (_size(steps, ball.order) > allowed).any():
        raise AssertionError("an encoded vector is outside the ball")
    return steps


def _size(steps: NDArray[np.int64], order: int) -> NDArray[np.int64]:
    """Return Σ|n_i|^order of every row, in integers."""
    size: NDArray[np.int64] = (np.abs(steps) if order == 1 else steps * steps).sum(axis=-1)
    return size


def _shrink(steps: NDArray[np.int64], order: int, allowed: int) -> None:
    """Take single steps off the largest entries of a row until it is inside the ball."""
    while _size(steps, order) > allowed:
        largest = int(np.argmax(np.abs(steps)))
        steps[largest] -= np.sign(steps[largest])


def onto_box(W: Vectors, box: Box) -> NDArray[np.int64]:
    """Clip every coordinate and truncate toward zero onto −R … R, R = 2**20, checked."""
    clipped = box.project(W)
    if not np.isfinite(clipped).all():
        raise InvalidInput("a vector that is not finite cannot be mapped to the lattice")
    steps = np.clip(np.trunc(clipped / box.radius * BOX_BOUND), -BOX_BOUND, BOX_BOUND)
    integers: NDArray[np.int64] = steps.astype(np.int64)
    if (np.abs(integers) > BOX_BOUND).any():
        raise AssertionError("an encoded vector is outside the box")
    return integers
