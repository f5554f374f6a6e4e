"""A randomizer of your own: what it must provide, and what offaxis then does with it.

Contract: its guarantee is what its author states. offaxis cannot prove it and says so wherever the
guarantee appears; :func:`offaxis.audit` can try to refute it.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, ClassVar, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from offaxis import plugins
from offaxis.errors import InvalidInput
from offaxis.privacy.guarantee import Guarantee
from offaxis.randomizers.base import Ball, Box, Domain, VectorParameters, opposite_poles
from offaxis.sampling.entropy import RealEntropy
from offaxis.vectors import Order, Vectors

WIRE_ID: Final = 255
"""The byte in the header of every report of a randomizer that is not part of offaxis."""


@dataclasses.dataclass(frozen=True)
class CustomRandomizer(VectorParameters):
    """Base class of a randomizer of vectors that is not part of offaxis.

    A subclass is a frozen dataclass. Its fields (``dim``, ``radius``, ``epsilon``, and its own
    numbers and texts) determine its guarantee and are written into release files. It sets ``kind``
    and provides

    - ``simulate``, to be compared with other mechanisms, evaluated and decoded in research;
    - ``report``, ``read`` and ``payload_size``, to make real reports. Without them ``privatize``
      refuses, as floating-point noise is not a report;
    - ``log_density``, if a posterior decoder or a white-box audit should use its law.

    Attributes
    ----------
    kind : str
        ``package.name``.
    order : {1, 2, "inf"}
        The norm of its domain: a ball, or a box for "inf". The radius is the public percentile of
        the norms of encoded vectors.
    unbiased : bool
        Whether E[observation | w] is w for every w of the domain.
    payload_size : int
        Bytes of one payload, the same for every input.

    Examples
    --------
    >>> from offaxis.randomizers import CustomRandomizer
    >>> class FloatLaplace(CustomRandomizer):  # for research: makes no reports
    ...     kind, order, unbiased = "acme.float-laplace", 1, True
    ...
    ...     def simulate(self, W, rng):
    ...         scale = 2 * self.radius / float(self.epsilon)
    ...         return self.domain.project(W) + rng.laplace(scale=scale, size=W.shape)
    >>> import offaxis
    >>> rng = np.random.default_rng(0)
    >>> head, public = rng.standard_normal((2, 6)), rng.standard_normal((1000, 6))
    >>> release = offaxis.fit(head, public, epsilon=5, mechanism=FloatLaplace)
    >>> offaxis.simulate(release, public[:10], rng).shape
    (10, 6)
    >>> release
    Release(acme.float-laplace (not part of offaxis), ε = 5, pure, per item, dimension 6, ...)
    """

    kind: ClassVar[str]
    wire_id: ClassVar[int] = WIRE_ID
    order: ClassVar[Order] = 2
    unbiased: ClassVar[bool] = False

    @property
    def resolution(self) -> float:
        """The largest change of a coordinate by rounding the input; 0 unless a subclass rounds."""
        return 0.0

    @property
    def domain(self) -> Domain:
        """The ball or box in which the guarantee holds."""
        if self.order == "inf":
            return Box(self.dim, self.radius)
        return Ball(self.dim, self.radius, self.order)

    @property
    def guarantee(self) -> Guarantee:
        """ε, and δ if there is a field ``delta``; unless a subclass states another one."""
        return Guarantee(self.epsilon, getattr(self, "delta", 0))

    def __init_subclass__(cls, **more: Any) -> None:
        """Check what the methods of a subclass return."""
        super().__init_subclass__(**more)
        for name, check in _CHECKS.items():
            if name in cls.__dict__:
                setattr(cls, name, _checked(cls.__dict__[name], check))

    @property
    def payload_size(self) -> int:
        """Bytes of one payload."""
        raise InvalidInput(_NO_REPORTS.format(self.kind, "payload_size"))

    def report(self, W: NDArray[Any], entropy: RealEntropy) -> list[bytes]:
        """Draw one exact payload per row of W, from ``entropy`` and nothing else."""
        raise InvalidInput(_NO_REPORTS.format(self.kind, "report"))

    def read(self, payloads: list[bytes]) -> Vectors:
        """Turn payloads into observations (n, dim), strictly."""
        raise InvalidInput(_NO_REPORTS.format(self.kind, "read"))

    def simulate(self, W: Vectors, rng: np.random.Generator) -> Vectors:
        """Draw observations of the rows of W in seeded floating point; never a report."""
        raise InvalidInput(f"{self.kind} has no simulation: give its class a method simulate")

    def log_density(self, V: Vectors, W: Vectors) -> Vectors:
        """Return log Pr[observation V_i | input W_i], up to a constant independent of W."""
        raise NotGiven(f"{self.kind} has no law that can be used: give its class log_density")

    def log_likelihood(self, payloads: list[bytes], W: Vectors) -> Vectors:
        """Return the log density of what is read from the payloads."""
        return self.log_density(self.read(payloads), W)

    def expected_squared_error(self) -> float:
        """Return E‖observation − w‖² for w on the boundary of the domain: an average of draws."""
        W = np.broadcast_to(self.worst_pair()[0], (_DRAWS, self.dim))
        V = self.simulate(np.array(W), np.random.default_rng(0))
        return float(np.square(V - W).sum(axis=1).mean())

    def worst_pair(self) -> tuple[Vectors, Vectors]:
        """Return two opposite poles of the ball, or corners of the box."""
        if isinstance(self.domain, Box):
            corner = np.full(self.dim, self.radius)
            return corner, -corner
        return opposite_poles(self.dim, self.radius)


class NotGiven(InvalidInput, NotImplementedError):
    """A randomizer of another package does not have an optional member."""


# ---- Checks of what a subclass returns


def _checked(method: Callable[..., Any], check: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def checked(self: CustomRandomizer, given: Any, *more: Any) -> Any:
        return check(self, given, method(self, given, *more))

    return checked


def _check_payloads(self: CustomRandomizer, W: Any, payloads: Any) -> list[bytes]:
    size = self.payload_size
    if len(payloads) != len(W) or not all(
        isinstance(part, bytes) and len(part) == size for part in payloads
    ):
        raise InvalidInput(
            f"{self.kind}.report must return one payload of {size} bytes per row: another length "
            f"would reveal something"
        )
    return list(payloads)


def _check_rows(self: CustomRandomizer, given: Any, found: Any) -> Vectors:
    rows, expected = np.asarray(found, dtype=np.float64), (len(given), self.dim)
    if rows.shape != expected or not np.isfinite(rows).all():
        shown = "values that are not finite" if rows.shape == expected else f"{rows.shape}"
        raise InvalidInput(
            f"{self.kind}.simulate and read must return one finite row per row, {expected}, got "
            f"{shown}"
        )
    return rows


def _check_density(self: CustomRandomizer, V: Any, found: Any) -> Vectors:
    density = np.asarray(found, dtype=np.float64)
    if density.shape != (len(V),) or np.isnan(density).any():
        raise InvalidInput(
            f"{self.kind}.log_density compares row i of V with row i of W and returns ({len(V)},) "
            f"numbers, got {density.shape}{' with NaN' if np.isnan(density).any() else ''}"
        )
    return density


_CHECKS: Final[dict[str, Callable[..., Any]]] = {
    "report": _check_payloads,
    "read": _check_rows,
    "simulate": _check_rows,
    "log_density": _check_density,
}

_C = TypeVar("_C", bound=type[Any])

_DRAWS: Final = 4_000

_NO_REPORTS: Final = (
    "{} makes no reports, only simulations: give its class report, read and payload_size (it has "
    "no {})"
)


def check_class(cls: Any) -> None:
    """Raise InvalidInput unless this is a class of randomizers of another package."""
    if not isinstance(cls, type):
        raise InvalidInput(f"register a class of randomizers, got {cls!r}")
    plugins.check_name(getattr(cls, "kind", None))
    if not dataclasses.is_dataclass(cls):
        raise InvalidInput(f"{cls.__name__} must be a frozen dataclass")
    if not cls.__dataclass_params__.frozen:  # type: ignore[attr-defined]
        raise InvalidInput(f"{cls.__name__} must be a frozen dataclass: a release never changes")
    if not issubclass(cls, CustomRandomizer):
        raise InvalidInput(f"{cls.__name__} must be a subclass of CustomRandomizer")
    if cls.wire_id != WIRE_ID:
        raise InvalidInput(f"{cls.__name__}.wire_id must be {WIRE_ID}")
    if cls.order not in (1, 2, "inf") or isinstance(cls.order, bool):
        raise InvalidInput(f"{cls.__name__}.order must be 1, 2 or 'inf', got {cls.order!r}")


def register(cls: _C) -> _C:
    """Make a class of randomizers known by its kind in this process; a decorator.

    Then ``fit(mechanism=kind)`` finds it, and release files with it can be loaded. An installed
    package names it as an entry point of ``offaxis.randomizers`` instead (:mod:`offaxis.plugins`).

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> from offaxis.randomizers import CustomRandomizer, register
    >>> @register
    ... @dataclass(frozen=True)
    ... class Nothing(CustomRandomizer):
    ...     kind = "acme.nothing"
    ...
    ...     def simulate(self, W, rng):
    ...         return np.zeros_like(W)
    >>> import offaxis
    >>> public = np.random.default_rng(0).standard_normal((100, 3))
    >>> release = offaxis.fit(
    ...     None, public, epsilon=1, reshaping="none", mechanism="acme.nothing"
    ... )
    >>> release.save("nothing.release")
    >>> offaxis.load("nothing.release") == release
    True
    """
    check_class(cls)
    plugins.add("randomizers", cls.kind, cls)
    return cls
